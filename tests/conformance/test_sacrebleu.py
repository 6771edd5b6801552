"""Our scores beside those that others publish: sacreBLEU called directly, multi-bleu by its formula, Perl itself."""

import gzip
import math
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import sacrebleu

from multihead.evaluation.metrics import bleu, paper_words, scores, split_compounds

REFERENCES = [
    "Der Fahrer der U-Bahn sagt „Guten Tag“ und hält nicht am Bahnhof.",
    "Ein Hund, der einen braun-weißen Mantel trägt, läuft im Schnee.",
    "Zwei Männer sitzen in der Küche und essen Suppe.",
]
HYPOTHESES = [
    "Der Fahrer der U-Bahn sagt “Guten Tag“ und hält am Bahnhof.",
    "Ein Hund, der einen braun-weißen Mantel trägt, rennt im Schnee im Schnee.",
    "Zwei Männer sitzen und essen Suppe in der Küche.",
]


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. (2002) with one reference: clipped precisions of 1 to 4 words, and the brevity penalty."""
    pairs = [(ours.split(), theirs.split()) for ours, theirs in zip(hypotheses, references, strict=True)]
    logarithms = []
    for n in (1, 2, 3, 4):
        counted = [(ngrams(ours, n), ngrams(theirs, n)) for ours, theirs in pairs]
        right = sum((ours & theirs).total() for ours, theirs in counted)
        logarithms.append(math.log(right / sum(ours.total() for ours, _ in counted)))
    length, reference_length = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return 100 * math.exp(min(0, 1 - reference_length / length) + sum(logarithms) / 4)


def ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def test_bleu_is_that_of_sacrebleu() -> None:
    assert bleu(HYPOTHESES, REFERENCES, "de") == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score


def test_chrf_is_that_of_sacrebleu() -> None:
    assert scores(HYPOTHESES, REFERENCES, "de")[1].value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_chinese_is_cut_as_sacrebleu_cuts_it() -> None:
    texts = ["我喜欢你们的猫和狗。"], ["我喜欢你们的猫和鸟。"]
    assert bleu(*texts, "zh") == sacrebleu.corpus_bleu(texts[0], [texts[1]], tokenize="zh").score


def test_the_signature_of_bleu_is_that_of_sacrebleu() -> None:
    version = sacrebleu.__version__
    signature = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert scores(HYPOTHESES, REFERENCES, "de")[0].signature == signature


def test_the_papers_bleu_by_hand() -> None:
    """`a-b` is three words, so there are 7 in each line; of 7, 6, 5 and 4 n-grams 6, 5, 4 and 3 are right."""
    score = scores(["a-b c d e x"], ["a-b c d e f"], "de")[2]
    assert score.value == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4))


def test_the_papers_bleu_is_multi_bleu_of_its_words() -> None:
    expected = multi_bleu(paper_words(HYPOTHESES, "de"), paper_words(REFERENCES, "de"))
    assert scores(HYPOTHESES, REFERENCES, "de")[2].value == pytest.approx(expected, rel=1e-12)


def test_a_short_translation_pays_as_in_multi_bleu() -> None:
    short = [line.rsplit(" ", 3)[0] for line in REFERENCES]
    expected = multi_bleu(paper_words(short, "de"), paper_words(REFERENCES, "de"))
    assert scores(short, REFERENCES, "de")[2].value == pytest.approx(expected, rel=1e-12)


def test_multi_bleu_does_not_smooth() -> None:
    """Two words in a row are right, never three: sacreBLEU's own BLEU would still give something."""
    assert scores(["a b x c d"], ["a b y c d"], "de")[2].value == 0


def test_compounds_are_split_as_perl_splits_them() -> None:
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("Perl is not on this machine")
    rng = random.Random(1)
    lines = ["".join(rng.choice("ab-- ßé漢-") for _ in range(20)) for _ in range(200)]
    command = [perl, "-ple", r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"]
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, check=True, encoding="utf-8")
    assert run.stdout.split("\n")[:200] == [split_compounds(line) for line in lines]


def test_the_papers_bleu_of_real_text_is_multi_bleu_too(multi30k: Path) -> None:
    with gzip.open(multi30k / "test_2016_flickr.de.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    changed = [line.replace(" einem ", " dem ") for line in lines]
    expected = multi_bleu(paper_words(changed, "de"), paper_words(lines, "de"))
    assert scores(changed, lines, "de")[2].value == pytest.approx(expected, rel=1e-12)
