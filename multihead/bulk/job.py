"""What a job is: its options, its parts, and the manifest that lets it resume."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.storage.files import write_text_atomic

MANIFEST = "bulk.json"
MIN_PART_ROWS, MAX_PART_ROWS = 500, 50_000
N_PARTS = 1000  # approximate number of parts of an input between these bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions:
    """Options of `multihead bulk`."""

    search: SearchConfig = field(default_factory=SearchConfig)
    engine: str = "auto"
    id_column: str = "id"
    text_column: str = "text"
    workers: int = 0  # 0: one for each core of the cluster
    address: str | None = None  # of a running cluster; None: start one on this machine
    part_rows: int = 0  # 0: depends on the size of the input


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that determines the output. It is stored beside the output and must be the same to resume."""

    model: str  # SHA-256 of the weights
    files: dict[str, int]  # sizes of the input files
    id_column: str
    text_column: str
    engine: str
    search: SearchConfig
    part_rows: int


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
    stored = json.loads(path.read_text(encoding="utf-8"))
    resumed = replace(job, part_rows=stored["part_rows"])
    different = [name for name, value in asdict(resumed).items() if stored.get(name) != value]
    if different:
        raise UserError(f"the job in {output} was started with a different {different[0]}; choose another folder")
    return resumed
