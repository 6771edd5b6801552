"""What a job is: its options, its parts, and the manifest that lets it resume."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.storage.files import write_text_atomic

MANIFEST = "bulk.json"
FORMAT = 2  # of the manifest and of the parts
MIN_PART_ROWS, MAX_PART_ROWS = 500, 50_000
N_PARTS = 1000  # approximate number of parts of an input between these bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions:
    """Options of `multihead bulk`."""

    search: SearchConfig = field(default_factory=SearchConfig)
    engine: str = "auto"
    to: str | None = None  # the language to translate into, for a model of several
    id_column: str = "id"
    text_column: str = "text"
    workers: int = 0  # 0: one for each core of the cluster
    address: str | None = None  # of a running cluster; None: start one on this machine
    part_rows: int = 0  # 0: depends on the size of the input


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that determines the output. It is stored beside the output and must be the same to resume."""

    model: dict[str, str]  # SHA-256 of each file that a translation depends on
    files: dict[str, str]  # checksums of the input files
    id_column: str
    text_column: str
    engine: str  # as given, such as "auto"
    searches_with: str  # what `engine` means on this machine
    search: SearchConfig
    part_rows: int
    version: str  # of Multihead
    to: str | None = None
    format: int = FORMAT

    @property
    def id(self) -> str:
        """A checksum of all of it, which every part of the output carries."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Consecutive rows of a file."""

    number: int
    file: str
    first_row: int
    n_rows: int
    offset: int = 0  # byte at which they start in a text file

    @property
    def name(self) -> str:
        return f"part-{self.number:06}.parquet"


def start_or_resume(job: Job, output: Path) -> Job:
    """Return the job with the part size that it was started with; refuse a folder that holds anything else."""
    path = output / MANIFEST
    if not path.exists():
        others = [file.name for file in output.iterdir() if file.name != ".lock"]
        if others:
            raise UserError(f"{output} contains other files ({others[0]}); choose another folder")
        write_text_atomic(path, json.dumps(asdict(job), indent=2) + "\n")
        return job
    stored = _read(path)
    resumed = replace(job, part_rows=stored["part_rows"])
    different = [name for name, value in asdict(resumed).items() if stored.get(name) != value]
    if different:
        what = f"a different {_first_difference(stored, asdict(resumed), different[0])}"
        raise UserError(f"the job in {output} was started with {what}; choose another folder")
    return resumed


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a manifest."""
    remedy = "choose another folder, or delete this one to start over"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}; {remedy}") from None
    if not isinstance(stored, dict) or not _is_count(stored.get("part_rows")):
        raise UserError(f"{path} is damaged: it has no valid part_rows; {remedy}")
    if stored.get("format") != FORMAT:
        raise UserError(f"the job in {path.parent} was started by another version of Multihead; {remedy}")
    return stored


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_PART_ROWS


def _first_difference(stored: dict[str, Any], job: dict[str, Any], name: str) -> str:
    """Return what differs, down to the name of a file or of a search setting."""
    before, now = stored.get(name), job[name]
    if isinstance(before, dict) and isinstance(now, dict):
        return f"{name} ({next(key for key in [*now, *before] if before.get(key) != now.get(key))})"
    return name if name in ("files", "search") else f"{name} ({before}, now {now})"
