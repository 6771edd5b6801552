"""The README.md of a model folder."""

from multihead.config.schema import RunConfig
from multihead.data.shards import CorpusSummary
from multihead.runs.model_card import write_card
from multihead.storage.model_folder import Provenance, PublishedScore

SUMMARY = CorpusSummary(
    source_lang="en",
    target_lang="de",
    tokenizer="bpe",
    max_length=256,
    file_sizes=[],
    description="",
    vocab_size=300,
    train_pairs=1000,
    valid_pairs=100,
    cleaning={"read": 1200, "kept": 1100},
)
KNOWN = Provenance(
    steps=1234,
    published="step 1,234",
    parameters=5678,
    target_tokens=9999,
    seconds=90.0,
    matmul_flops=2e9,
    flops_by_time=1.8e11,
    flops_counted=3e10,
    scores=(PublishedScore(set="validation", name="BLEU", value=12.25, signature="a|b"),),
)


def test_a_card_has_every_figure_that_is_known() -> None:
    card = write_card("m", RunConfig(), SUMMARY, KNOWN)
    assert "- 5,678 parameters, 37,000 BPE pieces" in card
    assert "- 1,234 steps, 9,999 target tokens, 1.5 minutes, seed 1" in card
    assert "1.8e+11 FLOPs at 2 GFLOPS; counted operations: 3e+10" in card
    assert "- published: step 1,234" in card
    assert "| validation | BLEU | 12.25 | `a\\|b` |" in card


def test_what_is_not_known_is_left_out() -> None:
    """An average of checkpoints, or a model of an older version, does not know what its training cost."""
    card = write_card("m", RunConfig(), SUMMARY, Provenance(steps=7))
    assert "- 7 steps, seed 1" in card
    assert "- 37,000 BPE pieces" in card
    for word in ("None", " 0 ", " 0.0 ", "cost as in", "| set |"):
        assert word not in card
