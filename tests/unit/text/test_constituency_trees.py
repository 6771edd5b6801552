"""Constituency trees: reading treebank lines, and trees as sequences of tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.errors import UserError
from multihead.text.constituency_trees import (
    Span,
    Tree,
    bracketed,
    from_tags,
    read_tree,
    read_trees,
    simplified,
    to_tags,
)

CAT = (
    "(ROOT (S (NP-SBJ-1 (DT The) (NN cat)) (VP (VBD sat) (NP (-NONE- *T*-1)) "
    "(PP-LOC=2 (IN on) (NP (DT the) (NN mat)))) (. .)))"
)
CAT_WORDS = "The cat sat on the mat .".split()
CAT_TAGS = "(S(NP*DT *NN) (VP*VBD (PP*IN (NP*DT *NN))) *.)"


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> str:
    """Draw a treebank line."""

    def node(depth: int) -> str:
        if not depth or draw(st.booleans()):
            return f"({draw(st.sampled_from(['NN', 'DT', '.', '-LRB-']))} {draw(st.sampled_from(['a', 'Ö', '-LRB-']))})"
        children = [node(depth - 1) for _ in range(draw(st.integers(1, 3)))]
        return f"({draw(st.sampled_from(['NP', 'VP-SBJ', 'S']))} {' '.join(children)})"

    return f"(ROOT {node(depth)} {node(depth)})"


def only(line: str, keep_tags: bool = True) -> Tree:
    return next(read_trees([line], keep_tags))


def test_function_labels_traces_and_the_root_are_removed() -> None:
    assert bracketed(only(CAT)) == (
        "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .)))"
    )


def test_a_word_becomes_a_tag_with_the_brackets_around_it() -> None:
    assert only(CAT).words == CAT_WORDS
    assert to_tags(only(CAT)) == CAT_TAGS


def test_parts_of_speech_become_xx_unless_they_are_kept() -> None:
    tree = only(CAT, keep_tags=False)
    assert set(tree.tags) == {"XX"}
    assert to_tags(tree) == "(S(NP* *) (VP* (PP* (NP* *))) *)"


def test_escaped_brackets_are_brackets_in_the_text_and_escaped_in_the_tree() -> None:
    tree = only("( (NP (-LRB- -LRB-) (NN L2) (-RRB- -RRB-)) )")
    assert tree.words == ["(", "L2", ")"]
    assert bracketed(tree) == "(ROOT (NP (-LRB- -LRB-) (NN L2) (-RRB- -RRB-)))"


@given(trees())
def test_a_sequence_restores_its_tree(line: str) -> None:
    tree = only(line)
    assert from_tags(to_tags(tree), tree.words) == tree


@given(trees())
def test_a_written_tree_is_read_back(line: str) -> None:
    tree = only(line)
    assert simplified(read_tree(bracketed(tree))) == tree


@given(st.text("()*NPS "), st.integers(1, 5))
def test_any_sequence_is_repaired_into_a_tree_of_the_words(sequence: str, n_words: int) -> None:
    words = ["a"] * n_words
    tree = from_tags(sequence, words)
    assert tree.words == words and len(tree.tags) == n_words
    assert all(0 <= start < end <= n_words for _, start, end in tree.spans)
    assert simplified(read_tree(bracketed(tree))) == tree


def test_a_bracket_that_nothing_closes_ends_with_the_sentence() -> None:
    assert from_tags("(S(NP*DT *NN (VP*VBD", ["a", "b", "c"]).spans == [
        Span("S", 0, 3),
        Span("NP", 0, 3),
        Span("VP", 2, 3),
    ]


def test_a_bracket_that_nothing_opened_is_left_out() -> None:
    assert from_tags("(NP*DT)) *NN)", ["a", "b"]).spans == [Span("NP", 0, 1)]


def test_words_without_a_tag_join_the_outermost_constituent() -> None:
    tree = from_tags("(S(NP*DT))", ["a", "b", "c"])
    assert tree == Tree(["a", "b", "c"], ["DT", "XX", "XX"], [Span("S", 0, 3), Span("NP", 0, 1)])


def test_tags_without_a_word_are_left_out() -> None:
    assert from_tags("(S*DT *NN (VP*VBD))", ["a"]) == Tree(["a"], ["DT"], [Span("S", 0, 1)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(ROOT (NP (NN a))", "1 brackets are not closed"),
        ("(ROOT (NP (NN a))))", "text after the tree"),
        ("(ROOT (NN a)) (ROOT (NN b))", "text after the tree"),
        ("", "the line is empty"),
        ("(ROOT )", "the tree has no words"),
        ("(ROOT (NP (-NONE- *)))", "the tree has no words"),
        ("(ROOT a)", "has no part of speech"),
        ("(ROOT (NP a b))", "a closing bracket is missing"),
        (")", "nothing is open"),
        ("cat", "'cat' has no part of speech"),
    ],
)
def test_malformed_lines_are_refused_with_their_number(line: str, reason: str) -> None:
    with pytest.raises(UserError, match=r"line 2: .*") as refused:
        list(read_trees([CAT, line]))
    assert reason in str(refused.value)
