"""TODO."""

from typing import NamedTuple

from multihead.model.weights import Tensors

N_EXAMPLES = 4  # validation sentences shown at the end
MIN_BLEU_GAIN = 0.5  # BLEU; by less, one model may be better than another by chance
N_SCORED = 1024  # validation sentences that score a published model


# The loop


class Candidate(NamedTuple):
    """A model that may be published."""

    name: str
    weights: Tensors
    loss: float  # on the validation pairs
