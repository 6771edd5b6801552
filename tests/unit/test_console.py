"""Tables on standard output."""

import pytest

from multihead.console import Table, table_of


def test_numbers_are_right_and_words_are_left() -> None:
    table = Table(header=["name", "n"], rows=[["a", "1"], ["bc", ""], ["d", "100"]], title="Title", notes=["Note."])
    assert table.as_text() == "Title\n\nname    n\na       1\nbc\nd     100\n\nNote."
    assert table_of([{"x": 1, "y": "word"}]).as_text() == "x  y\n1  word"


def test_a_terminal_gets_rules(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Table(header=["[name]", "n"], rows=[["a", "1"]], title="Title", notes=["Note."]).show()
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("Title", "[name]", "─", "Note."))
