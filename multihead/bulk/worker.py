"""A worker: an actor with a model that translates one part at a time on one core."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from multihead.bulk.input import read_rows
from multihead.bulk.job import Job, Part
from multihead.storage.files import sync
from multihead.translation.translator import load


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
        self._translator = load(work.model_folder, engine=work.job.engine, threads=1)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part = Part(**json.loads(row["part"]))
        self.translate(part)
        return {"rows": part.n_rows}

    def translate(self, part: Part) -> None:
        """Write the file of a part atomically."""
        import pyarrow
        import pyarrow.parquet

        job = self._work.job
        ids, texts = read_rows(part, job)
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
            pyarrow.parquet.write_table(pyarrow.table(columns), temporary)
            sync(temporary)
            temporary.rename(final)
            sync(final.parent)
        finally:
            temporary.unlink(missing_ok=True)
