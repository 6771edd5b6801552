"""A constituency tree drawn with lines, for the terminal."""

from collections.abc import Iterator, Sequence

from multihead.text.constituency_trees import Span, Tree


def draw(tree: Tree) -> str:
    """Return a drawing with one line for each constituent and each word."""
    return "\n".join(["ROOT", *_children(tree, Span("ROOT", 0, len(tree.words)), tree.spans)])


def _children(tree: Tree, parent: Span, inside: Sequence[Span]) -> Iterator[str]:
    """Yield the lines below a constituent; `inside` are the constituents within it, outer ones first."""
    position = parent.start
    while position < parent.end:
        if inside and inside[0].start == position:
            child = inside[0]
            n_below = sum(span.end <= child.end for span in inside)
            label, below = child.label, _children(tree, child, inside[1:n_below])
            inside, position = inside[n_below:], child.end
        else:
            label, below = f"{tree.tags[position]} {tree.words[position]}", iter(())
            position += 1
        branch, indent = ("└── ", "    ") if position == parent.end else ("├── ", "│   ")
        yield branch + label
        yield from (indent + line for line in below)
