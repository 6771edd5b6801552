"""What a translation server does, without HTTP: languages, text in and text out, attention; bounded in everything.

Work that grows with the text runs in threads, so that the event loop always answers. A request has one deadline and is
admitted once: when it is over (time, an error, or a client that left), all that still waits of it is cancelled.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from torch import Tensor

from multihead.config.schema import BEAM, SearchConfig
from multihead.errors import UserError
from multihead.inspection.attention_maps import alignment_matrix
from multihead.inspection.page import page_data
from multihead.serve import html
from multihead.serve.batcher import Batcher
from multihead.serve.errors import BadRequest
from multihead.serve.languages import Detection, Detector, has_letters, name_of
from multihead.text.sentences import join_translations
from multihead.translation.translator import Translation, Translator

AUTO = "auto"
Value = TypeVar("Value")
Result = TypeVar("Result")


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
class TranslatedText:
    """A translated text, and other translations of it."""

    text: str
    alternatives: list[str]

    @classmethod
    def of(cls, versions: list[str]) -> "TranslatedText":
        """The best version of a text first."""
        return cls(text=versions[0], alternatives=[one for one in dict.fromkeys(versions) if one != versions[0]])


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
        return list(self.translator.stream(texts, replace(config, split=False)))  # texts are sentences already

    async def search(self, pieces: Sequence[str], config: SearchConfig, deadline: asyncio.Timeout) -> list[Translation]:
        """The translation of each piece, in batches with those of other requests."""
        # Cancelling this cancels the future too: what still waits is never translated.
        return await asyncio.wrap_future(self.batcher.submit(pieces, config, _seconds_left(deadline)))

    async def call(
        self, function: Callable[[Value], Result], values: Sequence[Value], deadline: asyncio.Timeout
    ) -> list[Result]:
        """The results of a function that needs the model, for each value."""
        return await asyncio.wrap_future(self.batcher.call(function, values, _seconds_left(deadline)))


def _seconds_left(deadline: asyncio.Timeout) -> float:
    end = deadline.when()
    assert end is not None
    return end - asyncio.get_running_loop().time()


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

    async def detect(self, text: str) -> list[Detection]:
        return await asyncio.to_thread(self._detector.rank, text)

    async def source_of(self, text: str, target: str) -> Detection:
        """The language to translate a text from when the client says `auto`."""
        found = (await self.detect(text))[0]
        if found.confidence:
            return found
        if len(self.sources) > 1 and await asyncio.to_thread(has_letters, text):
            raise BadRequest(
                f"the language of the text cannot be detected, because the detector does not know "
                f"{', '.join(self._detector.unknown)}; set source to one of {', '.join(self.sources)}"
            )
        # There is one language to choose from, or nothing to translate.
        fitting = [source for source in self.sources if (source, target) in self.directions]
        return Detection((fitting or self.sources)[0], 0.0)

    def direction(self, source: str, target: str) -> Direction:
        for code in (source, target):
            if code not in self.codes:
                raise BadRequest(f"{code} is not supported")
        if (source, target) not in self.directions:
            raise BadRequest(
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
            )
        return self.directions[source, target]

    def close(self, seconds: float) -> bool:
        """Finish what was asked for; True if all of it was done in time."""
        return all([direction.batcher.close(seconds) for direction in self.directions.values()])

    # Translating

    async def translate(
        self, texts: Sequence[str], source: str, target: str, n_alternatives: int = 0, is_html: bool = False
    ) -> tuple[list[TranslatedText], Detection | None]:
        """Translate texts sentence by sentence, with their white space or their tags; and the language if detected."""
        config = SearchConfig(n_best=1 + n_alternatives, beam=max(BEAM, 1 + n_alternatives))
        translate = self._translate_html if is_html else self._translate_text
        async with asyncio.timeout(self.limits.seconds) as deadline:
            detected = await self.source_of("\n".join(texts), target) if source == AUTO else None
            direction = self.direction(detected.language if detected else source, target)
            return await translate(texts, direction, config, deadline), detected

    async def _translate_text(
        self, texts: Sequence[str], direction: Direction, config: SearchConfig, deadline: asyncio.Timeout
    ) -> list[TranslatedText]:
        parts = await asyncio.to_thread(_each, direction.translator.split_sentences, texts)
        found = await direction.search([one for sentences, _ in parts for one in sentences], config, deadline)
        said = await asyncio.to_thread(_ranked, found, config.n_best)
        joins = [(len(sentences), partial(join_translations, gaps=gaps)) for sentences, gaps in parts]
        return await asyncio.to_thread(_answers, said, joins)

    async def _translate_html(
        self, texts: Sequence[str], direction: Direction, config: SearchConfig, deadline: asyncio.Timeout
    ) -> list[TranslatedText]:
        fragments = await asyncio.to_thread(_each, partial(html.parse, cut=direction.translator.split_sentences), texts)
        sentences = [sentence for fragment in fragments for sentence in fragment.sentences]
        found = await direction.search([sentence.text for sentence in sentences], config, deadline)
        said = await asyncio.to_thread(_ranked, found, config.n_best)
        pairs = await asyncio.to_thread(_pairs_to_align, sentences, said)
        aligned = await direction.call(partial(_align, direction.translator), pairs, deadline)
        placed = await asyncio.to_thread(_placed, sentences, said, dict(zip(pairs, aligned, strict=True)))
        return await asyncio.to_thread(_answers, placed, [(len(one.sentences), one.join) for one in fragments])

    # Looking inside

    async def attention(self, text: str, at: int, source: str, target: str, config: SearchConfig) -> dict[str, Any]:
        """One sentence of a text: its translations with their scores, and what every head looks at."""
        async with asyncio.timeout(self.limits.seconds) as deadline:
            if source == AUTO:
                source = (await self.source_of(text, target)).language
            return await self._attention(text, at, self.direction(source, target), config, deadline)

    async def _attention(
        self, text: str, at: int, direction: Direction, config: SearchConfig, deadline: asyncio.Timeout
    ) -> dict[str, Any]:
        sentences, _ = await asyncio.to_thread(direction.translator.split_sentences, text)
        if not 0 <= at < len(sentences):
            raise BadRequest(f"there is no sentence {at} in a text of {len(sentences)}")
        sentence = sentences[at]
        if len(sentence) > self.limits.sentence_characters:
            raise BadRequest(
                f"attention is shown for sentences of up to {self.limits.sentence_characters} characters, "
                f"this one has {len(sentence)}"
            )
        (found,) = await direction.search([sentence], config, deadline)
        (maps,) = await direction.call(partial(direction.translator.attention, sentence), [found.text], deadline)
        return {
            "sentences": sentences,
            "sentence": at,
            "source": sentence,
            "translation": found.text,
            "score": found.score,
            "alternatives": [{"text": other.text, "score": other.score} for other in found.alternatives],
            "model": direction.translator.name,
            "warnings": found.warnings,
            **await asyncio.to_thread(page_data, maps),
        }


def _each(function: Callable[[str], Result], texts: Sequence[str]) -> list[Result]:
    return [function(text) for text in texts]


def _ranked(found: Sequence[Translation], n: int) -> list[list[str]]:
    """The `n` best translations of each sentence; the last one again where there are fewer."""
    of_each = [[one.text, *(other.text for other in one.alternatives)] for one in found]
    return [[texts[min(rank, len(texts) - 1)] for rank in range(n)] for texts in of_each]


def _answers(
    said: Iterable[list[str]], joins: Sequence[tuple[int, Callable[[list[str]], str]]]
) -> list[TranslatedText]:
    """Texts from the translations of their sentences, given how many each text has and how they are joined."""
    results, answers = iter(said), []
    for n_sentences, join_text in joins:
        versions = zip(*islice(results, n_sentences), strict=True)
        answers.append(TranslatedText.of([join_text(list(version)) for version in versions] or [join_text([])]))
    return answers


def _pairs_to_align(sentences: Sequence[html.Sentence], said: Sequence[list[str]]) -> list[tuple[str, str]]:
    """Sentences with tags inside and their translations, each pair once."""
    tagged = ((one.text, texts) for one, texts in zip(sentences, said, strict=True) if one.needs_alignment())
    return list(dict.fromkeys((source, text) for source, texts in tagged for text in texts))


def _placed(
    sentences: Sequence[html.Sentence], said: Sequence[list[str]], alignments: Mapping[tuple[str, str], Tensor]
) -> list[list[str]]:
    """The translations of each sentence with its tags."""
    return [
        [html.place_tags(one, text, alignments.get((one.text, text))) for text in texts]
        for one, texts in zip(sentences, said, strict=True)
    ]


def _align(translator: Translator, pair: tuple[str, str]) -> Tensor:
    return alignment_matrix(translator.attention(*pair))
