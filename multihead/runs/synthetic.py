"""Pairs of which a model writes one side: back-translated text, and the translations of a teacher.

Text is translated in parts of a fixed number of lines. Each part becomes one file, which is renamed into place when it
is complete, so that an interrupted translation continues with the next part and ends with the same bytes.
"""

import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from multihead.config.directions import Languages
from multihead.config.schema import SearchConfig
from multihead.console import Log, Progress, duration
from multihead.data.marks import BACK_TRANSLATED
from multihead.data.readers.opening import one_line
from multihead.errors import UsageError, UserError
from multihead.interop.hub import find_model
from multihead.storage.files import atomic_file, content_sum, exclusive, sha256, write_text_atomic
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.text.file_formats import check_is_text
from multihead.text.lines import STANDARD_INPUT, TextInput, file_size
from multihead.translation.engines.choose import name_batch_engine
from multihead.translation.targets import Targets
from multihead.translation.translator import Translator, load

PART_LINES = 1000  # after a kill, at most this many lines are translated again
JOB = "job.json"  # what a folder of parts belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticText:
    """Text that a model is to translate, to train another one on the pairs."""

    lines: Callable[[], Iterable[str]]
    sums: Sequence[str]  # by which the text is recognized
    mark: str  # of the sources of the pairs, which says which side is translated
    languages: Languages  # of the pairs; empty texts if they are not known
    beam: int = 1

    @property
    def to(self) -> str | None:
        """The language that the text is translated into, if it is known."""
        return self.languages[0 if self.mark == BACK_TRANSLATED else 1] or None

    def identity(self) -> dict[str, object]:
        """Return what the pairs depend on, apart from the model."""
        return {"text": list(self.sums), "mark": self.mark, "languages": list(self.languages), "beam": self.beam}

    def pair(self, line: str, translation: str) -> bytes:
        """Return a pair as a line of a table."""
        text, translated = one_line(line), one_line(translation)
        source, target = (translated, text) if self.mark == BACK_TRANSLATED else (text, translated)
        return self.mark.encode() + b" " + source + b"\t" + target + b"\n"

    def header(self) -> bytes:
        """Return the line that names the languages of the columns, if they are known."""
        return ("\t".join(self.languages) + "\n").encode() if all(self.languages) else b""


def lines_of(files: Sequence[Path]) -> Callable[[], Iterator[str]]:
    """Return a function that reads the lines of some files."""
    return lambda: (line for file in files for line in TextInput(file))


def text_to_translate_back(reverse: str, file: Path, to: str | None, beam: int) -> SyntheticText:
    """Return text in the language that a model is to translate into, for `reverse`, which translates it back.

    `to` is the language of the sources, if `reverse` knows several.
    """
    if str(file) == STANDARD_INPUT:
        raise UsageError("--input takes a file: to continue after an interruption, it is read again")
    if not file_size(file):
        raise UserError(f"{file} is empty: there is nothing to translate")
    check_is_text(file, "--input")
    folder = ModelFolder.open(find_model(reverse))
    data = Targets(reverse, folder.config.data, folder.tokenizer()).choose(to).data
    return SyntheticText(
        lines=lines_of([file]),
        sums=[content_sum(file)],
        mark=BACK_TRANSLATED,
        languages=(data.target_lang, data.source_lang),
        beam=beam,
    )


def write_pairs(text: SyntheticText, model: str, output: Path, log: Log, max_seconds: float = 0.0) -> float:
    """Translate a text into a table of pairs, and return the seconds that this took; called again, continue.

    After `max_seconds` the rest of the text is left out (0: none is). The parts are in a hidden folder next to the
    output until the table is complete.
    """
    parts = output.with_name(f".{output.name}.parts")
    with exclusive(parts):
        seconds = _translate(text, model, parts, log, max_seconds)
        with atomic_file(output) as temporary, temporary.open("wb") as file:
            _join(text, parts, file, is_compressed=output.suffix == ".gz")
    shutil.rmtree(parts)
    return seconds


def _join(text: SyntheticText, parts: Path, file: BinaryIO, is_compressed: bool) -> None:
    """Write the table of all pairs; a gzip file may consist of several, so that the parts are copied as they are."""
    file.write(_compressed(text.header()) if is_compressed else text.header())
    for part in _complete_parts(parts):
        with part.open("rb") if is_compressed else gzip.open(part) as content:
            shutil.copyfileobj(content, file)


def _translate(text: SyntheticText, model: str, parts: Path, log: Log, max_seconds: float) -> float:
    """Translate what is not translated yet into the files of a folder, and return the seconds of all of it."""
    translator = _load(model, text.to)
    seconds = _open(parts, {**text.identity(), "model": _checksum(translator)})
    n_before = len(_complete_parts(parts))
    if n_before:
        log(f"{n_before * PART_LINES:,} lines are translated already")
    lines = islice((line for line in text.lines() if line.strip()), n_before * PART_LINES, None)
    search = SearchConfig(beam=text.beam)
    with Progress(log, f"translating with {model}, beam {text.beam}") as progress:
        for number, part in enumerate(_batched(lines), start=n_before):
            if max_seconds and number and seconds > max_seconds:
                log(f"the rest of the text is left out: translating took {duration(seconds)}, its share of the time")
                break
            began = time.monotonic()
            pairs = zip(part, translator.stream(part, search), strict=True)
            content = b"".join(text.pair(line, one.text) for line, one in pairs if one.text.strip())
            with atomic_file(_part(parts, number)) as temporary:
                temporary.write_bytes(_compressed(content))
            progress.done += len(part)
            seconds += time.monotonic() - began
            _record(parts, seconds)
    if not _complete_parts(parts):
        (parts / JOB).unlink()
        raise UserError("there is no text to translate: all lines are empty")
    return seconds


def _load(model: str, to: str | None) -> Translator:
    """Load a model into the engine that is fastest for a large text."""
    engine = name_batch_engine(ModelFolder.open(find_model(model)))
    translator = load(model, engine=engine)
    knows_languages = any(translator.targets.languages)
    return translator.into(to if knows_languages else None)


def _checksum(translator: Translator) -> str:
    assert translator.folder
    return sha256(translator.folder.path / WEIGHTS)


def _batched(lines: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(lines)
    while part := list(islice(rest, PART_LINES)):
        yield part


def _compressed(content: bytes) -> bytes:
    """Return a gzip member, whose bytes do not depend on the time."""
    return gzip.compress(content, mtime=0)


# The folder of parts


def _open(parts: Path, identity: dict[str, object]) -> float:
    """Return the seconds that the parts of this job took so far; parts of another one are removed."""
    try:
        job = json.loads((parts / JOB).read_text(encoding="utf-8"))
        if job["identity"] == identity:
            return float(job["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    for part in _complete_parts(parts):
        part.unlink()
    write_text_atomic(parts / JOB, json.dumps({"identity": identity, "seconds": 0.0}))
    return 0.0


def _record(parts: Path, seconds: float) -> None:
    job = json.loads((parts / JOB).read_text(encoding="utf-8"))
    write_text_atomic(parts / JOB, json.dumps({**job, "seconds": round(seconds, 3)}))


def _part(parts: Path, number: int) -> Path:
    return parts / f"part-{number:06}.tsv.gz"


def _complete_parts(parts: Path) -> list[Path]:
    """Return the parts that are there, in order."""
    return sorted(parts.glob("part-*.tsv.gz"))
