"""Trees as a parallel corpus (§6.3): sources are words, targets are words with tags, in one vocabulary.

Targets repeat the words. Since a model copies them one by one, it does not lose its place in a long sentence, as it
does when it writes tags alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from multihead.data.parallel_text import Pair
from multihead.text.constituency_trees import Tree, is_tag, to_tags, with_words
from multihead.text.tokenizer import SubwordTokenizer
from multihead.text.treebank_words import replace_rare, vocabulary_of

MIN_TAG_COUNT = 2  # a tag that occurs once is made of parts
MIN_COUNT_IN_LONG_EXAMPLES = 16  # of words that are not replaced by their signatures


class ParsingCorpus(NamedTuple):
    """Pairs of words and tags, and their vocabulary."""

    train: list[Pair]
    valid: list[Pair]
    tokenizer: SubwordTokenizer


def parsing_corpus(train: Sequence[Tree], valid: Sequence[Tree]) -> ParsingCorpus:
    """Return the corpus of training and validation trees, with the vocabulary of the training trees.

    Long examples have signatures in place of more words, so that the model relies less on words that it saw a few
    times.
    """
    words = vocabulary_of(tree.words for tree in train)
    word_counts = Counter(word for tree in train for word in tree.words)
    signatures = words - word_counts.keys()
    frequent = {word for word, count in word_counts.items() if count >= MIN_COUNT_IN_LONG_EXAMPLES}
    long_examples = joined(_pairs(train, signatures | frequent))
    return ParsingCorpus(_pairs(train, words) + long_examples, _pairs(valid, words), _tokenizer(words, train))


def known_words(words: Sequence[str], is_known: Callable[[str], bool]) -> list[str]:
    """Return the words as a model reads and writes them: rare words, and those that look like tags, by signature."""
    return replace_rare(words, lambda word: is_known(word) and not is_tag(word))


def _pairs(trees: Sequence[Tree], vocabulary: set[str]) -> list[Pair]:
    sources = [known_words(tree.words, vocabulary.__contains__) for tree in trees]
    return [(" ".join(words), with_words(to_tags(tree), words)) for words, tree in zip(sources, trees, strict=True)]


def _tokenizer(words: set[str], trees: Sequence[Tree]) -> SubwordTokenizer:
    tags = Counter(tag for tree in trees for tag in to_tags(tree).split())
    frequent = {tag for tag, count in tags.items() if count >= MIN_TAG_COUNT}
    opening = {part for tag in tags for part in re.findall(r"\([^(*]+", tag)}
    leaves = {part for tag in tags for part in re.findall(r"\*[^()]*", tag)}
    closing = {")" * n for n in range(2, 9)}
    return SubwordTokenizer.from_words(words | frequent | opening, opening | leaves | closing)


def joined(examples: Sequence[Pair]) -> list[Pair]:
    """Return each second example with the one after it as one long example.

    Few sentences are long, so the later positions would hardly be trained without them.
    """
    return [
        (f"{source} {next_source}", f"{target} {next_target}")
        for (source, target), (next_source, next_target) in zip(examples[::2], examples[1::2], strict=False)
    ]
