"""Dependency trees from constituency trees."""

import gzip
from itertools import islice
from pathlib import Path

import pytest

from multihead.text.constituency_trees import Tree, read_trees
from multihead.text.dependency_trees import parse_heads
from multihead.text.head_rules import dependency_heads, dependency_line

TREES = Path(__file__).parents[4] / "shared" / "data" / "trees" / "valid.ptb.gz"


def governors(line: str) -> dict[str, str | None]:
    """Each word and the word that it depends on; None for the root."""
    tree = next(read_trees([line]))
    return {
        word: tree.words[head - 1] if head else None
        for word, head in zip(tree.words, dependency_heads(tree), strict=True)
    }


def test_a_sentence_by_hand() -> None:
    line = "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT a) (JJ red) (NN mat)))) (. .)))"
    expected = {"The": "cat", "cat": "sat", "sat": None, "on": "sat", "a": "mat", "red": "mat", "mat": "on", ".": "sat"}
    assert governors(line) == expected


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("(ROOT (NP (NP (DT a) (NN cup)) (PP (IN of) (NP (NN tea)))))", "cup"),  # the first noun phrase
        ("(ROOT (NP (NN coffee) (NN cup)))", "cup"),  # the last noun
        ("(ROOT (SBAR (IN that) (S (NP (PRP it)) (VP (VBZ is)))))", "that"),
        ("(ROOT (ADVP (RB very) (RB soon)))", "soon"),  # searched from the right
        ("(ROOT (FOO (. !) (UH oh) (, ,)))", "oh"),  # a label without a rule: the first word that is no mark
        ("(ROOT (FOO (. !)))", "!"),
    ],
)
def test_the_head_of_a_constituent_follows_its_label(line: str, head: str) -> None:
    assert [word for word, governor in governors(line).items() if governor is None] == [head]


def links_out_of(tree: Tree, heads: list[int], start: int, end: int) -> int:
    """How many words between two positions depend on a word that is not there."""
    return sum(not start < heads[word] <= end for word in range(start, end))


def test_on_real_trees_one_word_of_each_constituent_depends_on_a_word_outside() -> None:
    if not TREES.exists():
        pytest.skip(f"needs real trees in {TREES.parent.name}/")
    with gzip.open(TREES, "rt", encoding="utf-8") as file:
        trees = list(read_trees(list(islice(file, 1000))))
    for tree in trees:
        heads = dependency_heads(tree)
        parse_heads(" ".join("w" for _ in heads) + "\t" + " ".join(map(str, heads)))  # refuses what is no tree
        assert heads.count(0) == 1
        assert {links_out_of(tree, heads, start, end) for _, start, end in tree.spans} <= {1}


def test_sentences_of_a_line_are_written_as_a_model_with_tree_positions_reads_them() -> None:
    line = dependency_line(list(read_trees(["(ROOT (S (NP (PRP I)) (VP (VBP run)) (. .)))", "(ROOT (NP (NN tea)))"])))
    assert line == "I run . tea\t2 0 2 0"
    assert parse_heads(line) == [2, 0, 2, 0]
