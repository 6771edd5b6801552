"""The Transformer of §3 of the paper, and variants of its parts.

`transformer` (§3 in its order; read this first), `positions` (§3.5, in numpy), `dropout` (§5.4), `incremental` (what
decoding keeps between steps), `variants` (other attention, recurrence, convolution, trees), `build` (the model of a
configuration), `weights` (load and count weights).

`Transformer` and `build_model` can be imported from here. They are loaded on first use, because most of Multihead runs
without torch.
"""

from typing import TYPE_CHECKING

from multihead.errors import require

if TYPE_CHECKING:
    from multihead.model.build import build_model
    from multihead.model.transformer import Transformer

__all__ = ["Transformer", "build_model"]


_MODULES = {"Transformer": "multihead.model.transformer", "build_model": "multihead.model.build"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(require(_MODULES[name], extra="train", purpose=f"multihead.model.{name}"), name)
