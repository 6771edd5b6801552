"""Wrong input at the command line: one clear sentence on stderr, exit 1 or 2, no traceback, nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import QUICK, copy_or_reverse, write_pairs


def multihead(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multihead", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def quick_settings() -> list[str]:
    return [f"--set={name}={value}" for name, value in QUICK.items()]


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    return write_pairs(tmp_path, copy_or_reverse(60, seed=1))


def assert_refused(result: subprocess.CompletedProcess[str], status: int, words: str) -> None:
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.rstrip().splitlines()[-1].startswith(("multihead: ", "Error: ")), result.stderr


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_a_missing_file(text: tuple[Path, Path], tmp_path: Path, command: str) -> None:
    result = multihead(command, "--source", tmp_path / "nowhere", "--target", text[1], "--output", tmp_path / "out")
    assert_refused(result, 1, "there is no file")


def test_unequal_line_counts(text: tuple[Path, Path], tmp_path: Path) -> None:
    with text[0].open("a", encoding="utf-8") as file:
        file.write("one more\n")
    result = multihead("train", "--source", text[0], "--target", text[1], "--output", tmp_path / "out")
    assert_refused(result, 1, "has 61 lines and")


def test_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    result = multihead(
        "train", "--source", tmp_path / "empty", "--target", tmp_path / "empty", "--output", tmp_path / "out"
    )
    assert_refused(result, 1, "empty is empty; --source takes text")


def test_a_vocabulary_larger_than_the_corpus_can_give(text: tuple[Path, Path], tmp_path: Path) -> None:
    result = multihead(
        *("train", "--source", text[0], "--target", text[1], "--output", tmp_path / "out", "--vocab-size", "9000")
    )
    assert_refused(result, 1, "too small for a vocabulary of 9,000 pieces")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "smal"], "did you mean 'small'?"),
        (["--set", "train.warmpu=5"], "did you mean 'train.warmup'?"),
        (["--set", "train.warmup"], "field=value"),
        (["--set", "train.warmup=often"], "train.warmup=often"),
        (["--vocab-size", "many"], "--vocab-size"),
        (["--steps", "-1"], "train.steps=-1"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--data", "somewhere"], "--data"),
        (["--unknown"], "--unknown"),
    ],
)
def test_misuse_is_noticed_before_any_work(
    text: tuple[Path, Path], tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = multihead("train", "--source", text[0], "--target", text[1], "--output", tmp_path / "out", *arguments)
    assert_refused(result, 2, words)
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_hostile_lines_are_dropped_and_the_rest_is_used(tmp_path: Path, command: str) -> None:
    """A line of 1 MB, NULs, invalid UTF-8, CRLF: each is counted, and training goes on."""
    source, target = write_pairs(tmp_path, copy_or_reverse(60, seed=1))
    with source.open("ab") as file:
        file.write(b"x" * 1_000_000 + b"\n" + b"a\0b\n" + b"\xff\xfe\n" + b"copy a b\r\n")
    with target.open("ab") as file:
        file.write(b"x\n" * 3 + b"a b\r\n")
    out = tmp_path / "out"
    steps = ["--steps", "1", "--preset", "base"] if command == "train" else []
    result = multihead(command, "--source", source, "--target", target, "--output", out, *steps, *quick_settings())
    assert result.returncode == 0, result.stderr
    for words in ("1: one side is too long", "1: contains a NUL", "1: not valid UTF-8"):
        assert f"dropped {words}" in result.stderr


def test_a_corpus_smaller_than_one_batch_trains(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, copy_or_reverse(5, seed=1))
    result = multihead(
        *("train", "--source", source, "--target", target, "--output", tmp_path / "out", "--preset", "tiny"),
        *("--steps", "2"),
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_text_from_standard_input(text: tuple[Path, Path], tmp_path: Path) -> None:
    content = text[0].read_text(encoding="utf-8")
    result = multihead(*("prepare", "--source", "-", "--target", text[1], "--output", tmp_path / "out"), stdin=content)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "corpus.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(text: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    result = multihead("train", "--source", text[0], "--target", text[1], "--output", tmp_path / "locked" / "out")
    assert_refused(result, 1, "locked")


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_an_output_that_is_a_file(text: tuple[Path, Path], tmp_path: Path, command: str) -> None:
    result = multihead(command, "--source", text[0], "--target", text[1], "--output", text[0])
    assert_refused(result, 1, str(text[0]))
    assert text[0].stat().st_size > 100


def test_a_folder_under_a_file_cannot_be_made(text: tuple[Path, Path]) -> None:
    result = multihead("train", "--source", text[0], "--target", text[1], "--output", text[0] / "out")
    assert_refused(result, 1, str(text[0]))


def test_a_folder_with_something_else_called_data_is_not_touched(text: tuple[Path, Path], tmp_path: Path) -> None:
    mine = tmp_path / "out" / "data" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious", encoding="utf-8")
    result = multihead("train", "--source", text[0], "--target", text[1], "--output", tmp_path / "out")
    assert_refused(result, 1, "is not empty")
    assert mine.read_text(encoding="utf-8") == "precious"


def test_a_prepared_corpus_that_is_none(tmp_path: Path) -> None:
    result = multihead("train", "--data", tmp_path, "--output", tmp_path / "out")
    assert_refused(result, 1, "not a prepared corpus")
