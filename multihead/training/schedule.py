"""Training (§5): the schedule, the loss, one step, validation.

A run is a function of its configuration and its text: batches depend on (seed, epoch), dropout on (seed, step). So a
run that was cut off goes on exactly as if nothing had happened, and the number of processes changes only its speed.
"""
# DOC: """What a run tells: log.jsonl, TensorBoard events, a live line on the terminal, and a picture of its curves."""

from multihead.config.schema import TrainConfig


def learning_rate(step: int, d_model: int, config: TrainConfig, share: float = 0.0) -> float:
    """§5.3, eq. (3): up in a straight line for `warmup` steps, then down with the square root of the step.

    With `lr_decay="linear"` it falls linearly with the share of the run that is done, and ends at zero: a short run
    learns most while its rate falls.
    """
    up = step * config.warmup**-1.5
    down = (1 - share) * config.warmup**-0.5 if config.lr_decay == "linear" else step**-0.5
    rate: float = config.lr_scale * d_model**-0.5 * min(up, down)
    return rate


def training_seconds(config: TrainConfig) -> float:
    """How long to train within `minutes`: the last half minute, or less of a short run, is left for publishing."""
    return 60 * config.minutes - min(30.0, 0.08 * 60 * config.minutes)


Metrics = dict[str, float]
