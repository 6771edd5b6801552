"""The learning rate of §5.3, and how much of a run is done."""

from multihead.config.schema import TrainConfig


def learning_rate(step: int, d_model: int, config: TrainConfig, progress: float = 0.0) -> float:
    """Return the rate of §5.3, eq. (3): linear warmup, then decay with the inverse square root of the step.

    Departs: with `lr_decay="linear"` the rate falls linearly with `progress`, the share of the run that is done, to
    zero. A short run learns most while its rate falls.
    """
    warmup = step * config.warmup**-1.5
    decay = (1 - progress) * config.warmup**-0.5 if config.lr_decay == "linear" else step**-0.5
    rate: float = config.lr_scale * d_model**-0.5 * min(warmup, decay)
    return rate


def progress(config: TrainConfig, step: int, seconds: float, max_seconds: float | None = None) -> float:
    """Return the share of a run that is done, by whichever of its limits is nearer.

    `max_seconds` is the time for training, by default all of `minutes`.
    """
    by_steps = step / config.steps if config.steps else 0.0
    limit = 60 * config.minutes if max_seconds is None else max_seconds
    by_time = seconds / max(limit, 1e-9) if config.minutes else 0.0
    return min(1.0, max(by_steps, by_time))
