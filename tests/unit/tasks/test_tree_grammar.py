"""Generated trees are treebank lines."""

from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import read_trees


def test_generated_trees_are_well_formed_sentences() -> None:
    trees = list(read_trees([make_tree(seed) for seed in range(500)]))
    assert {tree.spans[0].label for tree in trees} == {"S"}
    assert {tree.words[-1] for tree in trees} == {".", "!"}
    assert max(len(tree.words) for tree in trees) > 15


def test_a_tree_is_a_function_of_its_number() -> None:
    assert make_tree(5) == make_tree(5)
    assert len({make_tree(seed) for seed in range(200)}) > 190
