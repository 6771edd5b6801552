"""TODO."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from multihead.bulk.input import read_rows
from multihead.bulk.job import Job, Part
from multihead.storage.files import sync
from multihead.translation.translator import Translator, load

if TYPE_CHECKING:
    pass


# Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What every worker knows."""

    job: Job
    folder: Path  # of the model
    output: Path


class Worker:
    """An actor with a model, on a core of its own."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._translator: Translator = load(work.folder, engine=work.job.engine, n_threads=1)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part = Part(**json.loads(row["part"]))
        self.translate(part)
        return {"rows": part.n_rows}

    def translate(self, part: Part) -> None:
        """Write the file of a part, whole or not at all; another worker may have been given the same one."""
        import pyarrow
        import pyarrow.parquet

        ids, texts = read_rows(part, self._work.job)
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
