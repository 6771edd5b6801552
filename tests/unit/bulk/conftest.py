"""A job for the tests of this package."""

from multihead.bulk.job import BulkOptions, Job
from multihead.config.schema import SearchConfig

OPTIONS = BulkOptions(search=SearchConfig(beam=1), engine="torch")


def make_job(part_rows: int) -> Job:
    return Job(
        model={"config.json": "1"},
        files={},
        id_column=OPTIONS.id_column,
        text_column=OPTIONS.text_column,
        engine=OPTIONS.engine,
        searches_with="torch",
        search=OPTIONS.search,
        part_rows=part_rows,
        version="1",
    )
