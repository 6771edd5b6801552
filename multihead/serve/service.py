"""What a translation server does, without HTTP: languages, text in and text out, attention; bounded in everything."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from multihead.attention import alignment_matrix
from multihead.config import SearchConfig, UserError
from multihead.figures import page_data
from multihead.sentences import cut, join
from multihead.serve import markup
from multihead.serve.batcher import Batcher
from multihead.serve.languages import Detection, Detector, name_of
from multihead.translate import Translation, Translator

AUTO = "auto"
Result = TypeVar("Result")


class Refused(Exception):
    """A request that cannot be served, in words for whoever sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every size and number that a client can choose."""

    characters: int = 5000  # of a text
    texts: int = 50  # in one request
    alternatives: int = 10
    beam: int = 12
    sentence_characters: int = 400  # of a sentence whose attention is shown: its weights grow with the square
    seconds: float = 30.0  # from a request to its answer
    waiting: int = 100_000  # characters that wait for their turn, of all requests together
    batch: int = 32  # sentences that are translated at a time

    @property
    def request_characters(self) -> int:
        """Of all texts of a request."""
        return 10 * self.characters

    @property
    def body_bytes(self) -> int:
        """Of a request: every character in its longest form, two escapes of six bytes, and the other fields."""
        return 10_000 + 12 * self.request_characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A translated text, and other translations of it."""

    text: str
    alternatives: list[str]


class Direction:
    """A model that translates from one language to another, and the queue before it."""

    def __init__(self, translator: Translator, limits: Limits) -> None:
        data = translator.config.data
        if not data.source_lang or not data.target_lang:
            raise UserError(f"the model {translator.name} does not say which languages it is for: it cannot be served")
        self.source, self.target = data.source_lang.lower(), data.target_lang.lower()
        self.translator, self._limits = translator, limits
        self.batcher = Batcher(self._search, limits.waiting, limits.batch)

    def _search(self, texts: list[str], config: SearchConfig) -> list[Translation]:
        return list(self.translator.stream(texts, config))

    async def search(self, pieces: Sequence[str], config: SearchConfig) -> list[Translation]:
        """The translation of each piece, in batches with those of other requests."""
        return await self._answer(self.batcher.submit(pieces, config, self._limits.seconds))

    async def call(self, function: Callable[[], Result]) -> Result:
        """What a function gives that needs the model."""
        return await self._answer(self.batcher.call(function))

    async def _answer(self, future: "Future[Result]") -> Result:
        # A client that leaves cancels this, and with it the future: what still waits is never translated.
        return await asyncio.wait_for(asyncio.wrap_future(future), self._limits.seconds)


class Service:
    """Directions by their languages."""

    def __init__(self, translators: Sequence[Translator], limits: Limits) -> None:
        self.limits = limits
        self.directions: dict[tuple[str, str], Direction] = {}
        for translator in translators:
            direction = Direction(translator, limits)
            pair = direction.source, direction.target
            if pair in self.directions:
                raise UserError(f"two models translate from {pair[0]} to {pair[1]}: serve one of them")
            self.directions[pair] = direction
        self.codes = list(dict.fromkeys(code for pair in self.directions for code in pair))
        self._detector = Detector(self.codes)

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for source, _ in self.directions))

    def targets_of(self, source: str) -> list[str]:
        return [target for other, target in self.directions if other == source]

    def detect(self, text: str) -> list[Detection]:
        return self._detector.rank(text)

    def direction(self, source: str, target: str) -> Direction:
        for code in (source, target):
            if code not in self.codes:
                raise Refused(f"{code} is not supported")
        if (source, target) not in self.directions:
            raise Refused(
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
            )
        return self.directions[source, target]

    def close(self, seconds: float) -> bool:
        """Finish what was asked for; True if all of it was done in time."""
        return all([direction.batcher.close(seconds) for direction in self.directions.values()])

    # Translating

    async def translate(
        self, texts: Sequence[str], direction: Direction, n_alternatives: int, is_html: bool
    ) -> list[Answer]:
        """Each text cut into sentences, translated, and put together again with its white space or its tags."""
        config = SearchConfig(n_best=1 + n_alternatives, beam=max(4, 1 + n_alternatives))
        write = self._write_html if is_html else self._write_text
        return list(await asyncio.gather(*(write(text, direction, config) for text in texts)))

    async def _write_text(self, text: str, direction: Direction, config: SearchConfig) -> Answer:
        sentences, gaps = cut(text)
        found = await direction.search(sentences, config)
        versions = [join(said, gaps) for said in _versions(found, config.n_best)]
        return Answer(text=versions[0], alternatives=_others(versions))

    async def _write_html(self, text: str, direction: Direction, config: SearchConfig) -> Answer:
        fragment = markup.read(text)
        found = await direction.search([sentence.text for sentence in fragment.sentences], config)
        versions = [
            fragment.join([await _placed(direction, *pair) for pair in zip(fragment.sentences, said, strict=True)])
            for said in _versions(found, config.n_best)
        ]
        return Answer(text=versions[0], alternatives=_others(versions))

    # Looking inside

    async def attention(self, text: str, at: int, direction: Direction, config: SearchConfig) -> dict[str, Any]:
        """One sentence of a text: its translations with their scores, and what every head looks at."""
        sentences, _ = cut(text)
        if not 0 <= at < len(sentences):
            raise Refused(f"there is no sentence {at} in a text of {len(sentences)}")
        sentence = sentences[at]
        if len(sentence) > self.limits.sentence_characters:
            raise Refused(
                f"attention is shown for sentences of up to {self.limits.sentence_characters} characters, "
                f"this one has {len(sentence)}"
            )
        (found,) = await direction.search([sentence], config)
        maps = await direction.call(partial(direction.translator.attention, sentence, found.text))
        return {
            "sentences": sentences,
            "sentence": at,
            "source": sentence,
            "translation": found.text,
            "score": found.score,
            "alternatives": [{"text": other.text, "score": other.score} for other in found.alternatives],
            "model": direction.translator.name,
            "warnings": found.warnings,
            **page_data(maps),
        }


async def _placed(direction: Direction, sentence: markup.Sentence, translation: str) -> str:
    alignment: Tensor | None = None
    if sentence.needs_alignment():
        maps = await direction.call(partial(direction.translator.attention, sentence.text, translation))
        alignment = alignment_matrix(maps)
    return markup.place(sentence, translation, alignment)


def _versions(found: Sequence[Translation], n: int) -> list[list[str]]:
    """The best translation of every sentence, then the second best of every one, and so on."""
    of_each = [[one.text, *(other.text for other in one.alternatives)] for one in found]
    return [[texts[min(rank, len(texts) - 1)] for texts in of_each] for rank in range(n)]


def _others(versions: list[str]) -> list[str]:
    return [version for version in dict.fromkeys(versions) if version != versions[0]]
