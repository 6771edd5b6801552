"""§3.5: sinusoidal positions, in numpy because exporters need them without torch."""

import numpy as np
from numpy.typing import NDArray


def sinusoids(max_len: int, d_model: int) -> NDArray[np.float32]:
    """Return sin(pos / 10000^(2i/d_model)) in the even dimensions and the cosine of the same angle in the odd ones."""
    position = np.arange(max_len, dtype=np.float64)[:, None]
    angle = position * 10_000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    table = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(max_len, -1)
    return table[:, :d_model].astype(np.float32)  # max_len D
