"""Trees drawn for the terminal."""

from multihead.text.constituency_trees import read_trees
from multihead.text.tree_drawing import draw


def test_a_tree_is_drawn_with_a_line_for_each_constituent_and_word() -> None:
    tree = next(read_trees(["(ROOT (S (NP (NP (DT the) (NN cat))) (VP (VBD sat)) (. .)))"]))
    assert draw(tree) == (
        """\
ROOT
└── S
    ├── NP
    │   └── NP
    │       ├── DT the
    │       └── NN cat
    ├── VP
    │   └── VBD sat
    └── . ."""
    )
