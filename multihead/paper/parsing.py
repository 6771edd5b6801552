"""§6.3, Table 4: English constituency parsing with a Transformer of 4 layers, on any treebank."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from multihead.config.schema import Settings
from multihead.console import Log, Table
from multihead.errors import UsageError
from multihead.evaluation.accuracy import score_parser
from multihead.evaluation.brackets import BracketCounts, score_trees
from multihead.paper.table3_study import is_complete
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.model_folder import read_provenance
from multihead.tasks.parsing import parsing_corpus
from multihead.tasks.task import Task, as_text, distinct
from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import Tree, read_trees, right_branching
from multihead.text.lines import read_lines
from multihead.translation.parser import PARSING
from multihead.translation.translator import load

GENERATED = (4000, 200, 500)  # trees for training, validation and test if there is no treebank

# The paper's 4 layers, narrow enough for an hour on one core; words that occur four times leave little to memorize.
SETTINGS: Settings = {
    "model.encoder_layers": 4,
    "model.decoder_layers": 4,
    "model.d_model": 192,
    "model.d_ff": 512,
    "model.n_heads": 6,
    "model.dropout": 0.3,
    "data.task": "parse",
    "data.tokenizer": "wordpiece",
    "data.source_lang": "en",
    "data.target_lang": "tree",
    "data.clean": False,
    "data.batch_tokens": 2048,
    "train.alpha": PARSING.penalty,
    "train.validate_every": 250,
    "train.bleu_sentences": 200,
}


class PaperRow(NamedTuple):
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    parser: str
    training: str
    f1: float


TABLE_4 = (
    PaperRow("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    PaperRow("Petrov et al. (2006)", "WSJ only", 90.4),
    PaperRow("Zhu et al. (2013)", "WSJ only", 90.4),
    PaperRow("Dyer et al. (2016)", "WSJ only", 91.7),
    PaperRow("Transformer (4 layers)", "WSJ only", 91.3),
    PaperRow("Zhu et al. (2013)", "semi-supervised", 91.3),
    PaperRow("Huang & Harper (2009)", "semi-supervised", 91.3),
    PaperRow("McClosky et al. (2006)", "semi-supervised", 92.1),
    PaperRow("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    PaperRow("Transformer (4 layers)", "semi-supervised", 92.7),
    PaperRow("Luong et al. (2015)", "multi-task", 93.0),
    PaperRow("Dyer et al. (2016)", "generative", 93.3),
)
PAPER = next(row.f1 for row in TABLE_4 if row.parser.startswith("Transformer"))
DIFFERENCES = (
    "The paper: Wall Street Journal, 40,000 sentences, d_model 1024, 8 GPUs. Ours: the treebank given, d_model 192, "
    "parts of speech kept unless --plain-tags, each word with one tag in place of single brackets, signatures for rare "
    "words."
)


@dataclass(frozen=True, slots=True)
class Treebank:
    """Trees for training, for choosing settings, and for the final score."""

    train: Sequence[Tree]
    valid: Sequence[Tree]
    test: Sequence[Tree]


def read_treebank(files: Sequence[Path | None], keep_tags: bool) -> Treebank:
    """Return the trees of the three files, or generated ones if none is given; malformed lines are refused."""
    if not any(files):
        return Treebank(*(list(read_trees(lines, keep_tags)) for lines in distinct(make_tree, GENERATED)))
    if not all(files):
        raise UsageError("--trees, --valid and --test must be given together; without any, trees are generated")
    return Treebank(*(_read_file(file, keep_tags) for file in files if file))


def _read_file(file: Path, keep_tags: bool) -> list[Tree]:
    lines = [line.decode("utf-8", errors="replace") for line in read_lines(file)]
    if not lines:
        raise UsageError(f"{file} is empty; it takes one tree a line, in Penn Treebank brackets")
    return list(read_trees(lines, keep_tags, f"{file}, line"))


def spread(trees: Sequence[Tree], n: int | None) -> Sequence[Tree]:
    """Return `n` trees from all parts of a treebank, or all of them."""
    if n is None or n >= len(trees):
        return trees
    return [trees[index * len(trees) // n] for index in range(n)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsingRun:
    """A parser to train and score."""

    treebank: Treebank
    output: Path
    minutes: float
    settings: Settings = field(default_factory=dict)

    def request(self) -> TrainingRequest:
        """Return the training request; trees and settings identify the run."""
        corpus = parsing_corpus(self.treebank.train, self.treebank.valid)
        task = Task(
            name="parsing",
            text=as_text("parsing", corpus.train, corpus.valid),
            tokenizer=corpus.tokenizer,
            settings=SETTINGS,
        )
        return TrainingRequest(
            output=self.output, task=task, settings=self.settings, options={"train.minutes": self.minutes or None}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsingResult:
    """The scores of a parser, and what it cost."""

    trees: int
    minutes: float
    parameters: int
    scores: dict[str, BracketCounts]

    def as_json(self) -> dict[str, object]:
        """Return what `multihead paper parsing --json` prints."""
        return {
            "trees": self.trees,
            "minutes": self.minutes,
            "parameters": self.parameters,
            **{name: counts.as_json() for name, counts in self.scores.items()},
            "paper": [row._asdict() for row in TABLE_4],
            "difference_from_paper": round(self.scores["test"].f1 - PAPER, 1),
        }


def train_parser(run: ParsingRun, log: Log) -> ParsingResult:
    """Train a parser, or resume its run, and score it on the validation and the test trees."""
    request = run.request()
    if not is_complete(request):
        train(request)
    parser = load(run.output)
    treebank = run.treebank
    scores = {}
    for name, trees in (("valid", treebank.valid), ("test", treebank.test)):
        log(f"parsing {len(trees):,} {name} sentences with beam {PARSING.beam}")
        scores[name] = score_parser(parser, trees)
    scores["right_branching"] = score_trees((right_branching(tree), tree) for tree in treebank.test)
    provenance = read_provenance(run.output)
    return ParsingResult(
        trees=len(treebank.train),
        minutes=round((provenance.seconds or 0.0) / 60, 1),
        parameters=provenance.parameters or 0,
        scores=scores,
    )


def scores_table(result: ParsingResult) -> Table:
    """Return our scores."""
    rows = [
        [name.replace("_", " "), *(f"{value:.1f}" for value in (one.f1, one.precision, one.recall, one.exact_match))]
        for name, one in result.scores.items()
    ]
    title = f"{result.trees:,} training trees, {result.parameters / 1e6:.1f} million parameters, {result.minutes:g} min"
    return Table(header=["trees", "F1", "precision", "recall", "exact match"], rows=rows, title=title)


def paper_table(result: ParsingResult) -> Table:
    """Return the rows of Table 4, and ours."""
    ours = result.scores["test"].f1
    rows = [[row.parser, row.training, f"{row.f1:.1f}", f"{ours - row.f1:+.1f}"] for row in TABLE_4]
    rows.append(["ours (4 layers)", f"{result.trees:,} trees", f"{ours:.1f}", ""])
    return Table(
        header=["parser", "training", "F1", "ours against it"], rows=rows, title="Table 4", notes=[DIFFERENCES]
    )
