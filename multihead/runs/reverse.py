"""The model that translates back: one that there is, or a run on the same pairs in the opposite direction."""

from dataclasses import replace
from pathlib import Path

from multihead.config.directions import Languages, direction_of
from multihead.config.presets import preset
from multihead.config.resolve import value_of
from multihead.config.schema import TrainConfig
from multihead.errors import UsageError
from multihead.runs.base_model import open_base_model
from multihead.runs.request import BASE_MODEL, LANGUAGES, NEW_VOCABULARY, REHEARSE, TASK_PRESET, TrainingRequest

REVERSE_SHARE = 0.25  # of the steps or the minutes of a run
STEPS, MINUTES = "train.steps", "train.minutes"
SMALLEST_PRESET = TASK_PRESET


def find_reverse(request: TrainingRequest, languages: Languages) -> str | None:
    """Return the base model of a run if it also translates back; refuse one that cannot be trained to."""
    name, new_vocabulary = value_of(request.layers, BASE_MODEL), bool(value_of(request.layers, NEW_VOCABULARY))
    if not name:
        return None
    base = open_base_model(str(name), new_vocabulary)
    if all(languages) and direction_of(languages[::-1]) in base.config.data.directions:
        return str(name)
    if not new_vocabulary and (base.is_imported or base.config.data.directions):
        source, target = languages
        example = f"such as hf:Helsinki-NLP/opus-mt-{target}-{source}" if base.is_imported else "of that direction"
        raise UsageError(
            f"--monolingual needs a model that translates {target} to {source}, and one cannot be trained from {name}: "
            f"add --reverse MODEL, {example}"
        )
    return None


def reverse_request(request: TrainingRequest, output: Path, languages: Languages) -> TrainingRequest:
    """Return a run on the pairs of another one in the opposite direction, in a share of its time."""
    source, target = languages
    changed = {
        LANGUAGES[0]: target or None,
        LANGUAGES[1]: source or None,
        REHEARSE: None,  # the base model has no text of this direction
        **_limits(request),
    }
    is_one_way = not request.both_ways
    return replace(
        request,
        output=output,
        source=request.target,
        target=request.source,
        valid_source=request.valid_target if is_one_way else None,
        valid_target=request.valid_source if is_one_way else None,
        both_ways=False,
        languages=[languages[::-1]] * len(request.languages),
        settings={name: value for name, value in request.settings.items() if name not in changed},
        options={**request.options, **changed},
    )


def _limits(request: TrainingRequest) -> dict[str, object]:
    """Return the steps and minutes of the reverse run; without any limit those of its preset count."""
    minutes, steps = (value_of(request.layers, name) for name in (MINUTES, STEPS))
    if steps is None and not minutes:
        steps = preset(request.preset or SMALLEST_PRESET).get(STEPS, TrainConfig().steps)
    assert isinstance(minutes, float | None) and isinstance(steps, int | None)
    return {
        MINUTES: REVERSE_SHARE * minutes if minutes else None,
        STEPS: max(1, round(REVERSE_SHARE * steps)) if steps else None,
    }
