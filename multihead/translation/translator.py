"""Translate texts: split them into segments, search translations, and join these in order, one result per text."""

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, overload

from multihead.concurrency import map_in_threads
from multihead.config.resolve import search_config
from multihead.config.schema import ModelSearch, RunConfig, SearchConfig, check_engine
from multihead.errors import UsageError, UserError, require
from multihead.inspection.attention_maps import (
    Array,
    AttentionMaps,
    WordLink,
    between_pieces,
    word_links,
    word_weights,
)
from multihead.interop.hub import find_model
from multihead.storage.model_folder import ModelFolder
from multihead.text.casing import sentence_case
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.lines import MAX_CHARACTERS
from multihead.text.sentences import LINE_BREAKS, join_translations
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer
from multihead.translation.confidence import confidence, mean_log_prob
from multihead.translation.engine import Engine, Hypothesis, Segment, length_penalty
from multihead.translation.engines.choose import LazyModels, choose_engine
from multihead.translation.guard import Guard, GuardedResult
from multihead.translation.segments import Segmenter, SourceLine
from multihead.translation.targets import Targets

if TYPE_CHECKING:
    from multihead.inspection.trace import Trace
    from multihead.model.transformer import Transformer
    from multihead.text.constituency_trees import Tree
    from multihead.translation.parser import ParsedSentence, Parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another translation of the same text."""

    text: str
    score: float
    # For each segment of the text, how much of each target word (row) comes from each source word (column).
    word_weights: list[Array] = field(default_factory=list, repr=False, compare=False)

    def as_json(self) -> dict[str, object]:
        """Return what `multihead translate --json` prints for it."""
        return {"text": self.text, "score": self.score}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Translation:
    """A translated text.

    `token_scores` has the log-probability of each of `tokens`, and after the tokens of each sentence that of the end
    symbol. The sum is the score before it is divided by the length penalty. A sentence that was cut off at the length
    limit has no end symbol.
    """

    text: str
    score: float = 0.0  # log-probability over length penalty: comparable between translations of one text
    confidence: float | None = None  # share of good ones among validation translations as likely as this one
    tokens: list[str] = field(default_factory=list)  # pieces of the translation
    token_scores: list[float] = field(default_factory=list)
    source_tokens: list[str] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)  # the next best, if n_best > 1
    alignment: list[WordLink] = field(default_factory=list)  # source word, target word, weight
    warnings: list[str] = field(default_factory=list)
    word_weights: list[Array] = field(default_factory=list, repr=False, compare=False)  # as those of an alternative
    mean_log_prob: float = field(default=0.0, compare=False)  # of a token
    trees: "list[Tree]" = field(default_factory=list)  # of a parser: one for each sentence
    piece_scores: list[float] = field(default_factory=list, compare=False)  # token_scores without end symbols

    def __repr__(self) -> str:
        from multihead.translation.notebook import describe_translation

        return describe_translation(self)

    def _repr_html_(self) -> str:
        from multihead.translation.notebook import translation_html

        return translation_html(self)

    def withheld_below(self, min_confidence: float) -> "Translation":
        """Return the translation, or an empty one with a warning if its confidence is lower."""
        if self.confidence is None or self.confidence >= min_confidence:
            return self
        warning = f"confidence: {self.confidence:.2f} is below {min_confidence:g}"
        return Translation(text="", confidence=self.confidence, warnings=[*self.warnings, warning])

    def as_json(self) -> dict[str, object]:
        """Return the object that `multihead translate --json` prints."""
        return {
            "text": self.text,
            "score": self.score,
            "confidence": self.confidence,
            "tokens": self.tokens,
            "token_scores": self.token_scores,
            "source_tokens": self.source_tokens,
            "alternatives": [other.as_json() for other in self.alternatives],
            "alignment": self.alignment,
            "warnings": self.warnings,
        }


class Translator:
    """A loaded model, or an ensemble of models with the same vocabulary."""

    folder: ModelFolder | None = None  # that it was loaded from; the first one of an ensemble

    def __init__(  # noqa: PLR0913 - the parts of a model folder, and what runs it
        self,
        tokenizer: SubwordTokenizer,
        config: RunConfig,
        name: str,
        engine: Engine,
        models: "Callable[[], Sequence[Transformer]]",
        search: ModelSearch | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """`models` returns the torch models, which only attention maps need.

        `max_tokens` limits segments; by default to the longest that the model was trained on.
        """
        self.tokenizer, self.config, self.name = tokenizer, config, name
        self.search = search or ModelSearch()
        self.targets = Targets(name, config.data, tokenizer)
        self._has_target = not self.targets.must_be_chosen
        self.segmenter = Segmenter(tokenizer, config.data, max_tokens or longest_segment(config))
        self.segmenter.expects_code = self.targets.may_be_typed
        self.guard = Guard(engine, tokenizer, config.data)
        self.parser = self._make_parser() if config.data.task == "parse" else None
        self._load_models = models

    def __repr__(self) -> str:
        from multihead.translation.notebook import describe_translator

        return describe_translator(self)

    def _repr_html_(self) -> str:
        from multihead.translation.notebook import translator_html

        return translator_html(self)

    @property
    def engine(self) -> Engine:
        """What searches translations."""
        return self.guard.engine

    @property
    def models(self) -> "Sequence[Transformer]":
        """The torch models, loaded when first used."""
        return self._load_models()

    def into(self, language: str | None, source: str | None = None) -> "Translator":
        """Return this model as a translator into one of its languages; None for a model that has only one.

        With `source`, text is expected in that language only.
        """
        target = self.targets.choose(language, source)
        chosen = copy(self)
        chosen._has_target = True
        chosen.config = replace(self.config, data=target.data)
        chosen.segmenter = replace(
            self.segmenter,
            data=target.data,
            prefix=list(target.prefix),
            sources=list(target.sources),
            expects_code=self.targets.may_be_typed and not target.prefix,
        )
        chosen.guard = Guard(self.engine, self.tokenizer, target.data)
        return chosen

    def with_engine(self, engine: Engine) -> "Translator":
        """Return this translator with another engine for the same model."""
        chosen = copy(self)
        chosen.guard = Guard(engine, self.tokenizer, self.config.data)
        chosen.parser = Parser(chosen.guard, self.segmenter, self.tokenizer) if self.parser else None
        return chosen

    def _for(self, language: str | None) -> "Translator":
        """Return the translator into a language that a caller may name; one that was chosen before remains."""
        return self if language is None and self._has_target else self.into(language)

    @overload
    def translate(self, text: str, *, to: str | None = None, **search: object) -> Translation: ...
    @overload
    def translate(self, text: list[str], *, to: str | None = None, **search: object) -> list[Translation]: ...
    def translate(
        self, text: str | list[str], *, to: str | None = None, **search: object
    ) -> Translation | list[Translation]:
        """Translate a text or a list of texts; options are the fields of SearchConfig: `beam=4, n_best=2`.

        A text can have any number of sentences; its line breaks are kept. `to` is the language to translate into, which
        a model of several languages needs.
        """
        config, chosen = search_config(**search), self._for(to)
        if isinstance(text, str):
            return next(chosen.stream([text], config, details=True))
        return list(chosen.stream(text, config, details=True))

    def stream(
        self, texts: Iterable[str], config: SearchConfig, chunk_size: int | None = None, details: bool = False
    ) -> Iterator[Translation]:
        """Yield a translation for each text, in order; only a few chunks of texts are in memory at a time.

        With `chunk_size`, each chunk is translated before more texts are read: 1 for interactive use. With `details`,
        translations have an alignment and token scores, which take a part of the time.
        """
        config = config.of_model(self.search)
        if not self._has_target:
            self.targets.choose(None)  # says which there are
        if self.parser:
            for sentences in self.parser.parse_texts(texts, config, chunk_size):
                yield self._trees(sentences, config)
            return

        def translate_chunk(chunk: list[str]) -> tuple[list[SourceLine], list[GuardedResult]]:
            lines = [self.segmenter.read(text, bool(config.split)) for text in chunk]
            return lines, self.guard.search([segment for line in lines for segment in line.segments], config, details)

        chunks = _chunks(texts, chunk_size or self.engine.chunk_size)
        for lines, results in map_in_threads(translate_chunk, chunks, 1 if chunk_size else self.engine.prefetch):
            remaining = iter(results)
            for line in lines:
                yield self._join(line, list(islice(remaining, len(line.segments))), config)

    def require_confidence(self, minimum: float) -> None:
        """Refuse a smallest confidence that is no probability, or that this model cannot measure."""
        if not 0 <= minimum <= 1:
            raise UsageError(f"a confidence is a number from 0 to 1, not {minimum:g}")
        if not self.search.confidence:
            raise UserError(
                f"{self.name} has no confidence: calibrate it on validation text with "
                f"`multihead evaluate {shlex.quote(self.name)} --source F --reference F --calibrate`"
            )

    def split_sentences(self, text: str) -> tuple[list[str], list[str]]:
        """Return the sentences of a text and the gaps around them, as `stream` splits it by default."""
        return self.segmenter.sentences(text, self.search.split)

    def attention(
        self, text: str, translation: str | None = None, *, to: str | None = None, **search: object
    ) -> AttentionMaps:
        """Return the attention weights of every layer and head for a sentence and its translation.

        Without a `translation`, the model translates the sentence first.
        """
        return self._record(*self._for(to)._pair(text, translation, search))

    def trace(self, text: str, translation: str | None = None, *, to: str | None = None, **search: object) -> "Trace":
        """Return every tensor of the forward pass for a sentence and its translation, by name.

        Without a `translation`, the model translates the sentence first.
        """
        module = require("multihead.inspection.trace", extra="train", purpose="the trace of a sentence")
        source, target = self._for(to)._pair(text, translation, search)
        heads = None if source.heads is None else [*source.heads, NO_HEAD]
        ids = [*source.ids, EOS_ID], [BOS_ID, *target][: self.config.model.max_len]
        trace: Trace = module.record_trace(self.models[0], *ids, heads)
        return trace

    def _pair(self, text: str, translation: str | None, search: Mapping[str, object]) -> tuple[Segment, list[int]]:
        """Return a sentence as a segment, and the ids of its translation."""
        source = self.segmenter.encode_sentence(text)
        if translation is not None:
            if source.in_capitals:  # as the model wrote it
                translation = sentence_case(translation, self.config.data.target_lang)
            return source, self.tokenizer.encode_target(translation)[: self.config.model.max_len - 1]
        config = search_config(**search).of_model(self.search)
        (found,) = self.guard.search([source], config)
        return found.segment, found.candidates[0].hypothesis.tokens

    def _join(self, line: SourceLine, results: list[GuardedResult], config: SearchConfig) -> Translation:
        """Return the translation of a text, given those of its segments."""
        if not results:
            return Translation(text="", warnings=line.warnings)
        best, *others = self._versions(line, results, config)
        hypotheses = [result.candidates[0].hypothesis for result in results]
        log_prob = mean_log_prob(hypotheses)
        return Translation(
            text=best.text,
            score=best.score,
            confidence=confidence(self.search, log_prob),
            mean_log_prob=log_prob,
            tokens=self.tokenizer.tokens([id for one in hypotheses for id in one.tokens]),
            token_scores=[score for one in hypotheses for score in one.token_scores],
            source_tokens=self.tokenizer.tokens([id for result in results for id in result.segment.ids]),
            alternatives=[other for other in others if other.text != best.text],
            alignment=_alignment(best.word_weights),
            warnings=line.warnings + [warning for result in results for warning in result.warnings],
            word_weights=best.word_weights,
            piece_scores=[score for one in hypotheses for score in one.token_scores[: len(one.tokens)]],
        )

    def _make_parser(self) -> "Parser":
        from multihead.translation.parser import Parser  # most models are none, and start faster without it

        return Parser(self.guard, self.segmenter, self.tokenizer)

    def _trees(self, sentences: "list[ParsedSentence]", config: SearchConfig) -> Translation:
        """Return the trees of a text's sentences as brackets on one line."""
        from multihead.text.constituency_trees import bracketed

        versions = [
            Alternative(
                text=" ".join(bracketed(one.trees[rank]) for one in sentences),
                score=math.fsum(one.scores[rank] for one in sentences),
            )
            for rank in range(min((len(one.trees) for one in sentences), default=0))
        ]
        if not versions:
            return Translation(text="")
        unique: dict[str, Alternative] = {}
        for version in versions:
            unique.setdefault(version.text, version)
        hypotheses = [one.hypotheses[0] for one in sentences]
        return Translation(
            text=versions[0].text,
            score=versions[0].score,
            tokens=self.tokenizer.tokens([id for one in hypotheses for id in one.tokens]),
            token_scores=[score for one in hypotheses for score in one.token_scores],
            alternatives=list(unique.values())[1 : config.n_best],
            trees=[one.trees[0] for one in sentences],
        )

    def _versions(self, line: SourceLine, results: list[GuardedResult], config: SearchConfig) -> list[Alternative]:
        """Return the distinct translations of a text: of the best candidates of all segments, the second best, ..."""
        versions: dict[str, Alternative] = {}
        for rank in range(max(len(result.candidates) for result in results)):
            chosen = [result.candidates[min(rank, len(result.candidates) - 1)] for result in results]
            text = join_translations([one.text for one in chosen], ["", *line.gaps[1:], ""]).strip()
            if text in versions:
                continue
            hypotheses = [one.hypothesis for one in chosen]
            log_prob = math.fsum(one.log_prob for one in hypotheses)
            score = log_prob / length_penalty(sum(one.length for one in hypotheses), config.penalty)
            weights = [self._word_weights(result.segment, one) for result, one in zip(results, hypotheses, strict=True)]
            versions[text] = Alternative(
                text=text, score=score, word_weights=[one for one in weights if one is not None]
            )
        return list(versions.values())

    def _word_weights(self, segment: Segment, hypothesis: Hypothesis) -> Array | None:
        """Return the attention of a hypothesis between words, if the search returned it."""
        if hypothesis.attention is None:
            return None
        n_prefix = len(self.segmenter.prefix)  # the piece of the target language is no word of the text
        weights = between_pieces(hypothesis.attention[:, n_prefix:]) if n_prefix else hypothesis.attention
        source, target = self.tokenizer.readable(segment.ids[n_prefix:]), self.tokenizer.readable(hypothesis.tokens)
        return word_weights(source, target, weights)

    def _record(self, source: Segment, target: list[int]) -> AttentionMaps:
        module = require("multihead.inspection.record", extra="train", purpose="the attention of every head")
        maps: AttentionMaps = module.record_attention(self.models[0], self.tokenizer, source.ids, target, source.heads)
        return maps


def longest_segment(config: RunConfig) -> int:
    """Return the maximum length of a segment: positions beyond the training text would work badly."""
    return min(config.data.max_length, config.model.max_len - 1)


def _alignment(word_weights: Sequence[Array]) -> list[WordLink]:
    """Return the alignment of all segments, with words counted over the whole text."""
    alignment: list[WordLink] = []
    n_sources = n_targets = 0
    for weights in word_weights:
        alignment += [
            (n_sources + source, n_targets + target, weight) for source, target, weight in word_links(weights)
        ]
        n_targets += weights.shape[0]
        n_sources += weights.shape[1]
    return alignment


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` texts, fewer if they are long, so that memory stays bounded."""
    chunk: list[str] = []
    n_characters = 0
    for text in texts:
        chunk.append(text)
        n_characters += len(text)
        if len(chunk) == size or n_characters >= MAX_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def load(
    name: str | Path,
    *more: str | Path,
    engine: str = "auto",
    threads: int | None = None,
    concurrent_searches: int = 1,
) -> Translator:
    """Load a model by its folder or name; with several models, an ensemble.

    `threads` is the number of cores to use; by default OMP_NUM_THREADS, else all cores that this process may use.
    `concurrent_searches` is for programs that translate in several threads: so many calls run side by side, each on one
    core (CTranslate2 only).
    """
    check_engine(engine)
    if threads is not None and threads < 1:
        raise UsageError(f"threads={threads} must be at least 1")
    folders = [ModelFolder.open(find_model(one)) for one in (name, *more)]
    tokenizer, *others = [folder.tokenizer() for folder in folders]
    if any(other.to_json() != tokenizer.to_json() for other in others):
        raise UserError("models of an ensemble need the same tokenizer")
    models = LazyModels(folders)
    translator = Translator(
        tokenizer,
        folders[0].config,
        Path(name).name,
        choose_engine(engine, folders, models, threads, concurrent_searches),
        models,
        replace(folders[0].search, confidence_levels=(), confidence=()) if more else folders[0].search,
        min(folders[0].config.data.max_length, *(folder.config.model.max_len - 1 for folder in folders)),
    )
    translator.folder = folders[0]
    translator.segmenter.detector = folders[0].detector()
    return translator if translator.targets.must_be_chosen else translator.into(None)


def as_line(translation: Translation, as_json: bool) -> str:
    """Return a translation on one line; alternatives follow, separated by tabs."""
    if as_json:
        return json.dumps(translation.as_json(), ensure_ascii=False)
    versions = [translation.text, *(alternative.text for alternative in translation.alternatives)]
    texts = [LINE_BREAKS.sub(" ", version) for version in versions]
    return "\t".join(text.replace("\t", " ") for text in texts) if len(texts) > 1 else texts[0]
