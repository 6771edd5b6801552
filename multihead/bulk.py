"""Translation of any amount of text on a Ray cluster, by default one on this machine.

The input is cut into parts by its size alone, and what becomes of a part is one Parquet file. It is written aside, and
gets its name when it is whole; a part whose file is there is done, whoever was killed meanwhile. So every row is
translated exactly once, and the files in the order of their names have the rows in the order of the input.
"""

import contextlib
import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import Progress

from multihead.checkpoint import read_search
from multihead.config import SearchConfig, UserError
from multihead.files import replace_text, sha256, sync
from multihead.hub import find_model
from multihead.journal import plain_talk
from multihead.text import file_size, read_lines, refuse_utf16
from multihead.translate import MAX_CHARACTERS, Translator, load

if TYPE_CHECKING:
    import pyarrow

Talk = Callable[[str], None]

MANIFEST = "bulk.json"
FEWEST, MOST = 500, 50_000  # rows in a part
N_PARTS = 1000  # about as many parts as are made of an input of middling size
OBJECT_STORE = 128 << 20  # bytes: only the names of parts travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may say."""

    search: SearchConfig = field(default_factory=SearchConfig)
    engine: str = "auto"
    id_column: str = "id"
    text_column: str = "text"
    workers: int = 0  # one for each core of the cluster
    address: str | None = None  # of a cluster that is there already
    part_rows: int = 0  # by the size of the input


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What comes out is a function of this: it is kept beside the output, and what goes on has to be the same."""

    model: str  # SHA-256 of its weights
    files: dict[str, int]  # of the input, with their sizes
    id_column: str
    text_column: str
    engine: str
    search: SearchConfig
    part_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a file, one after the other."""

    number: int
    file: str
    first_row: int
    n_rows: int
    start: int = 0  # the byte at which they begin, in text

    @property
    def name(self) -> str:
        return f"part-{self.number:06}.parquet"


def bulk(model: str, source: Path, output: Path, options: Options, console: Console | None = None) -> int:
    """Translate `source`, Parquet or text, into the folder `output`; called again, go on. How many rows there are."""
    _import_ray(options)
    folder, output = find_model(model).resolve(), output.resolve()
    with _only_writer(output):
        files = _files(source)
        rows = {file: _count_rows(file, options) for file in files}
        total = sum(rows.values())
        job = Job(
            model=sha256(folder / "model.safetensors"),
            files={str(file): file.stat().st_size for file in files},
            id_column=options.id_column,
            text_column=options.text_column,
            engine=options.engine,
            search=options.search.of_model(read_search(folder)),
            part_rows=options.part_rows or min(MOST, max(FEWEST, math.ceil(total / N_PARTS))),
        )
        job = _take_up(job, output)
        parts = list(_cut(rows, job.part_rows))
        todo = [part for part in parts if not (output / part.name).exists()]
        _translate(todo, parts, _Work(job=job, folder=folder, output=output), options, console or Console(stderr=True))
    return total


@contextlib.contextmanager
def _only_writer(output: Path) -> Iterator[None]:
    output.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(output / ".lock", timeout=0):
            for aside in output.glob(".part-*"):  # of workers that were killed
                aside.unlink(missing_ok=True)
            yield
    except Timeout:
        raise UserError(f"another process is writing into {output}: wait for it, or choose another folder") from None


def _take_up(job: Job, output: Path) -> Job:
    """The job as it was begun; another one is refused."""
    path = output / MANIFEST
    if not path.exists():
        strangers = [file.name for file in output.iterdir() if file.name != ".lock"]
        if strangers:
            raise UserError(f"{output} holds something else ({strangers[0]}): choose another folder")
        replace_text(path, json.dumps(asdict(job), indent=2) + "\n")
        return job
    begun = json.loads(path.read_text(encoding="utf-8"))
    same = replace(job, part_rows=begun["part_rows"])
    different = [name for name, value in asdict(same).items() if begun.get(name) != value]
    if different:
        raise UserError(f"the work in {output} was begun with another {different[0]}: choose another folder")
    return same


# Input


def _files(source: Path) -> list[Path]:
    """The files of the input, in the order of their names."""
    if source.is_dir():
        found = sorted(source.glob("*.parquet"))
        if not found:
            raise UserError(f"there is no .parquet file in {source}")
        return [file.resolve() for file in found]
    file_size(source)
    if source.suffix == ".gz" or str(source) == "-":
        raise UserError(f"{source} cannot be read from the middle: unpack it into a file, or make Parquet of it")
    if source.suffix != ".parquet":
        refuse_utf16(source)
    return [source.resolve()]


def _count_rows(file: Path, options: Options) -> int:
    """Rows of Parquet, if it has these columns; lines of text."""
    if file.suffix != ".parquet":
        return _line_starts(file, every=1 << 62)[1]
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            n_rows: int = opened.metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"cannot read {file}: {error}") from None
    missing = [name for name in (options.id_column, options.text_column) if name not in schema.names]
    if missing:
        raise UserError(f"{file} has no column '{missing[0]}'; it has {', '.join(schema.names)}")
    kind = schema.field(options.text_column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise UserError(f"the column '{options.text_column}' of {file} is not text but {kind}")
    return n_rows


def _cut(rows: dict[Path, int], part_rows: int) -> Iterator[Part]:
    number = 0
    for file, n_rows in rows.items():
        starts = _line_starts(file, part_rows)[0] if file.suffix != ".parquet" else None
        for at, first in enumerate(range(0, n_rows, part_rows)):
            start = starts[at] if starts else 0
            n_here = min(part_rows, n_rows - first)
            yield Part(number=number, file=str(file), first_row=first, n_rows=n_here, start=start)
            number += 1


def _line_starts(file: Path, every: int) -> tuple[list[int], int]:
    """Where every so many lines one begins, and how many lines there are; "\\n" alone ends a line."""
    starts, n_lines, at = [0], 0, 0
    with file.open("rb") as opened:
        last = b"\n"
        while block := opened.read(1 << 24):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
            numbers = np.arange(n_lines + 1, n_lines + len(ends) + 1)
            starts += (at + ends[numbers % every == 0]).tolist()
            n_lines, at, last = n_lines + len(ends), at + len(block), block[-1:]
    return starts, n_lines + (last != b"\n")


def _read(part: Part, job: Job) -> "tuple[pyarrow.Array, list[str]]":
    """Ids and texts of a part; the id of a line is its number, beginning with 0."""
    import pyarrow

    path = Path(part.file)
    if path.suffix != ".parquet":
        lines = islice(read_lines(path, 4 * MAX_CHARACTERS, part.start), part.n_rows)
        ids = pyarrow.array(range(part.first_row, part.first_row + part.n_rows), pyarrow.int64())
        return ids, [line.decode(errors="replace") for line in lines]
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as opened:
        groups, skipped, before = [], 0, 0
        for group in range(opened.metadata.num_row_groups):
            n_rows = opened.metadata.row_group(group).num_rows
            if before + n_rows <= part.first_row:
                skipped = before + n_rows
            elif before < part.first_row + part.n_rows:
                groups.append(group)
            before += n_rows
        table = opened.read_row_groups(groups, columns=[job.id_column, job.text_column])
    table = table.slice(part.first_row - skipped, part.n_rows).combine_chunks()
    texts = [text or "" for text in table[job.text_column].to_pylist()]
    return table[job.id_column], texts


# Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What every worker knows."""

    job: Job
    folder: Path  # of the model
    output: Path


class Worker:
    """An actor with a model, on a core of its own."""

    def __init__(self, work: _Work) -> None:
        import torch

        torch.set_num_threads(1)
        self._work = work
        self._translator: Translator = load(work.folder, engine=work.job.engine)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part = Part(**json.loads(row["part"]))
        self.translate(part)
        return {"rows": part.n_rows}

    def translate(self, part: Part) -> None:
        """Write the file of a part, whole or not at all; another worker may have been given the same one."""
        import pyarrow
        import pyarrow.parquet

        ids, texts = _read(part, self._work.job)
        translations = list(self._translator.stream(texts, self._work.job.search))
        table = pyarrow.table(
            {
                self._work.job.id_column: ids,
                self._work.job.text_column: pyarrow.array(texts, pyarrow.string()),
                "translation": pyarrow.array([one.text for one in translations], pyarrow.string()),
                "score": pyarrow.array([one.score for one in translations], pyarrow.float64()),
                "warnings": pyarrow.array(["; ".join(one.warnings) for one in translations], pyarrow.string()),
            }
        )
        final = self._work.output / part.name
        aside = final.with_name(f".{part.name}.{uuid4().hex}")
        try:
            pyarrow.parquet.write_table(table, aside)
            sync(aside)
            aside.rename(final)
            sync(final.parent)
        finally:
            aside.unlink(missing_ok=True)


def _translate(todo: list[Part], parts: list[Part], work: _Work, options: Options, console: Console) -> None:
    """Give out the parts, and show how far they are."""
    total = sum(part.n_rows for part in parts)
    done = total - sum(part.n_rows for part in todo)
    said: Talk = plain_talk(console) if not console.is_terminal else lambda _: None
    said(f"{total:,} rows in {len(parts):,} parts, {done:,} rows done")
    if not todo:
        return
    ray = _import_ray(options)
    with _cluster(options), Progress(console=console, disable=not console.is_terminal) as progress:
        shown = progress.add_task("rows", total=total, completed=done)
        n_workers = options.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        rows = ray.data.from_items([{"part": json.dumps(asdict(part))} for part in todo], override_num_blocks=len(todo))
        translated = rows.map(
            Worker,
            fn_constructor_args=(work,),
            compute=ray.data.ActorPoolStrategy(size=min(n_workers, len(todo))),
            num_cpus=1,
        )
        try:
            for row in translated.iter_rows():
                done += row["rows"]
                progress.update(shown, completed=done)
                said(f"{done:,} of {total:,} rows")
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            raise UserError(f"translation stopped: {cause or error}; the same command goes on") from None


# The cluster


def _import_ray(options: Options) -> Any:
    """Ray with its settings, which it reads from the environment when it is imported."""
    os.environ["RAY_AUTH_MODE"] = "token"  # nobody else may give work to the cluster
    if not options.address:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its servers listen on the loopback, as on these systems
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is raised as well
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import pyarrow.parquet  # noqa: F401
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise UserError(f"bulk translation needs {error.name}: pip install 'multihead[bulk]'") from None
    return ray


@contextlib.contextmanager
def _cluster(options: Options) -> Iterator[None]:
    """A cluster on this machine, which nobody else can reach; or the one at `address`."""
    ray = _import_ray(options)
    quiet = {"logging_level": "warning", "log_to_driver": False}
    try:
        if options.address:
            ray.init(address=options.address, **quiet)
        else:
            own = {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
            ray.init(address="local", num_cpus=options.workers or None, **own, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"cannot reach or start the Ray cluster: {error}") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    try:
        yield
    finally:
        ray.shutdown()
