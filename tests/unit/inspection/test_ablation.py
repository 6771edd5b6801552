"""A model without a head is the one whose sum over heads lacks it."""

import pytest
import torch
from torch import Tensor

from multihead.inspection.ablation import heads_of, without_heads
from multihead.inspection.attention_maps import AttentionMaps
from multihead.inspection.head_roles import Head, head_roles
from multihead.inspection.record import record
from multihead.inspection.trace import record_trace
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.model.weights import weights_of
from multihead.text.tokenizer import BOS_ID, EOS_ID
from tests.conftest import tiny_shape

SOURCE, TARGET = [7, 8, 9, EOS_ID], [BOS_ID, 11, 12]


def make(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return build_model(tiny_shape(**changes)).eval()


def test_a_head_is_its_part_of_the_sum_over_heads() -> None:
    """The output of an attention layer is the sum of what each head gives through its own columns of W^O."""
    model, name = make(), "decoder.0.cross"
    trace, weight = record_trace(model, SOURCE, TARGET), weights_of(model)["decoder.0.cross_attention.w_o.weight"]
    others = [h for h in range(3) if h != 1]
    expected = sum(torch.tensor(trace[f"{name}.heads"][h]) @ weight[:, 7 * h : 7 * h + 7].T for h in others)
    assert isinstance(expected, Tensor)
    with without_heads(model, [Head("cross", 0, 1)]):
        found = record_trace(model, SOURCE, TARGET)[f"{name}.output"]
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-6, rtol=0)


def test_all_heads_are_put_back() -> None:
    model = make()
    before = {name: weight.clone() for name, weight in weights_of(model).items()}
    with pytest.raises(KeyError), without_heads(model, heads_of(model)):
        raise KeyError
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(model).items())


def test_without_all_heads_of_cross_attention_the_source_does_not_matter() -> None:
    model, target = make(), torch.tensor([TARGET])
    with without_heads(model, [head for head in heads_of(model) if head.side == "cross"]):
        one, other = (model(torch.tensor([ids]), target) for ids in ([7, 8, EOS_ID], [9, EOS_ID]))
    assert torch.equal(one, other)


def test_heads_are_those_of_layers_with_attention() -> None:
    assert len(heads_of(make())) == 3 * (2 + 2 + 2)
    recurrent = heads_of(make(encoder_mixer="lstm"))
    assert {head.side for head in recurrent} == {"decoder", "cross"}
    assert not heads_of(make(encoder_mixer="lstm", decoder_mixer="gru", cross="mean"))


@pytest.mark.parametrize("mixer", ["local", "bigbird", "linformer"])
def test_heads_of_sparse_attention_can_be_removed(mixer: str) -> None:
    model, source, target = make(encoder_mixer=mixer), torch.tensor([SOURCE]), torch.tensor([TARGET])
    whole = model(source, target)
    with without_heads(model, [Head("encoder", 1, 2)]):
        assert not torch.equal(model(source, target), whole)


def test_places_are_those_of_head_roles() -> None:
    model = make()
    encoder, decoder, cross = record(model, SOURCE, TARGET)
    maps = AttentionMaps(
        source_tokens=[" a", " b", " c", "</s>"],
        target_tokens=["<s>", " x", " y"],
        encoder=encoder,
        decoder=decoder,
        cross=cross,
        alignment_layer=1,
    )
    assert [role.place for role in head_roles([maps])] == heads_of(model)
    assert str(Head("cross", 1, 3)) == "cross 2.4"
