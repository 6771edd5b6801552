"""The paper's tables and figures: what is printed there, what we count, and what both have in common."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.config.presets import PRESETS, preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, RunConfig
from multihead.config.serialization import to_json
from multihead.console import Table, table_of
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.errors import UsageError, UserError
from multihead.hardware.flops import GPUS, counted_flops, training_flops
from multihead.model.positions import sinusoids
from multihead.model.transformer import Transformer
from multihead.paper import positions, schedule, table2, table3
from multihead.runs.setup import setup_run
from multihead.storage.model_folder import Provenance
from multihead.training.schedule import learning_rate
from tests.conftest import tiny_shape

# Table 3


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ("base", {"layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": 64, "d_v": 64, "dropout": 0.1}),
        ("a-h1", {"n_heads": 1, "d_k": 512, "d_v": 512}),
        ("a-h4", {"n_heads": 4, "d_k": 128, "d_v": 128}),
        ("a-h16", {"n_heads": 16, "d_k": 32, "d_v": 32}),
        ("a-h32", {"n_heads": 32, "d_k": 16, "d_v": 16}),
        ("b-dk16", {"d_k": 16}),
        ("b-dk32", {"d_k": 32}),
        ("c-n2", {"layers": 2}),
        ("c-n4", {"layers": 4}),
        ("c-n8", {"layers": 8}),
        ("c-d256", {"d_model": 256, "d_k": 32, "d_v": 32}),
        ("c-d1024", {"d_model": 1024, "d_k": 128, "d_v": 128}),
        ("c-ff1024", {"d_ff": 1024}),
        ("c-ff4096", {"d_ff": 4096}),
        ("d-drop0", {"dropout": 0.0}),
        ("d-drop2", {"dropout": 0.2}),
        ("d-ls0", {"label_smoothing": 0.0}),
        ("d-ls2", {"label_smoothing": 0.2}),
        ("e-learned", {"positions": "learned"}),
        ("big", {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}),
    ],
)
def test_a_row_differs_from_base_in_what_the_paper_prints(row: str, settings: dict[str, object]) -> None:
    base, record = table3.table_3(["base", row])
    varied = {name for name in (*table3.VARIED, "positions") if record[name] != base[name]}
    assert {name: record[name] for name in settings} == settings
    assert varied == (set() if row == "base" else set(settings))


def test_every_preset_of_table_3_is_a_row() -> None:
    presets = {name for name in PRESETS if name.startswith("table3-")}
    assert {row.preset for row in table3.TABLE_3.values()} == {"base", *presets}


def test_every_row_from_base_to_c_rounds_to_the_papers_parameters() -> None:
    rows = [name for name in table3.TABLE_3 if name != "big"]
    for record in table3.table_3(rows):
        if record["paper_parameters"] is not None:
            assert round(record["parameters"] / 1e6) * 10**6 == record["paper_parameters"], record["row"]


def test_big_rounds_to_the_papers_parameters_with_a_smaller_vocabulary() -> None:
    (big,) = table3.table_3(["big"], table3.BIG_VOCAB_SIZE)
    assert round(big["parameters"] / 1e6) * 10**6 == big["paper_parameters"]


def test_rows_for_which_the_paper_prints_no_parameters_have_those_of_base() -> None:
    """Learned positions alone add some: 1,024 of them."""
    base, *rows = table3.table_3(["base", *table3.pick_rows("a,d,e")])
    assert {record["row"]: record["parameters"] - base["parameters"] for record in rows if record["row"][0] != "e"} == {
        name: 0 for name in table3.pick_rows("a,d")
    }
    assert rows[-1]["parameters"] - base["parameters"] == 1024 * 512


def test_what_is_as_in_base_is_left_blank() -> None:
    table = table3.table_3_for_people(table3.table_3(["base", "b-dk16"]), 41_100)
    base, row = (dict(zip(table.header, cells, strict=True)) for cells in table.rows)
    assert (base["d_k"], base["ours"]) == ("64", "65.14")
    assert (row["d_k"], row["d_v"], row["PPL"], row["params"], row["ours"]) == ("16", "", "5.16", "58", "58.07")


def test_rows_are_picked_by_name_or_group() -> None:
    assert table3.pick_rows(None) == list(table3.TABLE_3)
    assert table3.pick_rows("c-n2, base") == ["base", "c-n2"]
    assert table3.pick_rows("B,big") == ["b-dk16", "b-dk32", "big"]
    for wrong in ("c-n3", "", "base,,big"):
        with pytest.raises(UsageError, match="no row"):
            table3.pick_rows(wrong)


# Table 3, trained


def test_spearman_of_a_known_example() -> None:
    one = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    other = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert table3.rank_correlation(one, other) == pytest.approx(-29 / 165)
    assert table3.rank_correlation(one, one) == pytest.approx(1)
    assert table3.rank_correlation(one, [-value for value in one]) == pytest.approx(-1)


def test_equal_values_share_their_rank() -> None:
    assert table3.ranks([3, 1, 2, 2]) == [4, 1, 2.5, 2.5]
    assert table3.rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)


def test_too_few_or_equal_rows_have_no_rank_correlation() -> None:
    assert table3.rank_correlation([1, 2], [1, 2]) is None
    assert table3.rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_every_width_is_divided_and_layers_and_heads_stay() -> None:
    shape = configure(preset("table3-a-h32"), table3.scaled(configure(preset("table3-a-h32")).model, 4)).model
    assert (shape.d_model, shape.d_ff, shape.d_k, shape.d_v) == (128, 512, 4, 4)
    assert (shape.n_heads, shape.encoder_layers, shape.decoder_layers) == (32, 6, 6)
    with pytest.raises(UsageError, match="--scale 3 does not divide d_model=512"):
        table3.scaled(ModelConfig(), 3)


@pytest.mark.parametrize("name", table3.TABLE_3)
def test_every_row_can_be_scaled_by_16(name: str) -> None:
    model = configure(preset(table3.TABLE_3[name].preset)).model
    assert configure(table3.scaled(model, 16)).model.d_model == model.d_model // 16


@pytest.fixture(scope="module")
def prepared(toy_text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper") / "data"
    prepare(from_files(*toy_text), folder, RunConfig().data)
    return folder


STEPS = {"train.steps": 2, "model.encoder_layers": 1, "model.decoder_layers": 1}


def study_of(prepared: Path, output: Path, **settings: object) -> table3.Study:
    return table3.Study(corpus=prepared, output=output, minutes=0, scale=16, settings={**STEPS, **settings})


@pytest.fixture(scope="module")
def two_rows(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> table3.Study:
    """Two rows, trained for two steps."""
    study, said = study_of(prepared, tmp_path_factory.mktemp("rows")), list[str]()
    outcomes = table3.train_rows(study, ["base", "d-ls0"], said.append)
    assert said == ["row 1 of 2: base", "row 2 of 2: d-ls0"]
    assert [outcome["steps"] for outcome in outcomes.values()] == [2, 2]
    assert all(outcome["perplexity"] > 1 and outcome["bleu"] >= 0 for outcome in outcomes.values())
    return study


@pytest.mark.long
def test_what_is_complete_is_not_trained_again(two_rows: table3.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "train", lambda request: pytest.fail(f"{request.output} is trained again"))
    said = list[str]()
    assert list(table3.train_rows(two_rows, ["base", "d-ls0"], said.append)) == ["base", "d-ls0"]
    assert said == []


@pytest.mark.long
def test_a_row_goes_on_if_more_is_asked_for_and_is_refused_if_it_is_another(two_rows: table3.Study) -> None:
    more = {"train.steps": 3}
    assert not table3.is_complete(study_of(two_rows.corpus, two_rows.output, **more).request("base"))
    other = study_of(two_rows.corpus, two_rows.output, **{"model.dropout": 0.5})
    with pytest.raises(UsageError, match=r"has model\.dropout=0\.1, but --set sets model\.dropout=0\.5; choose"):
        table3.train_rows(other, ["base"], lambda line: None)


@pytest.mark.long
def test_trained_rows_are_ranked_beside_the_paper(two_rows: table3.Study) -> None:
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
        table3.is_complete(request)


def test_a_study_needs_a_corpus_and_an_end(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--corpus needs --minutes"):
        table3.Study(corpus=prepared, output=tmp_path, minutes=0)
    with pytest.raises(UserError, match="not a prepared corpus"):
        table3.Study(corpus=tmp_path, output=tmp_path, minutes=1)


def test_all_rows_share_what_they_are_trained_with(prepared: Path, tmp_path: Path) -> None:
    """They differ from each other in what Table 3 varies, and in nothing else."""
    study = table3.Study(corpus=prepared, output=tmp_path, minutes=5)
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


# Table 2


@pytest.mark.parametrize(("name", "printed"), [("base", "Transformer (base)"), ("big", "Transformer (big)")])
def test_the_papers_flops_are_hours_times_devices_times_what_each_sustains(name: str, printed: str) -> None:
    by_time = table2.training_of(name, table2.Clock()).flops_by_time
    (published,) = (row for row in table2.TABLE_2 if row.model == printed)
    assert by_time is not None
    assert published.flops_en_de == published.flops_en_fr == float(f"{by_time:.1e}")


def test_the_papers_arithmetic() -> None:
    """12 hours, and 3.5 days, of 8 P100 at 9.5 TFLOPS."""
    assert table2.training_of("base", table2.Clock()).flops_by_time == 12 * 3600 * 8 * 9.5e12
    assert table2.training_of("big", table2.Clock()).flops_by_time == 3.5 * 24 * 3600 * 8 * 9.5e12
    clock = table2.Clock(hours=2, n_devices=4, tflops=100)
    assert table2.training_of("small", clock).flops_by_time == 2 * 3600 * 4 * 100e12


def test_counted_operations_are_6_a_weight_and_token_and_attention() -> None:
    """Every matrix of the module meets each token once, the embedding as the map to logits."""
    shape = tiny_shape()
    weights = sum(parameter.numel() for parameter in Transformer(shape).parameters() if parameter.ndim == 2)
    positions_met = 2 * 3 * 10  # by each token: 10 in the encoder, 10 + 10 in the decoder, in both of 2 layers
    attention = 6 * shape.n_heads * (shape.d_k + shape.d_v) * positions_met
    assert counted_flops(shape, 1000, length=10) == pytest.approx(1000 * (6 * weights + attention))


def test_operations_of_sentences_add_up() -> None:
    shape = tiny_shape()
    alone = sum(training_flops(shape, [source], [target]) for source, target in ((3, 5), (8, 2)))
    assert training_flops(shape, [3, 8], [5, 2]) == pytest.approx(alone)


def test_the_paper_used_a_third_of_what_it_counted() -> None:
    """100,000 batches of 25,000 tokens need 9.5e17 operations of the 3.3e18 that 8 P100 could have done."""
    used = {name: table2.training_of(name, table2.Clock()).record()["used"] for name in ("base", "big")}
    assert used["base"] == pytest.approx(0.29, abs=0.01)
    assert used["big"] == pytest.approx(0.42, abs=0.01)


def recorded_model(folder: Path, **figures: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(to_json(RunConfig(), figures), encoding="utf-8")
    return folder


def test_a_run_is_costed_by_what_it_has_recorded(tmp_path: Path) -> None:
    folder = recorded_model(tmp_path / "run", target_tokens=10_000_000, seconds=7200.0, matmul_flops=1.5e11)
    training = table2.training_of(str(folder), table2.Clock())
    assert (training.name, training.hours, training.n_devices) == ("run", 2.0, 1)
    assert training.flops_by_time == pytest.approx(7200 * 1.5e11)
    assert training.flops_counted == counted_flops(ModelConfig(), 10_000_000)


def test_what_cannot_be_costed_is_refused_in_words(tmp_path: Path) -> None:
    for number, figures in enumerate([{}, {"target_tokens": 1, "seconds": "long", "matmul_flops": 1}]):
        folder = recorded_model(tmp_path / f"run{number}", **figures)
        with pytest.raises(UserError, match="no training time or token count recorded"):
            table2.training_of(str(folder), table2.Clock())
    with pytest.raises(UserError, match="'nothing' is no preset, and there is no model 'nothing'"):
        table2.training_of("nothing", table2.Clock())
    with pytest.raises(UsageError, match="--hours must be more than 0, got 0"):
        table2.Clock(hours=0)


def test_times_are_said_as_people_say_them() -> None:
    training = table2.training_of("base", table2.Clock())
    table = table2.hardware_for_people(table2.hardware([training], GPUS, {"T4": 0.5}), ["base"])
    shown = {row[0]: row[table.header.index("base time")] for row in table.rows}
    assert (shown["T4"], shown["A100"], shown["H100"]) == ("3.4 days", "2.8 h", "54 min")
    assert [row[-1] != "" for row in table.rows] == [gpu.name == "T4" for gpu in GPUS]


def test_hours_energy_and_rent_follow_from_operations() -> None:
    training = table2.training_of("base", table2.Clock())
    (a100,) = (gpu for gpu in GPUS if gpu.name == "A100")
    (record,) = table2.hardware([training], [a100], {"A100": 2.0})
    hours = record["hours"]["base"]
    assert hours * 3600 * 312e12 * 0.3 == pytest.approx(training.flops_counted)
    assert record["kilowatt_hours"]["base"] == pytest.approx(hours * 0.4)
    assert record["cost"]["base"] == pytest.approx(hours * 2)
    (free,) = table2.hardware([training], [a100], {})
    assert free["cost"] is None


def test_the_assumed_shares_agree_with_what_others_have_measured() -> None:
    """NVIDIA's program trains big, with 33,708 entries, at 8,742 tokens a second on a V100 and at 82,059 on an A100."""
    big = configure(preset("big"), {"model.vocab_size": 33_708}).model
    for name, tokens_per_second in (("V100", 8742), ("A100", 82_059)):
        (gpu,) = (gpu for gpu in GPUS if gpu.name == name)
        measured = counted_flops(big, tokens_per_second) / gpu.flops
        assert gpu.share <= measured < 2 * gpu.share


def test_prices_are_given_by_device() -> None:
    assert table2.parse_prices(["A100=1.8", "here=0.05"]) == {"A100": 1.8, "here": 0.05}
    for wrong, words in (
        ("A100", "device=price"),
        ("A100=much", "device=price"),
        ("A100=nan", "device=price"),
        ("Z80=1", "no device 'Z80'"),
    ):
        with pytest.raises(UsageError, match=words):
            table2.parse_prices([wrong])


# The schedule


def test_a_curve_is_equation_3() -> None:
    curve = schedule.curve_of_pair("512:4000")
    for step in (1, 4000, 100_000):
        assert curve.rate(step) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))
    assert curve.record([4000])["peak"] == curve.rate(4000) == curve.record([4000])["rates"]["4000"]


def test_a_preset_has_its_own_decay() -> None:
    curve, run = schedule.curve_of_preset("tiny"), configure(preset("tiny"))
    assert curve.rate(10_000) == learning_rate(10_000, 128, run.train, progress=0.5)
    assert curve.rate(run.train.steps) == 0
    assert curve.rate(run.train.steps + 1) is None
    assert curve.rate(curve.peak_step) == max(curve.rate(step) or 0 for step in range(1, 400))


@pytest.mark.parametrize("wrong", ["512", "512:", "0:10", "a:b", "512:-1"])
def test_a_pair_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="--pair takes d_model:warmup"):
        schedule.curve_of_pair(wrong)


# Positions


def test_the_product_of_two_positions_depends_on_their_distance_alone() -> None:
    for record in positions.facts(length=400, d_model=64):
        expected = sum(math.cos(record["distance"] / 10_000 ** (2 * i / 64)) for i in range(32)) / 32
        assert record["similarity"] == pytest.approx(expected, abs=1e-6)
        assert record["spread"] < 1e-6


def test_a_shift_is_a_rotation_that_can_be_learned_from_other_positions() -> None:
    """PE(pos + k) is a linear function of PE(pos): fitted on the first half, it holds in the second."""
    for record in positions.facts(length=400, d_model=64):
        assert record["linear_error"] < 1e-5
        assert record["difference_from_rotation"] < 1e-5


def test_positions_at_random_have_neither_property() -> None:
    table: Tensor = torch.randn(400, 64, generator=torch.Generator().manual_seed(1))
    assert positions.by_distance(table, 8)[1] > 0.1
    assert positions.fit_error(table, 8)[0] > 0.1


def test_a_position_is_most_like_itself() -> None:
    assert int(positions.similarity(torch.from_numpy(sinusoids(100, 64)), 30).argmax()) == 30


@pytest.mark.parametrize(("length", "d_model", "words"), [(100, 15, "must be even"), (4, 16, "at least 8 positions")])
def test_sizes_that_show_nothing_are_refused(length: int, d_model: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        positions.facts(length, d_model)


# Commands


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["paper", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


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


# Tables


def test_numbers_are_right_and_words_are_left() -> None:
    table = Table(header=["name", "n"], rows=[["a", "1"], ["bc", ""], ["d", "100"]], title="Title", notes=["Note."])
    assert table.as_text() == "Title\n\nname    n\na       1\nbc\nd     100\n\nNote."
    assert table_of([{"x": 1, "y": "word"}]).as_text() == "x  y\n1  word"


def test_a_terminal_gets_rules(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Table(header=["[name]", "n"], rows=[["a", "1"]], title="Title", notes=["Note."]).show()
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("Title", "[name]", "─", "Note."))


# docs/paper.md


@pytest.mark.parametrize("command", ["table3", "schedule"])
def test_the_page_shows_what_the_command_prints(command: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
    assert run(command) in page
