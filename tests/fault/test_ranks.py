"""A rank that dies, hangs, fails or gets a signal: the others end too, say why, and the run can be resumed."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from multihead.runs.log import read_log
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.checkpoints import saved_steps
from multihead.storage.model_folder import published_step
from multihead.training.trainer import Trainer
from tests.conftest import QUICK
from tests.ranks import Group, on_ranks, start

LONG = {
    **QUICK,
    "train.steps": 100_000,
    "train.validate_every": 500,
    "train.save_every": 50,
    "train.log_every": 5,
    "train.rank_timeout": 8.0,
}
LIMIT_SECONDS = 15.0  # for the other ranks to end
TORCHRUN_GRACE_SECONDS = 30.0  # after which torchrun kills a process that does not react to SIGTERM


@pytest.fixture
def request_(quick_request: TrainingRequest) -> TrainingRequest:
    return replace(quick_request, settings=LONG)


def train_command(request: TrainingRequest) -> None:
    from multihead.console import run_and_report_errors

    run_and_report_errors(lambda: train(request))


@pytest.fixture
def group(request_: TrainingRequest, tmp_path: Path) -> Iterator[Group]:
    """Three processes in the middle of a run."""
    running = start(3, train_command, request_, stderr=tmp_path / "stderr")
    wait_for_log(request_)
    yield running
    for process in running.processes:
        process.kill()


def wait_for_log(request: TrainingRequest, n_lines: int = 1) -> None:
    end = time.monotonic() + 120
    while len(read_log(request.output)) < n_lines:
        assert time.monotonic() < end
        time.sleep(0.02)


def seconds_until_end(processes: Sequence[ForkServerProcess]) -> float:
    began = time.monotonic()
    for process in processes:
        process.join(60)
    return time.monotonic() - began


@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_rank_ends_the_run_and_is_named(group: Group, tmp_path: Path, lost: int) -> None:
    process = group.processes[lost]
    process.kill()
    assert seconds_until_end(group.processes) < LIMIT_SECONDS
    assert [one.exitcode for one in group.processes].count(1) == 2
    stderr = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert f"multihead: rank {lost} (process {process.pid} on " in stderr
    assert "has died: run the same command again to go on" in stderr
    assert "Traceback" not in stderr


def test_a_rank_that_hangs_ends_the_run_and_is_named(group: Group, tmp_path: Path) -> None:
    """The process that hangs is left to torchrun."""
    *others, process = group.processes
    assert process.pid
    os.kill(process.pid, signal.SIGSTOP)
    assert seconds_until_end(others) < LIMIT_SECONDS
    assert [one.exitcode for one in others] == [1, 1]
    stderr = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert re.search(rf"multihead: rank 2 \(process {process.pid} on \S+\) has given no sign of life for 8 sec", stderr)


def step_with_the_lock_held(request: TrainingRequest) -> None:
    """Train, and hold Python's interpreter lock on rank 1 for longer than ranks may be silent."""
    step = Trainer.step

    def slow_step(trainer: Trainer) -> None:
        if trainer.state.step == 3 and trainer.group.rank == 1:
            ctypes.PyDLL(None).usleep(6_000_000)
        step(trainer)

    pytest.MonkeyPatch().setattr(Trainer, "step", slow_step)  # in this process, which ends with the run
    train(request)


@pytest.mark.long
def test_a_rank_that_holds_the_interpreter_lock_is_alive(quick_request: TrainingRequest) -> None:
    request = replace(quick_request, settings={**QUICK, "train.steps": 6, "train.rank_timeout": 3.0})
    on_ranks(2, step_with_the_lock_held, request)
    assert published_step(request.output) == 6


def test_a_rank_that_fails_says_why_and_the_others_do_not_wait(quick_request: TrainingRequest, tmp_path: Path) -> None:
    (quick_request.output / "data").mkdir(parents=True)
    (quick_request.output / "data" / "mine").touch()
    group = start(2, train_command, quick_request, stderr=tmp_path / "stderr")
    assert seconds_until_end(group.processes) < LIMIT_SECONDS
    assert [one.exitcode for one in group.processes] == [1, 1]
    assert "already exists and is not empty" in (tmp_path / "stderr").read_text(encoding="utf-8")


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_one_rank_saves_and_ends_all_with_0(
    request_: TrainingRequest, group: Group, tmp_path: Path, asked: int
) -> None:
    group.processes[asked].terminate()
    assert seconds_until_end(group.processes) < LIMIT_SECONDS
    assert [one.exitcode for one in group.processes] == [0, 0, 0]
    assert "received SIGTERM" in (tmp_path / "stderr").read_text(encoding="utf-8")
    assert saved_steps(request_.output / "checkpoints")


@pytest.mark.slow
def test_minutes_are_those_of_the_first_rank(quick_request: TrainingRequest) -> None:
    """All ranks stop at the same step; otherwise one would wait for the others without end."""
    settings = {**LONG, "train.minutes": 0.5, "train.lr_decay": "linear"}
    on_ranks(2, train, replace(quick_request, settings=settings))
    steps = published_step(quick_request.output)
    assert steps is not None and steps < 100_000


# torchrun itself


def torchrun(request: TrainingRequest, *options: str, wrapped: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    settings = [f"--set={name}={value}" for name, value in request.settings.items()]
    command = [*wrapped, sys.executable, "-m", "torch.distributed.run", *options, "-m", "multihead", "train"]
    command += [f"--source={request.source}", f"--target={request.target}", f"--output={request.output}"]
    command += [f"--preset={request.preset}", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def workers_of(launcher: subprocess.Popen[str]) -> dict[int, int]:
    """Return the processes that torchrun has started, by their rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text(encoding="ascii").split()
    found: dict[int, int] = {}
    for child in map(int, children):
        variables = Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
        ranks = [value for name, _, value in (line.partition("=") for line in variables) if name == "RANK"]
        found |= {int(ranks[0]): child} if ranks else {}
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of torchrun in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_torchrun_starts_a_lost_rank_again_and_the_run_ends_with_the_same_bytes(
    quick_request: TrainingRequest, number: signal.Signals
) -> None:
    request = replace(quick_request, settings={**LONG, "train.steps": 300, "train.save_every": 20})
    uninterrupted = replace(request, output=request.output.with_name("uninterrupted"))
    on_ranks(2, train, uninterrupted)
    launcher = torchrun(request, "--nproc-per-node=2", "--max-restarts=1")
    wait_for_log(request, n_lines=20)
    os.kill(workers_of(launcher)[1], number)
    _, stderr = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, stderr
    assert "rank 1 (process " in stderr
    models = [(one.output / "model.safetensors").read_bytes() for one in (request, uninterrupted)]
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of torchrun in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_restarts_torchrun_ends_soon_and_names_the_rank(
    request_: TrainingRequest, number: signal.Signals
) -> None:
    launcher = torchrun(request_, "--nproc-per-node=2")
    wait_for_log(request_)
    os.kill(workers_of(launcher)[1], number)
    began = time.monotonic()
    _, stderr = launcher.communicate(timeout=60)
    limit = LIMIT_SECONDS + (TORCHRUN_GRACE_SECONDS if number == signal.SIGSTOP else 0)
    assert time.monotonic() - began < limit
    assert launcher.returncode == 1
    assert "multihead: rank 1 (process " in stderr


@pytest.fixture
def two_machines() -> Iterator[list[tuple[tuple[str, ...], str]]]:
    """Two network namespaces joined by a virtual cable: the prefix that runs a command in each, and its address."""
    names = [f"multihead-{os.getpid()}-{at}" for at in range(2)]
    cables = [f"mh{os.getpid() % 100_000}{side}" for side in "ab"]
    commands = [f"ip netns add {name}" for name in names]
    commands += [f"ip link add {cables[0]} type veth peer name {cables[1]}"]
    for at, (name, cable) in enumerate(zip(names, cables, strict=True)):
        inside = f"ip -n {name}"
        commands += [f"ip link set {cable} netns {name}", f"{inside} addr add 10.77.0.{at + 1}/24 dev {cable}"]
        commands += [f"{inside} link set {cable} up", f"{inside} link set lo up"]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces on this platform: {error}")
    else:
        wrap = zip(names, cables, strict=True)
        yield [
            (("ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME={cable}"), f"10.77.0.{at + 1}")
            for at, (name, cable) in enumerate(wrap)
        ]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
def test_two_machines_train_one_model(
    quick_request: TrainingRequest, two_machines: list[tuple[tuple[str, ...], str]]
) -> None:
    """Each has its own torchrun, and they share only a network and a folder."""
    request = replace(quick_request, settings={**QUICK, "model.dropout": 0.0})
    first = two_machines[0][1]
    options = (
        "--nnodes=2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        "--rdzv-id=7",
        f"--rdzv-endpoint={first}:29400",
    )
    launchers = [
        torchrun(request, *options, f"--rdzv-conf=is_host={at == 0}", f"--local-addr={address}", wrapped=wrapped)
        for at, (wrapped, address) in enumerate(two_machines)
    ]
    stderr = [launcher.communicate(timeout=180)[1] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], stderr
    assert "2 processes (ddp)" in "".join(stderr)
    assert published_step(request.output) == 24
