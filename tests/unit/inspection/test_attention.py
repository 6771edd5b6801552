"""Attention maps equal what the model computes, align words, and are displayed safely."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from multihead.config.schema import ModelConfig
from multihead.figures import new_figure
from multihead.inspection.attention_maps import AttentionMaps, best_alignment_layer, word_links
from multihead.inspection.page import SCALE, write_page
from multihead.inspection.picture import _draw_map, write_picture
from multihead.inspection.record import record, record_attention
from multihead.model.transformer import ScaledDotProduct, Transformer
from multihead.text.pieces import word_texts
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer
from tests.conftest import tiny_shape

SOURCE, TARGET = [7, 8, 9, 10, EOS_ID], [BOS_ID, 11, 12, 13, 14, 15]
HOSTILE = "</script><img src=x onerror=alert(1)><!-- & \u2028\u2029 -->"


def make(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(tiny_shape(**changes)).eval()


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return SubwordTokenizer.learn(["the old house", "das alte Haus", "größer"] * 3, 300)


@pytest.fixture(scope="module")
def maps(tokenizer: SubwordTokenizer) -> AttentionMaps:
    model = make(vocab_size=tokenizer.vocab_size)
    return record_attention(model, tokenizer, tokenizer.encode("the old house"), tokenizer.encode("das alte Haus"))


def aligned(source: list[str], target: list[str], rows: list[list[float]]) -> AttentionMaps:
    """Maps of one layer and one head, whose cross-attention is written by hand: a row for each target piece."""
    cross = np.array([*rows, [0.0] * len(source) + [1.0]], dtype=np.float32)[
        None, None
    ]  # the last row predicts the end symbol
    self_attention = np.ones((1, 1, 1, 1), dtype=np.float32)  # plays no part in an alignment
    return AttentionMaps(
        source_tokens=[*source, "</s>"],
        target_tokens=["<s>", *target],
        encoder=self_attention,
        decoder=self_attention,
        cross=cross,
        alignment_layer=0,
    )


# Recording


def test_maps_have_a_row_for_each_query_and_a_column_for_each_key() -> None:
    encoder, decoder, cross = record(make(decoder_layers=3), SOURCE, TARGET)
    assert (encoder.shape, decoder.shape, cross.shape) == ((2, 3, 5, 5), (3, 3, 6, 6), (3, 3, 6, 5))


@pytest.mark.parametrize("shape", [{}, {"norm": "pre"}, {"attention_bias": True}])
def test_rows_sum_to_one(shape: dict[str, object]) -> None:
    for weights in record(make(**shape), SOURCE, TARGET):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


def test_a_later_token_has_weight_exactly_0() -> None:
    _, decoder, _ = record(make(), SOURCE, TARGET)
    assert np.count_nonzero(np.triu(decoder, 1)) == 0
    assert np.count_nonzero(np.tril(decoder)) == decoder.shape[0] * decoder.shape[1] * 21


def test_recorded_weights_give_what_the_fused_kernel_gives() -> None:
    """Weights times values are what the kernel gives in the model's own pass."""
    model = make()
    passes: list[tuple[Tensor, Tensor]] = []

    def keep(_: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        passes.append((inputs[2], output))

    handles = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, ScaledDotProduct)]
    encoder, decoder, cross = record(model, SOURCE, TARGET)
    for handle in handles:
        handle.remove()

    in_order = [*encoder, *(weights for layer in zip(decoder, cross, strict=True) for weights in layer)]
    assert len(in_order) == len(passes) == 6
    for weights, (v, heads) in zip(in_order, passes, strict=True):
        torch.testing.assert_close(torch.from_numpy(weights[None]) @ v, heads, atol=1e-6, rtol=1e-5)


def test_recording_leaves_no_hook_and_the_same_output() -> None:
    model = make()
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET])
    before = model(source, target)
    record(model, SOURCE, TARGET)
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(model(source, target), before)


def test_hooks_are_removed_when_the_pass_fails() -> None:
    model = make().train()
    with pytest.raises(ValueError, match="positions"):
        record(model, SOURCE * 10, TARGET)
    assert not any(module._forward_hooks for module in model.modules())
    assert model.training


def test_a_model_in_training_is_recorded_without_dropout_and_goes_on_training() -> None:
    model = make(dropout=0.5).train()
    first, second = record(model, SOURCE, TARGET), record(model, SOURCE, TARGET)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert model.training


def test_control_symbols_are_added(maps: AttentionMaps) -> None:
    assert maps.source_tokens[-1] == "</s>"
    assert maps.target_tokens[0] == "<s>"
    assert maps.cross.shape[-2:] == (len(maps.target_tokens), len(maps.source_tokens))


def test_an_empty_translation_has_maps_and_no_alignment(tokenizer: SubwordTokenizer) -> None:
    maps = record_attention(make(vocab_size=tokenizer.vocab_size), tokenizer, tokenizer.encode("the house"), [])
    assert maps.target_tokens == ["<s>"]
    assert word_links(maps.alignment()) == []


def test_an_empty_source_has_maps_and_no_alignment(tokenizer: SubwordTokenizer) -> None:
    maps = record_attention(make(vocab_size=tokenizer.vocab_size), tokenizer, [], tokenizer.encode("das Haus"))
    assert maps.source_tokens == ["</s>"]
    assert word_links(maps.alignment()) == []


def test_a_translation_that_fills_all_positions_can_be_shown(tokenizer: SubwordTokenizer) -> None:
    model = make(vocab_size=tokenizer.vocab_size)
    ids = tokenizer.encode("das")[:1] * model.config.max_len
    maps = record_attention(model, tokenizer, tokenizer.encode("the house"), ids)
    assert len(maps.target_tokens) == model.config.max_len


def test_probabilities_are_those_of_the_tokens_that_are_written(tokenizer: SubwordTokenizer) -> None:
    model = make(vocab_size=tokenizer.vocab_size)
    source, target = tokenizer.encode("the old house"), tokenizer.encode("das größer")
    maps = record_attention(model, tokenizer, source, target)
    logits = model(torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *target]]))
    written = [*target, EOS_ID]
    chances = logits[0].softmax(dim=-1)[range(len(written)), written].tolist()
    assert maps.probabilities.tolist() == pytest.approx(chances, rel=1e-5)
    n_pieces = len(tokenizer.encode("das"))
    words = [math.prod(chances[:n_pieces]), math.prod(chances[n_pieces:-1])]
    assert maps.word_probabilities() == pytest.approx(words, rel=1e-5)


# Pieces and words


def test_pieces_together_are_the_text(tokenizer: SubwordTokenizer) -> None:
    pieces = tokenizer.readable(tokenizer.encode("the old house größer"))
    assert "".join(pieces) == " the old house größer"


def test_a_piece_of_a_character_is_shown_by_its_bytes(tokenizer: SubwordTokenizer) -> None:
    assert tokenizer.readable(tokenizer.encode("é")) == [" ", "\u2039C3\u203a", "\u2039A9\u203a"]


@pytest.mark.parametrize("text", ["the old house", "größer é", "한국 어", "الكلمة", "a\u00a0b"])
def test_words_are_whole_again(tokenizer: SubwordTokenizer, text: str) -> None:
    assert word_texts(tokenizer.readable(tokenizer.encode(text))) == text.split(" ")


# Alignment


def test_words_align_by_the_rows_that_predict_them() -> None:
    """A source word sums its pieces, a target word averages its own; what the end symbol draws is left out."""
    maps = aligned(
        [" red", " ho", "use"],
        [" Ha", "us", " rot"],
        [[0.1, 0.4, 0.5, 0.0], [0.15, 0.15, 0.2, 0.5], [0.4, 0.05, 0.05, 0.5]],
    )
    np.testing.assert_allclose(maps.alignment(), [[0.2, 0.8], [0.8, 0.2]], atol=1e-6)
    assert [(source, target) for source, target, _ in word_links(maps.alignment())] == [(1, 0), (0, 1)]
    assert [weight for _, _, weight in word_links(maps.alignment())] == pytest.approx([0.8, 0.8])


def test_every_target_word_has_one_source_word(maps: AttentionMaps) -> None:
    alignment = word_links(maps.alignment())
    assert [target for _, target, _ in alignment] == [0, 1, 2]
    assert all(0 <= source < 3 and 0 < weight <= 1 for source, _, weight in alignment)


def test_a_layer_that_only_looks_at_the_full_stop_does_not_align() -> None:
    stuck = [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    useful = [[0.8, 0.2, 0.0], [0.2, 0.8, 0.0]]
    layers = [aligned([" a", "."], [" x", "."], rows).cross for rows in (stuck, useful, stuck)]
    assert best_alignment_layer([np.concatenate(layers)]) == 1


def test_the_alignment_layer_is_the_best_of_all_sentences_together() -> None:
    rows = {"sharp": [[0.9, 0.1, 0.0], [0.1, 0.9, 0.0]], "soft": [[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]]}
    cross = {name: aligned([" a", "."], [" x", "."], weights).cross for name, weights in rows.items()}
    usual, exception = (
        np.concatenate([cross[one], cross[other]]) for one, other in (("soft", "sharp"), ("sharp", "soft"))
    )
    empty = np.ones((2, 1, 1, 1), dtype=np.float32)  # no pieces, only the special tokens
    assert best_alignment_layer([usual, usual, exception, empty]) == 1
    assert best_alignment_layer([exception, exception, usual, empty]) == 0


# The page and the picture


def page_of(maps: AttentionMaps, path: Path, source: str = "the old house") -> str:
    write_page(maps, path, source=source, translation="das alte Haus", model_name="tiny")
    return path.read_text(encoding="utf-8")


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_loads_nothing_from_the_network(maps: AttentionMaps, tmp_path: Path) -> None:
    page = page_of(maps, tmp_path / "page.html")
    names_of_formats = "http://www.w3.org/2000/svg"  # a name, which is never asked for
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(", page.replace(names_of_formats, ""))
    assert "default-src 'none'" in page


def test_the_page_holds_the_weights(maps: AttentionMaps, tmp_path: Path) -> None:
    data = data_of(page_of(maps, tmp_path / "page.html"))
    shown = np.array(data["maps"]["cross"]) / SCALE
    np.testing.assert_allclose(shown, maps.cross, atol=0.5 / SCALE + 1e-6, rtol=0)
    assert data["alignment"]["target"] == ["das", "alte", "Haus"]


def test_hostile_text_is_inert(maps: AttentionMaps, tmp_path: Path) -> None:
    plain, hostile = page_of(maps, tmp_path / "plain.html"), page_of(maps, tmp_path / "hostile.html", HOSTILE)
    assert data_of(hostile)["source"] == HOSTILE
    assert "<img" not in hostile
    assert hostile.count("<") == plain.count("<")
    assert "\u2028" not in hostile


def test_a_page_of_the_base_model_is_small(tmp_path: Path) -> None:
    """6 + 6 layers, 8 heads and 40 tokens on each side stay under 2 MB."""
    model = Transformer(ModelConfig(vocab_size=50, d_model=16, d_ff=16, d_k=4, d_v=4))
    encoder, decoder, cross = record(model, [*range(5, 44), EOS_ID], [BOS_ID, *range(5, 44)])
    names = ["word"] * 40
    maps = AttentionMaps(
        source_tokens=names, target_tokens=names, encoder=encoder, decoder=decoder, cross=cross, alignment_layer=5
    )
    page_of(maps, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 2_000_000


def test_the_color_of_a_picture_is_linear_in_the_weight() -> None:
    weights = np.array([[0.0, 0.25, 0.5, 0.2]], dtype=np.float32)
    image = _draw_map(new_figure(1, 1).subplots(), weights)
    np.testing.assert_allclose(np.asarray(image.norm(weights)), weights, atol=1e-6)


@pytest.mark.parametrize("source", ["the old house", "cost: $5 and $\\frac{1}$", "日本語 الكلمة"])
def test_the_picture_is_drawn_for_any_text(maps: AttentionMaps, tmp_path: Path, source: str) -> None:
    write_picture(maps, tmp_path / "heads.png", source=source, translation="das alte Haus", model_name="tiny")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
