"""Shared fixtures: a tiny shape, a toy corpus, a trained model, and real text if this machine has it."""

import os
import random
from collections.abc import Iterable
from pathlib import Path

import hypothesis
import pytest
from filelock import FileLock

from multihead.config.schema import DataConfig, ModelConfig, RunConfig, Settings
from multihead.model.transformer import Transformer
from multihead.model.weights import to_arrays, weights_of
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.model_folder import ModelFolder, Provenance, save_model
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Segment

# Two processes share the cores, so how long an example takes says nothing; speed is measured in benchmarks/.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A run of a few seconds with several epochs, validations and checkpoints.
QUICK: Settings = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.d_k": 8,
    "model.d_v": 8,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 32,
    "data.batch_tokens": 100,
    "train.steps": 24,
    "train.warmup": 10,
    "train.validate_every": 8,
    "train.save_every": 6,
    "train.log_every": 4,
    "train.bleu_sentences": 4,
    "train.precision": "float32",  # results that are compared digit by digit must not depend on the machine
}


def segments_of(sentences: Iterable[list[int]]) -> list[Segment]:
    return [Segment(ids) for ids in sentences]


def tiny_shape(**changes: object) -> ModelConfig:
    """Return a shape small enough to compare number by number. All sizes differ, so that mix-ups show."""
    shape: dict[str, object] = {
        "vocab_size": 31,
        "d_model": 12,
        "d_ff": 20,
        "n_heads": 3,
        "d_k": 5,
        "d_v": 7,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "dropout": 0.0,
        "max_len": 24,
    }
    return ModelConfig(**{**shape, **changes})  # type: ignore[arg-type]  # pydantic checks the values


def store_model(
    folder: Path, model: Transformer, tokenizer: SubwordTokenizer, shortlist: Shortlist | None = None
) -> ModelFolder:
    """Write a model folder as a run would."""
    data = DataConfig(max_length=min(100, model.config.max_len - 1), source_lang="en", target_lang="de")
    folder.mkdir(parents=True, exist_ok=True)
    if shortlist:
        shortlist.save(folder)
    config = RunConfig(model=model.config, data=data)
    save_model(folder, to_arrays(weights_of(model)), config, tokenizer.files(), Provenance(steps=7))
    return ModelFolder.open(folder)


def copy_or_reverse(n_pairs: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of a task that needs attention over the whole sentence: the first word names the task."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(n_pairs):
        words = [rng.choice("abcdefghijklmnop") for _ in range(rng.randint(2, 7))]
        task = rng.choice(["copy", "reverse"])
        pairs.append((" ".join([task, *words]), " ".join(words if task == "copy" else words[::-1])))
    return pairs


def write_pairs(folder: Path, pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    files = folder / "text.src", folder / "text.tgt"
    for side, file in enumerate(files):
        file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return files


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that needs the trained model is `long`: the model takes half a minute."""
    for item in items:
        if "trained" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the tests' own, which their subprocesses use as well."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def toy_text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pairs(tmp_path_factory.mktemp("toy"), copy_or_reverse(120, seed=1))


@pytest.fixture
def quick_request(toy_text: tuple[Path, Path], tmp_path: Path) -> TrainingRequest:
    return TrainingRequest(
        output=tmp_path / "run", source=toy_text[0], target=toy_text[1], preset="base", settings=QUICK
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned to copy and to reverse, trained once by the test process that comes first."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    folder.mkdir(exist_ok=True)
    settings = {
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.d_k": 16,
        "model.d_v": 16,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
        "model.dropout": 0.0,
        "data.max_length": 32,
        "data.batch_tokens": 512,
        "train.steps": 1200,
        "train.warmup": 200,
        "train.lr_scale": 0.4,
        "train.label_smoothing": 0.0,
        "train.validate_every": 1000,
        "train.save_every": 40,
        "train.keep_checkpoints": 10,
        "train.average_checkpoints": 10,
    }
    with FileLock(folder / "lock"):
        if not (folder / "run" / "model.safetensors").exists():
            source, target = write_pairs(folder, list(dict.fromkeys(copy_or_reverse(12_000, seed=1))))
            output = folder / "run"
            train(TrainingRequest(output=output, source=source, target=target, preset="tiny", settings=settings))
    return folder / "run"


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """Real text, which is not part of the repository."""
    folder = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("Multi30k is not on this machine")
    return folder
