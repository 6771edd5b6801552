"""`pip install .` translates, evaluates, serves and exports without torch; what needs torch says how to install it."""

import json
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.environments import ROOT, imports, make_environment, run_in
from tests.marian import opus_folder

SENTENCE, TRANSLATION = "Where is the station?", "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("core"))


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("serving"), "serve")


@pytest.fixture(scope="module")
def interop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("interop"), "interop")


@pytest.fixture(scope="module")
def bulk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("bulk"), "bulk")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("text")
    pairs = [(SENTENCE, TRANSLATION), ("Good morning.", "Guten Morgen."), ("I am tired.", "Ich bin müde.")]
    for side, name in enumerate(("source", "reference")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return folder / "source", folder / "reference"


def test_torch_is_not_there(core: Path) -> None:
    result = subprocess.run([core, "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in result.stderr


def test_it_translates(core: Path) -> None:
    assert run_in(core, "translate", "en-de", SENTENCE).stdout == f"{TRANSLATION}\n"


def test_json_has_the_alignment_and_the_probabilities(core: Path) -> None:
    line = json.loads(run_in(core, "translate", "en-de", "--json", SENTENCE).stdout)
    assert [1, 1] in [link[:2] for link in line["alignment"]]  # is, ist
    assert len(line["token_scores"]) == len(line["tokens"]) + 1  # the end symbol has a probability too


def test_the_first_word_waits_for_nothing_that_it_does_not_need(core: Path) -> None:
    run_in(core, "translate", "en-de", SENTENCE)  # makes the export that later commands find
    command = ["multihead", "translate", "en-de", SENTENCE]
    code = f"import sys; sys.argv = {command}; from multihead.cli.main import main; main()"
    heavy = "torch pydantic filelock rich sacrebleu sacremoses huggingface_hub"
    assert imports(core, code, heavy) == []


@pytest.mark.parametrize("home", ["/dev/null", "/nowhere", ""])
def test_a_home_that_cannot_be_written_is_replaced_by_a_temporary_folder(core: Path, home: str) -> None:
    """Not even root can write below /dev/null."""
    cache = {"XDG_CACHE_HOME": "/dev/null/cache"} if home != "/dev/null" else {}
    result = run_in(core, "translate", "en-de", SENTENCE, variables={"HOME": home, **cache})
    assert result.stdout == f"{TRANSLATION}\n"
    assert "cannot be kept" in result.stderr
    assert "XDG_CACHE_HOME" in result.stderr


def test_a_read_only_installation_translates(core: Path, tmp_path: Path) -> None:
    """The export of a bundled model is never written into the package."""
    before = sorted((ROOT / "multihead" / "bundled").rglob("*"))
    run_in(core, "translate", "en-de", SENTENCE, variables={"XDG_CACHE_HOME": str(tmp_path / "missing" / "cache")})
    assert sorted((ROOT / "multihead" / "bundled").rglob("*")) == before
    assert list((tmp_path / "missing" / "cache").rglob("model.bin"))


def test_two_processes_that_build_the_export_at_once_make_one_valid_export(core: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        start = partial(run_in, core, "translate", "en-de", SENTENCE, variables={"XDG_CACHE_HOME": str(tmp_path)})
        results = list(pool.map(lambda _: start(), range(2)))
    assert [result.stdout for result in results] == [f"{TRANSLATION}\n"] * 2
    exports = list(tmp_path.rglob("model.bin"))
    assert len(exports) == 1
    assert not list(tmp_path.rglob("*.partial"))


def test_it_evaluates(core: Path, text: tuple[Path, Path]) -> None:
    scores = json.loads(run_in(core, "evaluate", "en-de", "--source", text[0], "--reference", text[1], "--json").stdout)
    assert "BLEU" in json.dumps(scores)


def test_it_says_what_a_model_is(core: Path) -> None:
    assert json.loads(run_in(core, "info", "en-de", "--json").stdout)["parameters"] == 4_497_024


def test_it_exports_for_ctranslate2(core: Path, tmp_path: Path) -> None:
    run_in(core, "export", "en-de", "--format", "ctranslate2", "--output", tmp_path / "export")
    assert (tmp_path / "export" / "model.bin").exists()


def test_it_prepares_a_corpus(core: Path, tmp_path: Path, text: tuple[Path, Path]) -> None:
    for file, name in zip(text, ("a.en", "a.de"), strict=True):
        lines = file.read_text(encoding="utf-8").splitlines()
        numbered = "".join(f"{number} {line}\n" for number in range(100) for line in lines)
        (tmp_path / name).write_text(numbered, encoding="utf-8")
    files = ("--source", tmp_path / "a.en", "--target", tmp_path / "a.de")
    options = ("--set", "data.clean=false", "--vocab-size", "300")
    run_in(core, "prepare", *files, *options, "--output", tmp_path / "data")
    assert (tmp_path / "data" / "corpus.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--output", "run"],
        ["translate", "en-de", "--sample", SENTENCE],
        ["translate", "en-de", "--exact", SENTENCE],
        ["translate", "en-de", "--engine", "torch", SENTENCE],
        ["inspect", "en-de", SENTENCE, "--output", "page.html"],
        ["paper", "table3"],
    ],
)
def test_what_needs_torch_says_how_to_install_it(core: Path, command: list[str]) -> None:
    message = run_in(core, *command, status=1).stderr
    assert "pip install 'multihead[train]'" in message
    assert "Traceback" not in message


def test_it_imports_a_marian_folder_and_translates_with_it(interop: Path, tmp_path: Path) -> None:
    """torch writes the folder in this process; the other one reads it."""
    assert "No module" in subprocess.run([interop, "-c", "import torch"], capture_output=True, text=True).stderr
    theirs = opus_folder(tmp_path / "theirs")
    run_in(interop, "import", theirs.folder, "--output", tmp_path / "model")
    assert json.loads(run_in(interop, "info", tmp_path / "model", "--json").stdout)["parameters"] > 0
    translated = run_in(interop, "translate", tmp_path / "model", "--beam", "1", SENTENCE)
    assert translated.stdout.count("\n") == 1
    assert run_in(interop, "import", tmp_path, "--output", tmp_path / "other", status=1).stderr.startswith(
        "multihead: "
    )


@pytest.mark.slow
def test_bulk_translates_parquet(bulk: Path, tmp_path: Path) -> None:
    """Ray's workers have no torch either."""
    assert "No module" in subprocess.run([bulk, "-c", "import torch"], capture_output=True, text=True).stderr
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    source = tmp_path / "text"
    source.write_text(f"{SENTENCE}\nGood morning.\n", encoding="utf-8")
    run_in(bulk, "bulk", "en-de", source, "--output", tmp_path / "out", "--workers", "1")
    rows = [pyarrow.read_table(file).to_pydict() for file in sorted((tmp_path / "out").glob("part-*.parquet"))]
    assert [text for part in rows for text in part["translation"]] == [TRANSLATION, "Guten Morgen."]


def test_it_serves(serving: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([serving, "-m", "multihead", "serve", "en-de", "--port", str(port)])
    try:
        answer = _post(f"http://127.0.0.1:{port}/translate", {"q": SENTENCE, "source": "en", "target": "de"})
        assert answer["translatedText"] == TRANSLATION
        html = {"q": "Where <b>is</b> the station?", "source": "en", "target": "de", "format": "html"}
        answer = _post(f"http://127.0.0.1:{port}/translate", html)
        assert answer["translatedText"] == "Wo <b>ist</b> der Bahnhof?"
    finally:
        server.terminate()
        assert server.wait(30) is not None


def _post(address: str, body: dict[str, str]) -> dict[str, str]:
    """Post JSON to a server that may still be starting."""
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for _ in range(150):
        try:
            with urllib.request.urlopen(request) as response:
                answer: dict[str, str] = json.load(response)
                return answer
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{address} did not answer within 30 seconds")
