"""`make demo` trains the same model on every machine, however fast or busy it is."""

import runpy
from pathlib import Path

import pytest

from multihead.storage.model_folder import published_step, read_config

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.slow  # a model of 12 steps says long things
def test_the_demo_trains_a_fixed_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(DEMO))["main"](steps=12)
    assert published_step(tmp_path / "demo") == 12
    assert read_config(tmp_path / "demo").train.minutes > 0  # a limit for very slow machines
    assert (tmp_path / "demo" / "attention.html").exists()
    shown = capsys.readouterr().out
    assert "12 steps, 30 minutes at most" in shown
    assert "of 500 translations equal the reference" in shown
