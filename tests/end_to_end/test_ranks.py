"""One, two or four processes take the same steps, whole or in shards, and go on with what the others saved."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from multihead.config.resolve import configure
from multihead.config.schema import Settings
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.distributed.process_group import ProcessGroup, process_group
from multihead.distributed.sharding import full_tensor
from multihead.model.weights import load_model
from multihead.runs.log import read_log
from multihead.runs.loop import steps_until_agreement
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.checkpoints import saved_steps
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from tests.conftest import QUICK
from tests.ranks import on_ranks

Numbers = NDArray[np.float32]

# Without dropout, which no two processes draw alike. A batch has few pairs: some processes get none of it.
STEPS: Settings = {**QUICK, "model.dropout": 0.0, "data.batch_tokens": 33, "train.lr_scale": 0.1}
CLOSE = 1e-6  # largest difference of a gradient
NEAR = 1e-6  # largest difference of a weight after 20 steps


@pytest.fixture(scope="module")
def prepared(toy_text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "data"
    prepare(from_files(*toy_text), folder, configure(QUICK).data)
    return folder


def flat(tensors: list[Tensor]) -> Numbers:
    numbers: Numbers = np.concatenate([full_tensor(tensor.detach()).flatten().numpy() for tensor in tensors])
    return numbers


WAYS: dict[str, Settings] = {
    "adam": {},
    "accumulated": {"train.accumulate": 3},
    "muon": {"train.optimizer": "muon", "train.clip_norm": 1.0},
    "augmented": {"data.bpe_dropout": 0.3, "train.accumulate": 2},
}


@dataclass(frozen=True, slots=True)
class Taken:
    """What has come of some steps."""

    gradient: Numbers  # of the first one
    weights: Numbers
    loss: float


def take_steps(data: Path, ways: dict[str, Settings], n_steps: int = 20) -> dict[str, Taken]:
    """Train in every one of these ways."""
    with process_group() as group:
        return {name: take_some(data, settings, n_steps, group) for name, settings in ways.items()}


def take_some(data: Path, settings: Settings, n_steps: int, group: ProcessGroup) -> Taken:
    tokenizer = SubwordTokenizer.load(data / "tokenizer.json")
    run = Trainer(configure(STEPS, {"model.vocab_size": tokenizer.vocab_size}, settings), data, tokenizer, group)
    gradients: list[Numbers] = []

    def note(*_: object) -> None:
        gradients.append(flat([one.grad for one in run.model.parameters() if one.grad is not None]))

    run.optimizers[0].register_step_pre_hook(note)
    for _ in range(n_steps):
        run.step()
    return Taken(gradients[0], flat(list(run.model.parameters())), run.metrics()["loss"])


@pytest.fixture(scope="module")
def alone(prepared: Path) -> dict[str, Taken]:
    return take_steps(prepared, WAYS)


def difference(one: Numbers, other: Numbers) -> float:
    return float(np.abs(one - other).max())


def check(taken: Taken, alone: Taken) -> None:
    assert difference(taken.gradient, alone.gradient) < CLOSE
    assert difference(taken.weights, alone.weights) < NEAR
    assert taken.loss == pytest.approx(alone.loss, rel=1e-5)


@pytest.mark.parametrize(("world_size", "ways"), [(2, list(WAYS)), (4, ["accumulated"])])
def test_several_processes_take_the_steps_of_one(
    prepared: Path, alone: dict[str, Taken], world_size: int, ways: list[str]
) -> None:
    """Sentences are of uneven length, and so are the shares: gradients are of all tokens, not means of means."""
    answers = on_ranks(world_size, take_steps, prepared, {name: WAYS[name] for name in ways})
    for name in ways:
        for answer in answers:
            check(answer[name], alone[name])
            assert np.array_equal(answer[name].weights, answers[0][name].weights)


def test_in_shards_two_processes_take_the_steps_of_one(prepared: Path, alone: dict[str, Taken]) -> None:
    sharded = {name: {**WAYS[name], "train.parallel": "fsdp"} for name in ("accumulated", "muon")}
    for answer in on_ranks(2, take_steps, prepared, sharded):
        for name in sharded:
            check(answer[name], alone[name])


# Whole runs


@pytest.fixture
def request_(quick_request: TrainingRequest) -> TrainingRequest:
    return replace(quick_request, settings={**STEPS, "train.validate_every": 8})


def published(request: TrainingRequest) -> Numbers:
    model, _, _ = load_model(request.output)
    return flat(list(model.parameters()))


def test_a_run_goes_on_with_another_number_of_processes_and_ends_as_one(request_: TrainingRequest) -> None:
    """1, then 2, then 4, then 2 in shards; and the log is that of one run."""
    whole_run = replace(request_, output=request_.output.with_name("whole"))
    train(whole_run)
    for world_size, steps, parallel in ((1, 4, "ddp"), (2, 8, "ddp"), (2, 12, "fsdp"), (4, 20, "ddp"), (1, 24, "ddp")):
        settings = {**request_.settings, "train.steps": steps, "train.parallel": parallel}
        on_ranks(world_size, train, replace(request_, settings=settings))
    assert difference(published(request_), published(whole_run)) < NEAR
    losses, expected = (
        [line["loss"] for line in read_log(one.output) if "loss" in line] for one in (request_, whole_run)
    )
    assert losses == pytest.approx(expected, rel=1e-4)
    assert saved_steps(request_.output / "checkpoints")[-1] == 24


def test_two_processes_publish_what_one_publishes(request_: TrainingRequest) -> None:
    alone = replace(request_, output=request_.output.with_name("alone"))
    train(alone)
    on_ranks(2, train, request_)
    assert difference(published(request_), published(alone)) < NEAR
    assert {path.name for path in request_.output.iterdir()} == {path.name for path in alone.output.iterdir()}
    logs = [[line["step"] for line in read_log(one.output)] for one in (request_, alone)]
    assert logs[0] == logs[1]


def test_ranks_take_the_clock_and_signals_of_others_now_and_then() -> None:
    """Short steps are not delayed by it, and long ones notice a signal at once."""
    assert [steps_until_agreement(pace) for pace in (0.0, 0.001, 0.02, 0.3, 20.0)] == [1, 50, 25, 1, 1]
