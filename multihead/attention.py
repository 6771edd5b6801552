"""What every head looks at, recorded by forward hooks: the model carries no flag for it.

Shapes: L layers, H heads, S source length, T target length, both with their control symbol.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.model import DecoderLayer, EncoderLayer, MultiHeadAttention, Transformer
from multihead.tokenizer import BOS_ID, CLOSE, EOS_ID, OPEN, SubwordTokenizer, show_bytes

Weights = dict[object, Tensor]  # by the module whose they are


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMaps:
    """The weights of one sentence and its translation; a row is a query, and sums to 1.

    A piece that begins a word begins with a space. The query at row t of the decoder has read `target_tokens[: t + 1]`
    and predicts `target_tokens[t + 1]`; the last one predicts the end symbol.
    """

    source_tokens: list[str]  # the pieces, then the end symbol
    target_tokens: list[str]  # the start symbol, then the pieces
    encoder: Tensor  # L H S S; no layer if something else than attention mixes the places there, as a convolution
    decoder: Tensor  # L H T T; the same
    cross: Tensor  # L H T S


def attention_maps(
    model: Transformer, tokenizer: SubwordTokenizer, source_ids: list[int], target_ids: list[int]
) -> AttentionMaps:
    """Record a sentence and its translation, both given without control symbols.

    The last piece of a translation that fills all positions is left out, as the start symbol takes one of them.
    """
    source, target = [*source_ids, EOS_ID], [BOS_ID, *target_ids][: model.config.max_len]
    encoder, decoder, cross = record(model, source, target)
    return AttentionMaps(
        source_tokens=tokenizer.readable(source),
        target_tokens=tokenizer.readable(target),
        encoder=encoder,
        decoder=decoder,
        cross=cross,
    )


# Recording


@torch.inference_mode()
def record(model: Transformer, source_ids: list[int], target_ids: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Encoder (L H S S), decoder (L H T T) and cross weights (L H T S) of one teacher-forced pass over one sentence."""
    encoder, decoder = cast(Sequence[EncoderLayer], model.encoder), cast(Sequence[DecoderLayer], model.decoder)
    of_encoder = [layer.self_attention for layer in encoder]
    of_decoder = [layer.self_attention for layer in decoder]
    of_cross = [layer.cross_attention for layer in decoder]
    device = next(model.parameters()).device
    with _evaluating(model), _recording([*of_encoder, *of_decoder, *of_cross]) as weights:
        model.hidden(torch.tensor([source_ids], device=device), torch.tensor([target_ids], device=device))
    nothing = torch.zeros(0, model.config.n_heads, 0, 0)
    return (
        _stack(weights, of_encoder, nothing),
        _stack(weights, of_decoder, nothing),
        _stack(weights, of_cross, nothing),
    )


def _stack(weights: Weights, modules: Sequence[object], nothing: Tensor) -> Tensor:
    found = [weights[module] for module in modules if module in weights]
    return torch.cat(found).float().cpu() if found else nothing  # L H T S: the batch was one sentence


@contextmanager
def _recording(modules: Sequence[object]) -> Iterator[Weights]:
    """The weights of each module's next pass, by module; of those that have some."""
    weights: Weights = {}

    def hook(module: nn.Module, inputs: tuple[Tensor, Tensor], options: dict[str, Any], _: Tensor) -> None:
        # The fused kernel never shows its weights, so they are computed once more, by the definition.
        x, mask = inputs[:2]
        others = {"kv": options["kv"]} if "kv" in options else {}
        weights[module] = cast(MultiHeadAttention, module).weights(x, mask, **others)  # 1 H T S

    handles = [
        module.register_forward_hook(hook, with_kwargs=True)
        for module in cast(Sequence[nn.Module], modules)
        if hasattr(module, "weights")
    ]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Without dropout, and as it was afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


# Alignment of words


def word_alignment(maps: AttentionMaps) -> list[tuple[int, int, float]]:
    """For each target word its best source word: (source word, target word, weight); words are those of `words`."""
    matrix = alignment_matrix(maps)
    if not matrix.numel():
        return []
    weights, sources = matrix.max(dim=1)
    return [(int(source), target, float(weights[target])) for target, source in enumerate(sources)]


def alignment_matrix(maps: AttentionMaps) -> Tensor:
    """How much of each target word (row) comes from each source word (column); rows sum to 1.

    The row of a target piece is that of the query which predicts it, in the layer of `alignment_layer`, averaged over
    heads. A source word is the sum of its pieces, a target word the mean of its own.
    """
    sources, targets = words(maps.source_tokens[:-1]), words(maps.target_tokens[1:])
    if not sources or not targets:
        return torch.zeros(len(targets), len(sources))
    pieces = _between_pieces(maps)[alignment_layer(maps)]
    columns = torch.stack([pieces[:, word].sum(dim=1) for word in sources], dim=1)
    return torch.stack([columns[word].mean(dim=0) for word in targets])


def alignment_layer(maps: AttentionMaps) -> int:
    """The layer that aligns best: where the row tells most of the column, by mutual information.

    Its rows are sharp, and they differ; a layer in which all look at the same full stop is sharp and tells nothing.
    """
    rows = _between_pieces(maps)  # L T S
    if not rows.numel():
        return len(rows) - 1
    information = _entropy(rows.mean(dim=1)) - _entropy(rows).mean(dim=1)  # L
    return int(information.argmax())


def _between_pieces(maps: AttentionMaps) -> Tensor:
    """Cross-attention averaged over heads, without the control symbols: L T-1 S-1, rows sum to 1."""
    rows = maps.cross.mean(dim=1)[:, :-1, :-1]
    return rows / rows.sum(dim=-1, keepdim=True).clamp_min(1e-12)


def _entropy(rows: Tensor) -> Tensor:
    return -torch.xlogy(rows, rows).sum(dim=-1)


def word_texts(pieces: Sequence[str]) -> list[str]:
    """The words themselves; a character that was cut between two pieces is whole again."""
    return [_join("".join(pieces[at] for at in word)) for word in words(pieces)]


def words(pieces: Sequence[str]) -> list[list[int]]:
    """The positions of each word's pieces; a word begins where a piece begins with a space."""
    groups: list[list[int]] = []
    for at, piece in enumerate(pieces):
        if not groups or piece.startswith(" "):
            groups.append([])
        groups[-1].append(at)
    return groups


def _join(pieces: str) -> str:
    numbers = f"(?:{OPEN}[0-9A-F]{{2}}{CLOSE})+"
    return re.sub(numbers, lambda found: show_bytes(bytes.fromhex(re.sub(r"\W", "", found[0]))), pieces).strip()
