"""What a run will need, before it."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.hardware.flops import GPUS, counted_flops
from multihead.runs.estimate import Estimate, _about_how_many, _warnings, estimate_run
from tests.conftest import QUICK, copy_or_reverse, write_pairs


@pytest.fixture(scope="module")
def made(toy_text: tuple[Path, Path]) -> Estimate:
    settings = {**QUICK, "model.vocab_size": 4000}
    return estimate_run(toy_text, "base", settings, toy_text[0].parent, steps=2)


def test_a_plan_is_made_of_measured_steps(made: Estimate) -> None:
    assert made.pairs == 120
    assert made.hours == pytest.approx(24 * made.seconds_a_step / 3600)
    assert made.memory_mb > 50
    assert made.gpu_hours["A100"]["1"] == pytest.approx(8 * made.gpu_hours["A100"]["8"])
    assert not made.warnings
    assert "24 steps" in made.as_text()


def test_a_plan_counts_both_readings_of_r_drop(made: Estimate, toy_text: tuple[Path, Path]) -> None:
    settings = {**QUICK, "model.vocab_size": 4000, "train.r_drop": 3}
    twice = estimate_run(toy_text, "base", settings, toy_text[0].parent, steps=2)
    assert twice.gpu_hours["A100"]["1"] == pytest.approx(2 * made.gpu_hours["A100"]["1"])


def test_a_run_that_cannot_end_is_warned_of(made: Estimate, tmp_path: Path) -> None:
    endless = _warnings(replace(made, hours=24 * 400, disk_mb=1e12), tmp_path / "not" / "there")
    assert endless[0].startswith("this run takes 400 days here: take a smaller --preset")
    assert "MB of disk are needed and" in endless[1]
    assert "warning: this run takes" in replace(made, warnings=endless).as_text()


def test_the_papers_own_time_comes_out_about_right() -> None:
    """Base on 8 P100: 100,000 steps of 0.4 s are 11 hours (§5.2); how much of a GPU is used is an assumption."""
    p100 = next(gpu for gpu in GPUS if gpu.name == "P100")
    assert p100.hours(counted_flops(ModelConfig(), 100_000 * 25_000)) / 8 == pytest.approx(11, rel=0.4)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_length_of_a_large_file_is_guessed_from_its_beginning(tmp_path: Path, suffix: str) -> None:
    import gzip

    lines = write_pairs(tmp_path, copy_or_reverse(60_000, seed=1))[0].read_bytes()
    file = tmp_path / f"large{suffix}"
    file.write_bytes(gzip.compress(lines) if suffix else lines)
    assert _about_how_many(file) == pytest.approx(60_000, rel=0.25)
    with pytest.raises(UserError, match="standard input"):
        _about_how_many(Path("-"))


def test_the_command_prints_json(toy_text: tuple[Path, Path]) -> None:
    settings = [f"--set={name}={value}" for name, value in {**QUICK, "model.vocab_size": 4000}.items()]
    files = [f"--source={toy_text[0]}", f"--target={toy_text[1]}"]
    result = CliRunner().invoke(app, ["plan", *files, "--preset=base", "--steps=1", "--json", *settings])
    assert json.loads(result.stdout)["steps"] == 24


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_plan_counts_the_pairs_of_utf16_as_those_of_utf8(tmp_path: Path, name: str) -> None:
    text = "".join(f"sentence number {n}\n" for n in range(50_000))
    open_file = gzip.open if name.endswith(".gz") else open
    counts = []
    for encoding in ("utf-8", "utf-16"):
        with open_file(tmp_path / name, "wb") as file:
            file.write(text.encode(encoding))
        counts.append(_about_how_many(tmp_path / name))
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
