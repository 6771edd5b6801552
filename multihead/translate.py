"""Text to text: lines in, as many translations out, in order, whatever is in them and however many they are."""

import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar, overload
from unicodedata import decimal

from multihead import attention, shortlist, trees
from multihead.attention import AttentionMaps
from multihead.checkpoint import load_model
from multihead.config import RunConfig, SearchConfig, UserError, check_engine, search_config
from multihead.ctranslate2_engine import CTranslate2Engine, FastestEngine
from multihead.ctranslate2_export import cached_export, has_ctranslate2, why_not_ctranslate2
from multihead.devices import pick_device
from multihead.engines import Engine, TorchEngine
from multihead.hub import find_model
from multihead.model import Transformer
from multihead.search import Hypothesis, length_penalty
from multihead.sentences import cut
from multihead.shortlist import Shortlist
from multihead.text import file_size, read_lines
from multihead.tokenizer import SubwordTokenizer

MAX_CHARACTERS = 20_000  # of a line; the rest is cut off before it costs anything


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

    def __init__(
        self,
        models: Sequence[Transformer],
        tokenizer: SubwordTokenizer,
        config: RunConfig,
        name: str,
        engine: Engine | None = None,
    ) -> None:
        self.models, self.tokenizer, self.config, self.name = list(models), tokenizer, config, name
        self.engine = engine or TorchEngine(self.models)
        # Longer input than it was trained on is possible, but its positions were never seen.
        self.max_tokens = min(config.data.max_length, *(model.config.max_len - 1 for model in self.models))

    @overload
    def translate(self, text: str, **search: object) -> Translation: ...
    @overload
    def translate(self, text: list[str], **search: object) -> list[Translation]: ...
    def translate(self, text: str | list[str], **search: object) -> Translation | list[Translation]:
        """Translate one text, or each of several; options are those of SearchConfig: `beam=4, n_best=2`."""
        config = search_config(**search)
        if isinstance(text, str):
            return next(self.stream([text], config))
        return list(self.stream(text, config))

    def stream(
        self, lines: Iterable[str], config: SearchConfig, window: int | None = None, align: bool = False
    ) -> Iterator[Translation]:
        """A translation for each line, in order; memory holds some windows of lines at a time.

        With `window`, no more lines than that are read before they are translated.
        """
        iterator = iter(lines)
        windows = iter(lambda: list(islice(iterator, window or self.engine.window)), [])

        def search(chunk: list[str]) -> tuple[list[_Job], list[_Checked]]:
            jobs = [self._read(line) for line in chunk]
            return jobs, self._search([segment for job in jobs for segment in job.segments], config)

        for jobs, checked in _ahead(search, windows, 1 if window else self.engine.ahead):
            results = iter(checked)
            for job in jobs:
                yield self._write(job, list(islice(results, len(job.segments))), config, align)

    def attention(self, text: str, translation: str | None = None, **search: object) -> AttentionMaps:
        """What every head of every layer looks at while it reads `text` and writes its translation."""
        source = self._encode(text)[: self.max_tokens]
        if translation is None:
            target = self._search([source], search_config(**search))[0].hypotheses[0].tokens
        else:
            target = self.tokenizer.encode(translation)[: self.models[0].config.max_len - 1]
        return attention.attention_maps(self.models[0], self.tokenizer, source, target)

    # Reading and writing

    def _read(self, line: str) -> "_Job":
        job = _Job()
        if len(line) > MAX_CHARACTERS:
            job.warnings.append(f"cut: the text has {len(line):,} characters, and {MAX_CHARACTERS:,} were read")
            line = line[:MAX_CHARACTERS]
        text = line.encode(errors="replace").decode().strip()  # half of a surrogate pair is no text
        if self.config.data.haste and text.isupper() and " " in text:  # it was taught small letters, and no capitals
            job.warnings.append("capitals: the text was read in small letters")
            text = text.lower()
        ids = self._encode(text)
        if len(ids) > self.max_tokens and self.config.data.tree:
            job.warnings.append(f"cut: a sentence of {len(ids)} tokens was cut to {self.max_tokens}")
            job.segments.append(ids[: self.max_tokens])
        elif len(ids) > self.max_tokens:
            job.segments.extend(self._split(text, job.warnings))
        elif text:
            job.segments.append(ids)
        return job

    def _encode(self, text: str) -> list[int]:
        return trees.encode(self.tokenizer, [text])[0] if self.config.data.tree else self.tokenizer.encode(text)

    def _split(self, text: str, warnings: list[str]) -> Iterator[list[int]]:
        """Pieces of a long text, each of whole sentences as far as they fit."""
        warnings.append(f"split: the text is longer than {self.max_tokens} tokens; sentences were translated apart")
        piece: list[int] = []
        for ids in map(self.tokenizer.encode, cut(text)[0]):
            if len(ids) > self.max_tokens:
                warnings.append(f"cut: a sentence of {len(ids)} tokens was cut to {self.max_tokens}")
            if piece and len(piece) + len(ids) > self.max_tokens:
                yield piece
                piece = []
            piece = (piece + ids)[: self.max_tokens]
        yield piece

    def _write(self, job: "_Job", results: list["_Checked"], config: SearchConfig, align: bool) -> Translation:
        if not results:
            return Translation(text="", warnings=job.warnings)
        best = [result.hypotheses[0] for result in results]
        tokens = [id for hypothesis in best for id in hypothesis.tokens]
        alternatives = results[0].hypotheses[1:] if len(results) == 1 else []
        log_prob, length = sum(one.log_prob for one in best), sum(len(one.tokens) + one.ended for one in best)
        alignment: list[tuple[int, int, float]] = []
        if align and len(results) == 1 and tokens:
            maps = attention.attention_maps(self.models[0], self.tokenizer, job.segments[0], best[0].tokens)
            alignment = attention.word_alignment(maps)
        return Translation(
            text=" ".join(filter(None, map(self._text, best))),
            score=log_prob / float(length_penalty(length, config.alpha)),
            tokens=self.tokenizer.tokens(tokens),
            source_tokens=self.tokenizer.tokens([id for segment in job.segments for id in segment]),
            alternatives=[Alternative(text=self._text(one), score=one.score) for one in alternatives],
            alignment=alignment,
            warnings=job.warnings + [warning for result in results for warning in result.warnings],
        )

    def _text(self, hypothesis: Hypothesis) -> str:
        """One line, whatever the model said."""
        return self.tokenizer.decode(hypothesis.tokens).replace("\n", " ").strip()

    # Searching

    def _search(self, segments: list[list[int]], config: SearchConfig) -> list["_Checked"]:
        """The guard: what looks wrong is searched once more with a setting against it, and flagged."""
        checked = [_Checked(hypotheses=one.best(config.n_best)) for one in self.engine.search(segments, config)]
        faults = [self._fault(segment, one.hypotheses[0]) for segment, one in zip(segments, checked, strict=True)]
        for fault, remedy in _REMEDIES.items():
            wrong, setting = [at for at, found in enumerate(faults) if found == fault], remedy(config)
            again = self.engine.search([segments[at] for at in wrong], setting) if not config.sample else []
            bearable = {"", "number"} - {fault}  # a wrong number is better than no sentence at all
            for at, found in zip_longest(wrong, again):
                candidates = found.best(max(2, setting.n_best)) if found else []
                mended = [one for one in candidates if self._fault(segments[at], one) in bearable][: config.n_best]
                warnings = [f"{fault}: searched again" if mended else f"{fault}: {_MEANING[fault]}"]
                if mended and (left := self._fault(segments[at], mended[0])):
                    warnings.append(f"{left}: {_MEANING[left]}")
                checked[at] = _Checked(hypotheses=mended or checked[at].hypotheses, warnings=warnings)
        return checked

    def _fault(self, segment: list[int], hypothesis: Hypothesis) -> str:
        text = self._text(hypothesis)
        if not text:
            return "empty"
        if not hypothesis.ended or (has_loop(hypothesis.tokens) and not has_loop(segment)):
            return "loop"
        same_language = self.config.data.source_lang == self.config.data.target_lang
        source = self.tokenizer.decode(segment).strip()
        # A name or a number is rightly copied; a whole sentence is not.
        if text == source and len(source.split()) > COPY_WORDS and not same_language:
            return "copy"
        return "number" if numbers(source) - numbers(text) else ""


@dataclass(slots=True, kw_only=True)
class _Job:
    """A line on its way: what is searched for it, and what has to be said of it."""

    segments: list[list[int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What the search gave for a segment, after the guard."""

    hypotheses: list[Hypothesis]
    warnings: list[str] = field(default_factory=list)


Given = TypeVar("Given")
Made = TypeVar("Made")


def _ahead(make: Callable[[Given], Made], of: Iterable[Given], n: int) -> Iterator[Made]:
    """`map` with `n` calls under way at a time, the results in order."""
    if n == 1:
        yield from map(make, of)
        return
    with ThreadPoolExecutor(n) as pool:
        under_way: deque[Future[Made]] = deque()
        for one in of:
            under_way.append(pool.submit(make, one))
            if len(under_way) == n:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


COPY_WORDS = 3  # more words than this are a copy, not a name
_MEANING = {
    "empty": "the model gave no translation",
    "loop": "the translation repeats itself",
    "copy": "the translation is the source",
    "number": "a number of the source is not in the translation",
}
_REMEDIES: dict[str, Callable[[SearchConfig], SearchConfig]] = {
    "empty": lambda config: replace(config, min_length=1),
    "loop": lambda config: replace(config, no_repeat=3),
    "copy": lambda config: replace(config, n_best=max(2, config.n_best), beam=max(4, config.beam)),
    "number": lambda config: replace(config, n_best=max(16, config.n_best), beam=max(16, config.beam)),
}
_NUMBER = re.compile(r"(?<![\d:])\d+(?:[.,'\u2019]\d+|[ \u00a0\u202f]\d{3}(?!\d))*(?!\d*:)")


def numbers(text: str) -> set[str]:
    """The digits of each number of two or more, in any script: 10,000 and 10.000 are one number.

    A single digit is often spelled out, and a time of day may be told otherwise.
    """
    found = ("".join(str(decimal(sign)) for sign in number if sign.isdecimal()) for number in _NUMBER.findall(text))
    return {digits for digits in found if len(digits) > 1}


def has_loop(tokens: Sequence[int], times: int = 4, longest: int = 8) -> bool:
    """True if some run of up to `longest` tokens stands `times` times in a row."""
    for size in range(1, longest + 1):
        same = 0  # tokens that equal the one `size` before
        for at in range(size, len(tokens)):
            same = same + 1 if tokens[at] == tokens[at - size] else 0
            if same == size * (times - 1):
                return True
    return False


def load(name: str | Path, *more: str | Path, engine: str = "auto") -> Translator:
    """A model by its folder or the name of a bundled one; several vote as an ensemble."""
    check_engine(engine)
    loaded = [load_model(find_model(one)) for one in (name, *more)]
    (_, tokenizer, config), device = loaded[0], pick_device()
    if any(other.to_json() != tokenizer.to_json() for _, other, _ in loaded[1:]):
        raise UserError("models of an ensemble need the same tokenizer")
    models = [model.to(device) for model, _, _ in loaded]
    made = _make_engine(engine, models, tokenizer, find_model(name))
    return Translator(models, tokenizer, config, Path(name).name, made)


def _make_engine(name: str, models: list[Transformer], tokenizer: SubwordTokenizer, folder: Path) -> Engine:
    kind, _, quantization = name.partition(":")
    model, words = models[0], shortlist.load(folder)
    torch_engine = TorchEngine(models, words)
    if kind == "torch" or (kind == "auto" and not _gains(models, words)):
        return torch_engine
    if len(models) > 1:
        raise UserError("CTranslate2 searches with one model: an ensemble needs --engine torch")
    export = cached_export(model, tokenizer, folder, quantization or "int8", words)
    fast = CTranslate2Engine(export, model.config, alone=kind == "auto")
    return FastestEngine(fast, torch_engine) if kind == "auto" else fast


def _gains(models: list[Transformer], words: Shortlist | None) -> bool:
    """Whether CTranslate2 is the faster one: on CPUs, and only with a shortlist if no sentence may share a batch."""
    able = len(models) == 1 and words is not None and not why_not_ctranslate2(models[0].config)
    return able and has_ctranslate2() and pick_device().type == "cpu"


# Files


class Input:
    """The lines of a file or of standard input, as text; what is not UTF-8 is replaced, so that no line is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        file_size(path)  # refuse a missing file now, not after the model is loaded

    def is_interactive(self) -> bool:
        return str(self._path) == "-" and sys.stdin.isatty()

    def __iter__(self) -> Iterator[str]:
        return (line.decode(errors="replace") for line in read_lines(self._path, max_bytes=4 * MAX_CHARACTERS))


def as_line(translation: Translation, as_json: bool) -> str:
    """A translation on one line; alternatives follow it after tabs."""
    if as_json:
        return json.dumps(asdict(translation), ensure_ascii=False)
    texts = [translation.text, *(alternative.text for alternative in translation.alternatives)]
    return "\t".join(text.replace("\t", " ") for text in texts) if len(texts) > 1 else texts[0]
