"""Model folders as an attacker would make them, loaded with a limit on memory: refused with a message, or harmless."""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.files import BUNDLED
from tests.gauntlet.outcome import Row, multihead

MODEL = BUNDLED / "en-de"
TEXT = "A man rides a bike.\n"
SECONDS, PEAK = 30.0, 1_000_000_000  # that a refusal may take

Attack = Callable[[Path], object]


def _config(section: str, field: str, value: object, folder: Path) -> None:
    path = folder / "config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document[section][field] = value
    path.write_text(json.dumps(document), encoding="utf-8")


def _tokenizer(change: Callable[[dict[str, Any]], object], folder: Path) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def _weights(change: Callable[[dict[str, Any]], object], folder: Path) -> None:
    arrays = read_arrays(folder / "model.safetensors")
    change(arrays)
    write_arrays(folder / "model.safetensors", arrays)


def _fill(value: float, arrays: dict[str, Any]) -> None:
    arrays["source_embedding.weight"][:] = value


def _fill_one(value: float, arrays: dict[str, Any]) -> None:
    arrays["decoder.0.feed_forward.w_1.weight"][3, 4] = value


def _as_type(kind: type, arrays: dict[str, Any]) -> None:
    arrays.update({name: array.astype(kind) for name, array in arrays.items()})


def _shortlist(arrays: dict[str, Any], folder: Path) -> None:
    write_arrays(folder / "shortlist.safetensors", arrays)


def _text(name: str, content: str | bytes, folder: Path) -> None:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def _fifo(name: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)


def _link(name: str, target: str, folder: Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


def _sparse(name: str, folder: Path) -> None:
    (folder / name).touch()
    os.truncate(folder / name, 1 << 40)


def _header(n_arrays: int, folder: Path) -> None:
    arrays = {f"a{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(n_arrays)}
    header = json.dumps(arrays).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def _replaced(times: int) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 10}
    return {"type": "Sequence", "normalizers": [step] * times, "decoders": [step] * times}


NUMBERS = (10**9, 10**5, 3_000, 10**30, -1, 0, 1.5, "x", None, [1])
SIZES = ("d_model", "d_ff", "n_heads", "d_k", "encoder_layers", "decoder_layers", "vocab_size", "max_len")
FILES = ("config.json", "tokenizer.json", "model.safetensors", "shortlist.safetensors")
JSON = ("", "[]", "{", "null", "[" * 200_000, "1" * 5_000, '{"format":' * 5_000, "[]," * 3_000_000, '{"format": 2}')
IDS = np.zeros((8000, 4), np.int16)


def attacks() -> dict[str, Attack]:
    """Return every attack by name."""
    found: dict[str, Attack] = {}
    for field in SIZES:
        found |= {f"{field}={value}": partial(_config, "model", field, value) for value in NUMBERS[:8]}
    found |= {f"dropout={value!r}": partial(_config, "model", "dropout", value) for value in NUMBERS[-4:]}
    for name in FILES:
        found[f"{name} is a FIFO"] = partial(_fifo, name)
        found[f"{name} is /dev/zero"] = partial(_link, name, "/dev/zero")
        found[f"{name} has a terabyte"] = partial(_sparse, name)
        found[f"{name} is empty"] = partial(_text, name, "")
    for name in FILES[:2]:
        found |= {f"{name}: {text[:12]!r} x {len(text)}": partial(_text, name, text) for text in JSON[1:]}
    steps: dict[str, object] = {
        "normalizer": _replaced(9),
        "decoder": _replaced(9),
        "padding": {
            "strategy": {"Fixed": 10**7},
            "direction": "Right",
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "x",
        },
        "truncation": {"max_length": 0, "strategy": "LongestFirst", "stride": 5, "direction": "Right"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    found |= {f"tokenizer: {name}": partial(_tokenizer, partial(dict.update, **{name: step}))
              for name, step in steps.items()}  # fmt: skip
    found["tokenizer: prepend 10 MB"] = partial(
        _tokenizer, lambda document: document["normalizer"].update(prepend="x" * 10_000_000)
    )
    found["weights: header of a million arrays"] = partial(_header, 1_000_000)
    found["weights: no arrays"] = partial(_header, 0)
    for value in (np.nan, np.inf):
        found[f"weights: all {value}"] = partial(_weights, partial(_fill, value))
        found[f"weights: one {value}"] = partial(_weights, partial(_fill_one, value))
    for kind in (np.int8, np.int64):
        found[f"weights: {kind.__name__}"] = partial(_weights, partial(_as_type, kind))
    lists: dict[str, dict[str, Any]] = {
        "out of range": {"candidates": IDS + 9000, "frequent": IDS[0]},
        "negative": {"candidates": IDS - 1, "frequent": IDS[0]},
        "other rows": {"candidates": IDS[:7], "frequent": IDS[0]},
        "one dimension": {"candidates": IDS[:, 0].copy(), "frequent": IDS[0]},
        "other names": {"a": IDS},
        "floats": {"candidates": np.full((8000, 2), np.nan, np.float32), "frequent": IDS[0]},
        "8000 x 8000": {"candidates": np.zeros((8000, 8000), np.int16), "frequent": IDS[0]},
    }
    found |= {f"shortlist: {name}": partial(_shortlist, arrays) for name, arrays in lists.items()}
    return found


def run(fast: bool, folder: Path) -> Row:
    """Translate with each folder; the engine takes turns."""
    row, cases = Row("hostile folders"), list(attacks().items())
    if fast:
        cases = random.Random(1).sample(cases, 4)
    expected = multihead("translate", MODEL, stdin=TEXT, cache=folder / "cache").stdout
    for number, (name, attack) in enumerate(cases):
        model = folder / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("SHA256SUMS"))
        attack(model)
        engine = "torch" if number % 8 == 0 and not fast else "auto"
        command = ("translate", model, "--engine", engine)
        outcome = multihead(*command, stdin=TEXT, timeout=SECONDS, memory=None, cache=folder / "cache")
        problem = f"{outcome.peak / 1e6:.0f} MB" if outcome.peak > PEAK else None
        if outcome.status == 0 and outcome.stdout != expected:
            problem = f"status 0 with {outcome.stdout[:80]!r}"
        row.add_outcome(name, outcome, problem)
    return row
