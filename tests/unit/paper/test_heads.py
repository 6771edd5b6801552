"""What heads do and what is lost without them, on a model that has learned to copy and to reverse."""

import json
import math
from pathlib import Path

import pytest
import torch

from multihead.config.schema import SearchConfig
from multihead.errors import UsageError, UserError
from multihead.inspection.ablation import heads_of, without_heads
from multihead.model.build import build_model
from multihead.paper.heads import (
    HeadReport,
    SampleLine,
    check_number,
    mean_log_prob,
    measure_heads,
    prune,
    read_test_set,
)
from multihead.paper.heads_picture import write_heads_picture
from multihead.text.constituency_trees import read_trees
from multihead.text.tokenizer import BOS_ID, EOS_ID
from multihead.translation.engine import Segment
from multihead.translation.translator import Translator, load
from tests.conftest import copy_or_reverse, tiny_shape, write_pairs

SEARCH = SearchConfig(beam=2, guard=False)
TREE = "(ROOT (S (NP (NN reverse)) (VP (VB a) (NP (NN b) (NN c)))))"


@pytest.fixture(scope="module")
def lines() -> list[SampleLine]:
    pairs = copy_or_reverse(20, seed=5)
    return [SampleLine(number=n, source=one, reference=other) for n, (one, other) in enumerate(pairs, start=1)]


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return load(trained, engine="torch")


@pytest.fixture(scope="module")
def report(translator: Translator, lines: list[SampleLine]) -> HeadReport:
    return measure_heads(translator, lines, SEARCH, lambda _: None)


# The log-probability


def test_the_mean_log_probability_is_that_of_each_token_after_the_true_ones() -> None:
    """By a loop over sentences and tokens, without batches and padding."""
    torch.manual_seed(1)
    model = build_model(tiny_shape()).eval()
    pairs = [([5, 6, 7], [8, 9]), ([10], []), ([11, 12, 13, 14, 15], [16, 17, 18, 19])]
    log_probs = []
    for source, target in pairs:
        written = [*target, EOS_ID]
        for step, token in enumerate(written):
            logits = model(torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *written[:step]]]))
            log_probs.append(float(logits[0, -1].log_softmax(dim=0)[token].detach()))
    found = mean_log_prob(model, [(Segment(source), target) for source, target in pairs])
    assert found == pytest.approx(math.fsum(log_probs) / len(log_probs), abs=1e-6)


# The report


def test_every_head_is_measured_once(report: HeadReport, translator: Translator) -> None:
    assert [one.role.place for one in report.heads] == heads_of(translator.models[0])
    assert report.sentences == 20


def test_what_is_lost_without_a_head_is_the_difference_to_the_whole_model(
    report: HeadReport, translator: Translator, lines: list[SampleLine]
) -> None:
    model, head = translator.models[0], report.heads[-1]
    pairs = [
        (translator.segmenter.encode_sentence(line.source), translator.tokenizer.encode(line.reference))
        for line in lines
    ]
    assert report.log_prob == pytest.approx(mean_log_prob(model, pairs), abs=1e-9)
    with without_heads(model, [head.role.place]):
        assert report.log_prob - head.log_prob_drop == pytest.approx(mean_log_prob(model, pairs), abs=1e-9)


def test_a_model_that_has_learned_its_task_needs_some_of_its_heads(report: HeadReport) -> None:
    assert report.bleu is not None and report.bleu > 90
    assert max(one.log_prob_drop for one in report.heads) > 0.1
    assert max(one.bleu_drop or 0.0 for one in report.heads) > 1


def test_the_model_is_as_before_afterwards(report: HeadReport, translator: Translator, lines: list[SampleLine]) -> None:
    again = measure_heads(translator, lines, SEARCH, lambda _: None, with_bleu=False)
    assert again.log_prob == report.log_prob
    assert again.bleu is None


def test_the_report_is_a_table_and_an_object(report: HeadReport) -> None:
    table = report.to_table()
    assert len(table.rows) == len(report.heads)
    assert {len(row) for row in table.rows} == {len(table.header)}
    heads = json.loads(json.dumps(report.as_json()))["heads"]
    assert heads[0].keys() == {"side", "layer", "head", "shares", "peak", "role", "log_prob_drop", "bleu_drop"}


def test_a_picture_is_drawn(report: HeadReport, tmp_path: Path) -> None:
    write_heads_picture(report, tmp_path / "heads.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_trees_add_the_weight_on_the_word_that_a_word_depends_on(translator: Translator) -> None:
    line = SampleLine(number=1, source="reverse a b c", reference="c b a", tree=next(read_trees([TREE])))
    report = measure_heads(translator, [line], SEARCH, lambda _: None, with_bleu=False)
    attention = translator.attention("reverse a b c", "c b a")
    assert attention.source_tokens == [" reverse", " a", " b", " c", "</s>"]
    for one in report.heads:
        if one.role.side == "encoder":  # reverse → a, b → c, c → a
            weights = attention.encoder[one.role.layer, one.role.head]
            expected = (weights[0, 1] + weights[2, 3] + weights[3, 1]) / 5
            assert one.role.shares["syntax"] == pytest.approx(float(expected), abs=1e-6)


def test_a_tree_of_other_words_is_refused_with_its_line(translator: Translator) -> None:
    line = SampleLine(number=4, source="copy a b", reference="a b", tree=next(read_trees([TREE])))
    with pytest.raises(UserError, match="line 4: the words of the tree are not those of the source"):
        measure_heads(translator, [line], SEARCH, lambda _: None)


# Pruning


def test_each_time_the_head_is_removed_without_which_the_least_is_lost(
    report: HeadReport, translator: Translator, lines: list[SampleLine]
) -> None:
    pruned = prune(translator, lines, SEARCH, report, 2, lambda _: None).pruned
    assert pruned
    least = min(report.heads, key=lambda one: one.log_prob_drop)
    assert pruned.removed[0] == least.role.place
    model = translator.models[0]
    pairs = [
        (translator.segmenter.encode_sentence(line.source), translator.tokenizer.encode(line.reference))
        for line in lines
    ]
    left = []
    for head in heads_of(model):
        if head != least.role.place:
            with without_heads(model, [least.role.place, head]):
                left.append((mean_log_prob(model, pairs), head))
    assert (pruned.log_prob, pruned.removed[1]) == max(left)
    assert pruned.bleu > 80


def test_at_least_one_head_remains(translator: Translator) -> None:
    with pytest.raises(UsageError, match=r"has 24 heads, and at least one has to remain"):
        check_number(translator, 24)


# The test set


def test_a_sample_is_taken_from_all_parts(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, [(f"s{n}", f"t{n}") for n in range(10)])
    found = read_test_set(source, target, sample=4)
    assert [(line.number, line.source, line.reference) for line in found] == [
        (1, "s0", "t0"),
        (3, "s2", "t2"),
        (6, "s5", "t5"),
        (8, "s7", "t7"),
    ]
    assert len(read_test_set(source, target, sample=99)) == 10


def test_lines_without_text_are_left_out(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, [("a", "b"), (" ", "b"), ("a", ""), ("c", "d")])
    assert [line.number for line in read_test_set(source, target)] == [1, 4]
    assert [line.number for line in read_test_set(source)] == [1, 3, 4]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_test_set_without_text_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "source").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="has no text to inspect"):
        read_test_set(tmp_path / "source", sample=5)


def test_files_of_different_lengths_are_refused(tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path, [("a", "b"), ("a", "b")])
    trees = tmp_path / "trees"
    trees.write_text(TREE + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="--source has 2 lines and --trees has 1"):
        read_test_set(source, trees=trees)


def test_a_malformed_tree_is_refused_with_its_line(tmp_path: Path) -> None:
    source, _ = write_pairs(tmp_path, [("reverse a b c", "x")] * 2)
    trees = tmp_path / "trees"
    trees.write_text(TREE + "\n(ROOT (NN a)\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"trees, line 2: 1 brackets are not closed"):
        read_test_set(source, trees=trees)
