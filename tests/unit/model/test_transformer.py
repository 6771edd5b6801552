"""The model of §3, claim by claim."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.model.dropout import Dropout
from multihead.model.incremental import CACHE_CHUNK
from multihead.model.positions import sinusoids
from multihead.model.transformer import (
    MAX_KEYS_UNFUSED,
    MultiHeadAttention,
    Transformer,
    attention,
    attention_weights,
    causal_attention,
    fast_attention,
)
from multihead.model.weights import count_parameters
from tests.conftest import tiny_shape
from tests.fake_gpu import GPU, FakeGpu

SHAPES = [
    {},
    {"norm": "pre"},
    {"positions": "learned"},
    {"tie_embeddings": "target"},
    {"tie_embeddings": "none", "output_bias": True},
    {"attention_bias": True, "activation": "gelu"},
]


def ids(*shape: int) -> Tensor:
    return torch.randint(4, 31, shape, generator=torch.Generator().manual_seed(sum(shape)))


def make(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(tiny_shape(**changes)).eval()


# §3.2.1


def test_the_first_worked_example() -> None:
    """Scores and unscaled outputs of a known three-token example."""
    x = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    w_k = torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    w_q = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    w_v = torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    assert (q @ k.mT).tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    unscaled = attention(q * math.sqrt(3), k, v, torch.ones(3, 3, dtype=torch.bool))  # undoes the division by sqrt(d_k)
    expected = torch.tensor([[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]])
    torch.testing.assert_close(unscaled, expected, atol=1e-4, rtol=0)


def test_the_second_worked_example() -> None:
    """Known scores under the look-ahead mask."""
    scores = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]])
    weights = attention_weights(scores * math.sqrt(4), torch.eye(4), torch.ones(4, 4).tril().bool())
    expected = torch.tensor([[1, 0, 0, 0], [0.38, 0.62, 0, 0], [0.26, 0.32, 0.43, 0], [0.21, 0.26, 0.26, 0.26]])
    torch.testing.assert_close(weights, expected, atol=0.0051, rtol=0)


def test_attention_equals_equation_1_by_loops() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    mask = torch.rand(2, 1, 4, 6) > 0.4
    mask[..., 0] = True
    expected = torch.zeros(2, 3, 4, 7)
    for b, h, t in product(range(2), range(3), range(4)):
        allowed = [s for s in range(6) if mask[b, 0, t, s]]
        exps = [math.exp(sum(float(q[b, h, t, i] * k[b, h, s, i]) for i in range(5)) / math.sqrt(5)) for s in allowed]
        for weight, s in zip(exps, allowed, strict=True):
            expected[b, h, t] += weight / sum(exps) * v[b, h, s]
    torch.testing.assert_close(attention(q, k, v, mask), expected, atol=1e-5, rtol=0)


def test_a_masked_key_has_weight_exactly_0() -> None:
    mask = torch.tensor([[True, False, True]])
    weights = attention_weights(torch.randn(2, 4), torch.randn(3, 4), mask)
    assert weights[:, 1].tolist() == [0.0, 0.0]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2))


# §3.2.2


@pytest.mark.parametrize("n_keys", [6, MAX_KEYS_UNFUSED, MAX_KEYS_UNFUSED + 1])
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_the_kernel_is_chosen_for_speed_and_changes_nothing(
    n_keys: int, precision: torch.dtype, tolerance: float
) -> None:
    """Training or not, short or long, in either precision: eq. (1) as printed, and its gradient."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 16, requires_grad=True) for n in (4, n_keys, n_keys))
    mask = torch.ones(2, 1, 1, n_keys, dtype=torch.bool)
    mask[1, ..., 4:] = False
    expected = attention(q, k, v, mask)
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    trained = fast_attention(q.to(precision), k.to(precision), v.to(precision), mask, training=True)
    for found, right in zip(torch.autograd.grad(trained.float().square().sum(), (q, k, v)), wanted, strict=True):
        torch.testing.assert_close(found, right, atol=tolerance, rtol=tolerance)
    with torch.no_grad():
        looked_at = fast_attention(q.to(precision), k.to(precision), v.to(precision), mask, training=False)
    for found in (trained, looked_at):
        torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


def test_d_k_and_d_v_are_free_of_d_model() -> None:
    heads = MultiHeadAttention(tiny_shape(n_heads=3, d_k=5, d_v=7))
    assert heads.w_q.weight.shape == heads.w_k.weight.shape == (15, 12)
    assert heads.w_v.weight.shape == (21, 12)
    assert heads.w_o.weight.shape == (12, 21)


# §3.2.3


@pytest.mark.parametrize("changes", SHAPES)
def test_a_later_target_token_changes_no_earlier_logit(changes: dict[str, object]) -> None:
    model, source, target = make(**changes), ids(1, 6), ids(1, 8)
    before = model(source, target)
    for position in range(1, 8):
        altered = target.clone()
        altered[0, position] = 4 if target[0, position] != 4 else 5
        after = model(source, altered)
        torch.testing.assert_close(after[:, :position], before[:, :position], atol=1e-6, rtol=0)
        assert not torch.allclose(after[:, position], before[:, position], atol=1e-4)


def test_every_source_token_reaches_every_logit() -> None:
    model, source, target = make(), ids(1, 5), ids(1, 3)
    before = model(source, target)
    for position in range(5):
        altered = source.clone()
        altered[0, position] = 4 if source[0, position] != 4 else 5
        assert ((model(source, target) - before).abs().amax(-1) == 0).all()
        assert ((model(altered, target) - before).abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("changes", SHAPES)
def test_padding_changes_nothing(changes: dict[str, object]) -> None:
    model, source, target = make(**changes), ids(2, 5), ids(2, 4)
    padded_source = nn.functional.pad(source, (0, 6))
    padded_target = nn.functional.pad(target, (0, 3))
    torch.testing.assert_close(model(padded_source, padded_target)[:, :4], model(source, target), atol=1e-5, rtol=1e-5)


def test_no_gradient_flows_into_padding() -> None:
    model, source, target = make(tie_embeddings="none"), ids(2, 5), ids(2, 4)
    model(nn.functional.pad(source, (0, 2)), target).sum().backward()
    gradient = model.source_embedding.weight.grad
    assert gradient is not None
    assert gradient[0].abs().max() == 0


@pytest.mark.parametrize("changes", SHAPES)
def test_step_by_step_equals_the_full_pass(changes: dict[str, object]) -> None:
    model, source, target = make(**changes), ids(3, 6), ids(3, 7)
    source[1, 4:] = 0
    logits = model(source, target)
    state = model.start_decoding(source)
    for position in range(7):
        torch.testing.assert_close(
            model.decode_step(target[:, position], state), logits[:, position], atol=1e-5, rtol=1e-5
        )


def test_beams_share_the_memory_of_their_sentence() -> None:
    """Two beams a sentence, reordered on the way, give what each would give alone."""
    model, source, target = make(), ids(2, 6), ids(4, 5)
    state = model.start_decoding(source)
    state.reorder(torch.tensor([0, 0, 1, 1]))
    model.decode_step(target[:, 0], state)
    rows = torch.tensor([1, 0, 3, 3])
    state.reorder(rows)
    prefix = torch.cat([target[rows, :1], target[:, 1:3]], dim=1)
    model.decode_step(prefix[:, 1], state)
    last = model.decode_step(prefix[:, 2], state)
    expected = model(source.repeat_interleave(2, dim=0), prefix)[:, -1]
    torch.testing.assert_close(last, expected, atol=1e-5, rtol=1e-5)


def test_sentences_may_have_different_numbers_of_rows() -> None:
    """Three hypotheses of one sentence, none of the next, one of the last, for more steps than room is made for."""
    model, source, target = make(), ids(3, 6), ids(4, 2 * CACHE_CHUNK + 3)
    owners = torch.tensor([0, 0, 0, 2])
    state = model.start_decoding(source)
    state.reorder(owners)
    logits = [model.decode_step(target[:, at], state) for at in range(target.size(1))]
    torch.testing.assert_close(torch.stack(logits, dim=1), model(source[owners], target), atol=1e-5, rtol=1e-5)


def test_only_the_allowed_tokens_have_logits() -> None:
    model, source, target, words = (
        make(output_bias=True, tie_embeddings="none"),
        ids(2, 6),
        ids(2, 1),
        torch.tensor([3, 9, 20]),
    )
    state = model.start_decoding(source, words)
    expected = model(source, target)[:, 0, words]
    torch.testing.assert_close(model.decode_step(target[:, 0], state), expected, atol=1e-5, rtol=1e-5)


def test_sentences_can_leave_the_batch() -> None:
    model, source, target = make(), ids(3, 6), ids(3, 2)
    state = model.start_decoding(source)
    model.decode_step(target[:, 0], state)
    kept = torch.tensor([0, 2])
    state.reorder(kept)
    state.keep_sentences(kept)
    expected = model(source, target)[kept, 1]
    torch.testing.assert_close(model.decode_step(target[kept, 1], state), expected, atol=1e-5, rtol=1e-5)


# §3.4 and §3.5


def test_the_three_embeddings_are_one_matrix() -> None:
    model = make()
    assert model.source_embedding.weight is model.target_embedding.weight is model.output.weight
    assert [name for name, _ in model.named_parameters() if "embedding" in name or "output" in name] == [
        "source_embedding.weight"
    ]


def test_embeddings_can_be_untied() -> None:
    shared, target, none = (count_parameters(make(tie_embeddings=tie)) for tie in ("all", "target", "none"))
    assert (target - shared, none - shared) == (31 * 12, 2 * 31 * 12)


def test_embeddings_are_scaled_by_the_square_root_of_d_model() -> None:
    model = make()
    embedded = model.embed(model.source_embedding, torch.tensor([[7]]))
    torch.testing.assert_close(
        embedded[0, 0], model.source_embedding.weight[7] * math.sqrt(12) + torch.from_numpy(sinusoids(1, 12))[0]
    )


def test_positions_are_the_sines_and_cosines_of_section_3_5() -> None:
    table = sinusoids(50, 8)
    for position, i in product((0, 1, 7, 49), range(4)):
        angle = position / 10_000 ** (2 * i / 8)
        assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_a_shifted_position_is_a_linear_function_of_the_position() -> None:
    """§3.5: for a fixed offset k, PE(pos + k) is a linear function of PE(pos)."""
    table, offset = torch.from_numpy(sinusoids(100, 16)), 7
    turn = torch.zeros(16, 16)
    for i in range(8):
        angle = offset / 10_000 ** (2 * i / 16)
        sine, cosine = math.sin(angle), math.cos(angle)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[cosine, -sine], [sine, cosine]])
    torch.testing.assert_close(table[:-offset] @ turn, table[offset:], atol=1e-5, rtol=0)


def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="25 tokens are more than the 24 positions"):
        make()(ids(1, 25), ids(1, 3))


# §5.4


def test_dropout_sits_on_sublayers_and_embeddings_only() -> None:
    model = Transformer(tiny_shape(dropout=0.25))
    names = [name for name, module in model.named_modules() if isinstance(module, Dropout)]
    sublayers = 2 * 2 + 2 * 3
    assert len(names) == 1 + sublayers
    assert all(name == "dropout" or ".residual_" in name for name in names)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(0)
    x = Dropout(p)(torch.ones(1000, 333))
    assert x.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)], rel=1e-4)
    assert (x == 0).float().mean().item() == pytest.approx(p, abs=0.003)
    assert x.mean().item() == pytest.approx(1, abs=0.003)
    assert not torch.equal(x, Dropout(p)(torch.ones(1000, 333)))


def test_dropout_drops_neighbors_independently() -> None:
    """Four elements share a random number, whose bits must be independent."""
    torch.manual_seed(0)
    dropped = (Dropout(0.5)(torch.ones(4, 100_000)) == 0).float().flatten()
    for distance in (1, 2, 3, 4, 8):
        both = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert both == pytest.approx(0.25, abs=0.005)


def test_dropout_is_silent_when_evaluating() -> None:
    model = make(dropout=0.5)
    torch.testing.assert_close(model(ids(1, 4), ids(1, 4)), model(ids(1, 4), ids(1, 4)), atol=0, rtol=0)


# §3.1 and Table 3


def test_post_norm_has_no_final_norm_and_pre_norm_has() -> None:
    assert isinstance(make(norm="post").encoder_norm, nn.Identity)
    assert isinstance(make(norm="pre").encoder_norm, nn.LayerNorm)
    assert isinstance(make(norm="pre").decoder_norm, nn.LayerNorm)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("base", 65),
        ("table3-b-dk16", 58),
        ("table3-b-dk32", 60),
        ("table3-c-n2", 36),
        ("table3-c-n4", 50),
        ("table3-c-n8", 80),
        ("table3-c-d256", 28),
        ("table3-c-d1024", 168),
        ("table3-c-ff1024", 53),
        ("table3-c-ff4096", 90),
    ],
)
def test_table_3_parameter_counts(name: str, millions: int) -> None:
    """Rows base to C round to the paper's figures with 41,005 to 41,205 vocabulary entries, no attention biases."""
    for vocab_size in (41_005, 41_205):
        with torch.device("meta"):
            model = Transformer(configure(preset(name), {"model.vocab_size": vocab_size}).model)
        assert round(count_parameters(model) / 1e6) == millions


def test_big_has_213_million_parameters_with_a_vocabulary_of_36_000() -> None:
    with torch.device("meta"):
        model = Transformer(configure(preset("big"), {"model.vocab_size": 36_000}).model)
    assert round(count_parameters(model) / 1e6) == 213


def test_a_new_model_is_about_as_uncertain_as_its_vocabulary() -> None:
    """Initialization is sane: the first loss is near that of a uniform guess."""
    torch.manual_seed(0)
    model = Transformer(configure(preset("tiny"), {"model.vocab_size": 1000}).model).eval()
    target = torch.randint(4, 1000, (8, 20))
    logits = model(torch.randint(4, 1000, (8, 20)), target)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(4, 1000, (160,)))
    assert abs(loss.item() - math.log(1000)) < 1.0


@pytest.mark.parametrize("n_queries", [1, 7])
def test_the_causal_kernel_of_gpus_is_attention_with_the_look_ahead_mask(n_queries: int) -> None:
    """It gets no mask, since flash attention takes none. The single query of a decoding step is the last one."""
    generator = torch.Generator().manual_seed(8)
    q, k, v = (torch.randn(2, 3, 7, 4, generator=generator) for _ in range(3))
    mask = torch.ones(7, 7, dtype=torch.bool).tril()[-n_queries:]
    q = q[:, :, -n_queries:]
    torch.testing.assert_close(causal_attention(q, k, v), attention(q, k, v, mask), atol=1e-6, rtol=1e-5)


def test_on_a_gpu_the_decoder_uses_the_causal_kernel_and_finds_the_same() -> None:
    model, source, target = make(tie_embeddings="none"), ids(3, 6), ids(3, 7)
    source[1, 4:] = 0
    expected = model(source, target)
    with FakeGpu() as gpu:
        model.to(GPU)
        gpu.waits.clear()
        logits = model(source.to(GPU, non_blocking=True), target.to(GPU, non_blocking=True))
        assert gpu.waits == []
        torch.testing.assert_close(logits.detach().cpu(), expected, atol=1e-5, rtol=1e-5)
