"""A worker: an actor with a model that translates one part at a time on one core."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from multihead.bulk.input import read_rows
from multihead.bulk.job import Job, Part
from multihead.errors import UserError
from multihead.system import sync
from multihead.translation.engines.choose import name_engine
from multihead.translation.translator import Translator, load

JOB_KEY = b"multihead.job"  # in the metadata of a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all workers share."""

    job: Job
    model_folder: Path
    output: Path


class Worker:
    """A Ray Data actor; each row that it is called with describes a part."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._translator: Translator | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return how many rows were translated, and why it failed: Ray would repeat what raises, and explain that."""
        import pyarrow

        part = Part(**json.loads(row["part"]))
        try:
            self.translate(part)
        except UserError as error:
            return {"rows": 0, "error": str(error)}
        except (OSError, pyarrow.ArrowException) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number else error
            return {"rows": 0, "error": f"cannot translate {part.file} into {self._work.output}: {reason}"}
        return {"rows": part.n_rows, "error": ""}

    def _load(self) -> Translator:
        """Return the translator, which has to search as that of the driver."""
        job = self._work.job
        translator = load(self._work.model_folder, engine=job.engine, threads=1).into(job.to)
        if translator.folder and (found := name_engine(job.engine, [translator.folder])) != job.searches_with:
            raise UserError(f"--engine {job.engine} is {found} on a worker, and {job.searches_with} here: name one")
        return translator

    def translate(self, part: Part) -> None:
        """Write the file of a part atomically."""
        import pyarrow
        import pyarrow.parquet

        job = self._work.job
        ids, texts = read_rows(part, job)
        self._translator = self._translator or self._load()
        translations = list(self._translator.stream(texts, job.search))
        columns = {
            job.id_column: ids,
            job.text_column: pyarrow.array(texts, pyarrow.string()),
            "translation": pyarrow.array([one.text for one in translations], pyarrow.string()),
            "score": pyarrow.array([one.score for one in translations], pyarrow.float64()),
            "warnings": pyarrow.array(["; ".join(one.warnings) for one in translations], pyarrow.string()),
        }
        final = self._work.output / part.name
        # Another worker may write the same part if Ray believes this one to be dead, so the name is unique.
        temporary = final.with_name(f".{part.name}.{uuid4().hex}")
        try:
            table = pyarrow.table(columns).replace_schema_metadata({JOB_KEY: job.id})
            pyarrow.parquet.write_table(table, temporary, write_page_checksum=True)
            sync(temporary)
            temporary.rename(final)
            sync(final.parent)
        finally:
            temporary.unlink(missing_ok=True)


def is_complete(part: Part, job: Job, output: Path) -> bool:
    """Return whether the file of a part is there, undamaged and of this job; one that is not is removed."""
    import pyarrow
    import pyarrow.parquet

    path = output / part.name
    if not path.exists():
        return False
    with contextlib.suppress(OSError, pyarrow.ArrowException), path.open("rb") as file:
        table = pyarrow.parquet.read_table(file, page_checksum_verification=True)
        if table.num_rows == part.n_rows and (table.schema.metadata or {}).get(JOB_KEY) == job.id.encode():
            return True
    path.unlink()
    return False
