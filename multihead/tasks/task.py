"""What a training run needs to know about a task: its text, vocabulary and settings, and examples to be tested on."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TypeVar

from multihead.config.schema import Settings
from multihead.data.parallel_text import Pair, ParallelText
from multihead.errors import UsageError, did_you_mean
from multihead.tasks.parsing import parsing_corpus
from multihead.tasks.questions import make_question
from multihead.tasks.sequences import SEQUENCE_TASKS
from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import Tree, read_trees
from multihead.text.tokenizer import SubwordTokenizer

Example = TypeVar("Example")

TASKS = (*SEQUENCE_TASKS, "parse", "questions")
N_VALID, N_TEST = 200, 500

# A small model that learns each task in a minute on two cores.
SMALL: Settings = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.n_heads": 4,
    "model.d_k": 16,
    "model.d_v": 16,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.dropout": 0.0,
    "data.clean": False,
    "data.tokenizer": "wordpiece",
    "data.source_lang": "en",
    "data.target_lang": "en",
    "data.batch_tokens": 2048,
    "train.label_smoothing": 0.0,
    "train.validate_every": 200,
    "train.bleu_sentences": 0,
    "train.alpha": 0.0,
}
# Digits have an order that is easier to learn from more examples; facts are long and take more steps.
N_TRAIN = {"questions": 20_000, "parse": 4_000}
STEPS = {"copy": 400, "reverse": 600, "sort": 600, "add": 1500, "parse": 500, "questions": 1500}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as a corpus; `settings` are those of its preset, which the user may change."""

    name: str
    text: ParallelText
    tokenizer: SubwordTokenizer
    settings: Settings
    test: Sequence[Pair] = ()  # source and target
    test_trees: Sequence[Tree] = field(default=(), repr=False)  # of a parser, in place of the pairs


def make_task(name: str) -> Task:
    """Return a task that is generated."""
    if name not in TASKS:
        raise UsageError(f"there is no task '{name}'{did_you_mean(name, list(TASKS))}")
    settings: Settings = {**SMALL, "train.steps": STEPS[name]}
    sizes = N_TRAIN.get(name, 20_000), N_VALID, N_TEST
    if name == "parse":
        train, valid, test = (list(read_trees(lines)) for lines in distinct(make_tree, sizes))
        corpus = parsing_corpus(train, valid)
        target = {"data.task": "parse", "data.target_lang": "tree"}
        text = as_text(name, corpus.train, corpus.valid)
        return Task(name=name, text=text, tokenizer=corpus.tokenizer, settings={**settings, **target}, test_trees=test)
    make_pair = SEQUENCE_TASKS.get(name, _question_pair)
    train_pairs, valid_pairs, test_pairs = distinct(make_pair, sizes)
    words = {word for pair in train_pairs for side in pair for word in side.split()}
    return Task(
        name=name,
        text=as_text(name, train_pairs, valid_pairs),
        tokenizer=SubwordTokenizer.from_words(words),
        settings=settings,
        test=test_pairs,
    )


def as_text(name: str, train: Sequence[Pair], valid: Sequence[Pair]) -> ParallelText:
    """Return pairs as text to prepare, identified by their content."""
    sides = [[(source.encode(), target.encode()) for source, target in pairs] for pairs in (train, valid)]
    content = [b"\n".join(side for pair in pairs for side in pair) for pairs in sides]
    return ParallelText(
        train=sides[0],
        valid=sides[1],
        sizes=[len(one) for one in content],
        sums=[hashlib.sha256(one).hexdigest() for one in content],
        description=f"task {name}: {len(train):,} generated pairs" if name in TASKS else "",
    )


def _question_pair(seed: int) -> Pair:
    question = make_question(seed)
    return question.text, question.answer


def distinct(make: Callable[[int], Example], sizes: Sequence[int]) -> list[list[Example]]:
    """Return examples in groups of these sizes; no example occurs in two groups."""
    unique: dict[Example, None] = {}
    for seed in count():
        if len(unique) == sum(sizes):
            break
        unique[make(seed)] = None
    examples = iter(unique)
    # Test examples are drawn first, so that the others can change without changing them.
    test, valid, train = (list(islice(examples, size)) for size in reversed(sizes))
    return [train, valid, test]
