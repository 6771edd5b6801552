"""The learning rate of §5.3, and how long a run with a time limit trains."""

from multihead.config.schema import TrainConfig

PUBLISHING_SECONDS = 30.0  # kept for publishing ...
PUBLISHING_SHARE = 0.08  # ... or, if that is less, this share of the run


def learning_rate(step: int, d_model: int, config: TrainConfig, progress: float = 0.0) -> float:
    """Return the rate of §5.3, eq. (3): linear warmup, then decay with the inverse square root of the step.

    Departs: with `lr_decay="linear"` the rate falls linearly with `progress`, the share of the run that is done, to
    zero. A short run learns most while its rate falls.
    """
    warmup = step * config.warmup**-1.5
    decay = (1 - progress) * config.warmup**-0.5 if config.lr_decay == "linear" else step**-0.5
    rate: float = config.lr_scale * d_model**-0.5 * min(warmup, decay)
    return rate


def progress(config: TrainConfig, step: int, seconds: float) -> float:
    """Return the share of a run that is done, by whichever of its limits is nearer."""
    by_time = seconds / training_seconds(config) if config.minutes else 0.0
    return min(1.0, max(step / config.steps, by_time))


def training_seconds(config: TrainConfig) -> float:
    """Return how long to train within `minutes`: half a minute, or 8 % of a short run, is left for publishing."""
    return 60 * config.minutes - min(PUBLISHING_SECONDS, PUBLISHING_SHARE * 60 * config.minutes)


def minutes_for(seconds: float) -> float:
    """Return the smallest `minutes` that leave this much time for training."""
    return min(seconds / (1 - PUBLISHING_SHARE), seconds + PUBLISHING_SECONDS) / 60
