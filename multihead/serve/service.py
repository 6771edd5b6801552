"""What a translation server does, without HTTP: detect languages, translate texts and HTML, return attention weights.

Work that grows with the text runs in threads, so that the event loop stays responsive. A request has one deadline and
is admitted once; when it ends early (timeout, error or a disconnected client), its remaining work is canceled.
"""

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.inspection.attention_maps import AttentionMaps
from multihead.inspection.page import page_data
from multihead.serve import html
from multihead.serve.batcher import BATCH_UNITS, MERGED_BATCH_UNITS, Batcher, Ticket
from multihead.serve.errors import BadRequest
from multihead.serve.languages import Detection, Detector, ModelDetector, has_letters, model_detector
from multihead.serve.lessons import Lesson, Page
from multihead.serve.options import AUTO, Limits
from multihead.serve.pace import SENTENCE_UNITS, estimated_units
from multihead.serve.text_threads import TextThreads
from multihead.text.language import name_of
from multihead.text.sentences import join_translations
from multihead.translation.translator import Translation, Translator

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedText:
    """The best translation of a text, and other translations of it."""

    text: str
    alternatives: list[str]
    via: str | None = None  # the language that it was translated through

    @classmethod
    def from_versions(cls, versions: list[str]) -> "TranslatedText":
        """Take the first version as the best one, and drop duplicates."""
        return cls(text=versions[0], alternatives=[one for one in dict.fromkeys(versions) if one != versions[0]])


class Direction:
    """A model as a translator between two languages; the queue in front of the model serves all of its directions."""

    def __init__(self, translator: Translator, batcher: Batcher, lesson: Lesson) -> None:
        data = translator.config.data
        self.source, self.target = data.source_lang.lower(), data.target_lang.lower()
        self.translator, self.batcher, self.lesson = translator, batcher, lesson
        self._has_shown_attention = False

    def translate(
        self, ticket: Ticket, sentences: Sequence[str], config: SearchConfig, details: bool = False
    ) -> "Future[list[Translation]]":
        """Translate sentences of a request that was admitted."""
        return ticket.translate(sentences, config, details, self._translate)

    def attention(self, sentence: str, translation: str) -> AttentionMaps:
        """Return the weights of every head. The first call loads torch, and the model for it."""
        maps = self.translator.attention(sentence, translation)
        if not self._has_shown_attention:
            self._has_shown_attention = True
            exempt_from_collection()
        return maps

    def _translate(self, sentences: list[str], config: SearchConfig, details: bool) -> list[Translation]:
        # In one chunk: several would be translated by more threads.
        return list(
            self.translator.stream(sentences, replace(config, split=False), chunk_size=len(sentences), details=details)
        )


def directions_of(translator: Translator, limits: Limits, on_batch: Callable[[int], None]) -> list[Direction]:
    """Return every direction of a model, with one queue for all of them."""
    if not all(all(pair) for pair in translator.targets.pairs):
        raise UserError(f"cannot serve {translator.name}: its config.json does not name its languages")
    engine, lesson = translator.engine, Lesson(translator.folder)
    batch_units = MERGED_BATCH_UNITS if engine.merges_sentences else BATCH_UNITS
    batcher = Batcher(limits=limits, n_lanes=engine.concurrent_searches, batch_units=batch_units, on_batch=on_batch)
    return [Direction(translator.into(target, source), batcher, lesson) for source, target in translator.targets.pairs]


class Service:
    """The directions of a server by source and target language."""

    def __init__(
        self,
        translators: Sequence[Translator],
        limits: Limits,
        on_batch: Callable[[int], None] = lambda size: None,
        pivots: bool = True,
    ) -> None:
        self.limits, self._pivots = limits, pivots
        self.directions: dict[tuple[str, str], Direction] = {}
        for direction in (one for model in translators for one in directions_of(model, limits, on_batch)):
            pair = direction.source, direction.target
            if pair in self.directions:
                raise UserError(f"two models translate from {pair[0]} to {pair[1]}; serve only one of them")
            self.directions[pair] = direction
        self.batchers = list(dict.fromkeys(direction.batcher for direction in self.directions.values()))
        self.codes = list(dict.fromkeys(code for pair in self.directions for code in pair))
        self._threads = TextThreads()
        self._detector: Detector | ModelDetector | None = None
        self._lock = threading.Lock()

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for source, _ in self.directions))

    def targets_of(self, source: str) -> list[str]:
        """Return the languages that a language is translated into, directly or through another one."""
        direct = [target for other, target in self.directions if other == source]
        return [*direct, *(code for code in self.codes if code not in direct and self._route(source, code))]

    def _route(self, source: str, target: str) -> "list[Direction]":
        """Return the shortest way between two languages: a direction, or two with a language between them."""
        if direct := self.directions.get((source, target)):
            return [direct]
        for stop in self.codes if self._pivots and source != target else []:
            hops = self.directions.get((source, stop)), self.directions.get((stop, target))
            if hops[0] and hops[1]:
                return [hops[0], hops[1]]
        return []

    def _loaded_detector(self) -> Detector | ModelDetector:
        """Return the detector of the models, or else a general one, which takes as much memory as a model."""
        with self._lock:
            own = [direction.translator.segmenter.detector for direction in self.directions.values()]
            self._detector = self._detector or model_detector(own, self.codes) or Detector(self.codes)
            return self._detector

    async def detect(self, text: str, client: str = "") -> list[Detection]:
        detector = await asyncio.to_thread(self._loaded_detector)
        return await self._run(client, [text], detector.rank, text)

    async def detect_source(self, text: str, target: str, client: str = "") -> Detection:
        """Return the language to translate a text from if the client asks for detection."""
        best = (await self.detect(text, client))[0]
        if best.confidence:
            return best
        if len(self.sources) > 1 and await asyncio.to_thread(has_letters, text):
            raise BadRequest(
                f"the language of the text cannot be detected, because the detector does not know "
                f"{', '.join(self._loaded_detector().unknown)}; set source to one of {', '.join(self.sources)}"
            )
        # There is only one source language, or the text has nothing to translate.
        possible = [source for source in self.sources if self._route(source, target)]
        return Detection((possible or self.sources)[0], 0.0)

    def route(self, source: str, target: str) -> list[Direction]:
        """Return the directions that lead from one language to another."""
        for code in (source, target):
            if code not in self.codes:
                raise BadRequest(f"{code} is not supported")
        if route := self._route(source, target):
            return route
        raise BadRequest(
            f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
        )

    def direction(self, source: str, target: str) -> Direction:
        """Return the direction between two languages, for what needs one model."""
        first, *more = self.route(source, target)
        if more:
            raise BadRequest(
                f"no model translates from {name_of(source)} to {name_of(target)} directly: the server translates "
                f"through {name_of(first.target)}, so that there is nothing to show"
            )
        return first

    def close(self, seconds: float) -> bool:
        """Finish queued work; return True if all of it was done in time."""
        return all([batcher.close(seconds) for batcher in self.batchers])

    # Translation

    async def translate(  # noqa: PLR0913 - the fields of a request
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        n_alternatives: int = 0,
        is_html: bool = False,
        client: str = "",
    ) -> tuple[list[TranslatedText], Detection | None]:
        """Translate texts sentence by sentence, keeping white space or tags; also return the language if detected."""
        beam = max(SearchConfig().beam, 1 + n_alternatives)
        config = SearchConfig(n_best=1 + n_alternatives, beam=beam)
        translate = self._translate_html if is_html else self._translate_texts
        async with asyncio.timeout(self.limits.seconds):
            detected = await self.detect_source("\n".join(texts), target, client) if source == AUTO else None
            first, *more = self.route(detected.language if detected else source, target)
            n_units = estimated_units(texts)
            with ExitStack() as tickets:
                if not more:
                    ticket = tickets.enter_context(first.batcher.admit(client, n_units, config, details=is_html))
                    return await translate(texts, first, config, ticket), detected
                one_each = replace(config, n_best=1)
                hops = self._admit_hops([first, *more], tickets, client, n_units, config, is_html)
                between = await translate(texts, first, one_each, hops[0])
                found = await translate([one.text for one in between], more[0], config, hops[1])
                return [replace(one, via=first.target) for one in found], detected

    def _admit_hops(  # noqa: PLR0913 - what a request is admitted by
        self,
        route: Sequence[Direction],
        tickets: ExitStack,
        client: str,
        n_units: int,
        config: SearchConfig,
        details: bool,
    ) -> list[Ticket]:
        """Admit a request to the queue of each model on a route, once, before anything is translated."""
        counts = Counter(direction.batcher for direction in route)
        admitted = {
            batcher: tickets.enter_context(batcher.admit(client, n * n_units, config, details=details))
            for batcher, n in counts.items()
        }
        return [admitted[direction.batcher] for direction in route]

    async def _run(self, client: str, texts: Sequence[str], function: Callable[..., Result], *args: Any) -> Result:
        """Call a function whose time grows with texts, without blocking others."""
        return await self._threads.run(client, sum(map(len, texts)), function, *args)

    async def _translate_texts(
        self, texts: Sequence[str], direction: Direction, config: SearchConfig, ticket: Ticket
    ) -> list[TranslatedText]:
        run = partial(self._run, ticket.client, texts)
        parts = await run(_map, direction.translator.split_sentences, texts)
        sentences = [sentence for of_text, _ in parts for sentence in of_text]
        found = await asyncio.wrap_future(direction.translate(ticket, sentences, config))
        joins = [(len(of_text), partial(join_translations, gaps=gaps)) for of_text, gaps in parts]
        return await run(_join, _versions(found, config.n_best), joins)

    async def _translate_html(
        self, texts: Sequence[str], direction: Direction, config: SearchConfig, ticket: Ticket
    ) -> list[TranslatedText]:
        run = partial(self._run, ticket.client, texts)
        fragments = await run(_map, partial(html.parse, cut=direction.translator.split_sentences), texts)
        sentences = [sentence for fragment in fragments for sentence in fragment.sentences]
        texts_of_each = [sentence.text for sentence in sentences]
        needs_alignment = any(sentence.needs_alignment() for sentence in sentences)
        found = await asyncio.wrap_future(direction.translate(ticket, texts_of_each, config, needs_alignment))
        tagged = await run(_place_tags, sentences, found, config.n_best)
        return await run(_join, tagged, [(len(one.sentences), one.join) for one in fragments])

    @property
    def n_admitted(self) -> int:
        """How many requests have a place in a queue."""
        return sum(batcher.n_admitted for batcher in self.batchers)

    def n_admitted_of(self, client: str) -> int:
        return sum(batcher.n_admitted_of(client) for batcher in self.batchers)

    def is_full_for(self, client: str, texts: Sequence[str], n_coming: int, n_coming_of_others: int) -> bool:
        """Return whether a request to translate these texts would be refused, whatever its languages are."""
        size = estimated_units(texts)
        return all(batcher.is_full_for(client, size, n_coming, n_coming_of_others) for batcher in self.batchers)

    # Attention

    async def attention(  # noqa: PLR0913 - the fields of a request
        self, text: str, index: int, source: str, target: str, config: SearchConfig, client: str = ""
    ) -> dict[str, Any]:
        """Return the translations of one sentence of a text with their scores, and the weights of every head."""
        async with asyncio.timeout(self.limits.seconds):
            if source == AUTO:
                source = (await self.detect_source(text, target, client)).language
            direction = self.direction(source, target)
            with direction.batcher.admit(client, SENTENCE_UNITS + len(text), config) as ticket:
                sentences, _ = await self._run(client, [text], direction.translator.split_sentences, text)
                self._check_sentence(sentences, index)
                return {
                    "sentences": sentences,
                    **await self._attention(sentences[index], index, direction, config, ticket),
                }

    def _check_sentence(self, sentences: list[str], index: int) -> None:
        if not 0 <= index < len(sentences):
            raise BadRequest(f"there is no sentence {index} in a text of {len(sentences)} sentences")
        if (size := len(sentences[index])) > self.limits.sentence_characters:
            raise BadRequest(
                f"attention is available for sentences of up to {self.limits.sentence_characters} characters, "
                f"this one has {size}"
            )

    async def _attention(
        self, sentence: str, index: int, direction: Direction, config: SearchConfig, ticket: Ticket
    ) -> dict[str, Any]:
        (found,) = await asyncio.wrap_future(direction.translate(ticket, [sentence], config))
        (maps,) = await asyncio.wrap_future(ticket.call(partial(direction.attention, sentence), [found.text]))
        return {
            "sentence": index,
            "source": sentence,
            "translation": found.text,
            "score": found.score,
            "alternatives": [{"text": other.text, "score": other.score} for other in found.alternatives],
            "model": direction.translator.name,
            "warnings": found.warnings,
            **await asyncio.to_thread(page_data, maps),
        }

    # The lesson

    async def lesson(self, source: str, target: str) -> Page:
        """Return the lesson about the model of a direction."""
        async with asyncio.timeout(self.limits.seconds):
            return await self.direction(source, target).lesson.page()


def exempt_from_collection() -> None:
    """Exclude all present objects from garbage collection.

    Modules and models are never freed, and scanning them stops the event loop for up to 0.2 seconds.
    """
    gc.collect()
    gc.freeze()


# Functions that run in threads


def _map(function: Callable[[str], Result], texts: Sequence[str]) -> list[Result]:
    return [function(text) for text in texts]


def _first(texts: list[str], n: int) -> list[str]:
    """Return the first `n` texts; the last one is repeated if there are fewer."""
    return [texts[min(rank, len(texts) - 1)] for rank in range(n)]


def _versions(found: Sequence[Translation], n: int) -> list[list[str]]:
    """Return the `n` best translations of each sentence."""
    return [_first([one.text, *(other.text for other in one.alternatives)], n) for one in found]


def _join(
    versions: Iterable[list[str]], joins: Sequence[tuple[int, Callable[[list[str]], str]]]
) -> list[TranslatedText]:
    """Put texts together from the translations of their sentences; `joins` has a count and a function per text."""
    remaining, results = iter(versions), []
    for n_sentences, join_text in joins:
        by_rank = zip(*islice(remaining, n_sentences), strict=True)
        results.append(TranslatedText.from_versions([join_text(list(one)) for one in by_rank] or [join_text([])]))
    return results


def _place_tags(sentences: Sequence[html.Sentence], found: Sequence[Translation], n: int) -> list[list[str]]:
    """Return the `n` best translations of each sentence with its tags."""
    return [_first(_tagged(sentence, best), n) for sentence, best in zip(sentences, found, strict=True)]


def _tagged(sentence: html.Sentence, best: Translation) -> list[str]:
    """Return a translation and its alternatives with the tags of the sentence.

    A sentence so long that it was translated in several parts has its tags around all of it.
    """
    versions = [(best.text, best.word_weights), *((other.text, other.word_weights) for other in best.alternatives)]
    can_align = sentence.needs_alignment() and len(best.word_weights) == 1
    return [html.place_tags(sentence, text, weights[0] if can_align else None) for text, weights in versions]
