"""Table 3 as printed, and our count of parameters."""

import pytest

from multihead.config.presets import PRESETS
from multihead.errors import UsageError
from multihead.paper import table3


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
    base, record = table3.row_records(["base", row])
    varied = {name for name in (*table3.VARIED, "positions") if record[name] != base[name]}
    assert {name: record[name] for name in settings} == settings
    assert varied == (set() if row == "base" else set(settings))


def test_every_preset_of_table_3_is_a_row() -> None:
    presets = {name for name in PRESETS if name.startswith("table3-")}
    assert {row.preset for row in table3.TABLE_3.values()} == {"base", *presets}


def test_every_row_from_base_to_c_rounds_to_the_papers_parameters() -> None:
    rows = [name for name in table3.TABLE_3 if name != "big"]
    for record in table3.row_records(rows):
        if record["paper_parameters"] is not None:
            assert round(record["parameters"] / 1e6) * 10**6 == record["paper_parameters"], record["row"]


def test_big_rounds_to_the_papers_parameters_with_a_smaller_vocabulary() -> None:
    (big,) = table3.row_records(["big"], table3.BIG_VOCAB_SIZE)
    assert round(big["parameters"] / 1e6) * 10**6 == big["paper_parameters"]


def test_rows_for_which_the_paper_prints_no_parameters_have_those_of_base() -> None:
    """Learned positions alone add some: 1,024 of them."""
    base, *rows = table3.row_records(["base", *table3.pick_rows("a,d,e")])
    assert {record["row"]: record["parameters"] - base["parameters"] for record in rows if record["row"][0] != "e"} == {
        name: 0 for name in table3.pick_rows("a,d")
    }
    assert rows[-1]["parameters"] - base["parameters"] == 1024 * 512


def test_what_is_as_in_base_is_left_blank() -> None:
    table = table3.to_table(table3.row_records(["base", "b-dk16"]), 41_100)
    base, row = (dict(zip(table.header, cells, strict=True)) for cells in table.rows)
    assert (base["d_k"], base["ours"]) == ("64", "65.14")
    assert (row["d_k"], row["d_v"], row["PPL"], row["params"], row["ours"]) == ("16", "", "5.16", "58", "58.07")


def test_rows_are_picked_by_name_or_group() -> None:
    assert table3.pick_rows(None) == list(table3.TABLE_3)
    assert table3.pick_rows("c-n2, base") == ["base", "c-n2"]
    assert table3.pick_rows("B,big") == ["b-dk16", "b-dk32", "big"]
    for wrong in ("c-n3", "", "base,,big"):
        with pytest.raises(UsageError, match="has no row"):
            table3.pick_rows(wrong)
