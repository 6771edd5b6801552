"""A prepared corpus, and trainers on it."""

from pathlib import Path

import pytest

from multihead.config.resolve import configure
from multihead.config.schema import Settings
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from tests.conftest import QUICK


@pytest.fixture(scope="module")
def prepared(toy_text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "data"
    prepare(from_files(*toy_text), folder, configure(QUICK).data)
    return folder


def trainer(data: Path, **settings: object) -> Trainer:
    """Return a trainer for a tiny model; `train__steps=4` sets train.steps."""
    tokenizer = SubwordTokenizer.load(data / "tokenizer.json")
    named: Settings = {name.replace("__", "."): value for name, value in settings.items()}
    return Trainer(configure(QUICK, {"model.vocab_size": tokenizer.vocab_size}, named), data, tokenizer)
