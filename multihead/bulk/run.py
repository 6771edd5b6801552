"""The driver: lock the output folder, find the parts that are missing, and translate them on a Ray cluster."""

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

from rich.console import Console
from rich.progress import Progress

from multihead import __version__
from multihead.bulk.input import count_rows, list_files, split_rows
from multihead.bulk.job import MAX_PART_ROWS, MIN_PART_ROWS, N_PARTS, BulkOptions, Job, Part, start_or_resume
from multihead.bulk.reaper import no_process_left
from multihead.bulk.worker import Work, Worker, is_complete
from multihead.console import Log, log_to, say
from multihead.errors import UserError, require
from multihead.interop.hub import find_model
from multihead.storage.files import content_sum, exclusive, sha256
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.storage.shortlist import FILE as SHORTLIST
from multihead.translation.engines.choose import name_engine
from multihead.translation.targets import Targets
from multihead.untrusted import MAX_JSON_BYTES, check_file

OBJECT_STORE = 128 << 20  # bytes; only descriptions of parts are stored


def bulk(model: str, source: Path, output: Path, options: BulkOptions, console: Console | None = None) -> int:
    """Translate Parquet or text into a folder of Parquet files, or resume that; return the number of rows."""
    ray = _import_ray(options)
    model_folder, output = ModelFolder.open(find_model(model).resolve(), say), output.resolve()
    Targets(model, model_folder.config.data, model_folder.tokenizer()).choose(options.to)  # refuses a wrong language
    with exclusive(output):
        for leftover in output.glob(".part-*"):  # of workers that were killed
            leftover.unlink(missing_ok=True)
        n_rows_of = {file: count_rows(file, options) for file in list_files(source)}
        n_rows = sum(n_rows_of.values())
        job = Job(
            model=_model_sums(model_folder),
            files={str(file): content_sum(file) for file in n_rows_of},
            id_column=options.id_column,
            text_column=options.text_column,
            engine=options.engine,
            searches_with=name_engine(options.engine, [model_folder]),
            search=options.search.of_model(model_folder.search),
            part_rows=options.part_rows or min(MAX_PART_ROWS, max(MIN_PART_ROWS, math.ceil(n_rows / N_PARTS))),
            version=__version__,
            to=options.to,
        )
        job = start_or_resume(job, output)
        parts = list(split_rows(n_rows_of, job.part_rows))
        n_files = sum(1 for _ in output.glob("part-*"))
        missing = [part for part in parts if not is_complete(part, job, output)]
        progress = _Progress(n_rows, sum(part.n_rows for part in missing), console or Console(stderr=True))
        if n_damaged := n_files - (len(parts) - len(missing)):
            progress.log(f"{n_damaged:,} of {n_files:,} parts are damaged or of another job, and are translated again")
        progress.log(f"{n_rows:,} rows in {len(parts):,} parts, {progress.n_done:,} rows done")
        if missing:
            with _cluster(ray, options), progress.bar:
                work = Work(job=job, model_folder=model_folder.path, output=output)
                _translate(ray, missing, work, options.workers, progress)
    return n_rows


def _model_sums(model: ModelFolder) -> dict[str, str]:
    """Return the checksum of each file of a model that a translation depends on."""
    model.check_headers()
    settings = [path for path in model.path.glob("*.json") if path.name != "state.json"]
    for path in settings:
        check_file(path, MAX_JSON_BYTES)
    files = [*settings, *(model.path / name for name in (WEIGHTS, SHORTLIST) if (model.path / name).exists())]
    return {path.name: sha256(path) for path in sorted(files)}


class _Progress:
    """A progress bar on a terminal, lines elsewhere."""

    def __init__(self, n_rows: int, n_missing: int, console: Console) -> None:
        self.n_rows, self.n_done = n_rows, n_rows - n_missing
        self.log: Log = (lambda line: None) if console.is_terminal else log_to(console)
        self.bar = Progress(console=console, disable=not console.is_terminal)
        self._task = self.bar.add_task("rows", total=n_rows, completed=self.n_done)

    def advance(self, n_rows: int) -> None:
        self.n_done += n_rows
        self.bar.update(self._task, completed=self.n_done)
        self.log(f"{self.n_done:,} of {self.n_rows:,} rows")


def _translate(ray: Any, parts: list[Part], work: Work, n_workers: int, progress: _Progress) -> None:
    """Distribute the parts over the workers."""
    rows = ray.data.from_items([{"part": json.dumps(asdict(part))} for part in parts], override_num_blocks=len(parts))
    n_workers = n_workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    translated = rows.map(
        Worker,
        fn_constructor_args=(work,),
        compute=ray.data.ActorPoolStrategy(size=min(n_workers, len(parts))),
        num_cpus=1,
    )
    try:
        for row in translated.iter_rows():
            if row["error"]:
                raise UserError(f"translation stopped: {row['error']}; run the same command again to resume")
            progress.advance(row["rows"])
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        raise UserError(f"translation stopped: {cause or error}; run the same command again to resume") from None


# The cluster


def _import_ray(options: BulkOptions) -> Any:
    """Import Ray, which reads its settings from the environment when it is imported."""
    os.environ["RAY_AUTH_MODE"] = "token"  # only this user may submit work to the cluster
    if not options.address:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on the loopback only, as on these systems
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors are raised as well
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    require("pyarrow.parquet", extra="bulk", purpose="bulk")
    require("ray.data", extra="bulk", purpose="bulk")
    return require("ray", extra="bulk")


@contextlib.contextmanager
def _cluster(ray: Any, options: BulkOptions) -> Iterator[None]:
    """Connect to the cluster at `address`, or start one on this machine that only this machine can reach."""
    where: dict[str, Any] = {"address": options.address}
    if not options.address:
        where = {"address": "local", "num_cpus": options.workers or None}
        where |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
    with contextlib.nullcontext() if options.address else no_process_left():
        try:
            ray.init(**where, logging_level="warning", log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise UserError(f"cannot reach or start the Ray cluster: {error}") from None
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        try:
            yield
        finally:
            ray.shutdown()
