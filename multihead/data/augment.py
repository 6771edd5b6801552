"""Augmentation: pairs change each time they are read, by BPE-dropout or by careless casing and punctuation.

The result is a function of the random generator alone, so that a resumed run sees what an uninterrupted one sees.
"""

import random
from collections.abc import Callable

import numpy as np

from multihead.config.schema import DataConfig
from multihead.data.bpe_dropout import BpeDropout
from multihead.data.shards import Ids
from multihead.text.tokenizer import SubwordTokenizer

FINAL_MARKS = ".!?…。！？"  # noqa: RUF001  # the full-width marks are meant

IdPair = tuple[Ids, Ids]
Augment = Callable[[IdPair, random.Random], IdPair]


def augmentation(tokenizer: SubwordTokenizer, config: DataConfig) -> Augment | None:
    """Return the augmentations of the configuration as one function, or None if there are none."""
    steps: list[Augment] = []
    if config.casing_noise:
        steps.append(casing_noise(tokenizer, config.casing_noise, config.max_length))
    if config.bpe_dropout:
        steps.append(bpe_dropout(tokenizer, config.bpe_dropout, config.max_length))
    if not steps:
        return None

    def apply_all(pair: IdPair, rng: random.Random) -> IdPair:
        for augment in steps:
            pair = augment(pair, rng)
        return pair

    return apply_all


def noisy_copies(tokenizer: SubwordTokenizer, config: DataConfig) -> Callable[[IdPair], IdPair] | None:
    """Return a function that applies casing noise to every pair, or None if the model is trained without it."""
    if not config.casing_noise:
        return None
    retype, rng = casing_noise(tokenizer, 1.0, config.max_length), random.Random(1)
    return lambda pair: retype(pair, rng)


def bpe_dropout(tokenizer: SubwordTokenizer, dropout: float, max_length: int) -> Augment:
    """Segment both sides with BPE-dropout. Batches grow a little: their budget counts the usual pieces."""
    dropped = BpeDropout(tokenizer)

    def resegment(ids: Ids, rng: random.Random) -> Ids:
        return _if_short(ids, dropped(ids.tolist(), dropout, rng), max_length)

    return lambda pair, rng: (resegment(pair[0], rng), resegment(pair[1], rng))


def casing_noise(tokenizer: SubwordTokenizer, probability: float, max_length: int) -> Augment:
    """Lower-case the source, drop its final punctuation, or both; the target does not change."""

    def retype(pair: IdPair, rng: random.Random) -> IdPair:
        if rng.random() >= probability:
            return pair
        ids = pair[0].tolist()
        text = lowercase_or_unpunctuated(tokenizer.decode(ids), rng)
        return _if_short(pair[0], [*tokenizer.reserved_prefix(ids), *tokenizer.encode(text)], max_length), pair[1]

    return retype


def lowercase_or_unpunctuated(text: str, rng: random.Random) -> str:
    """Return the text in lower case, without final punctuation, or both, chosen at random."""
    bare = text.rstrip(FINAL_MARKS) or text
    return rng.choice([text.lower(), bare, bare.lower()])


def _if_short(ids: Ids, new_ids: list[int], max_length: int) -> Ids:
    """Return the new ids, or the old ones if the new ones are too many for a batch."""
    return np.array(new_ids, dtype=ids.dtype) if len(new_ids) <= max_length else ids
