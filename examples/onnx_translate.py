"""Translate with an export of `multihead export --format onnx`, without Multihead and torch.

python examples/onnx_translate.py en-de-onnx "Where is the station?" "It rains."
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

Array = NDArray[np.generic]


class OnnxTranslator:
    """Greedy search: the most likely token at every step, for all sentences at once."""

    def __init__(self, folder: Path) -> None:
        self.settings = json.loads((folder / "onnx.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # </s> in the input is plain text
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder")
        )

    def translate(self, texts: list[str], max_extra: int = 50) -> list[str]:
        source_ids = self._encode(texts)  # B S
        limit = min(source_ids.shape[1] + max_extra, self.settings["max_len"])
        target_ids = self._search(source_ids, limit)  # B T
        return [self._decode(row) for row in target_ids.tolist()]

    def _search(self, source_ids: Array, limit: int) -> Array:
        eos_id, n_rows = self.settings["eos_id"], len(source_ids)
        names = [output.name for output in self.encoder.get_outputs()]
        memory = dict(zip(names, self.encoder.run(None, {"source_ids": source_ids}), strict=True))
        past = self._empty_cache(n_rows)
        ids: Array = np.full(n_rows, self.settings["start_id"], dtype=np.int64)
        generated: list[Array] = []
        finished = np.zeros(n_rows, dtype=bool)
        while not finished.all() and len(generated) < limit:
            logits, *present = self.decoder.run(None, {"ids": ids, **memory, **past})
            logits[:, [self.settings["pad_id"], self.settings["start_id"]]] = -np.inf
            ids = np.where(finished, eos_id, logits.argmax(axis=1))
            finished |= ids == eos_id
            generated.append(ids)
            past = dict(zip(past, present, strict=True))
        return np.stack(generated, axis=1)

    def _empty_cache(self, n_rows: int) -> dict[str, Array]:
        heads, widths = self.settings["n_heads"], {"k": self.settings["d_k"], "v": self.settings["d_v"]}
        return {
            f"past.{layer}.{part}": np.zeros((n_rows, heads, 0, width), dtype=np.float32)
            for layer in range(self.settings["decoder_layers"])
            for part, width in widths.items()
        }

    def _encode(self, texts: list[str]) -> Array:
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]  # with the end symbol
        longest = max(map(len, rows))
        return np.array([row + [self.settings["pad_id"]] * (longest - len(row)) for row in rows], dtype=np.int64)

    def _decode(self, ids: list[int]) -> str:
        end = self.settings["eos_id"]
        text: str = self.tokenizer.decode(ids[: ids.index(end)] if end in ids else ids)
        return text


if __name__ == "__main__":
    for translation in OnnxTranslator(Path(sys.argv[1])).translate(sys.argv[2:]):
        print(translation)
