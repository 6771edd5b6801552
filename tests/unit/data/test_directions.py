"""Which way the pairs of a corpus are trained, how often, and in which order they are validated."""

from pathlib import Path

import pytest

from multihead.data.corpus_languages import corpus_languages
from multihead.data.directions import Way, balanced, mix_directions, prefix_of, turned, ways_of
from multihead.data.shards import CorpusPart, Shards, ShardWriter
from multihead.errors import UserError
from multihead.text.target_languages import target_ids
from multihead.text.tokenizer import SubwordTokenizer

TEXTS = ["a man rides a bike", "ein Mann fährt Rad", "un homme fait du vélo"]


def part(direction: str, pairs: int, weight: float = 1.0) -> CorpusPart:
    return CorpusPart(pairs=pairs, target_tokens=10 * pairs, weight=weight, direction=direction)


def test_one_pair_of_languages_has_one_way_without_a_name() -> None:
    assert ways_of(2, [], both_ways=False) == [Way(0), Way(1)]


def test_both_ways_turns_every_corpus_around() -> None:
    ways = ways_of(2, [("en", "de"), ("en", "fr")], both_ways=True)
    assert [(way.corpus, way.direction, way.target, way.is_reversed) for way in ways] == [
        (0, "en-de", "de", False),
        (1, "en-fr", "fr", False),
        (0, "de-en", "en", True),
        (1, "fr-en", "en", True),
    ]


def test_back_translated_text_is_not_turned_around() -> None:
    ways = ways_of(2, [("en", "de")] * 2, both_ways=True, one_way={1})
    assert [way.corpus for way in ways if way.is_reversed] == [0]


def test_turned_pairs_begin_with_the_target() -> None:
    assert list(turned([("a", "b")], is_reversed=True)) == [("b", "a")]
    assert list(turned([("a", "b")], is_reversed=False)) == [("a", "b")]


@pytest.mark.parametrize(("balance", "share"), [(1.0, 0.01), (2.0, 0.1), (1e9, 1.0)])
def test_balance_is_the_temperature_of_the_shares_of_directions(balance: float, share: float) -> None:
    large, small = balanced([part("en-de", 10_000), part("en-fr", 100)], balance)
    assert large.weight == 1
    assert small.weight * small.pairs / large.pairs == pytest.approx(share, rel=1e-6)


def test_corpora_of_one_direction_are_balanced_together() -> None:
    first, second, other = balanced([part("en-de", 30), part("en-de", 70), part("en-fr", 25)], 2.0)
    assert (first.weight, second.weight) == (1, 1)
    assert other.weight == 2


def test_each_direction_is_spread_evenly_over_the_validation_text(tmp_path: Path) -> None:
    labels = [0] * 6 + [1] * 3
    with ShardWriter(tmp_path, "valid", 100) as writer:
        for number in range(len(labels)):
            writer.add([number], [number])
    mix_directions(tmp_path, "valid", labels, 100)
    shards = Shards(tmp_path, "valid")
    assert [int(shards[pair][0][0]) for pair in range(len(shards))] == [0, 6, 1, 2, 7, 3, 4, 8, 5]
    assert shards.labels is not None
    assert list(shards.labels) == [0, 1, 0, 0, 1, 0, 0, 1, 0]


def test_a_source_begins_with_the_piece_of_its_target() -> None:
    tokenizer = SubwordTokenizer.learn(TEXTS, 300, reserved=[">>deu<<", ">>pt_BR<<"])
    ids = target_ids(tokenizer)
    assert prefix_of(Way(0, "en-de", "de"), tokenizer) == [ids["deu"]]
    assert prefix_of(Way(0, "en-pt_BR", "pt-BR"), tokenizer) == [ids["pt_BR"]]
    assert prefix_of(Way(0), tokenizer) == []
    with pytest.raises(UserError, match="no piece >>fr<<"):
        prefix_of(Way(0, "en-fr", "fr"), tokenizer)


# Languages of corpora


def files(folder: Path, *names: str) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.write_text("yes\tja\n" if path.suffix == ".tsv" else "yes\n", encoding="utf-8")
    return paths


def test_names_of_files_tell_the_languages(tmp_path: Path) -> None:
    sources, targets = files(tmp_path, "a.en", "b.en"), files(tmp_path, "a.de", "b.fr")
    assert corpus_languages(sources, targets, [], [("", "")]) == [("en", "de"), ("en", "fr")]


def test_options_tell_the_languages_of_each_corpus(tmp_path: Path) -> None:
    sources, targets = files(tmp_path, "a.x"), files(tmp_path, "b.x")
    tables = files(tmp_path, "c.tsv")
    assert corpus_languages(sources, targets, tables, [("en", "de"), ("en", "fr")]) == [("en", "de"), ("en", "fr")]


def test_what_is_not_known_is_as_in_the_first_corpus(tmp_path: Path) -> None:
    sources, targets = files(tmp_path, "a.en"), files(tmp_path, "a.de")
    assert corpus_languages(sources, targets, files(tmp_path, "c.tsv"), [("", "")]) == [("en", "de")] * 2


def test_a_file_with_both_sides_is_read_in_the_direction_of_an_earlier_corpus(tmp_path: Path) -> None:
    """A translation memory of German and English is a corpus of English to German if the first one is."""
    sources, targets = files(tmp_path, "a.en"), files(tmp_path, "a.de")
    table = tmp_path / "c.tsv"
    table.write_text("de\ten\nJa\tYes\n", encoding="utf-8")
    assert corpus_languages(sources, targets, [table], [("", "")]) == [("en", "de")] * 2
