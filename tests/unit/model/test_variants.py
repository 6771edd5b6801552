"""Variants of the paper's parts: each against its definition by loops, and in a whole model."""

import math
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.errors import UsageError
from multihead.inspection.record import record
from multihead.model.build import MIXERS, build_model
from multihead.model.incremental import Memory
from multihead.model.transformer import DecoderLayer, MultiHeadAttention, ScaledDotProduct, Transformer
from multihead.model.variants.convolution import Convolution
from multihead.model.variants.cross import ConvS2SAttention, SingleVector
from multihead.model.variants.efficient_attention import Linformer, SparseAttention
from multihead.model.variants.luong import Concat, General, LocalP, Location
from multihead.model.variants.recurrent import Recurrent
from multihead.model.variants.scores import Additive, DotProduct, RelativeScore
from tests.conftest import tiny_shape

IN_ENCODER = sorted(MIXERS)
IN_DECODER = [name for name in IN_ENCODER if name not in ("linformer", "bigbird")]
SMALL = {"window": 4, "relative_distance": 2, "projected_length": 3}  # so that a short sentence is longer than they are
CHOICES: list[dict[str, object]] = [
    {"positions": "none"},
    {"positions": "relative"},
    {"attention_score": "dot"},
    {"attention_score": "additive"},
    {"attention_score": "general"},
    {"attention_score": "concat"},
    {"attention_score": "location"},
    {"attention_score": "local-p"},
    {"cross": "last"},
    {"cross": "mean", "encoder_mixer": "gru", "decoder_mixer": "lstm"},
    {"cross": "convs2s", "n_heads": 1, "d_k": 12, "d_v": 12, "attention_score": "dot"},
    {"cross": "convs2s", "n_heads": 1, "d_k": 12, "d_v": 12, "attention_score": "local-p", "encoder_mixer": "gated"},
    {"encoder_mixer": "local", "decoder_mixer": "local", "attention_score": "concat"},
    {"encoder_mixer": "linformer", "attention_score": "general"},
    {"system": "neural-gpu", "image_width": 2, "positions": "none"},
    {"system": "memory-network", "fact_end_id": 22},
    *[dict[str, object](encoder_mixer=name) for name in IN_ENCODER],
    *[dict[str, object](decoder_mixer=name) for name in IN_DECODER],
    {"encoder_mixer": "local", "decoder_mixer": "local", "attention_score": "additive", "norm": "pre"},
    {"encoder_mixer": "bigbird", "attention_score": "dot", "global_tokens": 1, "random_blocks": 3},
    {"encoder_mixer": "convolution", "decoder_mixer": "gated", "kernel": 4},
]
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: " ".join(map(str, choice.values())))


def shape(**changes: object) -> ModelConfig:
    return tiny_shape(**{**SMALL, **changes})


def make(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return build_model(shape(**changes)).double().eval()


def numbers(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)), dtype=torch.float64)


def ids(*size: int) -> Tensor:
    return torch.randint(4, 31, size, generator=torch.Generator().manual_seed(sum(size)))


def all_real(n_positions: int, n_sentences: int = 1) -> Tensor:
    return torch.ones(n_sentences, 1, 1, n_positions, dtype=torch.bool)


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


# Scores


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def test_the_dot_product_is_that_of_luong() -> None:
    q, k, v = numbers(1, 1, 2, 5), numbers(1, 1, 4, 5), numbers(1, 1, 4, 7)
    seen = torch.tensor([[True, True, False, True], [True, False, False, False]])
    out = DotProduct()(q, k, v, seen)
    for query in range(2):
        keys = [key for key in range(4) if seen[query, key]]
        weights = softmax([float(q[0, 0, query] @ k[0, 0, key]) for key in keys])
        expected = sum((weight * v[0, 0, key] for weight, key in zip(weights, keys, strict=True)), torch.zeros(7))
        assert_same(out[0, 0, query], expected)


@torch.no_grad()
def test_additive_scores_are_those_of_bahdanau() -> None:
    score = Additive(shape()).double()
    q, k = numbers(2, 3, 2, 5), numbers(2, 3, 4, 5)
    weights = score.weights(q, k, torch.ones(2, 4, dtype=torch.bool))
    for head in range(3):
        for query in range(2):
            scores = [float(score.u[head] @ torch.tanh(q[1, head, query] + k[1, head, key])) for key in range(4)]
            assert_same(weights[1, head, query], torch.tensor(softmax(scores), dtype=torch.float64))


@torch.no_grad()
def test_relative_positions_are_those_of_shaw() -> None:
    """Eq. (3) and (4) there, with distances clipped to 2."""
    score = RelativeScore(shape()).double()
    q, k, v = numbers(1, 1, 6, 5), numbers(1, 1, 6, 5), numbers(1, 1, 6, 7)
    out = score(q, k, v, torch.ones(6, 6, dtype=torch.bool))
    for i in range(6):
        at = [min(2, max(-2, j - i)) + 2 for j in range(6)]
        scores = [float(q[0, 0, i] @ (k[0, 0, j] + score.keys[at[j]])) / math.sqrt(5) for j in range(6)]
        values = [v[0, 0, j] + score.values[at[j]] for j in range(6)]
        expected = sum((weight * value for weight, value in zip(softmax(scores), values, strict=True)), torch.zeros(7))
        assert_same(out[0, 0, i], expected)


@torch.no_grad()
def test_general_concat_and_location_scores_are_those_of_luong() -> None:
    q, k = numbers(2, 3, 2, 5), numbers(2, 3, 4, 5)
    general, concat, location = General(shape()).double(), Concat(shape()).double(), Location(shape()).double()
    found = [general.scores(q, k), concat.scores(q, k), location.scores(q, k)]
    for head in range(3):
        both = torch.cat([concat.of_queries[head], concat.of_keys[head]], dim=1)
        for query in range(2):
            for key in range(4):
                h, s = q[1, head, query], k[1, head, key]
                expected = [
                    h @ general.w[head] @ s,
                    concat.u[head] @ torch.tanh(both @ torch.cat([h, s])),
                    location.w[head, key] @ h,
                ]
                assert_same(torch.stack([scores[1, head, query, key] for scores in found]), torch.stack(expected))


@torch.no_grad()
def test_local_p_attends_around_a_predicted_position() -> None:
    score = LocalP(shape(window=6)).double()
    q, k, v = numbers(2, 3, 4, 5), numbers(2, 3, 9, 5), numbers(2, 3, 9, 7)
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    mask[1, ..., 6:] = False
    out = score(q, k, v, mask)
    for sentence, length in ((0, 9), (1, 6)):
        for head, query in ((0, 0), (1, 3), (2, 1)):
            h = q[sentence, head, query]
            p = length * float(torch.sigmoid(score.u[head] @ torch.tanh(score.w[head] @ h)))
            window = [s for s in range(length) if p - 3 <= s <= p + 3]
            align = softmax([float(h @ k[sentence, head, s]) / math.sqrt(5) for s in window])
            expected = torch.zeros(7, dtype=torch.float64)
            for s, weight in zip(window, align, strict=True):
                expected += weight * math.exp(-((s - p) ** 2) / (2 * (3 / 2) ** 2)) * v[sentence, head, s]
            assert_same(out[sentence, head, query], expected)


# What the decoder sees of the source


@pytest.mark.parametrize(("kind", "share"), [("last", [0, 0, 0, 0, 1, 0, 0]), ("mean", [0.2] * 5 + [0, 0])])
@torch.no_grad()
def test_without_attention_every_target_position_sees_one_vector(kind: str, share: list[float]) -> None:
    cross = SingleVector(shape(), kind).double()
    source, mask = numbers(1, 7, 12), all_real(7)
    mask[..., 5:] = False
    vector = sum((part * source[0, s] for s, part in enumerate(share)), torch.zeros(12))
    out = cross(numbers(1, 3, 12), mask, memory=Memory(cross.keys_values(source), mask))
    assert_same(out[0], (cross.w_v.weight @ vector).expand(3, -1))


@torch.no_grad()
def test_attention_as_in_convs2s_is_that_of_gehring() -> None:
    """softmax(z · (W h + b + g)) (z + e)."""
    cross = ConvS2SAttention(shape(n_heads=1, d_k=12, d_v=12, attention_score="dot")).double()
    z, e, h, g = numbers(1, 6, 12), numbers(1, 6, 12) + 1, numbers(1, 4, 12), numbers(1, 4, 12) - 1
    memory = Memory(cross.keys_values(torch.cat([z, e], dim=-1)), all_real(6), inputs=g)
    out = cross(h, all_real(6), memory=memory)
    for i in range(4):
        query = cross.w_q.weight @ h[0, i] + cross.w_q.bias + g[0, i]
        weights = softmax([float(z[0, j] @ query) for j in range(6)])
        expected = sum((weight * (z[0, j] + e[0, j]) for j, weight in enumerate(weights)), torch.zeros(12))
        assert_same(out[0, i], expected)


def test_convs2s_gives_its_attention_the_embeddings_of_both_sides() -> None:
    model = make(cross="convs2s", n_heads=1, d_k=12, d_v=12)
    source, seen = ids(1, 5), []
    cross = cast(ConvS2SAttention, cast(DecoderLayer, model.decoder[1]).cross_attention)
    cross.register_forward_hook(lambda _, args, options, out: seen.append(options["memory"]), with_kwargs=True)
    model(source, source)
    (memory,) = seen
    assert_same(memory.inputs, model.embed(model.target_embedding, source))
    assert_same(memory.kv[1] - memory.kv[0], model.embed(model.source_embedding, source).unsqueeze(1))


@pytest.mark.parametrize(
    ("choice", "difference"),
    [  # in weights of one decoder layer, against scaled attention: 3 heads, d_k 5, d_v 7, d_model 12
        ({"attention_score": "dot"}, 0),
        ({"attention_score": "additive"}, 2 * 3 * 5),
        ({"attention_score": "general"}, 2 * 3 * 5 * 5),
        ({"attention_score": "concat"}, 2 * 3 * (2 * 5 * 5 + 5)),
        ({"attention_score": "location"}, 3 * 64 * 5 - 12 * 15),  # a score for each of 64 positions, and no W^K
        ({"attention_score": "local-p"}, 3 * (5 * 5 + 5)),
        ({"cross": "mean"}, 12 * 12 - (2 * 12 * 15 + 2 * 12 * 21)),  # one matrix for W^Q, W^K, W^V and W^O
    ],
    ids=str,
)
def test_a_decoder_layer_has_as_many_weights_as_its_definition(choice: dict[str, object], difference: int) -> None:
    plain, other = make(max_len=64), make(max_len=64, **choice)
    count = [sum(weight.numel() for weight in model.decoder[0].parameters()) for model in (plain, other)]
    assert count[1] - count[0] == difference


# Sparse attention


def sees_by_loops(mixer: SparseAttention, n_positions: int) -> Tensor:
    n_blocks = math.ceil(n_positions / mixer.reach)
    seen = torch.zeros(n_positions, n_positions, dtype=torch.bool)
    for here in range(n_positions):
        drawn = {int(draw) % n_blocks for draw in mixer.draws[here // mixer.reach]}
        for there in range(n_positions):
            near = abs(here - there) <= mixer.reach
            is_global = here < mixer.n_global or there < mixer.n_global
            seen[here, there] = near or is_global or there // mixer.reach in drawn
            if mixer.causal and there > here:
                seen[here, there] = False
    return seen


@pytest.mark.parametrize("n_positions", [1, 2, 5, 8, 23])
@pytest.mark.parametrize(("n_global", "n_random"), [(0, 0), (2, 0), (0, 2), (3, 2)])
@pytest.mark.parametrize("score", ["scaled", "additive"])
def test_sparse_attention_is_full_attention_under_a_mask(
    n_positions: int, n_global: int, n_random: int, score: str
) -> None:
    mixer = SparseAttention(shape(attention_score=score), 1, False, n_global, n_random).double()
    x = numbers(2, n_positions, 12)
    seen = sees_by_loops(mixer, n_positions)
    assert torch.equal(mixer.dense_mask(x, all_real(n_positions, 2)), seen.expand(2, 1, -1, -1))
    assert_same(mixer(x, all_real(n_positions, 2)), mixer.heads(x, seen))


@pytest.mark.parametrize("n_positions", [1, 2, 7, 20])
def test_local_attention_of_a_decoder_looks_back_half_a_window(n_positions: int) -> None:
    mixer = SparseAttention(shape(), 0, True).double()
    x, seen = numbers(2, n_positions, 12), sees_by_loops(mixer, n_positions)
    assert_same(mixer(x, torch.ones(n_positions, n_positions, dtype=torch.bool).tril()), mixer.heads(x, seen))


def test_sparse_attention_never_holds_a_square() -> None:
    """The largest tensor that a layer keeps for its gradient grows with the length, not with its square."""

    def largest(n_positions: int) -> int:
        mixer, kept = SparseAttention(shape(max_len=4096), 0, False, 2, 1), [torch.zeros(0)]

        def keep(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            mixer(torch.randn(1, n_positions, 12), all_real(n_positions))
        return max(tensor.numel() for tensor in kept)

    assert largest(2048) <= 2.1 * largest(1024)


@torch.no_grad()
def test_linformer_attends_to_a_projected_length() -> None:
    mixer = Linformer(shape()).double()
    x = numbers(1, 6, 12)
    out = mixer(x, all_real(6))
    q, (k, v) = mixer.heads.queries(x), mixer.heads.keys_values(x)
    projected = [
        [sum((of[p, s] * kept[0, 1, s] for s in range(6)), torch.zeros(())) for p in range(3)]
        for of, kept in ((mixer.of_keys, k), (mixer.of_values, v))
    ]
    weights = softmax([float(q[0, 1, 4] @ key) / math.sqrt(5) for key in projected[0]])
    expected = sum((weight * value for weight, value in zip(weights, projected[1], strict=True)), torch.zeros(7))
    k, v = mixer.of_keys[:, :6] @ k, mixer.of_values[:, :6] @ v
    heads = mixer.heads.score(q, k, v, all_real(3))
    assert_same(heads[0, 1, 4], expected)
    assert_same(mixer.heads.merge(heads), out)


# Recurrence and convolution


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_encoder_reads_from_both_ends(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    mixer = Recurrent(shape(), False, kind).double()
    x = numbers(1, 5, 12)
    cells = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell}
    ends = []
    for network, order in ((mixer.forwards, range(5)), (mixer.backwards, reversed(range(5)))):
        assert network is not None
        cell = cells[kind](12, 6).double()
        cell.load_state_dict({name.removesuffix("_l0"): value for name, value in network.state_dict().items()})
        state, outputs = None, {}
        for position in order:
            state = cell(x[:, position], state)
            outputs[position] = state[0] if isinstance(state, tuple) else state
        ends.append([outputs[position] for position in range(5)])
    expected = torch.stack([torch.cat(both, dim=-1) for both in zip(*ends, strict=True)], dim=1)
    assert_same(mixer(x, all_real(5)), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (4, 1), (3, 4)])
def test_a_convolution_covers_its_kernel(causal: bool, kernel: int, dilation: int) -> None:
    mixer = Convolution(shape(kernel=kernel), causal, dilation=dilation).double()
    x, weight, bias = numbers(1, 9, 12), mixer.convolution.weight, mixer.convolution.bias
    assert bias is not None
    out = mixer(x, all_real(9))
    first = -(kernel - 1) * dilation if causal else -((kernel - 1) * dilation // 2)
    for position in range(9):
        expected = bias.clone()
        for tap in range(kernel):
            at = position + first + tap * dilation
            if 0 <= at < 9:
                expected = expected + weight[:, :, tap] @ x[0, at]
        assert_same(out[0, position], expected)


def test_a_separable_convolution_mixes_positions_and_then_dimensions() -> None:
    mixer = Convolution(shape(), False, separable=True).double()
    assert isinstance(mixer.last, nn.Linear)
    assert mixer.convolution.bias is not None
    x = numbers(1, 5, 12)
    along = torch.stack([mixer.convolution.weight[:, 0, tap] * x[0, 1 + tap] for tap in range(3)]).sum(dim=0)
    assert_same(mixer(x, all_real(5))[0, 2], mixer.last(along + mixer.convolution.bias))


def test_a_gated_convolution_lets_half_through() -> None:
    mixer = Convolution(shape(kernel=1), False, gated=True).double()
    assert mixer.convolution.bias is not None
    x = numbers(1, 3, 12)
    both = mixer.convolution.weight[:, :, 0] @ x[0, 1] + mixer.convolution.bias
    assert_same(mixer(x, all_real(3))[0, 1], both[:12] * torch.sigmoid(both[12:]))


def test_dilation_doubles_from_layer_to_layer() -> None:
    dilations = []
    for layer in range(7):
        mixer = MIXERS["dilated"](shape(), layer, False)
        assert isinstance(mixer, Convolution)
        dilations.append(mixer.convolution.dilation[0])
    assert dilations == [1, 2, 4, 8, 16, 1, 2]


# Every choice, in a whole model


@every_choice
def test_padding_changes_nothing(choice: dict[str, object]) -> None:
    model = make(**choice)
    source, target = ids(1, 9), ids(1, 7)
    padded_source, padded_target = torch.zeros(2, 17, dtype=torch.int64), torch.zeros(2, 11, dtype=torch.int64)
    padded_source[0, :9], padded_target[0, :7] = source, target
    padded_source[1], padded_target[1] = ids(17), ids(11)
    assert_same(model(padded_source, padded_target)[:1, :7], model(source, target))


@every_choice
def test_no_position_of_the_target_sees_a_later_one(choice: dict[str, object]) -> None:
    model = make(**choice)
    target = ids(1, 9)
    changed = target.clone()
    changed[0, 6] = target[0, 6] % 27 + 4
    before, after = model(ids(1, 5), target), model(ids(1, 5), changed)
    assert_same(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


@every_choice
def test_step_by_step_equals_the_full_pass(choice: dict[str, object]) -> None:
    """With rows that are reordered and leave on the way, as in a search."""
    model = make(**choice)
    source, target = ids(3, 8), ids(3, 12)
    source[1, 5:] = 0
    full = model(source, target)
    state, rows = model.start_decoding(source), torch.arange(3)
    moves = {3: [0, 2], 7: [0, 0, 1]}  # the second sentence leaves; the first one goes on as two hypotheses
    with torch.inference_mode():
        for at in range(12):
            assert_same(model.decode_step(target[rows, at], state), full[rows, at])
            if at in moves:
                order = torch.tensor(moves[at])
                rows = rows[order]
                state.reorder(order)
            if at == 3:
                state.keep_sentences(torch.tensor([0, 2]))


@every_choice
def test_every_weight_is_reached_by_the_gradient(choice: dict[str, object]) -> None:
    model = make(**choice).train()
    model(ids(2, 9), ids(2, 9)).log_softmax(dim=-1)[..., 5].sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)


@every_choice
def test_recorded_weights_sum_to_one(choice: dict[str, object]) -> None:
    if choice.get("system") == "neural-gpu":
        pytest.skip("a Neural GPU has no attention")
    model = make(**choice)
    encoder, decoder, cross = record(model, ids(9).tolist(), ids(7).tolist())
    n_heads = 3 if model.config.cross == "attention" and model.config.system == "transformer" else 1
    assert cross.shape == (2, n_heads, 7, 9)
    for weights, mixer in ((encoder, model.config.encoder_mixer), (decoder, model.config.decoder_mixer)):
        assert len(weights) == (2 if mixer in ("attention", "local", "bigbird") else 0)
    if model.config.attention_score == "local-p":  # the Gaussian takes a part of each weight
        assert ((cross.sum(axis=-1) > 0) & (cross.sum(axis=-1) < 1)).all()
        cross = cross / cross.sum(axis=-1, keepdims=True)
    for weights in (encoder, decoder, cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


def test_recorded_weights_are_those_that_were_used() -> None:
    model = make(encoder_mixer="bigbird", positions="sinusoidal")
    layer, x = model.encoder[0], numbers(1, 20, 12)
    mixer = layer.self_attention
    assert isinstance(mixer, SparseAttention)
    _, v = mixer.heads.keys_values(x)
    assert_same(mixer.heads.merge(mixer.weights(x, all_real(20)) @ v), mixer(x, all_real(20)))


# Invalid combinations


@pytest.mark.parametrize(("mixer", "name"), [("linformer", "Linformer"), ("bigbird", "BigBird")])
def test_mixers_that_are_not_causal_are_refused_in_the_decoder(mixer: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"decoder_mixer={mixer}: {name} is not causal"):
        shape(decoder_mixer=mixer)


@pytest.mark.parametrize("others", [{"attention_score": "dot"}, {"encoder_mixer": "local"}, {"decoder_mixer": "lstm"}])
def test_relative_positions_need_full_scaled_attention(others: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="positions=relative"):
        shape(positions="relative", **others)


def test_scores_that_predict_a_position_need_attention_to_the_source() -> None:
    with pytest.raises(UsageError, match=r"attention_score=local-p is for attention to the source"):
        shape(attention_score="local-p", cross="last")


def test_scores_that_predict_a_position_leave_self_attention_as_it_is() -> None:
    layer = make(attention_score="location").decoder[0]
    assert isinstance(layer, DecoderLayer)
    assert isinstance(layer.self_attention, MultiHeadAttention)
    assert isinstance(layer.self_attention.score, ScaledDotProduct)


def test_the_attention_of_convs2s_has_one_head_as_wide_as_the_model() -> None:
    with pytest.raises(UsageError, match=r"set model\.n_heads=1 and model\.d_k=model\.d_v=12"):
        shape(cross="convs2s")


def test_the_standard_model_needs_no_builder_and_variants_do() -> None:
    torch.manual_seed(1)
    paper = Transformer(shape())
    torch.manual_seed(1)
    same = build_model(shape())
    assert torch.equal(paper(ids(1, 4), ids(1, 4)), same(ids(1, 4), ids(1, 4)))
    with pytest.raises(
        ValueError, match=r"model\.attention_score=additive is not in the paper: use multihead\.model\.build_model"
    ):
        Transformer(shape(attention_score="additive"))


def test_only_self_attention_has_relative_positions() -> None:
    for layer in build_model(shape(positions="relative")).decoder:
        assert isinstance(layer, DecoderLayer)
        assert isinstance(layer.self_attention, MultiHeadAttention)
        assert isinstance(layer.self_attention.score, RelativeScore)
        assert isinstance(layer.cross_attention, MultiHeadAttention)
        assert isinstance(layer.cross_attention.score, ScaledDotProduct)
