"""The ONNX graphs give in onnxruntime what the model gives in torch, step by step, for any batch and any length."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import multihead
from multihead.errors import UserError
from multihead.interop.onnx_export import export_onnx
from multihead.model.transformer import Transformer
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import PAD_ID, SubwordTokenizer
from multihead.translation.translator import load
from tests.conftest import copy_or_reverse, store_model, tiny_shape

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.xdist_group("onnx")  # to export takes seconds: once, in one process

TOKENIZER = SubwordTokenizer.learn(["a man", "ein Mann"] * 3, 270)
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_translate.py"
SHAPES: list[dict[str, object]] = [
    {"max_len": 256},  # the paper's, with heads of unequal width
    {
        "max_len": 256,
        "norm": "pre",
        "positions": "learned",
        "attention_bias": True,
        "tie_embeddings": "none",
        "output_bias": True,
    },
]


class Graphs:
    """Both graphs, run by onnxruntime."""

    def __init__(self, folder: Path) -> None:
        self.encoder = onnxruntime.InferenceSession(folder / "encoder.onnx")
        self.decoder = onnxruntime.InferenceSession(folder / "decoder.onnx")
        self.past: dict[str, Any] = {}

    def start(self, source_ids: torch.Tensor, model: Transformer) -> None:
        names = [output.name for output in self.encoder.get_outputs()]
        self.memory = dict(zip(names, self.encoder.run(None, {"source_ids": source_ids.numpy()}), strict=True))
        config, rows = model.config, len(source_ids)
        self.past = {
            f"past.{layer}.{part}": np.zeros((rows, config.n_heads, 0, width), dtype=np.float32)
            for layer in range(config.decoder_layers)
            for part, width in (("k", config.d_k), ("v", config.d_v))
        }

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        logits, *present = self.decoder.run(None, {"ids": ids.numpy(), **self.memory, **self.past})
        self.past = dict(zip(self.past, present, strict=True))
        return torch.from_numpy(logits)


@pytest.fixture(scope="module", params=SHAPES, ids=["paper", "other"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path]:
    torch.manual_seed(4)
    model = Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size, **request.param)).eval()
    folder = tmp_path_factory.mktemp("onnx") / "export"
    export_onnx(store_model(folder.with_name("model"), model, TOKENIZER), folder)
    return model, folder


@torch.inference_mode()
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 200), (32, 1), (32, 200), (3, 17)])
def test_one_graph_serves_every_size(exported: tuple[Transformer, Path], batch: int, length: int) -> None:
    """Within 1e-4 at every step; padding in the source too."""
    model, folder = exported
    source_ids = torch.randint(4, TOKENIZER.vocab_size, (batch, length))
    source_ids[0, length // 2 + 1 :] = PAD_ID
    graphs, state = Graphs(folder), model.start_decoding(source_ids)
    graphs.start(source_ids, model)
    for _ in range(12):
        ids = torch.randint(4, TOKENIZER.vocab_size, (batch,))
        torch.testing.assert_close(graphs.step(ids), model.decode_step(ids, state), atol=1e-4, rtol=0)


def test_the_sizes_have_names(exported: tuple[Transformer, Path]) -> None:
    _, folder = exported
    shapes = {one.name: one.shape for one in Graphs(folder).decoder.get_inputs()}
    assert shapes["ids"] == ["batch"]
    assert shapes["memory_mask"] == ["batch", "source_length"]
    assert shapes["past.1.v"][::2] == ["batch", "steps"]


def test_no_path_of_this_machine_is_in_an_export(exported: tuple[Transformer, Path]) -> None:
    """The exporter of torch records stack traces."""
    _, folder = exported
    for file in folder.iterdir():
        content = file.read_bytes()
        for path in (str(Path(multihead.__file__).parent), str(Path(torch.__file__).parent), str(Path.home()), ".py"):
            assert path.encode() not in content, (file.name, path)


def test_the_example_translates_without_torch(trained: Path, tmp_path: Path) -> None:
    """What `examples/onnx_translate.py` says is what greedy search says."""
    export_onnx(ModelFolder.open(trained), tmp_path / "export")
    texts = [source for source, _ in copy_or_reverse(20, seed=9)]
    without = "import runpy, sys; sys.modules |= {'torch': None, 'multihead': None}; sys.argv = sys.argv[1:]; "
    command: list[str | Path] = [
        sys.executable,
        "-c",
        without + "runpy.run_path(sys.argv[0], run_name='__main__')",
        EXAMPLE,
    ]
    result = subprocess.run([*command, tmp_path / "export", *texts], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [one.text for one in load(trained, engine="torch").translate(texts, beam=1)]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a").touch()
    stored = store_model(tmp_path / "model", Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size)), TOKENIZER)
    with pytest.raises(UserError, match="is not an ONNX export"):
        export_onnx(stored, tmp_path / "letters")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored = store_model(tmp_path / "model", Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size)), TOKENIZER)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"pip install 'multihead\[interop\]'"):
        export_onnx(stored, tmp_path / "export")
