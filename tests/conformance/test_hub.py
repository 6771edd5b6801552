"""`hf:owner/name`, against a hub of our own on loopback: fetched once, imported, kept."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from multihead.errors import UsageError, UserError
from multihead.interop.hub import download_and_convert, find_model
from tests.marian import opus_folder

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NEXT_COMMIT = "f" * 40


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    folder: Path
    asked: list[str]
    address: str
    commit: str

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        name = path.rpartition("/")[2]
        if path.startswith("/api/models/owner/opus-mt-en-de/tree/"):
            files = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": digest(file.read_bytes())[:40]}
                for file in self.folder.iterdir()
            ]
            body = json.dumps(files).encode()
        elif path.startswith("/api/models/owner/opus-mt-en-de"):
            files = [{"rfilename": file.name} for file in self.folder.iterdir()]
            body = json.dumps({"id": "owner/opus-mt-en-de", "sha": self.commit, "siblings": files}).encode()
        elif path.startswith("/owner/opus-mt-en-de/resolve/") and (self.folder / name).is_file():
            body = (self.folder / name).read_bytes()
        else:
            self.send_error(404)
            return
        self.send_response(200)
        for header, value in {
            "Content-Length": str(len(body)),
            "Content-Type": "application/json" if path.startswith("/api") else "application/octet-stream",
            "ETag": f'"{digest(body)[:40]}"',
            "X-Repo-Commit": self.commit,
        }.items():
            self.send_header(header, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[type[Hub]]:
    Hub.folder, Hub.asked = opus_folder(tmp_path / "opus-mt-en-de").folder, []
    Hub.commit = COMMIT
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Hub
    server.shutdown()
    server.server_close()
    thread.join()


def multihead(hub: type[Hub], cache: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command whose hub is ours; the library reads its address once, when it is imported."""
    ours = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(cache), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "multihead", *arguments]
    return subprocess.run(command, env={**os.environ, **ours}, capture_output=True, text=True, check=False)


def test_a_name_is_downloaded_and_imported_once(hub: type[Hub], tmp_path: Path) -> None:
    (hub.folder / "pytorch_model.bin").write_bytes(b"never asked for")
    (hub.folder / "model.py").write_bytes(b"never asked for")
    said = []
    for _ in range(2):
        result = multihead(
            hub, tmp_path / "cache", "translate", "hf:owner/opus-mt-en-de", "--engine", "torch", "It rains."
        )
        assert result.returncode == 0, result.stderr
        said.append((result.stdout, len(hub.asked)))
    assert said[0] == said[1]  # the second time nothing is asked for
    assert not any(path.endswith((".bin", ".py")) for path in hub.asked)
    result = multihead(hub, tmp_path / "cache", "info", "hf:owner/opus-mt-en-de", "--json")
    facts = json.loads(result.stdout)
    assert facts["model"] == facts["imported_from"] == "hf:owner/opus-mt-en-de"
    assert facts["commit"] == facts["imported_commit"] == COMMIT


def test_a_name_keeps_its_commit_until_it_is_updated(hub: type[Hub], tmp_path: Path) -> None:
    command = (hub, tmp_path / "cache", "info", "hf:owner/opus-mt-en-de", "--json")
    assert f"hf:owner/opus-mt-en-de is commit {COMMIT}" in multihead(*command).stderr
    hub.commit = NEXT_COMMIT
    assert json.loads(multihead(*command).stdout)["commit"] == COMMIT
    assert json.loads(multihead(*command, "--update").stdout)["commit"] == NEXT_COMMIT
    assert json.loads(multihead(*command).stdout)["imported_commit"] == NEXT_COMMIT


def test_only_models_of_the_hub_can_be_updated() -> None:
    with pytest.raises(UsageError, match="en-de is none"):
        find_model("en-de", update=True)


def test_a_model_that_is_not_there_is_said(hub: type[Hub], tmp_path: Path) -> None:
    result = multihead(hub, tmp_path / "cache", "import", "hf:owner/other", "--output", tmp_path / "model")
    assert result.returncode == 1
    assert result.stderr.startswith("multihead: cannot download owner/other")
    assert "Traceback" not in result.stderr


NO_NAMES = ["", "owner", "../secret", "owner/..", "a/b@../../x", "/etc/passwd", "a/b/c", "a b/c"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="not a model of the hub"):
        download_and_convert(f"hf:{name}")
