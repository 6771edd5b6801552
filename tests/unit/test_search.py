"""Greedy decoding against its definition."""

import torch

from multihead.model import Transformer
from multihead.search import greedy
from multihead.tokenizer import BOS_ID, EOS_ID
from tests.conftest import tiny_shape


def model(seed: int = 1) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(tiny_shape(max_len=64)).eval()


def by_definition(model: Transformer, source: list[int], max_extra: int) -> list[int]:
    """The likeliest next token, again and again, from the full pass."""
    target = [BOS_ID]
    while len(target) - 1 < len(source) + max_extra:
        logits = model(torch.tensor([source]), torch.tensor([target]))[0, -1]
        target.append(int(logits.argmax()))
        if target[-1] == EOS_ID:
            return target[1:-1]
    return target[1:]


def test_greedy_takes_the_likeliest_token_at_every_step() -> None:
    for seed in range(5):
        transformer = model(seed)
        transformer.output.weight.data[EOS_ID] *= 3  # so that some sentences end early
        source = torch.randint(4, 31, (6, 7))
        source[2, 3:] = source[4, 5:] = 0
        expected = [by_definition(transformer, [id for id in row if id], 8) for row in source.tolist()]
        assert greedy(transformer, source, max_extra=8) == expected


def test_an_output_never_runs_past_the_positions_of_the_model() -> None:
    torch.manual_seed(0)
    transformer = Transformer(tiny_shape(max_len=10)).eval()
    assert all(len(ids) < 10 for ids in greedy(transformer, torch.randint(4, 31, (4, 9))))
