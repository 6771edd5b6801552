"""The exercise of docs/learn.md runs as printed, and its attention is the model's."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "learn.md"


def test_attention_written_by_a_reader_equals_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(code, {})
    differences = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert set(differences) == {"scores", "weights", "heads"}
    assert max(float(difference) for difference in differences.values()) < 2e-6


def test_the_table_of_concepts_names_each_place_once() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## Where each concept is")[1].split("\n\n")[2].splitlines()[2:]
    concepts = [row.split(" | ")[0] for row in table]
    assert len(set(concepts)) == len(concepts) == 102
