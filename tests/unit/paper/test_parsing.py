"""§6.3: a parser is trained from a treebank, resumed, scored beside Table 4, and writes trees."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.errors import UserError
from multihead.evaluation.accuracy import score_parser
from multihead.paper.parsing import TABLE_4, read_treebank, spread
from multihead.storage.model_folder import read_config
from multihead.tasks.tree_grammar import make_tree
from multihead.text.constituency_trees import read_trees
from multihead.translation.parser import is_complete
from multihead.translation.translator import load
from tests.unit.paper.conftest import run

SMALL = [
    *("--set", "train.steps=150", "--set", "model.d_model=32", "--set", "model.n_heads=1", "--set", "model.d_ff=64"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1", "--set", "data.batch_tokens=1024"),
    *("--set", "train.warmup=10", "--set", "model.dropout=0", "--set", "train.label_smoothing=0"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the options that name three files of trees."""
    folder = tmp_path_factory.mktemp("trees")
    options = []
    for name, seeds in (("trees", range(20, 600)), ("valid", range(10)), ("test", range(10, 20))):
        file = folder / f"{name}.ptb"
        file.write_text("".join(f"{make_tree(seed)}\n" for seed in seeds), encoding="utf-8")
        options += [f"--{name}", str(file)]
    return options


@pytest.fixture(scope="module")
def parser(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a trained parser and what the command printed."""
    folder = tmp_path_factory.mktemp("parser") / "run"
    return folder, run("parsing", *files, "--output", folder, *SMALL, "--json")


def test_table_4_is_the_papers() -> None:
    assert {row.training: row.f1 for row in TABLE_4 if row.parser.startswith("Transformer")} == {
        "WSJ only": 91.3,
        "semi-supervised": 92.7,
    }


@pytest.mark.long
def test_a_parser_is_scored_beside_the_paper(parser: tuple[Path, str]) -> None:
    folder, printed = parser
    result = json.loads(printed)
    assert result["trees"] == 580
    assert result["test"]["sentences"] == 10
    assert result["test"]["f1"] > result["right_branching"]["f1"]
    assert result["difference_from_paper"] == pytest.approx(result["test"]["f1"] - 91.3, abs=0.06)
    assert read_config(folder).data.task == "parse"


@pytest.mark.long
def test_a_complete_parser_is_scored_again_without_training(parser: tuple[Path, str], files: list[str]) -> None:
    folder, printed = parser
    weights = (folder / "model.safetensors").stat().st_mtime_ns
    again = run("parsing", *files, "--output", folder, *SMALL, "--json")
    assert json.loads(again) == json.loads(printed)
    assert (folder / "model.safetensors").stat().st_mtime_ns == weights


@pytest.mark.long
def test_a_parser_writes_a_tree_of_the_words(parser: tuple[Path, str]) -> None:
    model = load(parser[0])
    parsed = model.translate("The cat (unseen) slept. It sang!")
    assert [tree.words for tree in parsed.trees] == [
        ["The", "cat", "(", "unseen", ")", "slept", "."],
        ["It", "sang", "!"],
    ]
    assert parsed.text.count("(ROOT") == 2
    assert not parsed.warnings
    assert model.translate("").text == ""


@pytest.mark.long
def test_alternatives_are_other_trees(parser: tuple[Path, str]) -> None:
    parsed = load(parser[0]).translate("the cat slept .", beam=4, n_best=3)
    assert len({parsed.text, *(one.text for one in parsed.alternatives)}) == 1 + len(parsed.alternatives) <= 3


@pytest.mark.long
def test_a_tree_can_be_drawn(parser: tuple[Path, str]) -> None:
    command = ["translate", str(parser[0]), "--draw", "the cat slept ."]
    drawn = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert drawn.startswith("ROOT\n") and "the" in drawn and "──" in drawn


@pytest.mark.long
def test_evaluate_scores_the_brackets_of_a_parser(parser: tuple[Path, str], files: list[str], tmp_path: Path) -> None:
    trees = Path(files[-1])
    source = tmp_path / "words.txt"
    lines = trees.read_text(encoding="utf-8").splitlines()
    source.write_text("".join(" ".join(tree.words) + "\n" for tree in read_trees(lines)), encoding="utf-8")
    options = ["--source", str(source), "--reference", str(trees), "--beam", "21", "--alpha", "0.3", "--json"]
    report = CliRunner().invoke(app, ["evaluate", str(parser[0]), *options], catch_exceptions=False)
    assert json.loads(report.stdout)["scores"][0]["value"] == pytest.approx(
        json.loads(parser[1])["test"]["f1"], abs=0.01
    )


def test_a_sequence_is_complete_if_it_is_a_tree_of_all_words() -> None:
    assert is_complete("(S(NP*) *)", 2)
    assert not any(map(is_complete, ["(S*", "*)(", "(S*)"], [1, 1, 2]))


def test_only_a_parser_is_scored_as_one(trained: Path) -> None:
    with pytest.raises(UserError, match="is not a parser"):
        score_parser(load(trained), list(read_trees([make_tree(1)])))


def test_a_sample_is_taken_from_all_parts() -> None:
    trees = list(read_trees([make_tree(seed) for seed in range(10)]))
    assert spread(trees, 3) == [trees[0], trees[3], trees[6]]
    assert spread(trees, None) == spread(trees, 99) == trees


def test_a_malformed_tree_is_refused_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "a.ptb"
    file.write_text("(ROOT (NN a))\n(ROOT (NN a)\n")
    with pytest.raises(UserError, match=r"a\.ptb, line 2: 1 brackets are not closed"):
        read_treebank([file, file, file], keep_tags=True)
