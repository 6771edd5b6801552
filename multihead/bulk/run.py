"""TODO."""

import contextlib
import json
import logging
import math
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import Progress

from multihead.bulk.input import count_rows, list_files, split_rows
from multihead.bulk.job import FEWEST, MOST, N_PARTS, BulkOptions, Job, Part, start_or_resume
from multihead.bulk.worker import Work, Worker
from multihead.console import Log, log_to
from multihead.errors import UserError
from multihead.interop.hub import find_model
from multihead.storage.files import sha256
from multihead.storage.model_folder import read_search

OBJECT_STORE = 128 << 20  # bytes: only the names of parts travel


def bulk(model: str, source: Path, output: Path, options: BulkOptions, console: Console | None = None) -> int:
    """Translate `source`, Parquet or text, into the folder `output`; called again, go on. How many rows there are."""
    _import_ray(options)
    folder, output = find_model(model).resolve(), output.resolve()
    with _only_writer(output):
        files = list_files(source)
        rows = {file: count_rows(file, options) for file in files}
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
        job = start_or_resume(job, output)
        parts = list(split_rows(rows, job.part_rows))
        todo = [part for part in parts if not (output / part.name).exists()]
        _translate_parts(
            todo, parts, Work(job=job, folder=folder, output=output), options, console or Console(stderr=True)
        )
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


def _translate_parts(todo: list[Part], parts: list[Part], work: Work, options: BulkOptions, console: Console) -> None:
    """Give out the parts, and show how far they are."""
    total = sum(part.n_rows for part in parts)
    done = total - sum(part.n_rows for part in todo)
    said: Log = log_to(console) if not console.is_terminal else lambda _: None
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


def _import_ray(options: BulkOptions) -> Any:
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
def _cluster(options: BulkOptions) -> Iterator[None]:
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
