"""Labeled brackets, against a definition on nested lists that shares no code with the scorer."""

import ast
import gzip
import random
import re
from pathlib import Path
from typing import Any

import pytest

from multihead.errors import UserError
from multihead.evaluation.brackets import BracketCounts, compare_trees, score_trees
from multihead.text.constituency_trees import Tree, read_trees

TREES = Path(__file__).parents[4] / "shared" / "data" / "trees" / "valid.ptb.gz"

CAT = "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .)))"


def tree_of(line: str) -> Tree:
    return next(read_trees([line]))


def compare(predicted: str, reference: str) -> BracketCounts:
    return compare_trees(tree_of(predicted), tree_of(reference))


# The definition


def nested(line: str) -> list[Any]:
    """Return a tree as lists of a label and children."""
    written = re.sub(r"\(|[^\s()]+|\)", lambda m: {"(": "[", ")": "],"}.get(m[0]) or f"{m[0]!r},", line)
    tree: list[Any] = ast.literal_eval(written)[0]
    return tree


def leaves(tree: list[Any]) -> list[list[Any]]:
    return [tree] if isinstance(tree[1], str) else [leaf for child in tree[1:] for leaf in leaves(child)]


def defined_counts(predicted: list[Any], reference: list[Any]) -> tuple[int, int, int]:
    """Return the numbers of correct, predicted and reference brackets by the rules of EVALB."""
    counted = [tag not in (",", ".", ":", "``", "''") for tag, _ in leaves(reference)]

    def brackets(tree: list[Any], start: int) -> list[tuple[str, tuple[int, ...]]]:
        if isinstance(tree[1], str):
            return []
        covered = tuple(n for n in range(start, start + len(leaves(tree))) if counted[n])
        label = re.sub("[-=|].*", "", tree[0]).replace("PRT", "ADVP")
        found = [(label, covered)] if covered and tree[0] != "ROOT" else []
        for child in tree[1:]:
            found += brackets(child, start)
            start += len(leaves(child))
        return found

    ours, theirs = brackets(predicted, 0), brackets(reference, 0)
    rest, correct = list(theirs), 0
    for bracket in ours:
        if bracket in rest:
            rest.remove(bracket)
            correct += 1
    return correct, len(ours), len(theirs)


def write(tree: list[Any]) -> str:
    children = [child if isinstance(child, str) else write(child) for child in tree[1:]]
    return f"({tree[0]} {' '.join(children)})"


def edit(tree: list[Any], rng: random.Random) -> list[Any]:
    """Return a tree over the same words, some of whose brackets were relabeled, removed, added or split."""
    if isinstance(tree[1], str):
        tag = rng.choice(["NN", ",", "."]) if rng.random() < 0.05 else tree[0]
        return [tag, tree[1]]
    children = [edit(child, rng) for child in tree[1:]]
    label, roll = tree[0], rng.random()
    if tree[0] == "ROOT":
        return [label, *children]
    if roll < 0.1:
        label = rng.choice(["NP", "VP", "PRT", "ADVP"])
    elif roll < 0.2:
        children = [["X", *children]]
    elif roll < 0.3:
        cut = rng.randrange(len(children))
        children = [[label, *children[: cut + 1]], *children[cut + 1 :]]
    flat = [
        grandchild
        for child in children
        for grandchild in (child[1:] if rng.random() < 0.1 and not isinstance(child[1], str) else [child])
    ]
    return [label, *flat]


def test_counts_equal_the_definition_on_1000_real_trees_with_random_edits() -> None:
    if not TREES.exists():
        pytest.skip(f"needs real trees in {TREES.parent.name}/")
    rng = random.Random(1)
    with gzip.open(TREES, "rt", encoding="utf-8") as file:
        lines = [next(file).strip() for _ in range(1000)]
    for line in lines:
        reference = nested(line)
        predicted = edit(reference, rng)
        counts = compare(write(predicted), line)
        assert (counts.correct, counts.predicted, counts.reference) == defined_counts(predicted, reference)


# Examples


def test_a_tree_agrees_with_itself() -> None:
    counts = compare(CAT, CAT)
    assert (counts.f1, counts.exact_match, counts.reference) == (100, 100, 5)


def test_precision_and_recall_are_shares_of_each_side() -> None:
    counts = compare("(ROOT (S (NP (DT The) (NN cat)) (VBD sat) (IN on) (DT the) (NN mat) (. .)))", CAT)
    assert (counts.precision, counts.recall, counts.exact_match) == (100, 40, 0)
    assert counts.f1 == pytest.approx(2 * 100 * 40 / 140)


def test_where_punctuation_is_attached_does_not_count() -> None:
    moved = "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat) (. .))))))"
    assert compare(moved, CAT).exact_match == 100


def test_a_wrong_part_of_speech_does_not_count() -> None:
    assert compare(CAT.replace("NN", "."), CAT).exact_match == 100


def test_adverb_phrases_and_particles_count_as_the_same() -> None:
    assert compare("(ROOT (VP (VB go) (PRT (RP on))))", "(ROOT (VP (VB go) (ADVP (RB on))))").exact_match == 100


def test_equal_brackets_are_matched_once_each() -> None:
    counts = compare("(ROOT (NP (NP (NP (NN a)))))", "(ROOT (NP (NP (NN a))))")
    assert (counts.correct, counts.predicted, counts.reference) == (2, 3, 2)


def test_sentences_count_by_their_brackets() -> None:
    half = "(ROOT (S (NN a) (NN b)))"
    counts = score_trees([(tree_of(CAT), tree_of(CAT)), (tree_of(half.replace("S", "NP")), tree_of(half))])
    assert (counts.correct, counts.reference, counts.exact, counts.sentences) == (5, 6, 1, 2)


def test_trees_of_different_words_are_refused() -> None:
    with pytest.raises(UserError, match="a tree of 1 words cannot be scored against one of 7"):
        compare("(ROOT (NN a))", CAT)
