"""How long publishing takes, measured before it happens."""

from pathlib import Path

import torch

from multihead.config.resolve import configure
from multihead.config.schema import SearchConfig
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.shards import Shards, read_summary
from multihead.runs.publishing_time import FIXED_SECONDS, PublishingTime
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator
from tests.conftest import QUICK, copy_or_reverse, write_pairs


def test_measuring_does_not_change_the_run(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, copy_or_reverse(200, seed=1))
    data = tmp_path / "data"
    prepare(from_files(source, target), data, configure().data, 280)
    config = configure(QUICK, {"model.vocab_size": read_summary(data).vocab_size})
    tokenizer = SubwordTokenizer.load(data / "tokenizer.json")
    measured, other = (Trainer(config, data, tokenizer) for _ in range(2))
    time = PublishingTime(measured, Validator(measured.full_model, tokenizer, Shards(data, "valid"), config.data))
    assert time.seconds > FIXED_SECONDS
    measured.step()
    time.measure(SearchConfig())
    measured.step()
    other.step()
    other.step()
    weights = [trainer.full_model.state_dict() for trainer in (measured, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
