"""The Extended Neural GPU (Kaiser and Bengio, 2016): a convolutional gated recurrent unit and a tape of outputs.

Shapes as in transformer.py; W width of the image, N its length: 1.5 S + 4 positions, so that a translation has room.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import BeamRows, DecoderState, LayerCache
from multihead.model.transformer import Blocks, Transformer


class ConvolutionalGRU(nn.Module):
    """u s + (1 - u) tanh(U * (r s) + B) with gates u and r = sigmoid(U' * s + B'), where * is a convolution.

    With a tape p of outputs, each of the three convolutions has a term of p, too.
    """

    def __init__(self, config: ModelConfig, has_tape: bool) -> None:
        super().__init__()
        d_model, kernel = config.d_model, (min(config.kernel, config.image_width), config.kernel)
        self.gates = nn.Conv2d(d_model, 2 * d_model, kernel)
        self.candidate = nn.Conv2d(d_model, d_model, kernel)
        self.tape = nn.Conv2d(d_model, 3 * d_model, kernel, bias=False) if has_tape else None
        before = [(width - 1) // 2 for width in reversed(kernel)]
        after = [width - 1 - first for width, first in zip(reversed(kernel), before, strict=True)]
        self.edges = before[0], after[0], before[1], after[1]  # zeros around the image, so that it keeps its size
        assert self.gates.bias is not None
        nn.init.ones_(self.gates.bias)  # the image changes slowly at first

    def forward(self, s: Tensor, tape: Tensor | None = None) -> Tensor:
        """Return the next image (B D W N)."""
        of_gates, of_candidate = 0, 0
        if self.tape is not None:
            assert tape is not None
            of_tape: Tensor = self.tape(self._pad(tape))
            of_gates, of_candidate = of_tape.split([2 * s.size(1), s.size(1)], dim=1)
        u, r = (self.gates(self._pad(s)) + of_gates).sigmoid().chunk(2, dim=1)
        out: Tensor = u * s + (1 - u) * (self.candidate(self._pad(r * s)) + of_candidate).tanh()
        return out

    def _pad(self, x: Tensor) -> Tensor:
        return F.pad(x, self.edges)


class NeuralGPU(Transformer):
    """An image that changes as often as the source has tokens, then once for each token of the target.

    The embeddings of the source are the first row of the image; each change is a pass through all units of the encoder.
    The decoder reads token t at position t of the first row, and writes its embedding to that position of the tape.
    Tokens beyond the image use its last position.
    """

    def __init__(self, config: ModelConfig, blocks: Blocks) -> None:
        super().__init__(config, blocks)
        self.encoder = nn.ModuleList(ConvolutionalGRU(config, has_tape=False) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(ConvolutionalGRU(config, has_tape=True) for _ in range(config.decoder_layers))

    def encode(self, source_ids: Tensor, source_heads: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the image after as many changes as each source has tokens (B D W N), and its real positions (B N)."""
        n_tokens = (source_ids != self.config.pad_id).sum(dim=1)  # B
        room = image_length(n_tokens)
        real = torch.arange(int(room.max()), device=source_ids.device) < room.unsqueeze(1)  # B N
        x = self.embed(self.source_embedding, source_ids) * (source_ids != self.config.pad_id).unsqueeze(-1)  # B S D
        s = x.new_zeros(len(x), x.size(2), self.config.image_width, real.size(1))  # B D W N
        s[:, :, 0, : x.size(1)] = x.mT
        for step in range(x.size(1)):
            changed = self._change(self.encoder, s, real)
            s = torch.where((step < n_tokens).view(-1, 1, 1, 1), changed, s)
        return s, real

    def hidden(self, source_ids: Tensor, target_ids: Tensor, source_heads: Tensor | None = None) -> Tensor:
        s, real = self.encode(source_ids)
        x = self.embed(self.target_embedding, target_ids)  # B T D
        tape, outputs = torch.zeros_like(s), []
        for step in range(x.size(1)):
            s, tape = self._step(s, tape, real, x[:, step], step)
            outputs.append(read(s, real, step))
        hidden: Tensor = self.decoder_norm(torch.stack(outputs, dim=1))  # B T D
        return hidden

    def start_decoding(
        self, source_ids: Tensor, allowed: Tensor | None = None, source_heads: Tensor | None = None
    ) -> DecoderState:
        s, real = self.encode(source_ids)
        weight, bias = self.output.weight, self.output.bias
        return DecoderState(
            memory_kv=[(s, s)],
            memory_mask=real,
            output=(weight, bias) if allowed is None else (weight[allowed], None if bias is None else bias[allowed]),
            rows=BeamRows.of_sentences(torch.arange(len(source_ids)), len(source_ids), source_ids.device),
            caches=[LayerCache()],
        )

    def decode_step(self, ids: Tensor, state: DecoderState) -> Tensor:
        cache, (image, _), rows = state.caches[0], state.memory_kv[0], state.rows.sentence
        x = self.embed(self.target_embedding, ids.unsqueeze(1), first=state.length).squeeze(1)  # R D
        s = cache.tensors["s"] if cache.length else image[rows]  # R D W N
        tape = cache.tensors["tape"] if cache.length else torch.zeros_like(s)
        real = state.memory_mask[rows]  # R N
        s, tape = self._step(s, tape, real, x, cache.length)
        hidden = read(s, real, cache.length)  # R D
        cache.tensors = {"s": s, "tape": tape}
        cache.length += 1
        return F.linear(self.decoder_norm(hidden), *state.output)  # R V

    def _step(self, s: Tensor, tape: Tensor, real: Tensor, x: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Write the latest token to the tape, unless it is the start symbol, and change the image once."""
        if step:
            tape = write(tape, real, step - 1, x)
        return self._change(self.decoder, s, real, tape), tape

    @staticmethod
    def _change(units: nn.ModuleList, s: Tensor, real: Tensor, *tape: Tensor) -> Tensor:
        for unit in units:
            s = unit(s, *tape) * real[:, None, None]  # beyond the image everything is zero
        return s


def image_length(n_tokens: Tensor) -> Tensor:
    """Return the length of the image of a source; it depends on nothing else, so that padding changes nothing."""
    return n_tokens + (n_tokens + 1) // 2 + 4


def places(real: Tensor, step: int) -> Tensor:
    """Return which position (B N) belongs to a token of the target."""
    last = real.sum(dim=1, keepdim=True) - 1
    return torch.arange(real.size(1), device=real.device) == last.clamp_max(step)


def read(s: Tensor, real: Tensor, step: int) -> Tensor:
    """Return the first row of the image at the position of a token: B D."""
    return (s[:, :, 0] * places(real, step).unsqueeze(1)).sum(dim=-1)


def write(tape: Tensor, real: Tensor, step: int, x: Tensor) -> Tensor:
    """Return the tape with x (B D) in its first row at the position of a token."""
    first = torch.where(places(real, step).unsqueeze(1), x.unsqueeze(-1), tape[:, :, 0])  # B D N
    return torch.cat([first.unsqueeze(2), tape[:, :, 1:]], dim=2)
