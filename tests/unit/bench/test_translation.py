"""`multihead bench translate`: its text, and its picture."""

from pathlib import Path

import pytest

from multihead.bench.translation import Text, read_text, write_picture
from multihead.errors import UsageError, UserError


def test_text_and_references_go_together(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\ntwo\n")
    with pytest.raises(UsageError, match="--reference needs --source"):
        read_text(None, tmp_path / "text", 10)
    with pytest.raises(UserError, match="2 lines to translate, but 1 references"):
        Text(lines=["one", "two"], references=["eins"])
    assert read_text(tmp_path / "text", None, 1).lines == ["one"]
    assert len(read_text(None, None, 5).references or []) == 5


def test_the_picture_needs_scores(tmp_path: Path) -> None:
    row = {
        "beam": 4,
        "sentences_per_second": 200.0,
        "ctranslate2_sentences_per_second": 150.0,
        "bleu": 33.0,
        "ctranslate2_bleu": 33.1,
    }
    write_picture([row], tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="needs --reference"):
        write_picture([{**row, "bleu": None}], tmp_path / "none.png")
