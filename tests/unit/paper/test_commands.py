"""`multihead paper`: tables, pictures and JSON."""

import json
from pathlib import Path

import pytest

from multihead.errors import UsageError
from tests.unit.paper.conftest import run


@pytest.mark.parametrize(
    "options", [("schedule", "--preset", "tiny", "--pair", "64:10"), ("positions", "--d-model", "64")]
)
def test_pictures_are_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    run(*options, "--output", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"must end in \.png"):
        run(*options, "--output", tmp_path / "picture.pdf")


def test_every_command_prints_one_json_object() -> None:
    costs = json.loads(run("table2", "base", "--price-per-hour", "H100=3", "--json"))
    assert len(costs["paper"]) == 10
    assert costs["hardware"][0]["name"] == "here"
    assert costs["hardware"][-1]["cost"]["base"] > 0
    rows = json.loads(run("table3", "--rows", "big", "--vocab-size", "36000", "--json"))
    assert rows["vocab_size"] == 36_000
    assert rows["rows"][0]["parameters"] == 213_147_648
    assert json.loads(run("schedule", "--json"))["curves"][0]["warmup"] == 4000
    assert json.loads(run("positions", "--json"))["distances"][0]["similarity"] == pytest.approx(1)


def test_tables_are_plain_where_nobody_looks() -> None:
    shown = run("table3", "--rows", "base")
    assert "\x1b" not in shown
    assert "41,005 to 41,205" in shown
    assert "3.3e18" in run("table2", "base")


def test_training_options_need_a_corpus() -> None:
    with pytest.raises(UsageError, match="need --corpus"):
        run("table3", "--minutes", "3")


# docs/paper.md


@pytest.mark.parametrize("command", ["table3", "schedule"])
def test_the_page_shows_what_the_command_prints(command: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
    assert run(command) in page
