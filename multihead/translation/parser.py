"""A model that writes trees (§6.3): words go in, and its tags become a tree of these words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from multihead.config.schema import SearchConfig
from multihead.tasks.parsing import known_words
from multihead.text.constituency_trees import Tree, from_tags, tags_of
from multihead.text.tokenizer import SubwordTokenizer
from multihead.text.treebank_words import split_words
from multihead.translation.engine import Hypothesis, length_penalty
from multihead.translation.guard import Guard
from multihead.translation.segments import Segmenter

MAX_EXTRA = 300  # tokens by which an output may exceed its input (§6.3)
PARSING = SearchConfig(beam=21, alpha=0.3, max_extra=MAX_EXTRA)  # §6.3
BATCH = 64  # sentences


@dataclass(frozen=True, slots=True)
class ParsedSentence:
    """The trees of a sentence, best first, and the hypothesis that each was made from."""

    trees: list[Tree]
    hypotheses: list[Hypothesis]
    scores: list[float]  # log-probability over length penalty


class Parser:
    """Writes trees with the search of a model."""

    def __init__(self, guard: Guard, segmenter: Segmenter, tokenizer: SubwordTokenizer) -> None:
        self._guard, self._segmenter, self._tokenizer = guard, segmenter, tokenizer
        self._is_piece = cache(tokenizer.is_piece)

    def parse_texts(
        self, texts: Iterable[str], config: SearchConfig, batch: int | None = None
    ) -> Iterator[list[ParsedSentence]]:
        """Yield for each text its sentences, parsed; with `config.split=False` a text is one sentence."""
        remaining = iter(texts)
        while chunk := list(islice(remaining, batch or BATCH)):
            cleaned = [self._segmenter.sentences(self._segmenter.clean(text), bool(config.split))[0] for text in chunk]
            sentences = [[words for one in found if (words := split_words(one))] for found in cleaned]
            parsed = iter(self.parse([words for found in sentences for words in found], config))
            for found in sentences:
                yield list(islice(parsed, len(found)))

    def parse(self, sentences: Sequence[Sequence[str]], config: SearchConfig) -> list[ParsedSentence]:
        """Return the trees of sentences given by their words.

        Of the hypotheses, those that are trees of exactly these words come before those that have to be repaired.
        """
        config = replace(
            config, n_best=config.n_best if config.sample else config.beam, guard=False, max_extra=MAX_EXTRA
        )
        lines = [" ".join(known_words(words, self._is_piece)) for words in sentences]
        segments = [self._segmenter.encode(line).shortened(self._segmenter.max_tokens) for line in lines]
        results = self._guard.search(segments, config)
        return [
            self._read(words, [(tags_of(one.text), one.hypothesis) for one in result.candidates], config)
            for words, result in zip(sentences, results, strict=True)
        ]

    def _read(
        self, words: Sequence[str], candidates: list[tuple[str, Hypothesis]], config: SearchConfig
    ) -> ParsedSentence:
        candidates = sorted(candidates, key=lambda candidate: not is_complete(candidate[0], len(words)))
        hypotheses = [hypothesis for _, hypothesis in candidates]
        return ParsedSentence(
            trees=[from_tags(tags, words) for tags, _ in candidates],
            hypotheses=hypotheses,
            scores=[one.log_prob / length_penalty(one.length, config.penalty) for one in hypotheses],
        )


def is_complete(tags: str, n_words: int) -> bool:
    """Return whether there is a tag for each word, and the brackets are balanced."""
    depth = 0
    for character in tags:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0 and tags.count("*") == n_words
