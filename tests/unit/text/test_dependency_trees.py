"""Dependency trees of source sentences, from the file to a trained model."""

from itertools import product, starmap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from multihead.config.resolve import configure
from multihead.data.shards import Shards, ShardWriter
from multihead.errors import UsageError, UserError
from multihead.model.build import build_model
from multihead.model.variants.tree import depths_and_distances
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.text.dependency_trees import NO_HEAD, encode_with_heads, parse_heads, strip_tree
from multihead.text.tokenizer import EOS_ID, PAD_ID, SubwordTokenizer
from multihead.training.batch import validation_batches
from multihead.translation.engine import Segment
from multihead.translation.translator import load
from tests.conftest import tiny_shape

LINE = "A man rides a bike .\t2 3 0 5 3 3"
PARENTS = {"A": "man", "man": "rides", "rides": None, "a": "bike", "bike": "rides", ".": "rides"}


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return SubwordTokenizer.learn(["A man rides a bike ."] * 3, 300)


def test_a_line_is_words_and_heads() -> None:
    assert strip_tree(LINE) == "A man rides a bike ."
    assert parse_heads(LINE) == [2, 3, 0, 5, 3, 3]
    assert parse_heads("A man") == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("A man\t2 x", "one number per word"),
        ("A man\t2 -1", "one number per word"),
        ("A man\t0", "1 heads for 2 words"),
        ("A man\t0 7", "names word 7, but 'A man' has 2 words"),
        ("A man\t2 1", "it has a cycle"),
        ("A man\t1 0", "it has a cycle"),
    ],
)
def test_an_invalid_tree_is_refused_with_the_reason(line: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_heads(line)


def test_pieces_hang_from_the_first_of_their_word_and_words_from_their_heads(tokenizer: SubwordTokenizer) -> None:
    ((ids, heads),) = encode_with_heads(tokenizer, ["A bikes rides .\t2 3 0 3"])
    assert tokenizer.tokens(ids) == ["ĠA", "Ġbike", "s", "Ġrides", "Ġ."]
    assert heads == [1, 3, 1, NO_HEAD, 3]
    assert tokenizer.decode(ids) == "A bikes rides ."


def test_tokens_of_a_sentence_without_a_tree_hang_from_the_end_symbol(tokenizer: SubwordTokenizer) -> None:
    ((ids, heads),) = encode_with_heads(tokenizer, ["A bikes rides ."])
    assert heads == [NO_HEAD] * len(ids)


def test_a_segment_that_is_cut_keeps_no_head_outside() -> None:
    assert Segment([7, 8, 9], [1, 2, NO_HEAD]).shortened(2) == Segment([7, 8], [1, NO_HEAD])


def with_end(ids: list[int], heads: list[int], n_padding: int = 0) -> tuple[Tensor, Tensor]:
    """Return a batch of one sentence: its ids with the end symbol, and its heads."""
    after = [PAD_ID] * n_padding
    return torch.tensor([[*ids, EOS_ID, *after]]), torch.tensor([[*heads, NO_HEAD, *[NO_HEAD for _ in after]]])


def test_depth_and_distance_are_those_of_the_tree(tokenizer: SubwordTokenizer) -> None:
    """The expected values come from walking up from both words until the paths meet."""
    ((ids, heads),) = encode_with_heads(tokenizer, [LINE])
    words = [piece[1:] for piece in tokenizer.tokens(ids)]
    assert words == list(PARENTS), "every word is one piece"
    depths, distances = depths_and_distances(*with_end(ids, heads, n_padding=2))

    def path_up(word: str | None) -> list[str | None]:
        return [word, *(path_up(PARENTS[word]) if word else [])]

    for (i, one), (j, other) in product(enumerate([*words, None]), repeat=2):
        here, there = path_up(one), path_up(other)
        meeting = next(node for node in here if node in there)
        edges = here.index(meeting) + there.index(meeting)
        assert int(distances[0, i, j]) == (edges if j > i else -edges)
        assert int(depths[0, i]) == len(here) - 1


def test_the_output_depends_on_the_tree(tokenizer: SubwordTokenizer) -> None:
    torch.manual_seed(1)
    model = build_model(tiny_shape(positions="tree", vocab_size=300, relative_distance=3)).eval()
    target = torch.tensor([[2, 7, 9]])
    with torch.inference_mode():
        outputs = [
            model(source, target, heads)
            for source, heads in starmap(
                with_end,
                encode_with_heads(tokenizer, [LINE, "A man rides a bike .\t3 1 0 5 3 3", "A man rides a bike ."]),
            )
        ]
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


def test_padding_changes_nothing(tokenizer: SubwordTokenizer) -> None:
    torch.manual_seed(1)
    model = build_model(tiny_shape(positions="tree", vocab_size=300)).double().eval()
    (encoded,) = encode_with_heads(tokenizer, [LINE])
    (source, heads), (padded_source, padded_heads) = with_end(*encoded), with_end(*encoded, n_padding=3)
    alone = model(source, torch.tensor([[2, 7]]), heads)
    padded = model(padded_source, torch.tensor([[2, 7]]), padded_heads)
    torch.testing.assert_close(alone, padded, atol=1e-10, rtol=0)


def test_a_model_with_trees_takes_sources_without_them(tokenizer: SubwordTokenizer) -> None:
    """The words of a sentence without a tree all hang from the end symbol."""
    torch.manual_seed(1)
    model = build_model(tiny_shape(positions="tree", vocab_size=300)).eval()
    source, heads = with_end(*encode_with_heads(tokenizer, ["A man rides a bike ."])[0])
    assert torch.equal(model(source, torch.tensor([[2, 7]])), model(source, torch.tensor([[2, 7]]), heads))


def test_shards_keep_the_heads_of_each_source(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "train", vocab_size=300) as writer:
        writer.add([7, 8, 9], [10, 11], [1, NO_HEAD, 1])
        writer.add([12], [13], [NO_HEAD])
    shards = Shards(tmp_path, "train")
    assert [ids.tolist() for pair in (0, 1) for ids in shards[pair]] == [[7, 8, 9], [10, 11], [12], [13]]
    assert [heads.tolist() for pair in (0, 1) if (heads := shards.source_heads(pair)) is not None] == [[1, -1, 1], [-1]]
    (_, batch), *_ = validation_batches(shards, 100)
    assert batch.source_heads is not None
    assert batch.source_heads.tolist() == [[NO_HEAD] * 4, [1, NO_HEAD, 1, NO_HEAD]]


def test_shards_without_trees_have_no_heads(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "train", vocab_size=100_000) as writer:
        writer.add([7, 99_999], [8])
    shards = Shards(tmp_path, "train")
    assert shards[0][0].tolist() == [7, 99_999]
    assert shards.source_heads(0) is None
    ((_, batch),) = validation_batches(shards, 100)
    assert batch.source_heads is None


def test_shards_of_older_versions_have_their_heads_above_the_ids(tmp_path: Path) -> None:
    tokens = np.array([7 + (2 << 20), 8, 9 + (2 << 20), 10, 11], dtype=np.uint32)
    np.save(tmp_path / "train-00000.tokens.npy", tokens)
    np.save(tmp_path / "train-00000.ends.npy", np.array([[3, 5]]))
    shards = Shards(tmp_path, "train")
    assert [ids.tolist() for ids in shards[0]] == [[7, 8, 9], [10, 11]]
    heads = shards.source_heads(0)
    assert heads is not None
    assert heads.tolist() == [1, NO_HEAD, 1]


def test_both_settings_go_together() -> None:
    with pytest.raises(UsageError, match="vice versa"):
        configure({"model.positions": "tree"})
    with pytest.raises(UsageError, match="vice versa"):
        configure({"data.tree": "true"})
    with pytest.raises(UsageError, match=r"data\.casing_noise"):
        configure({"model.positions": "tree", "data.tree": True, "data.casing_noise": 0.1})


@pytest.mark.long
def test_a_model_is_trained_on_trees_and_translates_with_them(tmp_path: Path) -> None:
    """Whether a word is the root decides its translation: only the tree tells."""
    lines = [
        (f"{one} {other}\t{'0 1' if first else '2 0'}", f"{one if first else other}".upper())
        for one, other in product("abcdefgh", repeat=2)
        if one != other
        for first in (True, False)
    ]
    (tmp_path / "a.en").write_text("".join(f"{source}\n" for source, _ in lines))
    (tmp_path / "a.de").write_text("".join(f"{target}\n" for _, target in lines))
    settings: dict[str, object] = {"model.positions": "tree", "data.tree": True, "data.max_ratio": 20.0}
    settings |= {"model.vocab_size": 276, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.d_model": 32}
    settings |= {"train.steps": 150, "train.bleu_sentences": 0, "train.lr_scale": 0.5, "data.batch_tokens": 300}
    request = TrainingRequest(
        output=tmp_path / "run", source=tmp_path / "a.en", target=tmp_path / "a.de", preset="tiny", settings=settings
    )
    train(request)
    translator = load(tmp_path / "run")
    assert translator.translate("c f\t0 1").text == "C"
    assert translator.translate("c f\t2 0").text == "F"
    assert translator.translate("c f\t2 0").source_tokens == ["Ġc", "Ġf"]
    with pytest.raises(UserError, match="1 heads for 2 words"):
        translator.translate("c f\t0")
