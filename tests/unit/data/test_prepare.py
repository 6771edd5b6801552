"""A prepared corpus: whole or not there, held-out text kept apart, shards that read back what was written."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multihead import concurrency
from multihead.config.fit import vocab_size_for
from multihead.config.schema import DataConfig
from multihead.data import cleaning, spool
from multihead.data.embedded_corpus import embedded_text
from multihead.data.parallel_text import ParallelText, RawPair, from_files
from multihead.data.prepare import prepare
from multihead.data.shards import CorpusSummary, Shards, read_summary
from multihead.errors import UsageError, UserError
from multihead.text.tokenizer import SubwordTokenizer
from tests import scripts
from tests.conftest import copy_or_reverse, write_pairs

ROOT = Path(__file__).parents[3]


def raw(pairs: list[tuple[str, str]]) -> list[RawPair]:
    return [(source.encode(), target.encode()) for source, target in pairs]


def decoded(folder: Path, split: str) -> list[tuple[str, str]]:
    tokenizer, shards = SubwordTokenizer.load(folder / "tokenizer.json"), Shards(folder, split)
    sides = ([tokenizer.decode(ids.tolist()) for ids in shards[at]] for at in range(len(shards)))
    return [(source, target) for source, target in sides]


def test_training_text_comes_back_in_order_from_its_shards(tmp_path: Path) -> None:
    pairs = [(f"sentence number {n}", f"Satz Nummer {n}") for n in range(50)]
    valid = [("one more", "noch einer")]
    prepare(ParallelText(train=raw(pairs), valid=raw(valid)), tmp_path / "data", DataConfig())
    assert decoded(tmp_path / "data", "train") == pairs
    assert decoded(tmp_path / "data", "valid") == valid


def test_a_corpus_of_one_pair_of_languages_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    """Those of the version before models of several languages, whose runs go on with it."""
    pairs = [(f"sentence number {n}", f"Satz Nummer {n}") for n in range(50)]
    prepare(ParallelText(train=raw(pairs), valid=raw([("one more", "noch einer")])), tmp_path / "data", DataConfig())
    files = ("tokenizer.json", "train-00000.ends.npy", "train-00000.tokens.npy", "valid-00001.tokens.npy")
    sums = [hashlib.sha256((tmp_path / "data" / name).read_bytes()).hexdigest()[:16] for name in files]
    assert sums == ["67c562ad1ce4decc", "02ff75f9ee96a745", "63ae2fa978e81d5b", "dbe9eb91d51e1e4a"]


def test_without_validation_text_a_slice_is_held_out(tmp_path: Path) -> None:
    pairs = list(dict.fromkeys(copy_or_reverse(400, seed=1)))
    summary = prepare(ParallelText(train=raw(pairs)), tmp_path / "data", DataConfig())
    train, valid = decoded(tmp_path / "data", "train"), decoded(tmp_path / "data", "valid")
    assert sorted(train + valid) == sorted(pairs)
    assert 0 < len(valid) == summary.valid_pairs <= len(pairs) // 20 + 1


def test_all_translations_of_a_held_out_source_are_held_out(tmp_path: Path) -> None:
    pairs = [(f"sentence {n}", f"Satz {n} {variant}") for n in range(100) for variant in "abc"]
    prepare(ParallelText(train=raw(pairs)), tmp_path / "data", DataConfig())
    train, valid = ({source for source, _ in decoded(tmp_path / "data", split)} for split in ("train", "valid"))
    assert not train & valid


def test_what_is_held_out_does_not_depend_on_the_order_of_the_lines(tmp_path: Path) -> None:
    pairs = list(dict.fromkeys(copy_or_reverse(200, seed=1)))
    for name, ordered in (("one", pairs), ("two", pairs[::-1])):
        prepare(ParallelText(train=raw(ordered)), tmp_path / name, DataConfig())
    assert sorted(decoded(tmp_path / "one", "valid")) == sorted(decoded(tmp_path / "two", "valid"))


def test_pairs_of_too_many_tokens_are_dropped_and_counted(tmp_path: Path) -> None:
    pairs = [(f"short {n}", f"kurz {n}") for n in range(40)] + [
        ("".join(map(chr, range(0x4E00, 0x4E20))), "a side of about as many bytes, to break no other rule than the one")
    ]
    summary = prepare(ParallelText(train=raw(pairs)), tmp_path / "data", DataConfig(max_length=20, drop_script=False))
    assert summary.cleaning["too_long"] == 1
    assert summary.train_pairs + summary.valid_pairs == summary.cleaning["kept"] == 40


def test_a_vocabulary_larger_than_the_corpus_can_give_is_refused_with_the_size_it_can(tmp_path: Path) -> None:
    text = ParallelText(train=raw(copy_or_reverse(100, seed=1)))
    with pytest.raises(UserError, match=r"vocabulary of 20,000 pieces: it yields \d+"):
        prepare(text, tmp_path / "data", DataConfig(), 20_000)
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_that_was_not_asked_for_is_as_large_as_it_can_be(tmp_path: Path) -> None:
    summary = prepare(ParallelText(train=raw(copy_or_reverse(100, seed=1))), tmp_path / "data", DataConfig())
    assert 260 < summary.vocab_size < 400


@pytest.mark.parametrize("pairs", [[], [("", "")], [("one", "eins")]])
def test_a_corpus_with_nothing_to_train_on_is_refused(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UserError, match="no training pairs left"):
        prepare(ParallelText(train=raw(pairs)), tmp_path / "data", DataConfig())
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(UserError, match="is not empty"):
        prepare(ParallelText(train=raw(copy_or_reverse(50, seed=1))), tmp_path / "data", DataConfig())
    assert (tmp_path / "data" / "mine.txt").read_text(encoding="utf-8") == "precious"


def test_what_goes_wrong_on_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("one\ntwo\n", encoding="utf-8")
    target.write_text("eins\n", encoding="utf-8")
    with pytest.raises(UserError, match="2 lines"):
        prepare(from_files(source, target), tmp_path / "data", DataConfig())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_corpus_in_tamil_keeps_its_pairs_beside_one_in_chinese(tmp_path: Path) -> None:
    """Every corpus has its own typical ratio, and may come from a pipe."""
    tamil, chinese = scripts.pairs_with("Tamil"), scripts.pairs_with("Chinese")
    both = ParallelText(train=iter(raw(tamil)), extra_corpora=[(iter(raw(chinese)), 1.0)])
    cleaning = prepare(both, tmp_path / "data", DataConfig()).cleaning
    assert cleaning["kept"] == cleaning["read"] == 38


def test_the_typical_ratio_does_not_depend_on_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of Chinese follow chunks of Tamil: the median of a chunk would be that of one language."""
    pairs = scripts.pairs_with("Tamil") + scripts.pairs_with("Chinese") + scripts.pairs_with("Tamil")[:5]
    wrong = ("A long sentence about something that has to do with nothing at all.", "是的。")
    corpora = ParallelText(train=raw([*pairs, wrong]))
    one = prepare(corpora, tmp_path / "one", DataConfig(max_ratio=2.0)).cleaning
    monkeypatch.setattr(cleaning, "CHUNK_PAIRS", 19)
    many = prepare(corpora, tmp_path / "many", DataConfig(max_ratio=2.0)).cleaning
    assert one == many
    assert one["ratio"] > 0


def test_training_and_validation_text_are_in_nfc(tmp_path: Path) -> None:
    pairs = [(f"cafe\u0301 {n}", f"Cafe\u0301 {n}") for n in range(50)]
    prepare(ParallelText(train=raw(pairs[1:]), valid=raw(pairs[:1])), tmp_path / "data", DataConfig())
    assert decoded(tmp_path / "data", "train") == [(f"café {n}", f"Café {n}") for n in range(1, 50)]
    assert decoded(tmp_path / "data", "valid") == [("café 0", "Café 0")]


def test_the_characters_of_a_text_decide_the_size_of_its_vocabulary(tmp_path: Path) -> None:
    """As many pairs of long sentences get a larger one than pairs of short sentences."""
    pairs = [(f"the {n} of all", f"das {n} von allen") for n in range(100)]
    long = [(" ".join([source] * 3), " ".join([target] * 3)) for source, target in pairs]
    for name, text in (("short", pairs), ("long", long)):
        summary = prepare(ParallelText(train=raw(text)), tmp_path / name, DataConfig(clean=False))
        assert summary.characters == sum(len(source) + len(target) for source, target in text)
    multi30k, tatoeba, europarl = 29_000 * 135, 160_000 * 66, 150_000 * 300
    assert [vocab_size_for(size) for size in (multi30k // 6, multi30k, tatoeba, europarl)] == [4000, 8000, 8000, 16_000]
    assert vocab_size_for(10**9) == 37_000  # WMT 2014 English-German (§5.1)


def test_a_corpus_in_utf16_is_one_in_utf8(tmp_path: Path) -> None:
    pairs = list(dict.fromkeys(copy_or_reverse(200, seed=1)))
    for encoding in ("utf-8", "utf-16"):
        files = tmp_path / f"{encoding}.src", tmp_path / f"{encoding}.tgt"
        for side, file in enumerate(files):
            file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding=encoding)
        prepare(from_files(*files), tmp_path / encoding, DataConfig())
    assert decoded(tmp_path / "utf-16", "train") == decoded(tmp_path / "utf-8", "train")


def test_word_pieces_by_one_field(tmp_path: Path) -> None:
    pairs = [(f"sentence number {n}", f"Satz Nummer {n}") for n in range(50)]
    text = ParallelText(train=raw(pairs), valid=raw(pairs[:1]))
    prepare(text, tmp_path / "data", DataConfig(tokenizer="wordpiece"))
    model = json.loads((tmp_path / "data" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert model["type"] == "WordPiece"
    assert decoded(tmp_path / "data", "train") == pairs


def test_a_tokenizer_that_is_only_imported_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is for imported models only"):
        prepare(ParallelText(train=raw([("a", "b")])), tmp_path / "data", DataConfig(tokenizer="unigram"))


def test_a_summary_survives_its_file(tmp_path: Path) -> None:
    text = ParallelText(train=raw(copy_or_reverse(50, seed=1)), sizes=[1, 2], description="toy")
    summary = prepare(text, tmp_path / "data", DataConfig(source_lang="en"))
    assert read_summary(tmp_path / "data") == summary


def test_the_embedded_corpus_is_honest_about_itself(tmp_path: Path) -> None:
    summary: CorpusSummary = prepare(embedded_text(), tmp_path / "data", DataConfig())
    assert "grammar" in summary.description
    assert summary.train_pairs > 30_000


# Large, and several


def numbered(n_pairs: int, word: str = "number") -> list[tuple[str, str]]:
    return [(f"sentence {word} {n}", f"Satz Nummer {n}") for n in range(n_pairs)]


def test_processes_side_by_side_write_what_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and segments are small here, so that there are enough of them to be shared out."""
    pairs = numbered(700) + numbered(300) + numbered(500, "the")
    prepare(ParallelText(train=raw(pairs)), tmp_path / "one", DataConfig())
    monkeypatch.setattr(cleaning, "CHUNK_PAIRS", 100)
    monkeypatch.setattr(spool, "MAX_SEGMENT_PAIRS", 400)
    monkeypatch.setattr(concurrency, "n_cores", lambda: 2)
    summary = prepare(ParallelText(train=raw(pairs)), tmp_path / "many", DataConfig())
    assert len(list((tmp_path / "many").glob("train-*.ends.npy"))) > 2
    assert summary.cleaning["duplicate"] == 300
    for split in ("train", "valid"):
        assert decoded(tmp_path / "many", split) == decoded(tmp_path / "one", split)
    assert (tmp_path / "many" / "corpus.json").read_text() == (tmp_path / "one" / "corpus.json").read_text()


def test_a_pair_that_came_before_is_dropped_whichever_corpus_it_came_in(tmp_path: Path) -> None:
    first, second = numbered(60), numbered(20) + numbered(40, "the")
    both = ParallelText(train=raw(first), extra_corpora=[(raw(second), 3.0)], valid=raw([("one more", "noch einer")]))
    summary = prepare(both, tmp_path / "data", DataConfig())
    assert summary.cleaning["duplicate"] == 20
    assert [(part.pairs, part.weight) for part in summary.parts] == [(60, 1.0), (40, 3.0)]
    assert decoded(tmp_path / "data", "train") == first + second[20:]
    assert "2 corpora: 60 pairs with weight 1, 40 pairs with weight 3" in summary.lines()
    assert sum(part.target_tokens for part in summary.parts) == int(
        (Shards(tmp_path / "data", "train").lengths()[:, 1] + 1).sum()
    )


@pytest.mark.long
def test_a_script_without_a_guard_may_prepare_a_large_corpus(tmp_path: Path) -> None:
    """Processes that start would import it, and it would start them again."""
    source, target = write_pairs(tmp_path, numbered(101_000))
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom multihead import concurrency\n"
        "from multihead.config.schema import DataConfig\nfrom multihead.data.parallel_text import from_files\n"
        "from multihead.data.prepare import prepare\nconcurrency.n_cores = lambda: 2\n"
        f"text = from_files(Path({str(source)!r}), Path({str(target)!r}))\n"
        f"print(prepare(text, Path({str(tmp_path / 'data')!r}), DataConfig()).train_pairs)\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "100000\n"
