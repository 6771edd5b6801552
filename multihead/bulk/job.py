"""TODO."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.storage.files import write_text_atomic

MANIFEST = "bulk.json"
FEWEST, MOST = 500, 50_000  # rows in a part
N_PARTS = 1000  # about as many parts as are made of an input of middling size


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions:
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


def start_or_resume(job: Job, output: Path) -> Job:
    """The job as it was begun; another one is refused."""
    path = output / MANIFEST
    if not path.exists():
        strangers = [file.name for file in output.iterdir() if file.name != ".lock"]
        if strangers:
            raise UserError(f"{output} holds something else ({strangers[0]}): choose another folder")
        write_text_atomic(path, json.dumps(asdict(job), indent=2) + "\n")
        return job
    begun = json.loads(path.read_text(encoding="utf-8"))
    begun.get("search", {}).pop("prune", None)  # a setting that older versions wrote
    same = replace(job, part_rows=begun["part_rows"])
    different = [name for name, value in asdict(same).items() if begun.get(name) != value]
    if different:
        raise UserError(f"the work in {output} was begun with another {different[0]}: choose another folder")
    return same
