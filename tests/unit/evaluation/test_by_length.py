"""BLEU by length: groups of similar length, and what is scored in each."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.evaluation.by_length import bleu_by_length, groups_of_length, source_lengths, write_picture
from multihead.evaluation.metrics import bleu

SOURCES = [" ".join("abcdefghijkl"[:n]) for n in (12, 4, 4, 8, 12, 8)]
REFERENCES = [" ".join("mnopqrstuvwx"[:n]) for n in (12, 4, 4, 8, 12, 8)]


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(1, 8))
def test_each_sentence_is_in_one_group_and_groups_share_no_length(lengths: list[int], n_groups: int) -> None:
    groups = groups_of_length(lengths, n_groups)
    assert sorted(n for group in groups for n in group) == list(range(len(lengths)))
    assert len(groups) <= n_groups
    for shorter, longer in pairwise(groups):
        assert max(lengths[n] for n in shorter) < min(lengths[n] for n in longer)


def test_groups_of_different_lengths_are_equally_large() -> None:
    assert [len(group) for group in groups_of_length(list(range(100)), 5)] == [20] * 5


def test_each_group_has_the_bleu_of_its_sentences() -> None:
    worse = [line if len(line) < 10 else f"x x {line}" for line in REFERENCES]
    groups = bleu_by_length(SOURCES, worse, REFERENCES, n_groups=3, others=REFERENCES)
    assert [(group.lengths, group.sentences) for group in groups] == [("4", 2), ("8", 2), ("12", 2)]
    assert [group.other_bleu for group in groups] == [pytest.approx(100)] * 3
    assert groups[2].bleu == bleu([worse[0], worse[4]], [REFERENCES[0], REFERENCES[4]])
    assert groups[0].bleu == pytest.approx(100)


def test_text_without_spaces_is_measured_in_characters() -> None:
    assert source_lengths(["猫がいる", "犬"]) == [4, 1]
    assert source_lengths(["A cat sat", "Yes"]) == [3, 1]


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    groups = bleu_by_length(SOURCES, REFERENCES, REFERENCES, others=REFERENCES)
    write_picture(groups, tmp_path / "a.png", ["with", "without"])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
