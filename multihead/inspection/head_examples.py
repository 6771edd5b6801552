"""Sentences in which a head does what the paper's Figures 3 to 5 show, found among many.

- distance (Figure 3): a word attends to a word far away;
- anaphora (Figure 4): a pronoun attends to an earlier noun;
- structure (Figure 5): all words of a sentence attend to words that are not their neighbors; with trees, to the word
  that they depend on.

A word that every other word attends to as well, such as a full stop, says little about two words. So examples are
ranked by how much larger a weight is than the mean of its column. Shapes: L layers, H heads, S pieces, W words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.inspection.attention_maps import Array
from multihead.text.language import determiners, function_words, pronouns

Marks = NDArray[np.bool_]  # W, or W W

MIN_DISTANCE = 5  # words
MIN_WEIGHT = 0.2
MIN_CLEARNESS = 0.1  # by which a weight exceeds the mean of the other words' weights in its column
MIN_WORDS = 6  # of a sentence that shows structure
KINDS = ("distance", "anaphora", "structure")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSentence:
    """A sentence in words, and what the encoder's heads attend to between them."""

    number: int  # of the line, from 1
    words: Sequence[str]
    weights: Array  # L H W W
    tags: Sequence[str] = ()  # parts of speech, if a tree is given
    heads: Sequence[int] = ()  # the number of the word that each word depends on; 0 for the root


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadExample:
    """What a head of the encoder attends to in a sentence. Words are counted from 0."""

    kind: str
    line: int
    words: list[str]
    layer: int
    head: int
    links: list[tuple[int, int, float]]  # from word, to word, weight
    score: float

    def as_json(self) -> dict[str, object]:
        """Return the object that `multihead inspect --examples --json` prints; layer and head are counted from 0."""
        return asdict(self)

    def as_text(self) -> str:
        sentence = " ".join(self.words)
        links = [f"    {self.words[one]} → {self.words[other]}  {weight:.2f}" for one, other, weight in self.links]
        return "\n".join([f"line {self.line}, encoder {self.layer + 1}.{self.head + 1}: {sentence}", *links])


def word_attention(weights: Array, owners: Sequence[int], n_words: int) -> Array:
    """Return attention between words (… W W) of that between pieces (… S S); pieces without a word (-1) are left out.

    The weights on the pieces of a word are added, and the rows of its pieces averaged.
    """
    belongs = np.equal.outer(np.asarray(owners), np.arange(n_words)).astype(np.float32)  # S W
    n_pieces = belongs.sum(axis=0).clip(min=1)
    between: Array = (belongs / n_pieces).T @ weights[..., : len(belongs), : len(belongs)] @ belongs
    return between


def find_examples(sentences: Iterable[ReadSentence], language: str, most: int) -> list[HeadExample]:
    """Return up to `most` examples of each kind, the clearest first; no sentence is shown twice for a kind."""
    best: dict[str, list[HeadExample]] = {kind: [] for kind in KINDS}
    for sentence in sentences:
        for example in _examples(sentence, language):
            best[example.kind].append(example)
    return [one for kind in KINDS for one in _clearest(best[kind], most, different_heads=kind == "structure")]


def _clearest(examples: list[HeadExample], most: int, different_heads: bool) -> list[HeadExample]:
    """Return the clearest examples; of equal sentences one, and of structure one for each head."""
    chosen: list[HeadExample] = []
    seen: set[object] = set()
    for one in sorted(examples, key=lambda example: (-example.score, example.line)):
        keys = {" ".join(one.words).lower(), *([(one.layer, one.head)] if different_heads else [])}
        if not keys & seen and len(chosen) < most:
            chosen.append(one)
            seen |= keys
    return chosen


def _examples(sentence: ReadSentence, language: str) -> Iterator[HeadExample]:
    n_words = len(sentence.words)
    if n_words < 2 or not sentence.weights.size:
        return
    others = (sentence.weights.sum(axis=2, keepdims=True) - sentence.weights) / (n_words - 1)
    clearness = sentence.weights - others  # L H W W
    clearness *= (sentence.weights >= MIN_WEIGHT) & (clearness >= MIN_CLEARNESS)
    little = function_words(language)
    is_content = np.array([word.isalpha() and word.lower() not in little for word in sentence.words])
    row, column = np.indices((n_words, n_words))
    far = (np.abs(row - column) >= MIN_DISTANCE) & is_content[:, None] & is_content
    yield from _one_link("distance", sentence, clearness * far)
    refers = np.array([word.lower() in pronouns(language) for word in sentence.words])
    is_noun = _nouns(sentence, is_content, language)
    yield from _one_link("anaphora", sentence, clearness * (refers[:, None] & is_noun & (column < row)))
    if n_words >= MIN_WORDS:
        yield from _structure(sentence, clearness)


def _nouns(sentence: ReadSentence, is_content: Marks, language: str) -> Marks:
    """Return which words are nouns: by their parts of speech, or by what is usual before and in a noun."""
    if sentence.tags:
        return np.array([tag.startswith("NN") for tag in sentence.tags])
    follows = [False, *(word.lower() in determiners(language) for word in sentence.words[:-1])]
    is_capitalized = [word[0].isupper() for word in sentence.words]
    nouns: Marks = is_content & (np.array(follows) | np.array(is_capitalized))
    return nouns


def _one_link(kind: str, sentence: ReadSentence, clearness: Array) -> Iterator[HeadExample]:
    """Yield the clearest link of a sentence, if there is any."""
    layer, head, one, other = (int(index) for index in np.unravel_index(clearness.argmax(), clearness.shape))
    if (score := float(clearness[layer, head, one, other])) > 0:
        links = [(one, other, float(sentence.weights[layer, head, one, other]))]
        yield _example(kind, sentence, (layer, head), links, score)


def _structure(sentence: ReadSentence, clearness: Array) -> Iterator[HeadExample]:
    """Yield one example for each head: the words that it connects, other than a word with its neighbors."""
    n_words = len(sentence.words)
    row, column = np.indices((n_words, n_words))
    is_word = np.array([any(map(str.isalnum, word)) for word in sentence.words])
    apart = (np.abs(row - column) > 1) & is_word[:, None] & is_word
    if sentence.heads:
        apart &= np.equal.outer(np.array(sentence.heads) - 1, np.arange(n_words))
    clear = clearness * apart
    for layer, head in np.ndindex(clear.shape[:2]):
        found, score = clear[layer, head], float(clear[layer, head].max(axis=1).mean())
        links = [
            (one, other, float(sentence.weights[layer, head, one, other]))
            for one, other in enumerate(found.argmax(axis=1).tolist())
            if found[one, other] > 0
        ]
        if len(links) > 2:
            yield _example("structure", sentence, (layer, head), links, score)


def _example(
    kind: str, sentence: ReadSentence, place: tuple[int, int], links: list[tuple[int, int, float]], score: float
) -> HeadExample:
    return HeadExample(
        kind=kind,
        line=sentence.number,
        words=list(sentence.words),
        layer=place[0],
        head=place[1],
        links=links,
        score=score,
    )
