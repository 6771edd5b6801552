"""How good a translation is, through sacreBLEU."""

from collections.abc import Sequence

# Languages that are written without spaces; sacreBLEU's own tokenizers for some of them need further packages.
_TOKENIZERS = {"zh": "zh", **dict.fromkeys(["ja", "ko", "th", "lo", "km", "my"], "char")}


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_lang: str = "") -> float:
    """Corpus BLEU of cased, detokenised text."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=_TOKENIZERS.get(target_lang, "13a"))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)
