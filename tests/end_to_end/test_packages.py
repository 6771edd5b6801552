"""The wheel, the source distribution and the Docker image: complete, without torch, and working offline."""

import json
import re
import shlex
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.environments import ROOT, make_environment, run_in

# Python imports it before anything else.
OFFLINE = """
import socket
def refuse(*_):
    raise OSError("this test has no network")
socket.socket.connect = socket.getaddrinfo = refuse
"""
SENTENCE, TRANSLATION = "Where is the station?", "Wo ist der Bahnhof?\n"


def build(source: Path, target: str, folder: Path) -> Path:
    """Return the file that `pip` would build."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pip builds it: from the source distribution."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(source_distribution) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


def tracked(*folders: str) -> set[str]:
    """Return the files in the repository."""
    command = ["git", "ls-files", "-z", "--", *folders]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip("this is no clone of the repository")
    return {name for name in shown.stdout.split("\0") if (ROOT / name).is_file()}


@pytest.mark.long
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert files == tracked("multihead")


@pytest.mark.long
def test_the_source_distribution_has_what_the_tests_and_the_documents_refer_to(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked() if not name.startswith(".")} <= files


@pytest.mark.long
def test_the_wheel_translates_in_a_clean_environment_without_a_network(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment")
    (site,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    (site / "multihead").unlink()  # a link to the repository
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "sitecustomize.py").write_text(OFFLINE, encoding="utf-8")
    no_network = subprocess.run(
        [python, "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1')"], capture_output=True
    )
    assert b"this test has no network" in no_network.stderr
    assert run_in(python, "translate", "en-de", SENTENCE).stdout == TRANSLATION
    run_in(python, "explain", "--output", tmp_path / "lesson.html")
    assert (tmp_path / "lesson.html").stat().st_size > 1_000_000


# The image: Docker is not needed to run the commands of its file.

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instruction(name: str) -> str:
    found = re.search(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)
    assert found
    return found[1]


def test_the_image_is_built_from_files_that_the_build_can_see() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert instruction("COPY").split()[0] == "."
    assert not {"multihead", "pyproject.toml", "README.md", "LICENSE"} & set(ignored)


@pytest.mark.long
def test_the_command_of_the_image_serves_without_torch_and_is_healthy(tmp_path: Path) -> None:
    extras = re.search(r'pip install .*"/src\[(.*?)\]"', DOCKERFILE)
    assert extras
    python = make_environment(tmp_path / "environment", *extras[1].split(","))
    assert subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode
    program, *arguments = json.loads(instruction("ENTRYPOINT")) + json.loads(instruction("CMD"))
    assert program == "multihead"
    assert arguments[arguments.index("--host") + 1] == "0.0.0.0"
    arguments[arguments.index("--host") + 1] = "127.0.0.1"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert f":{instruction('EXPOSE')}/" in instruction("HEALTHCHECK")
    health = shlex.split(instruction("HEALTHCHECK CMD").replace(instruction("EXPOSE"), str(port)))
    assert health[0] == "python"
    server = subprocess.Popen([python, "-m", program, *arguments, "--port", str(port)], cwd=tmp_path)
    try:
        wait_until_ready(port)
        subprocess.run([python, *health[1:]], check=True)
        assert post(port, "/translate", {"q": SENTENCE, "source": "en", "target": "de"})[0] == 200
        assert post(port, "/attention", {"q": SENTENCE, "source": "en", "target": "de"})[0] == 501
    finally:
        server.terminate()
        assert server.wait(30) is not None


def wait_until_ready(port: int) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError("the server did not become ready within a minute")


def post(port: int, route: str, body: dict[str, str]) -> tuple[int, str]:
    """Return the status and the body of an answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{route}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
