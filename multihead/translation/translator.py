"""Text to text: each text is split into sentences, translated and put together again, in order and in any number."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import overload

from multihead.concurrency import map_in_threads
from multihead.config.resolve import search_config
from multihead.config.schema import ModelSearch, RunConfig, SearchConfig, check_engine
from multihead.errors import UserError
from multihead.hardware.device import pick_device
from multihead.inspection.attention_maps import AttentionMaps, word_alignment
from multihead.inspection.record import record_attention
from multihead.interop.hub import find_model
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model
from multihead.storage.model_folder import read_search
from multihead.text.dependency_trees import encode_tree
from multihead.text.encoding import normalize
from multihead.text.lines import MAX_CHARACTERS
from multihead.text.pieces import group_words
from multihead.text.sentences import LINE_BREAKS, as_one_sentence, join_translations, split_sentences, split_to_fit
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Engine, Hypothesis, length_penalty
from multihead.translation.engines.choose import choose_engine
from multihead.translation.engines.torch_engine import TorchEngine
from multihead.translation.guard import COPY_WORDS, FAULT_MESSAGES, RETRY_SETTINGS, GuardedResult, has_loop, numbers
from multihead.translation.segments import CONTROL, LANGUAGE_CODE, LONG_PIECE, SHORT, SHORT_TEXT, SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another translation of the same text."""

    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A translated text."""

    text: str
    score: float = 0.0  # log-probability over length penalty: comparable between translations of one text
    tokens: list[str] = field(default_factory=list)  # pieces of the translation
    source_tokens: list[str] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)  # the next best, if more than one was asked for
    alignment: list[tuple[int, int, float]] = field(default_factory=list)  # source word, target word, weight
    warnings: list[str] = field(default_factory=list)


class Translator:
    """A loaded model: one, or several of one vocabulary that vote."""

    def __init__(  # noqa: PLR0913 - what a model folder holds, and what runs it
        self,
        models: Sequence[Transformer],
        tokenizer: SubwordTokenizer,
        config: RunConfig,
        name: str,
        engine: Engine | None = None,
        search: ModelSearch | None = None,
    ) -> None:
        self.models, self.tokenizer, self.config, self.name = list(models), tokenizer, config, name
        self.engine = engine or TorchEngine(self.models)
        self.search = search or ModelSearch()
        # Longer input than it was trained on is possible, but its positions were never seen.
        self.max_tokens = min(config.data.max_length, *(model.config.max_len - 1 for model in self.models))

    @overload
    def translate(self, text: str, **search: object) -> Translation: ...
    @overload
    def translate(self, text: list[str], **search: object) -> list[Translation]: ...
    def translate(self, text: str | list[str], **search: object) -> Translation | list[Translation]:
        """Translate one text, or each of several; options are those of SearchConfig: `beam=4, n_best=2`.

        A text may be a sentence or many; its line breaks are kept.
        """
        config = search_config(**search)
        if isinstance(text, str):
            return next(self.stream([text], config))
        return list(self.stream(text, config))

    def stream(
        self, texts: Iterable[str], config: SearchConfig, chunk_size: int | None = None, align: bool = False
    ) -> Iterator[Translation]:
        """Yield a translation for each text, in order; memory holds a few windows of texts at a time.

        With `chunk_size`, at most that many texts are read before they are translated.
        """
        config = config.of_model(self.search)

        def search(chunk: list[str]) -> tuple[list[SourceLine], list[GuardedResult]]:
            jobs = [self._read(text, config) for text in chunk]
            return jobs, self._search([segment for job in jobs for segment in job.segments], config)

        windows = _windows(texts, chunk_size or self.engine.chunk_size)
        for jobs, checked in map_in_threads(search, windows, 1 if chunk_size else self.engine.prefetch):
            results = iter(checked)
            for job in jobs:
                yield self._write(job, list(islice(results, len(job.segments))), config, align)

    def split_sentences(self, text: str) -> tuple[list[str], list[str]]:
        """Return the sentences of a text and the gaps around them, as `stream` cuts it by default."""
        if not self.search.split or self.config.data.tree:
            return as_one_sentence(text)
        return split_sentences(text, self.config.data.source_lang)

    def attention(self, text: str, translation: str | None = None, **search: object) -> AttentionMaps:
        """What every head of every layer looks at while it reads `text` and writes its translation."""
        source = self._encode(normalize(text, self.config.data.unicode))[: self.max_tokens]
        if translation is None:
            config = search_config(**search).of_model(self.search)
            target = self._search([source], config)[0].hypotheses[0].tokens
        else:
            target = self.tokenizer.encode_target(translation)[: self.models[0].config.max_len - 1]
        return record_attention(self.models[0], self.tokenizer, source, target)

    # Reading and writing

    def _read(self, text: str, config: SearchConfig) -> "SourceLine":
        job = SourceLine()
        if len(text) > MAX_CHARACTERS:
            job.warnings.append(f"cut: the text has {len(text):,} characters; the first {MAX_CHARACTERS:,} were read")
            text = text[:MAX_CHARACTERS]
        text = CONTROL.sub(" ", text.encode(errors="replace").decode())  # half of a surrogate pair is no text
        text = normalize(text, self.config.data.unicode)
        code = LANGUAGE_CODE.match(text) if self.config.data.tokenizer == "unigram" else None
        prefix = code[0] if code else ""
        is_split = config.split and not self.config.data.tree
        body = text[len(prefix) :]
        sentences, gaps = split_sentences(body, self.config.data.source_lang) if is_split else as_one_sentence(body)
        for sentence, gap in zip(sentences, gaps, strict=False):
            self._add(job, prefix + sentence, gap)
        return job

    def _add(self, job: "SourceLine", sentence: str, gap: str) -> None:
        """Add the segments of a sentence: itself, or the parts of one that is too long for the model."""
        if (
            self.config.data.casing_noise and sentence.isupper() and " " in sentence
        ):  # it was taught lower case, not capitals
            job.warnings.append("capitals: the text was read in lower case")
            sentence = sentence.lower()
        ids = self._encode(sentence) if len(sentence) <= LONG_PIECE * self.max_tokens else []
        if ids and len(ids) <= self.max_tokens:
            job.add(ids, gap)
        elif self.config.data.tree:  # half of a tree is no tree
            job.warnings.append(f"cut: a sentence of {len(ids)} tokens was cut to {self.max_tokens}")
            job.add(ids[: self.max_tokens], gap)
        else:
            pieces = list(split_to_fit(sentence, self._size, self.max_tokens, self.config.data.source_lang))
            job.warnings.append(
                f"split: a sentence longer than {self.max_tokens} tokens was translated in {len(pieces)} parts"
            )
            for piece in pieces:
                job.add(self._encode(piece.strip()), gap)
                gap = piece[len(piece.rstrip()) :]

    def _encode(self, text: str) -> list[int]:
        return encode_tree(self.tokenizer, [text])[0] if self.config.data.tree else self.tokenizer.encode(text)

    def _size(self, text: str) -> int:
        """The tokens of a text, or a lower bound if it is certainly too long: encoding it could take seconds."""
        return len(self._encode(text)) if len(text) <= LONG_PIECE * self.max_tokens else len(text) // LONG_PIECE + 1

    def _write(
        self, job: "SourceLine", results: list["GuardedResult"], config: SearchConfig, align: bool
    ) -> Translation:
        if not results:
            return Translation(text="", warnings=job.warnings)
        best, *others = self._versions(job, results, config)
        tokens = [id for result in results for id in result.hypotheses[0].tokens]
        return Translation(
            text=best.text,
            score=best.score,
            tokens=self.tokenizer.tokens(tokens),
            source_tokens=self.tokenizer.tokens([id for segment in job.segments for id in segment]),
            alternatives=[other for other in others if other.text != best.text],
            alignment=self._alignment(job, results) if align else [],
            warnings=job.warnings + [warning for result in results for warning in result.warnings],
        )

    def _versions(self, job: "SourceLine", results: list["GuardedResult"], config: SearchConfig) -> list[Alternative]:
        """The best translation of every segment, then the second best of every one, and so on."""
        versions: dict[str, Alternative] = {}
        for rank in range(max(len(result.hypotheses) for result in results)):
            chosen = [result.hypotheses[min(rank, len(result.hypotheses) - 1)] for result in results]
            log_prob = math.fsum(one.log_prob for one in chosen)
            length = sum(len(one.tokens) + one.finished for one in chosen)
            text = join_translations([self._text(one) for one in chosen], ["", *job.gaps[1:], ""]).strip()
            score = log_prob / float(length_penalty(length, config.penalty))
            versions.setdefault(text, Alternative(text=text, score=score))
        return list(versions.values())

    def _alignment(self, job: "SourceLine", results: list["GuardedResult"]) -> list[tuple[int, int, float]]:
        """The alignment of each segment, with words counted over the whole text."""
        found: list[tuple[int, int, float]] = []
        n_sources = n_targets = 0
        for segment, result in zip(job.segments, results, strict=True):
            maps = record_attention(self.models[0], self.tokenizer, segment, result.hypotheses[0].tokens)
            found += [
                (n_sources + source, n_targets + target, weight) for source, target, weight in word_alignment(maps)
            ]
            n_sources += len(group_words(maps.source_tokens[:-1]))
            n_targets += len(group_words(maps.target_tokens[1:]))
        return found

    def _text(self, hypothesis: Hypothesis) -> str:
        """The text of a hypothesis on one line."""
        return self.tokenizer.decode(hypothesis.tokens).replace("\n", " ").strip()

    # Searching

    def _search(self, segments: list[list[int]], config: SearchConfig) -> list["GuardedResult"]:
        """Search, then guard: what looks wrong is searched again with a setting against it, and flagged."""
        checked = [GuardedResult(hypotheses=one.best(config.n_best)) for one in self.engine.search(segments, config)]
        if config.guard:
            self._guard(segments, checked, config)
        for segment, one in zip(segments, checked, strict=True):
            if self._is_short(segment, one.hypotheses[0]):
                one.warnings.append("short: the translation is much shorter than the text")
        return checked

    def _is_short(self, segment: list[int], hypothesis: Hypothesis) -> bool:
        """Whether much of the source is probably missing: by the number of tokens, or of sentences."""
        if len(segment) < SHORT_TEXT or not hypothesis.tokens:
            return False
        data = self.config.data
        n_sentences = len(split_sentences(self.tokenizer.decode(segment), data.source_lang)[0])
        n_said = len(split_sentences(self._text(hypothesis), data.target_lang)[0])
        return len(hypothesis.tokens) < SHORT * len(segment) or (n_sentences > 2 and n_said <= n_sentences / 2)

    def _guard(self, segments: list[list[int]], checked: list["GuardedResult"], config: SearchConfig) -> None:
        faults = [self._fault(segment, one.hypotheses[0]) for segment, one in zip(segments, checked, strict=True)]
        for fault, remedy in RETRY_SETTINGS.items():
            wrong, setting = [at for at, found in enumerate(faults) if found == fault], remedy(config)
            again = self.engine.search([segments[at] for at in wrong], setting) if not config.sample else []
            bearable = {"", "number"} - {fault}  # a wrong number is better than no sentence at all
            for at, found in zip_longest(wrong, again):
                candidates = found.best(max(2, setting.n_best)) if found else []
                mended = [one for one in candidates if self._fault(segments[at], one) in bearable][: config.n_best]
                warnings = [f"{fault}: searched again" if mended else f"{fault}: {FAULT_MESSAGES[fault]}"]
                if mended and (left := self._fault(segments[at], mended[0])):
                    warnings.append(f"{left}: {FAULT_MESSAGES[left]}")
                checked[at] = GuardedResult(hypotheses=mended or checked[at].hypotheses, warnings=warnings)

    def _fault(self, segment: list[int], hypothesis: Hypothesis) -> str:
        text = self._text(hypothesis)
        if not text:
            return "empty"
        if not hypothesis.finished or (has_loop(hypothesis.tokens) and not has_loop(segment)):
            return "loop"
        same_language = self.config.data.source_lang == self.config.data.target_lang
        source = self.tokenizer.decode(segment).strip()
        # A name or a number is rightly copied; a whole sentence is not.
        if text == source and len(source.split()) > COPY_WORDS and not same_language:
            return "copy"
        return "number" if numbers(source) - numbers(text) else ""


def _windows(texts: Iterable[str], most: int) -> Iterator[list[str]]:
    """Lists of at most `most` texts; fewer of long ones, so that memory stays bounded."""
    window: list[str] = []
    n_characters = 0
    for text in texts:
        window.append(text)
        n_characters += len(text)
        if len(window) == most or n_characters >= MAX_CHARACTERS:
            yield window
            window, n_characters = [], 0
    if window:
        yield window


def load(name: str | Path, *more: str | Path, engine: str = "auto") -> Translator:
    """A model by its folder or the name of a bundled one; several vote as an ensemble."""
    check_engine(engine)
    loaded = [load_model(find_model(one)) for one in (name, *more)]
    (_, tokenizer, config), device = loaded[0], pick_device()
    if any(other.to_json() != tokenizer.to_json() for _, other, _ in loaded[1:]):
        raise UserError("models of an ensemble need the same tokenizer")
    models = [model.to(device) for model, _, _ in loaded]
    made = choose_engine(engine, models, tokenizer, find_model(name))
    return Translator(models, tokenizer, config, Path(name).name, made, read_search(find_model(name)))


def as_line(translation: Translation, as_json: bool) -> str:
    """A translation on one line; alternatives follow it after tabs."""
    if as_json:
        return json.dumps(asdict(translation), ensure_ascii=False)
    versions = [translation.text, *(alternative.text for alternative in translation.alternatives)]
    texts = [LINE_BREAKS.sub(" ", version) for version in versions]
    return "\t".join(text.replace("\t", " ") for text in texts) if len(texts) > 1 else texts[0]
