"""The paper's tables as a user types them."""

from pathlib import Path

from multihead import corpus
from multihead.config import RunConfig
from tests.end_to_end.test_commands import multihead
from tests.fault.test_bad_input import assert_refused


def test_rows_of_table_3_are_trained_and_ranked(toy_text: tuple[Path, Path], tmp_path: Path) -> None:
    """stdout has the tables alone, stderr what is said on the way."""
    corpus.prepare(corpus.from_files(*toy_text), tmp_path / "data", RunConfig().data)
    shown = multihead(
        *("paper", "table3", "--rows", "base,c-n2", "--corpus", tmp_path / "data", "--output", tmp_path / "rows"),
        *("--scale", "16", "--minutes", "0.02"),
    )
    assert "row 2 of 2: c-n2" in shown.stderr
    assert shown.stdout.startswith("Table 3")
    assert "Every row for 0.02 minutes" in shown.stdout
    assert "Rank correlation (Spearman) with the paper over 2 rows" in shown.stdout


def test_misuse_is_said_in_words() -> None:
    assert_refused(multihead("paper", "table3", "--rows", "f", status=2), 2, "there is no row 'f'")
