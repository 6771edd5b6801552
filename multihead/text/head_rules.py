"""Dependency trees from constituency trees: each constituent has a head, on which the other words in it depend.

The rules are those of Collins (1999): for each label, the labels of its head child in order of preference, and the side
from which the children are searched. A constituent whose label has no rule, or none of whose children is listed, takes
the child at that side that is not punctuation.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from multihead.text.constituency_trees import Span, Tree

PUNCTUATION = frozenset({",", ".", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"})  # parts of speech
NOUNS = ("NN", "NNS", "NNP", "NNPS", "NX", "POS", "JJR")  # the head of a noun phrase is the last of these in it

_FROM_LEFT = {
    "ADJP": "NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB",
    "NAC": "NN NNS NNP NNPS NP NAC EX $ CD QP PRP VBG JJ JJS JJR ADJP FW",
    "PRN": "",
    "QP": "$ IN NNS NN JJ RB DT CD NCD QP JJR JJS",
    "S": "TO IN VP S SBAR ADJP UCP NP",
    "SBAR": "WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG",
    "SBARQ": "SQ S SINV SBARQ FRAG",
    "SINV": "VBZ VBD VBP VB MD VP S SINV ADJP NP",
    "SQ": "VBZ VBD VBP VB MD VP SQ",
    "VP": "TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP",
    "WHADJP": "CC WRB JJ ADJP",
    "WHNP": "WDT WP WP$ WHADJP WHPP WHNP",
}
_FROM_RIGHT = {
    "ADVP": "RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN",
    "CONJP": "CC RB IN",
    "FRAG": "",
    "PP": "IN TO VBG VBN RP FW",
    "PRT": "RP",
    "RRC": "VP NP ADVP ADJP PP",
    "UCP": "",
    "WHADVP": "CC WRB",
    "WHPP": "IN TO FW",
}


class _Child(NamedTuple):
    """A word or a constituent inside a constituent, and the word that is its head."""

    label: str
    head: int


def dependency_heads(tree: Tree) -> list[int]:
    """Return for each word the number of the word that it depends on, counted from 1; 0 for the root."""
    heads = [0] * len(tree.words)
    _head_of(tree, Span("ROOT", 0, len(tree.words)), tree.spans, heads)
    return heads


def dependency_line(trees: Sequence[Tree]) -> str:
    """Return the sentences of a line as `data.tree` reads them: words, a tab, and the number of each word's head."""
    words: list[str] = []
    heads: list[int] = []
    for tree in trees:
        heads += [head + len(words) if head else 0 for head in dependency_heads(tree)]
        words += tree.words
    return f"{' '.join(words)}\t{' '.join(map(str, heads))}"


def _head_of(tree: Tree, span: Span, inside: Sequence[Span], heads: list[int]) -> int:
    """Return the head word of a constituent; the heads of its other children depend on it."""
    children = list(_children(tree, span, inside, heads))
    head = _choose(span.label, children).head
    for child in children:
        if child.head != head:
            heads[child.head] = head + 1
    return head


def _children(tree: Tree, span: Span, inside: Sequence[Span], heads: list[int]) -> Iterator[_Child]:
    """Yield the children of a constituent; `inside` are the constituents within it, outer ones first."""
    position = span.start
    while position < span.end:
        if inside and inside[0].start == position:
            child = inside[0]
            n_below = sum(one.end <= child.end for one in inside)
            yield _Child(child.label, _head_of(tree, child, inside[1:n_below], heads))
            inside, position = inside[n_below:], child.end
        else:
            yield _Child(tree.tags[position], position)
            position += 1


def _choose(label: str, children: Sequence[_Child]) -> _Child:
    """Return the head child."""
    spoken = [child for child in children if child.label not in PUNCTUATION] or list(children)
    if label == "NP":
        return _head_of_noun_phrase(spoken)
    from_right = label in _FROM_RIGHT
    ordered = spoken[::-1] if from_right else spoken
    wanted = (_FROM_RIGHT if from_right else _FROM_LEFT).get(label, "").split()
    return next((child for name in wanted for child in ordered if child.label == name), ordered[0])


def _head_of_noun_phrase(children: Sequence[_Child]) -> _Child:
    """Return the last noun, else the first noun phrase, else the last adjective or number, else the last child."""
    last_first = children[::-1]
    if noun := next((child for child in last_first if child.label in NOUNS), None):
        return noun
    if phrase := next((child for child in children if child.label == "NP"), None):
        return phrase
    other = ("$", "ADJP", "PRN", "CD", "JJ", "JJS", "RB", "QP")
    return next((child for child in last_first if child.label in other), last_first[0])
