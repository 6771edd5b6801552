"""Constituency trees (§6.3): treebank lines, and trees as sequences with one tag for each word.

A tree is read from a line in Penn Treebank brackets and simplified as the paper's sources do:

- the outermost ROOT or TOP bracket is removed, since every tree has it;
- function labels are removed: NP-SBJ-1 becomes NP;
- traces (-NONE-) are removed, and constituents that contain nothing else;
- parts of speech become XX (Vinyals et al., 2015), unless they are kept, as in the paper's own code.

A tree is written as one tag for each word, in the format of the CoNLL shared tasks: the brackets that open before the
word, an asterisk with the part of speech, and the brackets that close after the word.

    The       cat    sat       on       the      mat       .
    (S(NP*DT  *NN)   (VP*VBD   (PP*IN   (NP*DT   *NN)))    *.)

The model reads the words, and writes each word followed by its tag: The (S(NP*DT cat *NN) sat (VP*VBD …
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from multihead.errors import UserError

ROOTS = frozenset({"", "ROOT", "TOP", "S1"})  # labels of the outermost bracket in treebanks
TRACE = "-NONE-"
ANY_TAG = "XX"  # the part of speech of every word if parts of speech are not kept
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ESCAPED = {"(": "-LRB-", ")": "-RRB-"}  # only round brackets would be ambiguous in a tree

_TOKEN = re.compile(r"[()]|[^\s()]+")
_EVENT = re.compile(r"\([^\s()*]+|\*[^\s()*]*|\)")
_TAG = re.compile(r"(?:\([^\s()*]+)*\*[^\s()*]*\)*")


class Span(NamedTuple):
    """A constituent: its label and the words from `start` up to, but not including, `end`."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """A sentence with parts of speech and constituents; a constituent comes before those inside it."""

    words: list[str]
    tags: list[str]
    spans: list[Span]


# Treebank lines


def read_tree(line: str) -> Tree:
    """Return the tree of a treebank line as it is; raise UserError if the line is not one tree with words."""
    words: list[str] = []
    tags: list[str] = []
    spans: list[Span] = []
    open_spans: list[int] = []  # indices into spans of the brackets that are not closed yet
    tokens = _TOKEN.findall(line)
    position = 0
    while position < len(tokens):
        if position and not open_spans:
            raise UserError(f"there is text after the tree: '{' '.join(tokens[position:])[:40]}'")
        if tokens[position] == ")" and open_spans:
            closed = open_spans.pop()
            spans[closed] = spans[closed]._replace(end=len(words))
            position += 1
        elif tokens[position] == "(":
            label, word, close = ([*tokens[position + 1 : position + 4], "", "", ""])[:3]
            if label not in "()" and word not in "()":
                if label in ROOTS:
                    raise UserError(f"'{word}' has no part of speech: write (NN {word})")
                if close != ")":
                    raise UserError(f"after '({label} {word}' a closing bracket is missing")
                tags.append(label)
                words.append(word)
                position += 4
            else:
                label = "" if label in "()" else label
                open_spans.append(len(spans))
                spans.append(Span(label, len(words), len(words)))
                position += 2 if label else 1
        elif tokens[position] == ")":
            raise UserError("a bracket closes where nothing is open")
        else:
            raise UserError(f"'{tokens[position]}' has no part of speech: write (NN {tokens[position]})")
    if open_spans:
        raise UserError(f"{len(open_spans)} brackets are not closed")
    return Tree(words, tags, spans)


def simplified(tree: Tree, keep_tags: bool = True) -> Tree:
    """Return a tree by the rules above: no root, function labels or traces, and parts of speech as asked for."""
    words: list[str] = []
    tags: list[str] = []
    new_position = [0]  # of each word, and of the end, without traces
    for word, tag in zip(tree.words, tree.tags, strict=True):
        if tag != TRACE:
            words.append(ESCAPES.get(word, word))
            tags.append(tag if keep_tags else ANY_TAG)
        new_position.append(len(words))
    spans = [
        Span(_plain_label(span.label), new_position[span.start], new_position[span.end])
        for index, span in enumerate(tree.spans)
        if index or span.label not in ROOTS
    ]
    return Tree(words, tags, [span for span in spans if span.start < span.end])


def _plain_label(label: str) -> str:
    """Return a label without functions and indices: NP for NP-SBJ=2."""
    return re.split(r"[-=|]", label, maxsplit=1)[0] or label


def read_trees(lines: Sequence[str], keep_tags: bool = True, name: str = "line") -> Iterator[Tree]:
    """Yield the simplified tree of each line; an error names the line."""
    for number, line in enumerate(lines, start=1):
        try:
            tree = simplified(read_tree(line), keep_tags)
            if not tree.words:
                raise UserError("the tree has no words" if line.strip() else "the line is empty; write one tree a line")
        except UserError as error:
            raise UserError(f"{name} {number}: {error}") from None
        yield tree


def bracketed(tree: Tree) -> str:
    """Return a tree in brackets on one line, within a ROOT."""
    opening, closing = _brackets(tree)
    leaves = (
        f"{''.join(f'({label} ' for label in opens)}({tag} {_escaped(word)}){')' * closes}"
        for opens, tag, word, closes in zip(opening, tree.tags, tree.words, closing, strict=True)
    )
    return f"(ROOT {' '.join(leaves)})"


def _escaped(word: str) -> str:
    return _ESCAPED.get(word) or word.replace("(", "-LRB-").replace(")", "-RRB-")


def _brackets(tree: Tree) -> tuple[list[list[str]], list[int]]:
    """Return for each word the labels that open before it, and the number of brackets that close after it."""
    opening: list[list[str]] = [[] for _ in tree.words]
    closing = [0] * len(tree.words)
    for label, start, end in tree.spans:
        opening[start].append(label)
        closing[end - 1] += 1
    return opening, closing


# Trees as sequences


def to_tags(tree: Tree) -> str:
    """Return a tree as one tag for each word."""
    opening, closing = _brackets(tree)
    return " ".join(
        f"{''.join(f'({label}' for label in opens)}*{'' if tag == ANY_TAG else tag}{')' * closes}"
        for opens, tag, closes in zip(opening, tree.tags, closing, strict=True)
    )


def is_tag(text: str) -> bool:
    """Return whether a text has the form of a tag; words that do cannot be told from tags."""
    return _TAG.fullmatch(text) is not None


def with_words(tags: str, words: Sequence[str]) -> str:
    """Return the sequence that a model writes: each word, followed by its tag."""
    return " ".join(f"{word} {tag}" for word, tag in zip(words, tags.split(), strict=True))


def tags_of(sequence: str) -> str:
    """Return the tags of a sequence that a model wrote."""
    return " ".join(filter(is_tag, sequence.split()))


def from_tags(sequence: str, words: Sequence[str]) -> Tree:
    """Return the tree of these words that a sequence describes; any sequence is repaired into a tree.

    A bracket that nothing opened is left out, and one that nothing closes ends with the sentence. Words without a tag
    are added before the outermost brackets close, and tags without a word are left out, as are empty constituents.
    """
    tags: list[str] = []
    spans: list[Span] = []
    open_spans: list[int] = []
    for event in _EVENT.findall(sequence):
        if event.startswith("("):
            open_spans.append(len(spans))
            spans.append(Span(event[1:], len(tags), len(words)))
        elif event.startswith("*"):
            if len(tags) < len(words):
                tags.append(event[1:] or ANY_TAG)
        elif open_spans:
            closed = open_spans.pop()
            spans[closed] = spans[closed]._replace(end=len(tags))
    n_tagged = len(tags)
    if n_tagged < len(words):  # the outermost constituent of the whole sequence takes up the rest
        spans = [
            span._replace(end=len(words)) if span.start == 0 and span.end == n_tagged and not index else span
            for index, span in enumerate(spans)
        ]
        tags += [ANY_TAG] * (len(words) - n_tagged)
    return Tree(list(words), tags, [span for span in spans if span.start < span.end])


def right_branching(tree: Tree) -> Tree:
    """Return the baseline that reads no words: every word opens a constituent that ends before the final mark."""
    n_words = len(tree.words)
    end = n_words - 1 if n_words > 1 and not tree.words[-1].isalnum() else n_words
    spans = [Span("S", 0, n_words), *(Span("VP" if start else "NP", start, end) for start in range(end - 1))]
    return Tree(tree.words, tree.tags, spans)
