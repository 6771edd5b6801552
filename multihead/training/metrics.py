"""What is reported while a model trains: loss, perplexity and speed."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from multihead.distributed.process_group import ProcessGroup

Metrics = dict[str, float]


def perplexity(loss: float) -> float:
    """Return e to the power of the loss in nats per token, which must not overflow at the start of a bad run."""
    return math.exp(min(loss, 700.0))


@dataclass(slots=True)
class RunningTotals:
    """Sums over the steps since the last line of the log.

    Losses are those of this rank; tokens are those of all ranks. The training loop adds the seconds. The sums of the
    losses stay on the device of the model until they are read, which waits for a GPU.
    """

    n_tokens: int = 0
    seconds: float = 0.0
    _losses: Tensor | None = None  # 2: loss and plain loss, in float64

    def add_losses(self, loss: Tensor, plain_loss: Tensor) -> None:
        losses = torch.stack([loss.detach().double(), plain_loss.double()])
        self._losses = losses if self._losses is None else self._losses + losses

    @property
    def losses(self) -> tuple[float, float]:
        """The sums of the loss and of the plain loss."""
        if self._losses is None:
            return 0.0, 0.0
        loss, plain_loss = self._losses.cpu().tolist()
        return loss, plain_loss

    def metrics(self, group: ProcessGroup) -> Metrics:
        """Return means per token over all ranks; every rank must call this."""
        loss, plain_loss = group.sum(*self.losses)
        n_tokens = max(self.n_tokens, 1)
        return {
            "loss": loss / n_tokens,
            "perplexity": perplexity(plain_loss / n_tokens),
            "tokens_per_second": self.n_tokens / self.seconds if self.seconds else 0.0,
        }
