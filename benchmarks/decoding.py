"""Decoding speed of a model: sentences a second with the decoder's cache, and without it.

    python benchmarks/decoding.py MODEL --source test.en --sentences 200

Without the cache every step runs the decoder over the whole output so far. Run it on an otherwise idle machine.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

import multihead
from multihead.config import SearchConfig
from multihead.model import DecoderState, Transformer
from multihead.translate import Input, Translator


class WithoutCache(Transformer):
    """The same model, which remembers the tokens of each row instead of its keys and values."""

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        past = state.past[0]
        tokens = torch.cat([past["tokens"], ids.unsqueeze(1)], dim=1) if past else ids.unsqueeze(1)  # BW T
        past["tokens"] = tokens
        x = self._embed(self.target_embedding, tokens)  # BW T D
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
        for layer, memory_kv in zip(self.decoder, state.memory_kv, strict=True):
            x = layer(x, mask, memory_kv, state.memory_mask)
        logits: Tensor = self.output(self.decoder_norm(x[:, -1]))
        return logits


def sentences_per_second(translator: Translator, lines: list[str], beam: int) -> tuple[float, list[str]]:
    search = SearchConfig(beam=beam)
    list(translator.stream(lines[:20], search))
    began = time.perf_counter()
    texts = [translation.text for translation in translator.stream(lines, search)]
    return len(lines) / (time.perf_counter() - began), texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=4)
    arguments = parser.parse_args()

    lines = list(islice(Input(arguments.source), arguments.sentences))
    cached = multihead.load(arguments.model)
    plain = WithoutCache(cached.config.model).eval()
    plain.load_state_dict(cached.models[0].state_dict())
    uncached = Translator([plain], cached.tokenizer, cached.config, cached.name)
    fast, texts = sentences_per_second(cached, lines, arguments.beam)
    slow, others = sentences_per_second(uncached, lines, arguments.beam)
    same = sum(one == other for one, other in zip(texts, others, strict=True)) / len(lines)
    figures = {"with_cache": round(fast, 1), "without_cache": round(slow, 1), "ratio": round(fast / slow, 2)}
    print(json.dumps({"beam": arguments.beam, "sentences": len(lines), **figures, "same_text": same}))


if __name__ == "__main__":
    main()
