"""Trees as a parallel corpus (§6.3): sources are words, targets are tags with brackets, in one vocabulary.

Every word, and nearly every tag, is one token, so that position n of the target describes word n of the source.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from multihead.data.parallel_text import Pair
from multihead.text.constituency_trees import Tree, to_tags
from multihead.text.tokenizer import SubwordTokenizer
from multihead.text.treebank_words import replace_rare, vocabulary_of

MIN_TAG_COUNT = 2  # a tag that occurs once is made of parts


class ParsingCorpus(NamedTuple):
    """Pairs of words and tags, and their vocabulary."""

    train: list[Pair]
    valid: list[Pair]
    tokenizer: SubwordTokenizer


def parsing_corpus(train: Sequence[Tree], valid: Sequence[Tree]) -> ParsingCorpus:
    """Return the corpus of training and validation trees, with the vocabulary of the training trees."""
    words = vocabulary_of(tree.words for tree in train)
    tags = Counter(tag for tree in train for tag in to_tags(tree).split())
    frequent = {tag for tag, count in tags.items() if count >= MIN_TAG_COUNT}
    opening = {part for tag in tags for part in re.findall(r"\([^(*]+", tag)}
    leaves = {part for tag in tags for part in re.findall(r"\*[^()]*", tag)}
    closing = {")" * n for n in range(2, 9)}
    tokenizer = SubwordTokenizer.from_words(words | frequent | opening, opening | leaves | closing)

    def pairs(trees: Sequence[Tree]) -> list[Pair]:
        return [(" ".join(replace_rare(tree.words, words.__contains__)), to_tags(tree)) for tree in trees]

    examples = pairs(train)
    return ParsingCorpus(examples + joined(examples), pairs(valid), tokenizer)


def joined(examples: Sequence[Pair]) -> list[Pair]:
    """Return each second example with the one after it as one long example.

    Few sentences are long, so the later positions would hardly be trained without them.
    """
    return [
        (f"{source} {next_source}", f"{target} {next_target}")
        for (source, target), (next_source, next_target) in zip(examples[::2], examples[1::2], strict=False)
    ]
