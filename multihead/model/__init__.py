"""The Transformer of §3 of the paper, and variants of its parts.

`transformer` (§3 in its order; read this first), `positions` (§3.5, in numpy), `dropout` (§5.4), `incremental` (what
decoding keeps between steps), `variants` (other attention, recurrence, convolution, trees), `build` (the model of a
configuration), `weights` (load and count weights).

`Transformer` and `build_model` can be imported from here. They are loaded on first use, because most of Multihead runs
without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.model.build import build_model
    from multihead.model.transformer import Transformer

__all__ = ["Transformer", "build_model"]


def __getattr__(name: str) -> object:
    if name == "Transformer":
        from multihead.model.transformer import Transformer

        return Transformer
    if name == "build_model":
        from multihead.model.build import build_model

        return build_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
