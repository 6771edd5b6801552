"""Pairs of files, several corpora and the languages that names tell."""

from pathlib import Path

import pytest

from multihead.data.parallel_text import from_files, guess_languages, read_pairs
from multihead.errors import UsageError, UserError


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 2), (2, 3), (0, 1), (25_000, 24_999)])
def test_unequal_line_counts_are_refused_with_both_counts(tmp_path: Path, n_source: int, n_target: int) -> None:
    source, target = write(tmp_path / "a", b"x\n" * n_source), write(tmp_path / "b", b"x\n" * n_target)
    with pytest.raises(UserError, match=f"a has {n_source:,} lines and .*b has {n_target:,}"):
        list(read_pairs(source, target))


def test_standard_input_can_be_one_file_only() -> None:
    with pytest.raises(UserError, match="standard input"):
        from_files(Path("-"), Path("-"))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a.en", "a.de.gz", ("en", "de")),
        ("corpus.txt", "corpus.gz", ("", "")),
        ("de", "train.tok.deu", ("", "deu")),
        ("train.src", "train.tgt", ("", "")),
    ],
)
def test_the_language_is_guessed_from_the_name(source: str, target: str, expected: tuple[str, str]) -> None:
    found = guess_languages(Path(source), Path(target))
    assert (found["data.source_lang"], found["data.target_lang"]) == expected


@pytest.mark.parametrize(
    ("n_targets", "weights", "words"),
    [(1, (), "every --source needs a --target"), (2, (1.0,), "a --weight if any"), (2, (1.0, 0.0), "larger than 0")],
)
def test_several_corpora_need_as_many_targets_and_weights(
    tmp_path: Path, n_targets: int, weights: tuple[float, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        from_files([tmp_path / "a"] * 2, [tmp_path / "b"] * n_targets, weights=weights)
