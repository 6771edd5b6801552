"""Every row of Table 3 trained on the same text, and ranked beside the paper's."""

import json
from pathlib import Path

import pytest

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, RunConfig
from multihead.config.serialization import to_json
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.errors import UsageError, UserError
from multihead.paper import table3, table3_study
from multihead.runs.setup import setup_run
from multihead.storage.model_folder import Provenance
from tests.unit.paper.conftest import run


def test_spearman_of_a_known_example() -> None:
    one = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    other = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert table3_study.rank_correlation(one, other) == pytest.approx(-29 / 165)
    assert table3_study.rank_correlation(one, one) == pytest.approx(1)
    assert table3_study.rank_correlation(one, [-value for value in one]) == pytest.approx(-1)


def test_equal_values_share_their_rank() -> None:
    assert table3_study.ranks([3, 1, 2, 2]) == [4, 1, 2.5, 2.5]
    assert table3_study.rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)


def test_too_few_or_equal_rows_have_no_rank_correlation() -> None:
    assert table3_study.rank_correlation([1, 2], [1, 2]) is None
    assert table3_study.rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_every_width_is_divided_and_layers_and_heads_stay() -> None:
    shape = configure(
        preset("table3-a-h32"), table3_study.scaled_widths(configure(preset("table3-a-h32")).model, 4)
    ).model
    assert (shape.d_model, shape.d_ff, shape.d_k, shape.d_v) == (128, 512, 4, 4)
    assert (shape.n_heads, shape.encoder_layers, shape.decoder_layers) == (32, 6, 6)
    with pytest.raises(UsageError, match="--scale 3 does not divide d_model=512"):
        table3_study.scaled_widths(ModelConfig(), 3)


@pytest.mark.parametrize("name", table3.TABLE_3)
def test_every_row_can_be_scaled_by_16(name: str) -> None:
    model = configure(preset(table3.TABLE_3[name].preset)).model
    assert configure(table3_study.scaled_widths(model, 16)).model.d_model == model.d_model // 16


@pytest.fixture(scope="module")
def prepared(toy_text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper") / "data"
    prepare(from_files(*toy_text), folder, RunConfig().data)
    return folder


STEPS = {"train.steps": 2, "model.encoder_layers": 1, "model.decoder_layers": 1}


def study_of(prepared: Path, output: Path, **settings: object) -> table3_study.Study:
    return table3_study.Study(corpus=prepared, output=output, minutes=0, scale=16, settings={**STEPS, **settings})


@pytest.fixture(scope="module")
def two_rows(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> table3_study.Study:
    """Two rows, trained for two steps."""
    study, said = study_of(prepared, tmp_path_factory.mktemp("rows")), list[str]()
    results = table3_study.train_rows(study, ["base", "d-ls0"], said.append)
    assert said == ["row 1 of 2: base", "row 2 of 2: d-ls0"]
    assert [result["steps"] for result in results.values()] == [2, 2]
    assert all(result["perplexity"] > 1 and result["bleu"] >= 0 for result in results.values())
    return study


@pytest.mark.long
def test_what_is_complete_is_not_trained_again(two_rows: table3_study.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3_study, "train", lambda request: pytest.fail(f"{request.output} is trained again"))
    said = list[str]()
    assert list(table3_study.train_rows(two_rows, ["base", "d-ls0"], said.append)) == ["base", "d-ls0"]
    assert said == []


@pytest.mark.long
def test_a_row_goes_on_if_more_is_asked_for_and_is_refused_if_it_is_another(two_rows: table3_study.Study) -> None:
    more = {"train.steps": 3}
    assert not table3_study.is_complete(study_of(two_rows.corpus, two_rows.output, **more).request("base"))
    other = study_of(two_rows.corpus, two_rows.output, **{"model.dropout": 0.5})
    with pytest.raises(UsageError, match=r"has model\.dropout=0\.1, but --set sets model\.dropout=0\.5; choose"):
        table3_study.train_rows(other, ["base"], lambda line: None)


@pytest.mark.long
def test_trained_rows_are_ranked_beside_the_paper(two_rows: table3_study.Study) -> None:
    """The best perplexity comes first; stdout has the tables alone."""
    places = ("--corpus", two_rows.corpus, "--output", two_rows.output, "--rows", "base,d-ls0")
    options: tuple[str | Path, ...] = (
        *places,
        "--scale",
        "16",
        *(f"--set={name}={value}" for name, value in STEPS.items()),
    )
    rows = json.loads(run("table3", *options, "--json"))["rows"]
    best, _ = sorted(rows, key=lambda row: row["perplexity"])
    shown = run("table3", *options)
    assert shown.startswith("Table 3")
    lines = shown.partition("Every row for the same steps")[2].splitlines()
    first = lines[3].split()
    assert (first[0], first[2], first[4]) == (best["row"], "2", "1")
    assert any("Rank correlation (Spearman) with the paper over 2 rows" in line for line in lines)


def test_a_row_of_other_text_is_refused(prepared: Path, tmp_path: Path) -> None:
    request = study_of(prepared, tmp_path).request("base")
    (request.output / "checkpoints" / "step-1").mkdir(parents=True)
    config, _ = setup_run(request, lambda line: None)
    provenance = Provenance(corpus_sha256="of another corpus")
    (request.output / "config.json").write_text(to_json(config, provenance.to_json()), encoding="utf-8")
    with pytest.raises(UserError, match="contains a run on different data"):
        table3_study.is_complete(request)


def test_a_study_needs_a_corpus_and_an_end(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--corpus needs --minutes"):
        table3_study.Study(corpus=prepared, output=tmp_path, minutes=0)
    with pytest.raises(UserError, match="not a prepared corpus"):
        table3_study.Study(corpus=tmp_path, output=tmp_path, minutes=1)


def test_all_rows_share_what_they_are_trained_with(prepared: Path, tmp_path: Path) -> None:
    """They differ from each other in what Table 3 varies, and in nothing else."""
    study = table3_study.Study(corpus=prepared, output=tmp_path, minutes=5)
    runs = [configure(preset(request.preset or ""), request.settings) for request in map(study.request, table3.TABLE_3)]
    assert (
        len(
            {
                (run.data, run.train.steps, run.train.minutes, run.train.warmup, run.train.average_checkpoints)
                for run in runs
            }
        )
        == 1
    )
    assert {run.model.norm for run in runs} == {"pre"}
    assert {run.train.label_smoothing for run in runs} == {0.0, 0.1, 0.2}
