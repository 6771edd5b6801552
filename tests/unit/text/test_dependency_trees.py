"""Dependency trees beside the words of a source."""

from itertools import product
from pathlib import Path

import pytest
import torch

from multihead.config.resolve import configure
from multihead.errors import UsageError, UserError
from multihead.model.build import build_model
from multihead.model.variants.tree import depths_and_distances
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.text.dependency_trees import encode_tree, parse_heads, strip_tree
from multihead.text.tokenizer import EOS_ID, PLACE, SubwordTokenizer
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
        ("A man\t2 x", "a number for each word"),
        ("A man\t2 -1", "a number for each word"),
        ("A man\t0", "2 words have 1 heads"),
        ("A man\t0 7", "no word 7 that could be a head"),
        ("A man\t2 1", "no tree"),
        ("A man\t1 0", "no tree"),
    ],
)
def test_what_is_no_tree_is_refused_in_words(line: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_heads(line)


def test_pieces_hang_from_the_first_of_their_word_and_words_from_their_heads(tokenizer: SubwordTokenizer) -> None:
    (tokens,) = encode_tree(tokenizer, ["A bikes rides .\t2 3 0 3"])
    assert tokenizer.tokens(tokens) == ["ĠA", "Ġbike", "s", "Ġrides", "Ġ."]
    assert [token // PLACE - 1 for token in tokens] == [1, 3, 1, -1, 3]
    assert tokenizer.decode(tokens) == "A bikes rides ."


def test_depth_and_distance_are_those_of_the_tree(tokenizer: SubwordTokenizer) -> None:
    """By walking up from both words until the ways meet."""
    (tokens,) = encode_tree(tokenizer, [LINE])
    words = [piece[1:] for piece in tokenizer.tokens(tokens)]
    assert words == list(PARENTS), "every word is one piece"
    depths, distances = depths_and_distances(torch.tensor([[*tokens, EOS_ID, 0, 0]]))

    def way_up(word: str | None) -> list[str | None]:
        return [word, *(way_up(PARENTS[word]) if word else [])]

    for (i, one), (j, other) in product(enumerate([*words, None]), repeat=2):
        here, there = way_up(one), way_up(other)
        meeting = next(node for node in here if node in there)
        edges = here.index(meeting) + there.index(meeting)
        assert int(distances[0, i, j]) == (edges if j > i else -edges)
        assert int(depths[0, i]) == len(here) - 1


def test_another_tree_is_another_model_input(tokenizer: SubwordTokenizer) -> None:
    torch.manual_seed(1)
    model = build_model(tiny_shape(positions="tree", vocab_size=300, relative_distance=3)).eval()
    target = torch.tensor([[2, 7, 9]])
    with torch.inference_mode():
        outputs = [
            model(torch.tensor([[*tokens, EOS_ID]]), target)
            for tokens in encode_tree(tokenizer, [LINE, "A man rides a bike .\t3 1 0 5 3 3", "A man rides a bike ."])
        ]
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


def test_padding_changes_nothing(tokenizer: SubwordTokenizer) -> None:
    torch.manual_seed(1)
    model = build_model(tiny_shape(positions="tree", vocab_size=300)).double().eval()
    (tokens,) = encode_tree(tokenizer, [LINE])
    alone = model(torch.tensor([[*tokens, EOS_ID]]), torch.tensor([[2, 7]]))
    padded = model(torch.tensor([[*tokens, EOS_ID, 0, 0, 0]]), torch.tensor([[2, 7]]))
    torch.testing.assert_close(alone, padded, atol=1e-10, rtol=0)


def test_both_settings_go_together() -> None:
    with pytest.raises(UsageError, match="vice versa"):
        configure({"model.positions": "tree"})
    with pytest.raises(UsageError, match="vice versa"):
        configure({"data.tree": "true"})
    with pytest.raises(UsageError, match=r"data\.casing_noise"):
        configure({"model.positions": "tree", "data.tree": True, "data.casing_noise": 0.1})


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
    with pytest.raises(UserError, match="2 words have 1 heads"):
        translator.translate("c f\t0")
