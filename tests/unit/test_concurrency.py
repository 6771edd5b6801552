"""Maps over threads and processes: in order, reading ahead a little, and failing with a message."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from multihead import concurrency
from multihead.concurrency import map_in_processes, map_in_threads, run_in_subprocess
from multihead.errors import UserError
from tests.processes import is_running

ROOT = Path(__file__).parents[2]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "n_cores", lambda: 2)


def process_of(item: int) -> tuple[int, int]:
    return item, os.getpid()


def end_process(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tokenizer_threads(item: int) -> str:
    return os.environ.get("TOKENIZERS_PARALLELISM", "")


def test_results_of_processes_come_in_the_order_of_the_items(two_cores: None) -> None:
    results = list(map_in_processes(process_of, range(20)))
    assert [item for item, _ in results] == list(range(20))
    assert os.getpid() not in {process for _, process in results}


def test_few_items_start_no_process(two_cores: None) -> None:
    assert {process for _, process in map_in_processes(process_of, range(3), min_items=4)} == {os.getpid()}


def test_a_killed_worker_is_an_error_with_a_message(two_cores: None) -> None:
    with pytest.raises(UserError, match="worker process was killed"):
        list(map_in_processes(end_process, range(4)))


def test_workers_keep_the_tokenizers_library_to_one_thread_and_this_process_does_not(two_cores: None) -> None:
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    assert set(map_in_processes(tokenizer_threads, range(4))) == {"false"}
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


@pytest.mark.long
def test_a_script_without_a_guard_may_use_processes(tmp_path: Path) -> None:
    """Processes that import the script would run it again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import operator\nfrom multihead import concurrency\nconcurrency.n_cores = lambda: 2\n"
        "print(list(concurrency.map_in_processes(operator.neg, range(5))))\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "[0, -1, -2, -3, -4]\n"


def test_results_of_threads_come_in_the_order_of_the_items() -> None:
    """The first call ends last."""
    second_is_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_is_done.wait(10)
        elif item == 1:
            second_is_done.set()
        return item

    assert list(map_in_threads(work, range(6), 2)) == list(range(6))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_no_more_items_are_read_than_are_under_way(n_threads: int) -> None:
    read: list[int] = []

    def endless() -> Iterator[int]:
        for item in count():
            read.append(item)
            yield item

    assert list(islice(map_in_threads(str, endless(), n_threads), 2)) == ["0", "1"]
    assert len(read) <= n_threads + 2


def test_a_subprocess_returns_the_result_of_a_function() -> None:
    item, process = run_in_subprocess(process_of, 7)
    assert item == 7
    assert process != os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("way", ["run_in_subprocess", "map_in_processes"])
def test_a_worker_ends_when_its_parent_is_killed(way: str, tmp_path: Path) -> None:
    """It would wait for work without end, with its memory and with the pipes of the parent's output."""
    script = f"""
import time
from multihead import concurrency
from tests.unit.test_concurrency import note_process_and_wait

concurrency.n_cores = lambda: 2
if {way!r} == "run_in_subprocess":
    concurrency.run_in_subprocess(note_process_and_wait, {str(tmp_path / "1")!r})
else:
    list(concurrency.map_in_processes(note_process_and_wait, [{str(tmp_path / "1")!r}, {str(tmp_path / "2")!r}]))
"""
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    wait_until(lambda: any(path.read_text(encoding="ascii") for path in tmp_path.iterdir()))
    parent.kill()
    parent.wait()
    workers = [int(path.read_text(encoding="ascii")) for path in tmp_path.iterdir()]
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def note_process_and_wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()), encoding="ascii")
    time.sleep(600)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
