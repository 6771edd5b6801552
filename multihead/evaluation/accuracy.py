"""Accuracy of a model on the held-out examples of its task."""

from collections.abc import Sequence
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.evaluation.brackets import BracketCounts, score_trees
from multihead.tasks.task import Task
from multihead.text.constituency_trees import Tree
from multihead.translation.parser import BATCH, PARSING
from multihead.translation.translator import Translator, load

# Sequences of digits copy their sources and repeat themselves, which the guard would take for faults.
GREEDY = SearchConfig(beam=1, guard=False, split=False)


def test_task(folder: Path, task: Task) -> str:
    """Return the score of a model on the examples of its task that it was not trained on, as one line."""
    translator = load(folder)
    if task.test_trees:
        counts = score_parser(translator, task.test_trees, GREEDY)
        return (
            f"labeled F1 {counts.f1:.1f}, exact match {counts.exact_match:.1f}% of {counts.sentences:,} held-out trees"
        )
    answers = translator.stream([source for source, _ in task.test], GREEDY)
    n_correct = sum(answer.text == target for answer, (_, target) in zip(answers, task.test, strict=True))
    return f"accuracy {100 * n_correct / len(task.test):.1f}% of {len(task.test):,} held-out examples"


def score_parser(translator: Translator, trees: Sequence[Tree], config: SearchConfig = PARSING) -> BracketCounts:
    """Return the counts of the trees that a parser finds for the words of reference trees."""
    if translator.parser is None:
        raise UserError(f"{translator.name} is not a parser: train one with `multihead paper parsing`")
    found: list[Tree] = []
    for begin in range(0, len(trees), BATCH):
        sentences = [tree.words for tree in trees[begin : begin + BATCH]]
        found += [parsed.trees[0] for parsed in translator.parser.parse(sentences, config)]
    return score_trees(zip(found, trees, strict=True))
