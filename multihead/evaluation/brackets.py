"""Labeled brackets, scored as EVALB does with the usual parameters of Collins (1997).

Punctuation is left out of both trees, by the parts of speech of the reference; ADVP and PRT count as the same label;
the root does not count. A bracket is correct if the other tree has one of the same label over the same words; of equal
brackets, each is matched once.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from multihead.errors import UserError
from multihead.text.constituency_trees import Span, Tree

PUNCTUATION = frozenset({",", ".", ":", "``", "''"})  # parts of speech
SAME_LABEL = {"PRT": "ADVP"}


@dataclass(frozen=True, slots=True)
class BracketCounts:
    """How many brackets agree; counts of several sentences are added."""

    correct: int = 0
    predicted: int = 0
    reference: int = 0
    exact: int = 0  # sentences
    sentences: int = 0

    def __add__(self, other: "BracketCounts") -> "BracketCounts":
        return BracketCounts(
            self.correct + other.correct,
            self.predicted + other.predicted,
            self.reference + other.reference,
            self.exact + other.exact,
            self.sentences + other.sentences,
        )

    @property
    def precision(self) -> float:
        """The percentage of predicted brackets that are correct."""
        return _percent(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """The percentage of reference brackets that were found."""
        return _percent(self.correct, self.reference)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _percent(2 * self.correct, self.predicted + self.reference)

    @property
    def exact_match(self) -> float:
        """The percentage of sentences without a wrong bracket."""
        return _percent(self.exact, self.sentences)

    def as_json(self) -> dict[str, float]:
        return {
            "f1": round(self.f1, 2),
            "precision": round(self.precision, 2),
            "recall": round(self.recall, 2),
            "exact_match": round(self.exact_match, 2),
            "sentences": self.sentences,
        }


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def compare_trees(predicted: Tree, reference: Tree) -> BracketCounts:
    """Return the counts of one sentence; its parts of speech are those of the reference."""
    if len(predicted.words) != len(reference.words):
        raise UserError(
            f"a tree of {len(predicted.words)} words cannot be scored against one of {len(reference.words)}: "
            f"'{' '.join(reference.words)[:60]}'"
        )
    counted = [0]  # words before each position, without punctuation
    for tag in reference.tags:
        counted.append(counted[-1] + (tag not in PUNCTUATION))
    found, wanted = (_counted_spans(tree.spans, counted) for tree in (predicted, reference))
    correct = (found & wanted).total()
    is_exact = correct == found.total() == wanted.total()
    return BracketCounts(correct, found.total(), wanted.total(), int(is_exact), 1)


def score_trees(pairs: Iterable[tuple[Tree, Tree]]) -> BracketCounts:
    """Return the counts of (predicted, reference) trees."""
    return sum((compare_trees(predicted, reference) for predicted, reference in pairs), BracketCounts())


def _counted_spans(spans: Iterable[Span], counted: list[int]) -> Counter[Span]:
    """Return the brackets over words that count, with their positions among these words."""
    moved = (Span(SAME_LABEL.get(label, label), counted[start], counted[end]) for label, start, end in spans)
    return Counter(span for span in moved if span.start < span.end)
