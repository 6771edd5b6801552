"""A model without some heads computes what the model computes with these heads removed, in every engine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from multihead.errors import UserError
from multihead.inspection.ablation import without_heads
from multihead.inspection.head_roles import Head
from multihead.interop.formats import export
from multihead.interop.hub import find_model
from multihead.interop.marian.importer import import_marian
from multihead.model.build import build_model
from multihead.model.weights import load_weights, to_arrays, to_tensors, weights_of
from multihead.runs.prune import remove_heads, write_pruned
from multihead.storage.model_folder import ModelFolder
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.translator import load
from tests.conftest import store_model, tiny_shape

HEADS = [Head("encoder", 0, 1), Head("encoder", 1, 0), Head("decoder", 0, 2), Head("cross", 1, 1)]
SOURCE, TARGET = torch.tensor([[7, 8, 9, 3]]), torch.tensor([[2, 11, 12]])
TEXTS = ["Where is the station?", "I like old books.", "She gave me a red apple.", "Tom did not know what to do."]
ONNX_EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_translate.py"


def translations(model: str | Path, engine: str = "torch") -> list[str]:
    return [one.text for one in load(model, engine=engine).translate(TEXTS, beam=1, guard=False, shortlist=False)]


@pytest.fixture(scope="module")
def stored() -> ModelFolder:
    return ModelFolder.open(find_model("lesson"))


@pytest.fixture(scope="module")
def pruned(stored: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pruned") / "small"
    write_pruned(stored, HEADS, folder, "Without four heads.")
    return folder


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The translations of the model while these heads are removed."""
    translator = load("lesson", engine="torch")
    with without_heads(translator.models[0], HEADS):
        return [one.text for one in translator.translate(TEXTS, beam=1, guard=False, shortlist=False)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_bias": True},
        {"encoder_mixer": "bigbird", "decoder_mixer": "local"},
        {"attention_score": "additive"},
        {"positions": "relative"},
    ],
    ids=str,
)
def test_zero_weights_remove_a_head(changes: dict[str, object]) -> None:
    config = tiny_shape(**changes)
    torch.manual_seed(1)
    model, small = build_model(config).eval(), build_model(config).eval()
    if config.attention_bias:
        torch.nn.init.normal_(next(weight for name, weight in model.named_parameters() if name.endswith("w_v.bias")))
    load_weights(small, to_tensors(remove_heads(to_arrays(weights_of(model)), config, HEADS)), Path("pruned"))
    with without_heads(model, HEADS):
        expected = model(SOURCE, TARGET)
    torch.testing.assert_close(small(SOURCE, TARGET), expected, atol=1e-5, rtol=0)


def test_only_the_weights_of_the_heads_become_zero() -> None:
    config = tiny_shape()
    weights = to_arrays(weights_of(build_model(config)))
    pruned = remove_heads(weights, config, [Head("cross", 1, 2)])
    changed = {name for name in weights if not np.array_equal(weights[name], pruned[name])}
    assert changed == {f"decoder.1.cross_attention.w_{part}.weight" for part in "qkvo"}
    n_zeros = sum(int((array == 0).sum() - (weights[name] == 0).sum()) for name, array in pruned.items())
    assert n_zeros == 2 * (5 + 7) * 12  # d_k rows of W^Q and W^K, d_v rows of W^V and columns of W^O


def test_fine_tuning_does_not_bring_a_head_back() -> None:
    config = tiny_shape()
    model = build_model(config)
    load_weights(model, to_tensors(remove_heads(to_arrays(weights_of(model)), config, HEADS)), Path("pruned"))
    model(SOURCE, TARGET).sum().backward()
    gradients: dict[str, Tensor] = {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    for part in "qkv":
        width = 7 if part == "v" else 5
        assert not gradients[f"encoder.0.self_attention.w_{part}.weight"][width : 2 * width].any()
    assert not gradients["encoder.0.self_attention.w_o.weight"][:, 7:14].any()
    assert gradients["encoder.0.self_attention.w_o.weight"].any()


def test_the_heads_of_these_tests_matter(expected: list[str]) -> None:
    assert translations("lesson") != expected


@pytest.mark.parametrize("engine", ["torch", "ctranslate2:float32"])
def test_a_pruned_model_translates_as_the_model_without_these_heads(
    pruned: Path, expected: list[str], engine: str
) -> None:
    assert translations(pruned, engine) == expected


def test_a_pruned_model_survives_an_export_to_marian(pruned: Path, expected: list[str], tmp_path: Path) -> None:
    export(pruned, "marian", tmp_path / "marian")
    import_marian(tmp_path / "marian", tmp_path / "back")
    assert translations(tmp_path / "back") == expected


@pytest.mark.long
@pytest.mark.xdist_group("onnx")
def test_a_pruned_model_translates_the_same_in_onnx(pruned: Path, expected: list[str], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    export(pruned, "onnx", tmp_path / "onnx")
    command = [sys.executable, str(ONNX_EXAMPLE), str(tmp_path / "onnx"), *TEXTS]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == expected


def test_a_pruned_model_says_what_it_is_and_has_no_scores_of_another(stored: ModelFolder, pruned: Path) -> None:
    small = ModelFolder.open(pruned)
    assert small.verify()
    assert stored.provenance.scores and stored.search.confidence
    assert (small.provenance.published, small.provenance.scores) == ("Without four heads.", ())
    assert (pruned / "README.md").read_text(encoding="utf-8").startswith("# small\n\nWithout four heads.\n\n#")
    assert small.search.alignment_layer == stored.search.alignment_layer
    assert small.search.confidence == ()


def test_the_shortlist_is_kept(tmp_path: Path) -> None:
    tokenizer = SubwordTokenizer.learn(["a man", "ein Mann"] * 3, 270)
    shortlist = Shortlist(np.zeros((tokenizer.vocab_size, 2), np.int64), np.arange(4))
    model = build_model(tiny_shape(vocab_size=tokenizer.vocab_size))
    stored = store_model(tmp_path / "model", model, tokenizer, shortlist)
    write_pruned(stored, HEADS, tmp_path / "small", "note")
    kept = ModelFolder.open(tmp_path / "small").shortlist()
    assert kept and np.array_equal(kept.frequent, shortlist.frequent)


def test_a_folder_with_files_is_refused(stored: ModelFolder, tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(UserError, match="already exists and is not an empty folder"):
        write_pruned(stored, HEADS, tmp_path, "note")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
