"""Table 2: training cost by time and by counted operations."""

from pathlib import Path

import pytest

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, RunConfig
from multihead.config.serialization import to_json
from multihead.errors import UsageError, UserError
from multihead.hardware.flops import GPUS, counted_flops, training_flops
from multihead.model.transformer import Transformer
from multihead.paper import table2
from tests.conftest import tiny_shape


@pytest.mark.parametrize(("name", "printed"), [("base", "Transformer (base)"), ("big", "Transformer (big)")])
def test_the_papers_flops_are_hours_times_devices_times_what_each_sustains(name: str, printed: str) -> None:
    by_time = table2.describe_training(name, table2.Budget()).flops_by_time
    (published,) = (row for row in table2.TABLE_2 if row.model == printed)
    assert by_time is not None
    assert published.flops_en_de == published.flops_en_fr == float(f"{by_time:.1e}")


def test_the_papers_arithmetic() -> None:
    """12 hours, and 3.5 days, of 8 P100 at 9.5 TFLOPS."""
    assert table2.describe_training("base", table2.Budget()).flops_by_time == 12 * 3600 * 8 * 9.5e12
    assert table2.describe_training("big", table2.Budget()).flops_by_time == 3.5 * 24 * 3600 * 8 * 9.5e12
    budget = table2.Budget(hours=2, n_devices=4, tflops=100)
    assert table2.describe_training("small", budget).flops_by_time == 2 * 3600 * 4 * 100e12


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
    used = {name: table2.describe_training(name, table2.Budget()).to_dict()["used"] for name in ("base", "big")}
    assert used["base"] == pytest.approx(0.29, abs=0.01)
    assert used["big"] == pytest.approx(0.42, abs=0.01)


def recorded_model(folder: Path, **figures: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(to_json(RunConfig(), figures), encoding="utf-8")
    return folder


def test_a_run_is_costed_by_what_it_has_recorded(tmp_path: Path) -> None:
    folder = recorded_model(tmp_path / "run", target_tokens=10_000_000, seconds=7200.0, matmul_flops=1.5e11)
    training = table2.describe_training(str(folder), table2.Budget())
    assert (training.name, training.hours, training.n_devices) == ("run", 2.0, 1)
    assert training.flops_by_time == pytest.approx(7200 * 1.5e11)
    assert training.flops_counted == counted_flops(ModelConfig(), 10_000_000)


def test_what_cannot_be_costed_is_refused_in_words(tmp_path: Path) -> None:
    for number, figures in enumerate([{}, {"target_tokens": 1, "seconds": "long", "matmul_flops": 1}]):
        folder = recorded_model(tmp_path / f"run{number}", **figures)
        with pytest.raises(UserError, match="no training time or token count recorded"):
            table2.describe_training(str(folder), table2.Budget())
    with pytest.raises(UserError, match="'nothing' is not a preset, and there is no model 'nothing'"):
        table2.describe_training("nothing", table2.Budget())
    with pytest.raises(UsageError, match="--hours must be more than 0, got 0"):
        table2.Budget(hours=0)


def test_times_are_said_as_people_say_them() -> None:
    training = table2.describe_training("base", table2.Budget())
    table = table2.hardware_table(table2.hardware_records([training], GPUS, {"T4": 0.5}), ["base"])
    shown = {row[0]: row[table.header.index("base time")] for row in table.rows}
    assert (shown["T4"], shown["A100"], shown["H100"]) == ("3.4 days", "2.8 h", "54 min")
    assert [row[-1] != "" for row in table.rows] == [gpu.name == "T4" for gpu in GPUS]


def test_hours_energy_and_rent_follow_from_operations() -> None:
    training = table2.describe_training("base", table2.Budget())
    (a100,) = (gpu for gpu in GPUS if gpu.name == "A100")
    (record,) = table2.hardware_records([training], [a100], {"A100": 2.0})
    hours = record["hours"]["base"]
    assert hours * 3600 * 312e12 * 0.3 == pytest.approx(training.flops_counted)
    assert record["kilowatt_hours"]["base"] == pytest.approx(hours * 0.4)
    assert record["cost"]["base"] == pytest.approx(hours * 2)
    (free,) = table2.hardware_records([training], [a100], {})
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
        ("Z80=1", "unknown device 'Z80'"),
    ):
        with pytest.raises(UsageError, match=words):
            table2.parse_prices([wrong])
