"""Which text of its base model a run rehearses (`multihead train --from RUN --rehearse SHARE`)."""

from multihead.config.resolve import value_of
from multihead.config.schema import DataConfig
from multihead.console import Log
from multihead.data.rehearsal import Rehearsal
from multihead.data.shards import is_corpus, read_summary
from multihead.errors import UsageError
from multihead.runs.base_model import BaseModel
from multihead.runs.request import REHEARSE, TrainingRequest


def find_rehearsal(
    request: TrainingRequest, base: BaseModel | None, config: DataConfig, log: Log = lambda line: None
) -> Rehearsal | None:
    """Return the text that the base model was trained on, if it can be rehearsed; refuse to if the user asks for it."""
    share, is_asked = config.rehearse, value_of(request.layers, REHEARSE) is not None
    if not share or not (base or is_asked):
        return None
    if problem := _problem(request, base, config):
        if is_asked:
            raise UsageError(f"--rehearse {share:g}: {problem}")
        return None
    assert base
    data = base.stored.root / "data"
    log(
        f"Rehearsing text of {base.name}, so that it is not forgotten: {share:g} of its pairs for each new one. "
        "Override with --rehearse."
    )
    return Rehearsal(data, share)


def _problem(request: TrainingRequest, base: BaseModel | None, config: DataConfig) -> str | None:
    """Return why there is nothing to rehearse."""
    if not base:
        return "it is for fine-tuning: add --from MODEL"
    if request.data:
        return f"{request.data} is prepared already; prepare it again with `multihead prepare --from {base.name}`"
    data = base.stored.root / "data"
    if base.is_imported or not is_corpus(data):
        return f"{base.name} comes without the text that it was trained on; give your own with --corpus and --weight"
    if base.new_vocabulary:
        return f"the text of {base.name} is prepared with another vocabulary than the new one"
    summary = read_summary(data)
    if config.directions or summary.directions:
        return "text of several directions is not mixed; give the old text with --corpus as well"
    if [summary.source_lang, summary.target_lang] != config.languages:
        return f"{base.name} was trained on other languages"
    return None
