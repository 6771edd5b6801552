"""docs/interop.md: every command and every program in it, run from top to bottom as a reader would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from multihead.model.transformer import Transformer
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape
from tests.marian import SENTENCES, opus_folder

for library in ("transformers", "sentencepiece", "onnxruntime", "ctranslate2"):
    pytest.importorskip(library, reason=f"{library} is not installed")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(python)?\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of the paper's kind and one of OPUS-MT, and the examples beside them."""
    folder = tmp_path_factory.mktemp("page")
    tokenizer = SubwordTokenizer.learn(SENTENCES * 3, 300)
    torch.manual_seed(1)
    model = Transformer(tiny_shape(vocab_size=tokenizer.vocab_size, d_k=4, d_v=4, max_len=300))
    store_model(folder / "my-model", model, tokenizer)
    opus_folder(folder / "opus-mt-en-de")
    for name, step in (("my.en", 1), ("my.de", -1)):
        lines = [" ".join(sentence.split()[::step]) for sentence in SENTENCES * 3]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def test_the_page_is_true(place: Path) -> None:
    n_run = 0
    for language, block in BLOCKS:
        for command in _commands(language, block):
            command += ["--steps", "2", "--set", "data.max_length=64"] if "train" in command else []
            result = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)
            assert result.returncode == 0, f"{command}\n{result.stderr}"
            n_run += 1
    assert n_run >= 12
    assert "hf:" not in (place / "opus-en-de" / "config.json").read_text(encoding="utf-8")


def _commands(language: str, block: str) -> list[list[str]]:
    """What needs the network (pip, hf:) is left out: the hub has tests of its own."""
    if language:
        return [[sys.executable, "-c", block]]
    lines = [line for line in block.split("\n") if line and "pip install" not in line and "hf:" not in line]
    words = [re.findall(r'"[^"]*"|\S+', line) for line in lines]
    commands = [[word.strip('"') for word in line] for line in words]
    return [[sys.executable, *(["-m", "multihead"] if name == "multihead" else []), *rest] for name, *rest in commands]
