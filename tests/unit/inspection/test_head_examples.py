"""Examples of heads, on attention between words that is written by hand."""

import numpy as np
import pytest

from multihead.inspection.attention_maps import Array
from multihead.inspection.head_examples import HeadExample, ReadSentence, find_examples, word_attention

WORDS = "The old law will be perfect , but its use is new .".split()
TAGS = "DT JJ NN MD VB JJ , CC PRP$ NN VBZ JJ .".split()
HEADS = [3, 3, 4, 0, 4, 5, 4, 4, 10, 11, 4, 11, 4]


def weights(*links: tuple[int, int, float], n_heads: int = 1, head: int = 0) -> Array:
    """One layer in which the given links have these weights, and the rest of each row is on the full stop."""
    found = np.zeros((1, n_heads, len(WORDS), len(WORDS)), dtype=np.float32)
    for one, other, weight in links:
        found[0, head, one, other] = weight
    found[..., -1] += 1 - found.sum(axis=-1)
    return found


def examples(found: Array, *, trees: bool = True, language: str = "en", most: int = 3) -> dict[str, list[HeadExample]]:
    sentence = ReadSentence(
        number=7, words=WORDS, weights=found, tags=TAGS if trees else (), heads=HEADS if trees else ()
    )
    by_kind: dict[str, list[HeadExample]] = {"distance": [], "anaphora": [], "structure": []}
    for one in find_examples([sentence], language, most):
        by_kind[one.kind].append(one)
    return by_kind


def test_a_word_that_attends_far_away_is_a_dependency_over_distance() -> None:
    (found,) = examples(weights((2, 11, 0.6), (9, 11, 0.9), n_heads=2, head=1))["distance"]  # law, new; use is too near
    assert (found.layer, found.head, found.line) == (0, 1, 7)
    assert [(one, other, round(weight, 6)) for one, other, weight in found.links] == [(2, 11, 0.6)]
    assert found.as_text() == f"line 7, encoder 1.2: {' '.join(WORDS)}\n    law → new  0.60"


def test_what_every_word_attends_to_says_nothing() -> None:
    everyone = [(word, 11, 0.6) for word in range(len(WORDS))]
    assert not examples(weights(*everyone))["distance"]


@pytest.mark.parametrize(("trees", "antecedent"), [(True, 2), (False, 1)])
def test_a_pronoun_that_attends_to_an_earlier_noun_is_anaphora(trees: bool, antecedent: int) -> None:
    """Without parts of speech "old", which follows a determiner, passes for a noun, and "law" does not."""
    (found,) = examples(weights((8, 1, 0.3), (8, 2, 0.5)), trees=trees)["anaphora"]  # its: old, law
    assert [link[:2] for link in found.links] == [(8, antecedent)]


def test_a_pronoun_that_attends_to_a_later_noun_or_to_a_verb_is_none() -> None:
    assert not examples(weights((8, 9, 0.9), (8, 4, 0.9)))["anaphora"]
    assert not examples(weights((8, 2, 0.9)), language="xx")["anaphora"]  # whose pronouns are not known


def test_a_head_that_follows_the_tree_shows_structure() -> None:
    with_tree = weights((0, 2, 0.8), (5, 4, 0.9), (10, 3, 0.7), (6, 3, 0.9), (11, 3, 0.9), (7, 3, 0.6))
    (found,) = examples(with_tree)["structure"]
    # Not a neighbor (5, 4), not a mark (6), not a word that it does not depend on (11).
    assert [link[:2] for link in found.links] == [(0, 2), (7, 3), (10, 3)]


def test_each_head_shows_structure_once() -> None:
    links = (0, 2, 0.8), (10, 3, 0.7), (7, 3, 0.6)
    both = np.concatenate([weights(*links), weights(*links)], axis=1)
    sentences = [
        ReadSentence(number=number, words=[*WORDS[:-1], mark], weights=both, tags=TAGS, heads=HEADS)
        for number, mark in enumerate(".!?")
    ]
    found = [one for one in find_examples(sentences, "en", 5) if one.kind == "structure"]
    assert sorted(one.head for one in found) == [0, 1]


def test_a_sentence_is_shown_once_and_the_clearest_come_first() -> None:
    def sentence(number: int, weight: float, words: list[str]) -> ReadSentence:
        return ReadSentence(number=number, words=words, weights=weights((2, 11, weight)))

    other = ["Any", *WORDS[1:]]
    sentences = [sentence(1, 0.5, WORDS), sentence(2, 0.6, WORDS), sentence(3, 0.7, other), sentence(4, 0.4, other)]
    found = [one.line for one in find_examples(sentences, "en", 5) if one.kind == "distance"]
    assert found == [3, 2]


def test_attention_between_words_adds_columns_and_averages_rows() -> None:
    pieces = np.array(
        [[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.3, 0.1], [0.2, 0.2, 0.2, 0.4], [0, 0, 0, 1]], dtype=np.float32
    )
    # The first piece names a language, the last is the end symbol; the two between are one word each.
    found = word_attention(pieces, [-1, 0, 1], 2)
    np.testing.assert_allclose(found, [[0.1, 0.3], [0.2, 0.2]], atol=1e-7)
    found = word_attention(pieces, [0, 1, 1], 2)
    np.testing.assert_allclose(found, [[0.1, 0.5], [(0.5 + 0.2) / 2, (0.4 + 0.4) / 2]], atol=1e-7)
