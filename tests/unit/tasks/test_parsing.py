"""Trees as a parallel corpus: one token for each word, and for nearly every tag."""

from multihead.tasks.parsing import parsing_corpus
from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import from_tags, read_trees

TREES = list(read_trees([make_tree(seed) for seed in range(400)]))
CORPUS = parsing_corpus(TREES[:350], TREES[350:])


def test_every_word_is_one_token() -> None:
    for source, _ in [*CORPUS.train, *CORPUS.valid]:
        assert len(CORPUS.tokenizer.encode(source)) == len(source.split())


def test_nearly_every_tag_is_one_token() -> None:
    targets = [target for _, target in CORPUS.train]
    n_tags = sum(len(target.split()) for target in targets)
    assert n_tags <= sum(map(len, CORPUS.tokenizer.encode_batch(targets))) < 1.1 * n_tags


def test_targets_are_restored_from_their_tokens() -> None:
    for (_, target), tree in zip(CORPUS.valid, TREES[350:], strict=True):
        assert from_tags(CORPUS.tokenizer.decode(CORPUS.tokenizer.encode(target)), tree.words) == tree


def test_pairs_of_sentences_are_long_examples_too() -> None:
    (one, other), long = CORPUS.train[:2], CORPUS.train[350]
    assert len(CORPUS.train) == 350 + 175
    assert long == (f"{one[0]} {other[0]}", f"{one[1]} {other[1]}")
