"""Tables, durations, and errors as exit codes."""

import errno
from collections.abc import Callable

import pytest

from multihead.console import Table, duration, make_table, run_and_report_errors, say
from multihead.errors import UsageError, UserError, require


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (12_600, "3.5 h"),
        (302_400, "3.5 days"),
        (34_560_000, "400 days"),
    ],
)
def test_a_duration_is_in_the_largest_unit_of_which_there_are_two(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_are_right_and_words_are_left() -> None:
    table = Table(header=["name", "n"], rows=[["a", "1"], ["bc", ""], ["d", "100"]], title="Title", notes=["Note."])
    assert table.as_text() == "Title\n\nname    n\na       1\nbc\nd     100\n\nNote."
    assert make_table([{"x": 1, "y": "word"}]).as_text() == "x  y\n1  word"


def test_a_terminal_gets_rules(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Table(header=["[name]", "n"], rows=[["a", "1"]], title="Title", notes=["Note."]).show()
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("Title", "[name]", "─", "Note."))


def fail_with(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UserError("no such model"), 1, "multihead: no such model"),
        (UsageError("bad option"), 2, "multihead: bad option"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full"),
        (KeyboardInterrupt(), 130, "multihead: interrupted"),
    ],
)
def test_an_error_of_the_user_is_a_message_and_a_status(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, message: str
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        run_and_report_errors(fail_with(error))
    assert exit_info.value.code == status
    assert message in capsys.readouterr().err


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_and_report_errors(lambda: 1 // 0)


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "hello\n")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(UserError, match=r"nowhere is not installed: pip install 'multihead\[train\]'"):
        require("nowhere.module", extra="train")
    assert require("json", extra="train").dumps([1]) == "[1]"
