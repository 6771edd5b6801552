"""`multihead bench train`: what is counted, and that both sides of the comparison do the same work."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from multihead.bench.plain_transformer import PlainTransformer
from multihead.bench.training import (
    Speed,
    TrainingReport,
    Work,
    batch_flops,
    measure_ours,
    measure_plain,
    random_corpus,
)
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig
from multihead.data.epochs import Cursor
from multihead.model.transformer import Transformer
from multihead.model.weights import count_parameters
from multihead.training.batch import collate
from tests.conftest import QUICK, tiny_shape


def a_batch(n_source: int = 12, n_target: int = 9) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return [(torch.randint(4, 31, (n_source,)), torch.randint(4, 31, (n_target,))) for _ in range(5)]


def test_operations_are_what_torch_counts() -> None:
    """Forward and backward, without padding. torch does not count the fused kernel for CPUs, so it is not used."""
    config = tiny_shape(d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16)
    batch = collate([(source.numpy(), target.numpy()) for source, target in a_batch()])
    model = Transformer(config).train()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(batch.source, batch.target_in).sum().backward()
    assert counter.get_total_flops() == pytest.approx(batch_flops(config, batch), rel=0.01)


def test_both_train_models_of_the_same_size() -> None:
    """Apart from the biases in attention and the two final norms of torch.nn.Transformer."""
    config = ModelConfig(vocab_size=1000, d_model=64, d_ff=128, encoder_layers=2, decoder_layers=2, d_k=8, d_v=8)
    ours, plain = Transformer(config), PlainTransformer(config)
    n_attentions, n_final = 2 + 2 * 2, 2
    assert count_parameters(plain) == count_parameters(ours) + n_attentions * 4 * 64 + n_final * 2 * 64


@pytest.mark.long
def test_both_train_on_the_same_batches(tmp_path: Path) -> None:
    config = configure(QUICK, {"model.vocab_size": 300, "data.batch_tokens": 200})
    work = Work(config=config, data=random_corpus(tmp_path, 300, length=40), steps=2)
    for measure in (measure_ours, measure_plain):
        speed = measure(work)
        assert speed.tokens_per_second > 0
        assert 0 < speed.share_of_peak < 1
        assert speed.peak_memory_mb > 50
    one, other = work.batches(3, Cursor())[1], work.batches(1, Cursor(batch=1))[0]
    assert torch.equal(one.source, other.source)


def test_where_we_train_in_bfloat16_the_report_has_float32_beside_it(tmp_path: Path) -> None:
    """The plain loop is in float32, and the hardware alone must not explain a lead over it."""

    def speed(precision: str, tokens: float) -> Speed:
        return Speed(precision=precision, tokens_per_second=tokens, gflops=1.0, matmul_gflops=2.0, peak_memory_mb=100.0)

    work = Work(config=configure({}), data=tmp_path, steps=1)
    half, single, plain = speed("bfloat16", 300), speed("float32", 200), speed("float32", 100)
    report = TrainingReport(
        preset="tiny", work=work, ours=half, ours_float32=single, plain=plain, plain_our_allocator=plain
    )
    document = report.to_dict()
    assert [document[name] for name in ("precision", "ratio", "ratio_float32")] == ["bfloat16", 3.0, 2.0]
    for precision, ratio in (("bfloat16", "3.00"), ("float32", "2.00")):
        assert f"ours, {precision}" in report.as_text()
        assert f"in {precision} {ratio} times the plain loop" in report.as_text()
    alike = replace(report, ours=single).as_text()
    assert alike.count("ours") == alike.count("times the plain loop") == 1
    assert work.in_float32().config.train.precision == "float32"
