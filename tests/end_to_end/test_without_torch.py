"""`pip install .` translates, evaluates, serves and exports without torch; what needs torch says how to install it."""

import json
import re
import shutil
import socket
import stat
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from multihead.model.build import build_model
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape
from tests.environments import ROOT, imports, make_environment, run_in
from tests.marian import opus_folder

SENTENCE, TRANSLATION = "Where is the station?", "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands run in the folder of the environment, where this one has some text."""
    python = make_environment(tmp_path_factory.mktemp("core"))
    write_text(python.parents[1])
    return python


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
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opus_folder(tmp_path_factory.mktemp("marian") / "theirs").folder


@pytest.fixture(scope="module")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that CTranslate2 cannot run."""
    tokenizer = SubwordTokenizer.learn(["a b c"], 300)
    shape = tiny_shape(vocab_size=tokenizer.vocab_size, encoder_mixer="local")
    return store_model(tmp_path_factory.mktemp("variant"), build_model(shape), tokenizer).root


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_text(tmp_path_factory.mktemp("text"))


def write_text(folder: Path) -> tuple[Path, Path]:
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
    heavy = (
        "torch pydantic filelock rich sacrebleu sacremoses huggingface_hub zipfile csv lxml "
        "multihead.data.parallel_text multihead.data.readers multihead.tasks multihead.text.constituency_trees"
    )
    assert imports(core, code, heavy) == []


@pytest.mark.parametrize("home", ["/dev/null", "/nowhere", ""])
def test_a_home_that_cannot_be_written_is_replaced_by_a_temporary_folder(core: Path, home: str) -> None:
    """Not even root can write below /dev/null."""
    cache = {"XDG_CACHE_HOME": "/dev/null/cache"} if home != "/dev/null" else {}
    result = run_in(core, "translate", "en-de", SENTENCE, variables={"HOME": home, **cache})
    assert result.stdout == f"{TRANSLATION}\n"
    assert "cannot be kept" in result.stderr
    assert "XDG_CACHE_HOME" in result.stderr


def test_a_read_only_installation_translates_and_a_missing_cache_folder_is_made(tmp_path: Path) -> None:
    """Where root runs the tests, permissions forbid nothing: that nothing was written is checked as well."""
    python = make_environment(tmp_path / "environment")
    (package,) = (tmp_path / "environment").glob("lib/python*/site-packages/multihead")
    package.unlink()
    shutil.copytree(ROOT / "multihead", package, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for path in (*folders, *package.rglob("*")):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    before = sorted(package.rglob("*"))
    cache = tmp_path / "missing" / "cache"
    variables = {"XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = run_in(python, "translate", "en-de", SENTENCE, variables=variables)
        after = sorted(package.rglob("*"))
    finally:
        for path in folders:
            path.chmod(stat.S_IRWXU)  # so that pytest can remove them
    assert (result.stdout, result.stderr) == (f"{TRANSLATION}\n", "")
    assert after == before
    assert list(cache.rglob("model.bin"))


def test_two_processes_that_build_the_export_at_once_make_one_valid_export(core: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        start = partial(run_in, core, "translate", "en-de", SENTENCE, variables={"XDG_CACHE_HOME": str(tmp_path)})
        results = list(pool.map(lambda _: start(), range(2)))
    assert [result.stdout for result in results] == [f"{TRANSLATION}\n"] * 2
    (export,) = tmp_path.rglob("model.bin")
    assert not list(tmp_path.rglob("*.partial"))
    made = export.stat()
    assert start().stdout == f"{TRANSLATION}\n"
    assert export.stat() == made  # it is valid: the next process uses it


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


def test_it_makes_pairs_by_back_translation(core: Path, tmp_path: Path) -> None:
    (tmp_path / "more.en").write_text(f"{SENTENCE}\n", encoding="utf-8")
    files = ("--input", tmp_path / "more.en", "--output", tmp_path / "pairs.tsv")
    run_in(core, "backtranslate", "en-de", *files, "--beam", "4")
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8") == f"de\ten\n<bt> {TRANSLATION}\t{SENTENCE}\n"


@pytest.mark.parametrize(
    "command",
    [
        "train --output run",
        "train --task copy --output run",
        "plan --source source --target reference",
        "average run --output model",
        "translate en-de --sample text",
        "translate en-de --exact text",
        "translate en-de --engine torch text",
        "translate en-de --ensemble en-de text",
        "translate variant text",
        "evaluate en-de --source source --reference reference --exact",
        "evaluate variant --source source --reference reference",
        "inspect en-de text --output page.html",
        "inspect en-de --heads --source source --reference reference",
        "inspect en-de --examples --source source",
        "explain variant text --output page.html",
        "export en-de --format onnx --output exported",
        "bench train",
        "bench translate en-de",
        "paper table1",
        "paper table2",
        "paper table3",
        "paper positions",
        "paper parsing --output parser",
    ],
)
def test_what_needs_torch_says_so_in_one_sentence(core: Path, variant: Path, command: str) -> None:
    message = run_in(core, *command.replace("variant", str(variant)).split(), status=1).stderr
    assert re.fullmatch(
        r"multihead: [^\n]+ needs torch, which is not installed: pip install 'multihead\[train\]' "
        r"\(on a machine without a GPU, first install the CPU build [^\n]+\)\n",
        message,
    )
    assert not (core.parents[1] / "run").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("serve en-de", r"serving needs uvicorn, .*\[serve\]"),
        ("bench serve en-de", r"bench serve needs uvicorn, .*\[serve\]"),
        ("bulk en-de source --output rows", r"bulk needs pyarrow, .*\[bulk\]"),
        ("import marian --output model", r"a Marian model needs sentencepiece, .*\[interop\]"),
        ("paper schedule --output curve.png", r"a picture needs matplotlib, .*\[train\]"),
        (
            "evaluate en-de --source source --reference reference --by-length --picture lengths.png",
            r"--picture needs matplotlib, .*\[train\]",
        ),
    ],
)
def test_a_missing_extra_is_named_before_any_work(core: Path, marian: Path, command: str, message: str) -> None:
    result = run_in(core, *command.replace("marian", str(marian)).split(), status=1)
    assert result.stdout == ""
    assert re.fullmatch(rf"multihead: {message}'\n", result.stderr)


def test_python_says_what_to_install(core: Path) -> None:
    code = "from multihead.model import Transformer"
    result = subprocess.run([core, "-c", code], capture_output=True, text=True, check=False)
    assert "multihead.model.Transformer needs torch" in result.stderr.splitlines()[-1]
    assert "pip install 'multihead[train]'" in result.stderr.splitlines()[-1]


def test_it_imports_a_marian_folder_and_translates_with_it(interop: Path, marian: Path, tmp_path: Path) -> None:
    """torch writes the folder in this process; the other one reads it, and writes it again."""
    assert "No module" in subprocess.run([interop, "-c", "import torch"], capture_output=True, text=True).stderr
    run_in(interop, "import", marian, "--output", tmp_path / "model")
    assert json.loads(run_in(interop, "info", tmp_path / "model", "--json").stdout)["parameters"] > 0
    translated = run_in(interop, "translate", tmp_path / "model", "--beam", "1", SENTENCE)
    assert translated.stdout.count("\n") == 1
    run_in(interop, "export", tmp_path / "model", "--format", "marian", "--output", tmp_path / "ours")
    names = ("model.safetensors", "vocab.json", "source.spm", "target.spm")
    assert all((marian / name).read_bytes() == (tmp_path / "ours" / name).read_bytes() for name in names)
    assert run_in(interop, "import", tmp_path, "--output", tmp_path / "other", status=1).stderr.startswith(
        "multihead: "
    )


def test_bulk_translates_parquet(bulk: Path, tmp_path: Path) -> None:
    """Ray's workers have no torch either."""
    assert "No module" in subprocess.run([bulk, "-c", "import torch"], capture_output=True, text=True).stderr
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    source = tmp_path / "text"
    source.write_text(f"{SENTENCE}\nGood morning.\n", encoding="utf-8")
    # Ray gives way to other programs; on a busy machine its workers would take minutes to start.
    promptly = {"RAY_worker_niceness": "0"}
    run_in(bulk, "bulk", "en-de", source, "--output", tmp_path / "out", "--workers", "1", variables=promptly)
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
