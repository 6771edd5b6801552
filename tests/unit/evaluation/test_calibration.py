"""Confidence is the share of good translations among those of validation text that are as likely."""

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import multihead
from multihead.cli.main import app
from multihead.config.schema import ModelSearch
from multihead.errors import UsageError, UserError
from multihead.evaluation.calibration import (
    MIN_PAIRS,
    N_LEVELS,
    are_good,
    calibrate,
    calibration_error,
    levels_and_shares,
)
from multihead.storage.checksums import update_checksum, verify_all
from multihead.storage.files import BUNDLED
from multihead.storage.model_folder import WEIGHTS
from multihead.translation.confidence import confidence, mean_log_prob
from multihead.translation.engine import Hypothesis

GOOD, BAD = ("Das Haus ist alt.", "Das Haus ist alt."), ("Ja.", "Er kommt morgen früh.")


def test_a_translation_close_to_its_reference_is_good() -> None:
    assert are_good(*zip(GOOD, BAD, strict=True)).tolist() == [1.0, 0.0]


def test_translations_are_divided_into_levels_of_equal_size() -> None:
    log_probs = np.arange(1000) / 1000 - 1
    levels, shares = levels_and_shares(log_probs, (np.arange(1000) % 10 < np.arange(1000) // 100).astype(float))
    assert len(levels) == N_LEVELS
    assert levels[0] == pytest.approx(-0.9505, abs=1e-3)
    assert shares == pytest.approx([0.1 * level for level in range(10)])


@given(st.lists(st.tuples(st.floats(-9, 0), st.booleans()), min_size=N_LEVELS, max_size=80))
def test_confidence_never_falls_with_probability_and_keeps_the_share_of_good_ones(
    translations: list[tuple[float, bool]],
) -> None:
    log_probs, is_good = (np.array(column, dtype=float) for column in zip(*translations, strict=True))
    levels, shares = levels_and_shares(log_probs, is_good)
    search = ModelSearch(confidence_levels=levels, confidence=shares)
    found = [confidence(search, value) or 0.0 for value in sorted(log_probs)]
    assert all(0 <= low <= high <= 1 for low, high in pairwise(found))


def test_a_calibrated_model_has_no_calibration_error_on_the_same_text() -> None:
    rng = np.random.default_rng(1)
    log_probs = -rng.random(2000)
    pairs = [GOOD if rng.random() < 1 + value else BAD for value in log_probs]
    translations, references = zip(*pairs, strict=True)
    levels, shares = calibrate(log_probs.tolist(), translations, references)
    search = ModelSearch(confidence_levels=levels, confidence=shares)
    found = [confidence(search, value) or 0.0 for value in log_probs]
    assert calibration_error(found, translations, references) < 0.02
    assert calibration_error([0.99] * 2000, translations, references) > 0.3


def test_few_pairs_are_refused() -> None:
    with pytest.raises(UserError, match=f"{MIN_PAIRS} are needed"):
        calibrate([-1.0], ["Ja."], ["Ja."])


def test_levels_that_do_not_rise_are_refused() -> None:
    for levels, shares in (((-1.0, -2.0), (0.1, 0.2)), ((-1.0,), (0.1, 0.2)), ((-1.0,), (1.5,))):
        with pytest.raises(UsageError, match="confidence"):
            ModelSearch(confidence_levels=levels, confidence=shares)


def test_the_mean_counts_every_token_of_a_text_once() -> None:
    hypotheses = [
        Hypothesis(tokens=[5] * (n - 1), log_prob=log_prob, score=0.0) for n, log_prob in ((1, -1.0), (3, -1.0))
    ]
    assert mean_log_prob(hypotheses) == -0.5
    assert mean_log_prob([Hypothesis(tokens=[], log_prob=-math.inf, score=-math.inf)]) == -math.inf


# Commands


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLED / "lesson", tmp_path / "model"))


def run(*arguments: object) -> tuple[str, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_a_likely_sentence_has_more_confidence_than_nonsense() -> None:
    model = multihead.load("lesson")
    plain, odd = (model.translate(text).confidence for text in ("Where is the station?", "Quarks xyzzy the gnomon."))
    assert plain and odd is not None
    assert plain > 0.5 > odd


def test_json_has_the_confidence() -> None:
    stdout, _ = run("translate", "lesson", "Where is the station?", "--json")
    assert 0 < json.loads(stdout)["confidence"] <= 1


def test_a_line_of_too_little_confidence_is_left_empty_and_counted() -> None:
    stdout, stderr = run(
        "translate", "lesson", "Where is the station?", "Quarks xyzzy the gnomon.", "--min-confidence", 0.5
    )
    first, second = stdout.splitlines()
    assert first and not second
    assert "line 2: confidence: 0." in stderr
    assert "1 of 2 lines are left empty" in stderr


def test_evaluating_with_calibrate_stores_the_confidence_and_its_checksum(model: Path, tmp_path: Path) -> None:
    document = json.loads((model / "config.json").read_text(encoding="utf-8"))
    document["search"] |= {"confidence": [], "confidence_levels": []}
    (model / "config.json").write_text(json.dumps(document), encoding="utf-8")
    update_checksum(model, "config.json")
    with pytest.raises(UserError, match="--calibrate"):
        multihead.load(model).require_confidence(0.5)
    (tmp_path / "en").write_text("Where is the station?\nGood night!\n" * 30, encoding="utf-8")
    (tmp_path / "de").write_text("Wo ist der Bahnhof?\nNein.\n" * 30, encoding="utf-8")
    files = ("--source", tmp_path / "en", "--reference", tmp_path / "de")
    assert "calibration error" not in run("evaluate", model, *files)[0]
    assert "calibration error" in run("evaluate", model, *files, "--calibrate")[0]
    assert json.loads((model / "config.json").read_text(encoding="utf-8"))["search"]["confidence"]
    verify_all(model, required=WEIGHTS)
    assert run("translate", model, "Where is the station?", "--min-confidence", 0.1)[0].strip()


def test_a_confidence_that_is_no_probability_is_misuse() -> None:
    with pytest.raises(UsageError, match="from 0 to 1, not 50"):
        multihead.load("lesson").require_confidence(50)
