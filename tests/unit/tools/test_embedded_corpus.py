"""The grammar of English and German that generated the embedded corpus."""

import gzip
import hashlib
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from multihead.data.embedded_corpus import FOLDER, SHA256, embedded_pairs
from tools.embedded_corpus.clauses import (
    ACC,
    DAT,
    NOM,
    Clause,
    Nominal,
    Noun,
    Phrase,
    Verb,
    clock,
    noun_phrase,
    number,
    prepositional,
    with_ending,
)
from tools.embedded_corpus.grammar import DETERMINER, GROUPS, KINDS, PRONOUN, Split, sentence_pairs
from tools.embedded_corpus.lexicon import CONSTRUCTIONS
from tools.embedded_corpus.write import content, write_corpus

TRAIN = sentence_pairs("train")
ICH, DU, ER, SIE, WIR = (PRONOUN[name] for name in ("I", "you", "m", "f", "we"))
TODAY, YESTERDAY = Phrase("today", "heute"), Phrase("yesterday", "gestern")


def verb(english: str) -> Verb:
    verbs = chain.from_iterable(GROUPS.values())
    return next(verb for verb in verbs if f"{verb.english[0]} {verb.english[3]}".strip() == english)


def noun(english: str) -> Noun:
    nouns = chain.from_iterable(nouns for _, nouns in KINDS.values())
    return next(noun for noun in nouns if noun.english == english)


def phrase(determiner: str, english: str, adjective: str = "", plural: bool = False) -> Nominal:
    return noun_phrase(DETERMINER[determiner], adjective, noun(english), plural)


# The files of the package


@pytest.mark.parametrize("split", SHA256)
def test_the_grammar_generates_the_text_of_the_package(split: Split) -> None:
    assert sentence_pairs(split) == embedded_pairs(split)
    assert hashlib.sha256(content(split)).hexdigest() == SHA256[split]


def test_writing_the_corpus_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_corpus(tmp_path / name)
    for split in SHA256:
        one, two = ((tmp_path / name / f"{split}.tsv.gz").read_bytes() for name in ("one", "two"))
        assert one == two
        assert gzip.decompress(one) == gzip.decompress((FOLDER / f"{split}.tsv.gz").read_bytes())


def test_no_construction_makes_more_than_eight_per_cent() -> None:
    shares = [int(line.split(" | ")[0]) for line in CONSTRUCTIONS.strip().split("\n")]
    assert max(shares) / sum(shares) < 0.08


# Numbers and times


@pytest.mark.parametrize(
    ("n", "english", "german"),
    [
        (2, "two", "zwei"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (36, "thirty-six", "sechsunddreißig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (100, "a hundred", "hundert"),
    ],
)
def test_numbers_name_the_ones_before_the_tens_in_german(n: int, english: str, german: str) -> None:
    assert number(n) == Phrase(english, german)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 0, "seven o'clock", "sieben Uhr"),
        (3, 30, "half past three", "halb vier"),
        (12, 30, "half past twelve", "halb eins"),
        (4, 45, "quarter to five", "Viertel vor fünf"),
        (4, 15, "quarter past four", "Viertel nach vier"),
        (6, 20, "twenty past six", "zwanzig nach sechs"),
        (12, 50, "ten to one", "zehn vor eins"),
        (6, 25, "twenty-five past six", "fünf vor halb sieben"),
        (6, 35, "twenty-five to seven", "fünf nach halb sieben"),
    ],
)
def test_the_half_hour_looks_back_in_english_and_ahead_in_german(
    hour: int, minute: int, english: str, german: str
) -> None:
    assert clock(hour, minute) == Phrase(english, german)


# Nouns and what stands before them


@pytest.mark.parametrize(
    ("determiner", "english", "forms"),
    [
        ("the", "man", ["der alte Mann", "den alten Mann", "dem alten Mann", "des alten Mannes"]),
        ("the", "woman", ["die alte Frau", "die alte Frau", "der alten Frau", "der alten Frau"]),
        ("the", "horse", ["das alte Pferd", "das alte Pferd", "dem alten Pferd", "des alten Pferdes"]),
        (
            "this",
            "man",
            ["dieser alte Mann", "diesen alten Mann", "diesem alten Mann", "dieses alten Mannes"],
        ),
        ("a", "man", ["ein alter Mann", "einen alten Mann", "einem alten Mann", "eines alten Mannes"]),
        ("a", "woman", ["eine alte Frau", "eine alte Frau", "einer alten Frau", "einer alten Frau"]),
        ("a", "horse", ["ein altes Pferd", "ein altes Pferd", "einem alten Pferd", "eines alten Pferdes"]),
        (
            "our",
            "man",
            ["unser alter Mann", "unseren alten Mann", "unserem alten Mann", "unseres alten Mannes"],
        ),
        ("bare", "juice", ["alter Saft", "alten Saft", "altem Saft", "alten Saftes"]),
        ("bare", "milk", ["alte Milch", "alte Milch", "alter Milch", "alter Milch"]),
        ("bare", "water", ["altes Wasser", "altes Wasser", "altem Wasser", "alten Wassers"]),
    ],
)
def test_the_adjective_agrees_with_the_rest(determiner: str, english: str, forms: list[str]) -> None:
    assert list(phrase(determiner, english, "old").german) == forms


@pytest.mark.parametrize(
    ("determiner", "forms"),
    [
        ("the", ["die alten Bücher", "die alten Bücher", "den alten Büchern", "der alten Bücher"]),
        ("my", ["meine alten Bücher", "meine alten Bücher", "meinen alten Büchern", "meiner alten Bücher"]),
        ("bare", ["alte Bücher", "alte Bücher", "alten Büchern", "alter Bücher"]),
        ("many", ["viele alte Bücher", "viele alte Bücher", "vielen alten Büchern", "vieler alter Bücher"]),
    ],
)
def test_the_plural_has_endings_of_its_own(determiner: str, forms: list[str]) -> None:
    assert list(phrase(determiner, "book", "old", plural=True).german) == forms


@pytest.mark.parametrize(
    ("english", "dative"),
    [("child", "den Kindern"), ("woman", "den Frauen"), ("car", "den Autos"), ("teacher", "den Lehrern")],
)
def test_the_dative_plural_ends_in_n_unless_the_plural_ends_in_n_or_s(english: str, dative: str) -> None:
    assert phrase("the", english, plural=True).german[DAT] == dative


@pytest.mark.parametrize("english", ["boy", "student", "neighbour", "bear"])  # codespell:ignore neighbour
def test_weak_masculines_end_in_n_in_all_but_the_nominative(english: str) -> None:
    nominative, *others = noun(english).singular
    assert not nominative.endswith("n") and all(form.endswith("n") for form in others)


@pytest.mark.parametrize(("adjective", "german"), [("expensive", "teure"), ("dark", "dunkle")])
def test_some_adjectives_lose_an_e_before_their_ending(adjective: str, german: str) -> None:
    assert phrase("the", "lamp", adjective).german[NOM] == f"die {german} Lampe"


def test_an_precedes_a_vowel() -> None:
    assert [phrase("a", "apple").english, phrase("a", "apple", "sweet").english] == [
        "an apple",
        "a sweet apple",
    ]


@pytest.mark.parametrize(
    ("preposition", "german", "together"),
    [
        ("in", "dem Garten", "im Garten"),
        ("in", "das Kino", "ins Kino"),
        ("zu", "der Haltestelle", "zur Haltestelle"),
        ("von", "dem alten Lehrer", "vom alten Lehrer"),
        ("auf", "den Tisch", "auf den Tisch"),
        ("in", "diesem Garten", "in diesem Garten"),
    ],
)
def test_a_preposition_contracts_with_the_article(preposition: str, german: str, together: str) -> None:
    assert prepositional(preposition, german) == together


# Verbs


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("buy", ["kaufe", "kaufst", "kauft", "kaufen"]),
        ("read", ["lese", "liest", "liest", "lesen"]),
        ("wait", ["warte", "wartest", "wartet", "warten"]),
        ("open", ["öffne", "öffnest", "öffnet", "öffnen"]),
        ("feed", ["füttere", "fütterst", "füttert", "füttern"]),
        ("invite", ["lade", "lädst", "lädt", "laden"]),
        ("like", ["mag", "magst", "mag", "mögen"]),
    ],
)
def test_verbs_follow_the_rules_or_what_the_lexicon_tells(english: str, forms: list[str]) -> None:
    assert list(verb(english).present[:4]) == forms


@pytest.mark.parametrize(
    ("english", "participle"),
    [
        ("buy", "gekauft"),
        ("visit", "besucht"),
        ("repair", "repariert"),
        ("work for", "gearbeitet"),
        ("eat", "gegessen"),
    ],
)
def test_the_participle_has_ge_unless_there_is_a_prefix_or_ieren(english: str, participle: str) -> None:
    assert verb(english).german[2] == participle


@pytest.mark.parametrize(
    ("word", "ending", "result"),
    [
        ("wash", "s", "washes"),
        ("try", "s", "tries"),
        ("play", "s", "plays"),
        ("carry", "ed", "carried"),
        ("plan", "ed", "planned"),
        ("invite", "ed", "invited"),
        ("write", "ing", "writing"),
        ("run", "ing", "running"),
        ("visit", "ing", "visiting"),
    ],
)
def test_english_endings_change_the_spelling(word: str, ending: str, result: str) -> None:
    assert with_ending(word, ending) == result


def test_a_separable_verb_leaves_its_prefix_at_the_end_of_a_main_clause() -> None:
    clause = Clause(ER, verb("get up"), "habit", when=Phrase("at seven o'clock", "um sieben Uhr"))
    assert (f"{clause}", f"{clause:2}") == ("he gets up at seven o'clock", "er steht um sieben Uhr auf")


def test_a_separable_verb_is_one_word_at_the_end_of_a_subordinate_clause() -> None:
    assert f"weil {Clause(ER, verb('get up'), 'habit'):end}" == "weil er aufsteht"


def test_a_separable_verb_embraces_the_ge_of_its_participle() -> None:
    assert f"{Clause(ER, verb('get up'), 'past'):2}" == "er ist aufgestanden"


def test_a_separable_verb_embraces_the_zu_of_its_infinitive() -> None:
    assert f"{Clause(ER, verb('get up'), 'future'):zu}" == "aufzustehen"


def test_an_inseparable_companion_stands_like_a_prefix_but_alone() -> None:
    clause = Clause(SIE, verb("play the piano"), "present")
    assert f"{clause:2}, dass {clause:end}" == "sie spielt Klavier, dass sie Klavier spielt"
    assert f"{clause:zu}" == "Klavier zu spielen"


# Word order


def test_a_fronted_adverbial_puts_the_verb_second() -> None:
    clause = Clause(phrase("the", "man", "old"), verb("buy"), "present", phrase("a", "bicycle", "red"))
    assert f"heute {clause:1}" == "heute kauft der alte Mann ein rotes Fahrrad"


def test_a_question_begins_with_the_verb() -> None:
    clause = Clause(SIE, verb("buy"), "past", phrase("the", "bicycle"))
    assert (f"{clause:?}", f"{clause:1}") == ("did she buy the bicycle", "hat sie das Fahrrad gekauft")


def test_a_modal_and_its_infinitive_embrace_the_rest() -> None:
    clause = Clause(SIE, verb("read"), "want", phrase("the", "book"), when=TODAY)
    assert (f"{clause}", f"{clause:2}") == (
        "she wants to read the book today",
        "sie will heute das Buch lesen",
    )


def test_the_simple_past_becomes_the_perfect() -> None:
    clause = Clause(WIR, verb("read"), "past", phrase("the", "letter"), when=YESTERDAY)
    assert f"{clause}" == "we read the letter yesterday"
    assert f"{clause:2}" == "wir haben gestern den Brief gelesen"


def test_the_finite_verb_comes_last_in_a_subordinate_clause() -> None:
    clause = Clause(WIR, verb("read"), "past", phrase("the", "letter"), when=YESTERDAY)
    assert f"{clause:end}" == "wir gestern den Brief gelesen haben"


def test_a_pronoun_comes_before_the_time_and_a_noun_after_it() -> None:
    pronoun = Clause(ICH, verb("visit"), "present", ER, when=TODAY)
    noun = replace(pronoun, object=phrase("my", "uncle"))
    assert (f"{pronoun:2}", f"{noun:2}") == ("ich besuche ihn heute", "ich besuche heute meinen Onkel")


def test_the_recipient_is_a_dative_before_the_accusative() -> None:
    clause = Clause(SIE, verb("give"), "present", phrase("a", "apple"), phrase("the", "child"))
    assert f"{clause}" == "she is giving the child an apple"
    assert f"{clause:2}" == "sie gibt dem Kind einen Apfel"


def test_some_verbs_govern_the_dative() -> None:
    clause = Clause(DU, verb("help"), "present", phrase("my", "colleague"))
    assert f"{clause:2}" == "du hilfst meinem Kollegen"


def test_some_verbs_govern_a_preposition() -> None:
    assert f"{Clause(DU, verb('look after'), 'present', ER):2}" == "du passt auf ihn auf"


def test_company_comes_before_the_place_in_german_and_behind_it_in_english() -> None:
    where = (Phrase("by train", "mit dem Zug"), Phrase("to Berlin", "nach Berlin"))
    clause = Clause(WIR, verb("travel"), "present", when=TODAY, where=where)
    assert f"{clause}" == "we are travelling to Berlin by train today"
    assert f"{clause:2}" == "wir fahren heute mit dem Zug nach Berlin"


# Negation


def test_an_indefinite_object_is_negated_by_kein() -> None:
    clause = Clause(ER, verb("buy"), "present", phrase("not a", "bicycle", "red"), when=TODAY, negated=True)
    assert f"{clause}" == "he is not buying a red bicycle today"
    assert f"{clause:2}" == "er kauft heute kein rotes Fahrrad"


def test_nicht_comes_after_a_definite_object_and_the_time() -> None:
    clause = Clause(ER, verb("buy"), "past", phrase("the", "bicycle"), when=YESTERDAY, negated=True)
    assert f"{clause}" == "he did not buy the bicycle yesterday"
    assert f"{clause:2}" == "er hat das Fahrrad gestern nicht gekauft"


def test_nicht_comes_before_a_preposition() -> None:
    clause = Clause(ER, verb("wait for"), "present", phrase("the", "bus"), when=TODAY, negated=True)
    assert f"{clause:2}" == "er wartet heute nicht auf den Bus"


def test_nicht_comes_before_what_closes_the_clause() -> None:
    assert f"{Clause(ER, verb('go shopping'), 'can', negated=True):2}" == "er kann nicht einkaufen gehen"


def test_english_negates_with_do() -> None:
    clause = Clause(ER, verb("like"), "habit", phrase("the", "soup"), negated=True)
    assert f"{clause}" == "he does not like the soup"


# Words that depend on others


def test_to_put_is_legen_or_stellen_as_the_thing_lies_or_stands() -> None:
    german = {verb.kinds: verb.german[1] for verb in GROUPS["put"]}
    assert german == {("lying",): "legen", ("standing",): "stellen"}


@pytest.mark.parametrize(("english", "german"), [("people", "besuchen"), ("building", "besichtigen")])
def test_to_visit_is_besuchen_for_people_and_besichtigen_for_buildings(english: str, german: str) -> None:
    [visit] = [verb for verb in GROUPS["deed"] if verb.english[0] == "visit" and english in verb.kinds]
    assert visit.german[1] == german


def test_accusative_pronouns_differ_from_the_nominative() -> None:
    assert [pronoun.german[ACC] for pronoun in (ICH, DU, ER, SIE, WIR)] == [
        "mich",
        "dich",
        "ihn",
        "sie",
        "uns",
    ]
