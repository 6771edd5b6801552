"""A server in this process, without a socket; and one in a process of its own."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from starlette.testclient import TestClient

import multihead
from multihead.serve.access import Access
from multihead.serve.app import AppState, make_app
from multihead.serve.options import Limits
from multihead.serve.service import Service
from multihead.translation.translator import Translator

Result = TypeVar("Result")


@pytest.fixture(scope="session")
def en_de() -> Translator:
    return multihead.load("en-de", engine="torch")


def in_a_loop(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """What asynchronous work gives, in a thread of its own: the browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def client_of(*translators: Translator, limits: Limits | None = None, access: Access | None = None) -> TestClient:
    state = AppState(limits=limits or Limits(), access=access or Access())
    state.service = Service(translators, state.limits)
    return TestClient(make_app(state), raise_server_exceptions=True)


@pytest.fixture(scope="session")
def client(en_de: Translator) -> TestClient:
    return client_of(en_de, limits=Limits(seconds=120))  # the machine may be busy


@dataclass
class Process:
    """`multihead serve` as users run it."""

    process: "subprocess.Popen[bytes]"
    address: str
    port: int

    def get(self, route: str) -> httpx.Response:
        return httpx.get(self.address + route, timeout=30)

    def translate(self, q: object, **more: object) -> httpx.Response:
        fields = {"q": q, "source": "en", "target": "de", **more}
        return httpx.post(self.address + "/translate", json=fields, timeout=60)

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found
        return int(found[1]) / 1024

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Process]]:
    """Start a server with these options, and wait until it is ready."""
    started: list[Process] = []

    def start_one(*options: str) -> Process:
        command = [sys.executable, "-m", "multihead", "serve", "en-de", "--port=0", "--engine=torch", *options]
        said = tmp_path_factory.mktemp("served") / "said"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with said.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        deadline = time.monotonic() + 60
        while "ready" not in (text := said.read_text(encoding="utf-8")):
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)
        found = re.search(r"(http://127\.0\.0\.1:(\d+))", text)
        assert found
        started.append(Process(process, found[1], int(found[2])))
        return started[-1]

    yield start_one
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def served(start: Callable[..., Process]) -> Process:
    return start("--max-characters=20000")
