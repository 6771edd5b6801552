"""What is reported while a model trains: loss, perplexity and speed."""

import math
from dataclasses import dataclass

from multihead.distributed.process_group import ProcessGroup

Metrics = dict[str, float]


def perplexity(loss: float) -> float:
    """Return e to the power of the loss in nats per token, which must not overflow at the start of a bad run."""
    return math.exp(min(loss, 700.0))


@dataclass(slots=True)
class RunningTotals:
    """Sums over the steps since the last line of the log.

    Losses are those of this rank; tokens are those of all ranks. The training loop adds the seconds.
    """

    loss: float = 0.0
    plain_loss: float = 0.0
    n_tokens: int = 0
    seconds: float = 0.0

    def metrics(self, group: ProcessGroup) -> Metrics:
        """Return means per token over all ranks; every rank must call this."""
        loss, plain_loss = group.sum(self.loss, self.plain_loss)
        n_tokens = max(self.n_tokens, 1)
        return {
            "loss": loss / n_tokens,
            "perplexity": perplexity(plain_loss / n_tokens),
            "tokens_per_second": self.n_tokens / self.seconds if self.seconds else 0.0,
        }
