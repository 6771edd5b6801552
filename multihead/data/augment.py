"""A sentence seen in another way each time it comes by: in other pieces, or as somebody types it in haste.

What a pair becomes is a function of the generator alone, so that a run that was cut off goes on exactly.
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
    """What the configuration asks for, one after the other; None if it asks for nothing."""
    wanted: list[Augment] = []
    if config.casing_noise:
        wanted.append(casing_noise(tokenizer, config.casing_noise, config.max_length))
    if config.bpe_dropout:
        wanted.append(bpe_dropout(tokenizer, config.bpe_dropout, config.max_length))
    if not wanted:
        return None

    def all_of_them(pair: IdPair, rng: random.Random) -> IdPair:
        for augment in wanted:
            pair = augment(pair, rng)
        return pair

    return all_of_them


def noisy_copies(tokenizer: SubwordTokenizer, config: DataConfig) -> Callable[[IdPair], IdPair] | None:
    """Each pair as it is read in haste, for a model that is taught to."""
    if not config.casing_noise:
        return None
    retype, rng = casing_noise(tokenizer, 1.0, config.max_length), random.Random(1)
    return lambda pair: retype(pair, rng)


def bpe_dropout(tokenizer: SubwordTokenizer, dropout: float, max_length: int) -> Augment:
    """Cut both sides into other pieces. Batches grow a little: their budget counts the usual pieces."""
    segment = BpeDropout(tokenizer)

    def recut(ids: Ids, rng: random.Random) -> Ids:
        return _replaced(ids, segment(ids.tolist(), dropout, rng), max_length)

    return lambda pair, rng: (recut(pair[0], rng), recut(pair[1], rng))


def casing_noise(tokenizer: SubwordTokenizer, chance: float, max_length: int) -> Augment:
    """The source as typed in haste; the target stays as it should be."""

    def retype(pair: IdPair, rng: random.Random) -> IdPair:
        if rng.random() >= chance:
            return pair
        text = lowercase_or_unpunctuated(tokenizer.decode(pair[0].tolist()), rng)
        return _replaced(pair[0], tokenizer.encode(text), max_length), pair[1]

    return retype


def lowercase_or_unpunctuated(text: str, rng: random.Random) -> str:
    """In small letters, without the final mark, or both."""
    bare = text.rstrip(FINAL_MARKS) or text
    return rng.choice([text.lower(), bare, bare.lower()])


def _replaced(ids: Ids, others: list[int], max_length: int) -> Ids:
    """The other ids, unless they are too many for a batch."""
    return np.array(others, dtype=ids.dtype) if len(others) <= max_length else ids
