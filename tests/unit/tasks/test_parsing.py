"""Trees as a parallel corpus: one token for each word, and for nearly every tag."""

from multihead.tasks.parsing import known_words, parsing_corpus
from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import from_tags, is_tag, read_trees, tags_of
from multihead.text.treebank_words import signatures

TREES = list(read_trees([make_tree(seed) for seed in range(400)]))
CORPUS = parsing_corpus(TREES[:350], TREES[350:])


def test_every_word_is_one_token() -> None:
    for source, _ in [*CORPUS.train, *CORPUS.valid]:
        assert len(CORPUS.tokenizer.encode(source)) == len(source.split())


def test_a_target_has_each_word_of_its_source_followed_by_a_tag() -> None:
    for source, target in [*CORPUS.train, *CORPUS.valid]:
        assert target.split()[::2] == source.split()
        assert all(map(is_tag, target.split()[1::2]))


def test_nearly_every_tag_is_one_token() -> None:
    targets = [target for _, target in CORPUS.train]
    n_tokens = sum(len(target.split()) for target in targets)
    assert n_tokens <= sum(map(len, CORPUS.tokenizer.encode_batch(targets))) < 1.05 * n_tokens


def test_words_that_look_like_tags_are_replaced() -> None:
    *_, mark = signatures("*")
    assert known_words(["a", "*"], ["a", "*", mark].__contains__) == ["a", mark]


def test_targets_are_restored_from_their_tokens() -> None:
    for (_, target), tree in zip(CORPUS.valid, TREES[350:], strict=True):
        written = CORPUS.tokenizer.decode(CORPUS.tokenizer.encode(target))
        assert from_tags(tags_of(written), tree.words) == tree


def test_pairs_of_sentences_are_long_examples_too() -> None:
    (one, other), long = CORPUS.train[:2], CORPUS.train[350]
    assert len(CORPUS.train) == 350 + 175
    source, target = long
    assert tags_of(target) == tags_of(f"{one[1]} {other[1]}")
    for word, written in zip(f"{one[0]} {other[0]}".split(), source.split(), strict=True):
        assert written == word or written in signatures(word)
