"""What a head does over many sentences, on maps made by hand."""

import numpy as np
import pytest

from multihead.inspection.attention_maps import Array, AttentionMaps
from multihead.inspection.head_roles import HeadRole, head_roles

PATTERNS = {  # the column of each row, of a source of 4 and a target of 3 positions
    "encoder": {"same": [0, 1, 2, 3], "previous": [3, 0, 1, 2], "next": [1, 2, 3, 3], "end": [3, 3, 3, 3]},
    "decoder": {"same": [0, 1, 2], "previous": [0, 0, 1], "start": [0, 0, 0], "again": [0, 1, 2]},
    "cross": {"aligned": [1, 0, 2], "read": [3, 1, 0], "end": [3, 3, 3], "again": [1, 0, 2]},
}
WIDTH = {"encoder": 4, "decoder": 3, "cross": 4}


def one_layer(side: str) -> Array:
    """One layer with a head for each pattern, which puts all weight on one column."""
    heads = [np.eye(WIDTH[side], dtype=np.float32)[columns] for columns in PATTERNS[side].values()]
    return np.stack(heads)[None]


def sentence() -> AttentionMaps:
    aligned = np.eye(4, dtype=np.float32)[[1, 0, 2]]
    return AttentionMaps(
        source_tokens=[" a", " b", " c", "</s>"],
        target_tokens=["<s>", " x", " y"],
        encoder=one_layer("encoder"),
        decoder=one_layer("decoder"),
        cross=np.concatenate([one_layer("cross"), np.stack([aligned] * 4)[None]]),
        alignment_layer=1,
    )


@pytest.fixture(scope="module")
def roles() -> dict[tuple[str, int, int], HeadRole]:
    return {(role.side, role.layer, role.head): role for role in head_roles([sentence(), sentence()])}


@pytest.mark.parametrize(("side", "head"), [(side, head) for side in PATTERNS for head in range(3)])
def test_a_head_with_one_pattern_has_its_name(
    roles: dict[tuple[str, int, int], HeadRole], side: str, head: int
) -> None:
    assert roles[side, 0, head].role == list(PATTERNS[side])[head]
    assert roles[side, 0, head].peak == 1


def test_shares_are_means_over_the_rows_of_all_sentences(roles: dict[tuple[str, int, int], HeadRole]) -> None:
    assert roles["encoder", 0, 1].shares == {"same": 0, "previous": 0.75, "next": 0, "end": 0.25}
    assert roles["cross", 0, 1].shares == pytest.approx({"aligned": 0, "read": 2 / 3, "end": 1 / 3})


def test_every_head_is_there_once(roles: dict[tuple[str, int, int], HeadRole]) -> None:
    assert len(roles) == 4 + 4 + 8


def test_a_side_without_attention_has_no_heads() -> None:
    empty = np.zeros((0, 4, 0, 0), dtype=np.float32)
    maps = sentence()
    without = AttentionMaps(
        source_tokens=maps.source_tokens,
        target_tokens=maps.target_tokens,
        encoder=empty,
        decoder=maps.decoder,
        cross=maps.cross,
        alignment_layer=1,
    )
    assert {role.side for role in head_roles([without])} == {"decoder", "cross"}


def test_weight_on_the_word_that_a_word_depends_on_is_counted() -> None:
    """Every position depends on the one before and the one after it, where they are; the end symbol on nothing."""
    governors = [[1], [0, 2], [1, 3], []]
    roles = {role.head: role for role in head_roles([sentence()], [governors]) if role.side == "encoder"}
    assert [roles[head].shares["syntax"] for head in range(4)] == [0, 0.5, 0.75, 0.25]


def test_the_shares_without_trees_have_no_syntax(roles: dict[tuple[str, int, int], HeadRole]) -> None:
    assert all("syntax" not in role.shares for role in roles.values())
