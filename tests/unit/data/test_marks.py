"""Corpora whose sources start with the mark of back-translated text."""

from collections import Counter
from pathlib import Path

import pytest

from multihead.config.schema import DataConfig
from multihead.data.epochs import shuffled_windows
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.shards import CorpusSummary, Shards, open_training_shards, read_summary
from multihead.errors import UserError
from multihead.text.tokenizer import SubwordTokenizer

CONFIG_FIELDS = {"source_lang": "en", "target_lang": "de", "max_length": 32, "batch_tokens": 512}
CONFIG = DataConfig(**CONFIG_FIELDS)  # type: ignore[arg-type]


def lines(word: str, n_pairs: int, mark: str = "") -> str:
    return "".join(f"{mark}{word} house {n}\t{word} Haus {n}\n" for n in range(n_pairs))


def prepared(folder: Path, real: int, synthetic: int, **config: object) -> CorpusSummary:
    """Prepare real pairs and marked ones; the words of their sources differ."""
    (folder / "real.tsv").write_text(lines("real", real), encoding="utf-8")
    (folder / "synthetic.tsv").write_text("en\tde\n" + lines("made", synthetic, "<bt> "), encoding="utf-8")
    text = from_files(corpora=[folder / "real.tsv", folder / "synthetic.tsv"], languages=["en", "de"])
    return prepare(text, folder / "data", DataConfig(**{**CONFIG_FIELDS, **config}))  # type: ignore[arg-type]


def sources(folder: Path, split: str) -> list[tuple[list[str], str]]:
    """Return the reserved pieces and the text of every source."""
    tokenizer = SubwordTokenizer.load(folder / "data" / "tokenizer.json")
    shards = Shards(folder / "data", split)
    ids = [shards[pair][0].tolist() for pair in range(len(shards))]
    return [(tokenizer.tokens(tokenizer.reserved_prefix(source)), tokenizer.decode(source)) for source in ids]


def test_marked_sources_begin_with_one_reserved_piece_and_others_do_not(tmp_path: Path) -> None:
    prepared(tmp_path, real=300, synthetic=300)
    found = sources(tmp_path, "train")
    assert {text.split()[0]: marks for marks, text in found} == {"real": [], "made": ["<bt>"]}
    assert not any("bt" in text for _, text in found)
    assert SubwordTokenizer.load(tmp_path / "data" / "tokenizer.json").encode("<bt> real") != [0]


def test_no_marked_pair_is_held_out_and_the_share_is_that_of_the_real_ones(tmp_path: Path) -> None:
    summary = prepared(tmp_path, real=300, synthetic=900)
    assert {text.split()[0] for _, text in sources(tmp_path, "valid")} == {"real"}
    assert summary.valid_pairs == 300 // 20


def test_a_marked_translation_of_a_source_that_is_held_out_is_not_learned(tmp_path: Path) -> None:
    (tmp_path / "real.tsv").write_text(lines("real", 300), encoding="utf-8")
    copies = "".join(f"<bt> real house {n}\tanderes Haus {n}\n" for n in range(300))
    (tmp_path / "synthetic.tsv").write_text(copies, encoding="utf-8")
    text = from_files(corpora=[tmp_path / "real.tsv", tmp_path / "synthetic.tsv"], languages=["en", "de"])
    prepare(text, tmp_path / "data", CONFIG)
    held_out = {text for _, text in sources(tmp_path, "valid")}
    assert held_out and not held_out & {text for _, text in sources(tmp_path, "train")}


@pytest.mark.parametrize(("synthetic", "ratio", "expected"), [(900, 2.0, 2.0), (900, 1.0, 1.0), (300, 2.0, 300 / 285)])
def test_an_epoch_has_at_most_so_many_marked_pairs_for_each_real_one(
    tmp_path: Path, synthetic: int, ratio: float, expected: float
) -> None:
    prepared(tmp_path, real=300, synthetic=synthetic, synthetic_ratio=ratio)
    shards = open_training_shards(tmp_path / "data")
    marked = [bool(marks) for marks, _ in sources(tmp_path, "train")]
    counts: Counter[bool] = Counter()
    for epoch in range(60):  # a fractional weight is drawn for each epoch
        for window in shuffled_windows(shards, seed=1, epoch=epoch):
            counts.update(marked[pair] for pair in window.read(shards)[0].tolist())
    assert counts[True] / counts[False] == pytest.approx(expected, rel=0.1)


def test_a_folder_with_limited_weights_still_matches_its_text(tmp_path: Path) -> None:
    prepared(tmp_path, real=300, synthetic=900)
    files = [tmp_path / "real.tsv", tmp_path / "synthetic.tsv"]
    summary = read_summary(tmp_path / "data")
    assert summary.parts[0].weight > 1 and summary.parts[1].weight == 1
    assert summary.matches(from_files(corpora=files, languages=["en", "de"]))
    assert not summary.matches(from_files(corpora=files, weights=[2, 1], languages=["en", "de"]))


def test_a_mark_on_all_text_says_nothing_and_is_taken_off(tmp_path: Path) -> None:
    (tmp_path / "synthetic.tsv").write_text(lines("made", 300, "<bt> "), encoding="utf-8")
    prepare(from_files(corpora=[tmp_path / "synthetic.tsv"], languages=["en", "de"]), tmp_path / "data", CONFIG)
    assert {(*marks, text.split()[0]) for marks, text in sources(tmp_path, "train")} == {("made",)}
    assert sources(tmp_path, "valid")


def test_the_translations_of_a_teacher_are_learned_without_a_mark_and_none_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "real.tsv").write_text(lines("real", 300), encoding="utf-8")
    taught = "".join(f"<teacher> {word} house {n}\tHaus {n} {word}\n" for word in ("real", "more") for n in range(600))
    (tmp_path / "taught.tsv").write_text(taught, encoding="utf-8")
    text = from_files(corpora=[tmp_path / "real.tsv", tmp_path / "taught.tsv"], languages=["en", "de"])
    summary = prepare(text, tmp_path / "data", CONFIG)
    assert not SubwordTokenizer.load(tmp_path / "data" / "tokenizer.json").reserved
    found = {split: sources(tmp_path, split) for split in ("train", "valid")}
    assert {text.split()[0] for _, text in found["train"]} == {"real", "more"}
    assert not any("teacher" in text for _, text in found["train"])
    held_out = [text for _, text in found["valid"]]
    assert len(held_out) == len(set(held_out)) == 300 // 20
    assert not set(held_out) & {text for _, text in found["train"]}
    assert [part.weight for part in summary.parts] == [1, 1]


def test_text_without_a_mark_among_marked_text_is_refused_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "mixed.tsv").write_text(lines("made", 20, "<bt> ") + lines("real", 20), encoding="utf-8")
    (tmp_path / "real.tsv").write_text(lines("real", 20), encoding="utf-8")
    text = from_files(corpora=[tmp_path / "mixed.tsv", tmp_path / "real.tsv"], languages=["en", "de"])
    with pytest.raises(UserError, match="pair 21 of a corpus whose sources start with <bt>"):
        prepare(text, tmp_path / "data", CONFIG)


def test_the_vocabulary_of_a_base_model_without_the_mark_stays_as_it_is(tmp_path: Path) -> None:
    tokenizer = SubwordTokenizer.learn(["real made house Haus 0 1 2 3 4 5 6 7 8 9"] * 3, 300)
    (tmp_path / "real.tsv").write_text(lines("real", 300), encoding="utf-8")
    (tmp_path / "synthetic.tsv").write_text(lines("made", 300, "<bt> "), encoding="utf-8")
    text = from_files(corpora=[tmp_path / "real.tsv", tmp_path / "synthetic.tsv"], languages=["en", "de"])
    summary = prepare(text, tmp_path / "data", CONFIG, tokenizer)
    assert summary.vocab_size == tokenizer.vocab_size
    assert {tuple(marks) for marks, _ in sources(tmp_path, "train")} == {()}
