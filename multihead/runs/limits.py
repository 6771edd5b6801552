"""Whether a run fits this machine: its memory, and a week. What does not fit is refused before it starts.

The refusal names options that fit. `multihead plan` and `train` use the same functions.
"""

import math

from multihead.config.presets import preset
from multihead.config.resolve import Resolved, Source, configure
from multihead.config.schema import RunConfig
from multihead.console import duration
from multihead.runs.sizing import CANDIDATES, Sizer, memory_limit_mb, memory_mb, parameters

MAX_DAYS = 7  # a run for which the user set no limit must not take longer
MIN_BATCH_TOKENS = 512  # of a part of a step; with fewer, the processor is not used well


def why_too_large(config: RunConfig) -> str | None:
    """Return why a run does not fit into the memory of this machine, and what does; None if it fits."""
    needed, available = memory_mb(config), memory_limit_mb()
    if needed <= available:
        return None
    remedies = []
    if smaller := _smaller_batches(config, available):
        data, train = smaller.data, smaller.train
        remedies.append(
            f"--set data.batch_tokens={data.batch_tokens} --set train.accumulate={train.accumulate} (the same steps in "
            f"{memory_mb(smaller):,.0f} MB)"
        )
    if name := _smaller_preset(config, available):
        remedies.append(f"--preset {name}")
    remedy = f"Use {', or '.join(remedies)}" if remedies else "No preset fits; close other programs"
    return f"this run needs about {needed:,.0f} MB of memory, and {available:,.0f} MB are available. {remedy}"


def _smaller_batches(config: RunConfig, available: float) -> RunConfig | None:
    """Return the same steps in the fewest parts that fit."""
    n_parts = 2
    while (n_tokens := math.ceil(config.data.batch_tokens / n_parts)) >= max(MIN_BATCH_TOKENS, config.data.max_length):
        changes = {"data.batch_tokens": n_tokens, "train.accumulate": n_parts * config.train.accumulate}
        smaller = configure(changes, start=config)
        if memory_mb(smaller) <= available:
            return smaller
        n_parts *= 2
    return None


def _smaller_preset(config: RunConfig, available: float) -> str | None:
    """Return the largest preset that fits and is smaller; what is trained further keeps its shape."""
    if config.train.base_model:
        return None
    for name in reversed(CANDIDATES):
        shape = configure(preset(name), {"model.vocab_size": config.model.vocab_size})
        if parameters(shape) < parameters(config) and memory_mb(shape) <= available:
            return name
    return None


def why_too_long(resolved: Resolved, preset_name: str, sizer: Sizer) -> str | None:
    """Return why a run would take too long, and what does not; None if it ends in time or the user set its limit."""
    config = resolved.config
    if config.train.minutes or _is_by_user(resolved, "train.steps"):
        return None
    seconds = sizer.training_seconds(config)
    if seconds <= MAX_DAYS * 86_400:
        return None
    return (
        f"{config.train.steps:,} steps of preset {preset_name} take {duration(seconds)} on this machine. "
        f"Use --minutes {MAX_DAYS * 1440} or less, or a smaller --preset; --steps {config.train.steps} trains this long"
    )


def _is_by_user(resolved: Resolved, name: str) -> bool:
    return name in resolved.origin and resolved.origin[name].source in (Source.FILE, Source.FLAG)
