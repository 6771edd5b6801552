"""Files of unknown origin are read with bounds, or refused with a message."""

import os
from pathlib import Path

import pytest

from multihead.errors import UserError
from multihead.untrusted import parse_json, read_bytes, read_json


def test_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, "ü"]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"a": [1, "ü"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5_000, "is not JSON"),
        ("[" + "[]," * 1_000_000 + "0]", "more values"),
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        (b"\xff\xff\xff", "is not JSON"),
    ],
    ids=["empty", "deep", "digits", "many", "twice", "bytes"],
)
def test_hostile_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_json(text, Path("a.json"))


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(UserError, match="not a regular file"):
            read_bytes(path)
    with pytest.raises(UserError, match="No such file"):
        read_bytes(tmp_path / "nothing")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", 101)
    with pytest.raises(UserError, match="at most 100 are read"):
        read_bytes(tmp_path / "a", max_bytes=100)
