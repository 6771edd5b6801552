"""The lesson without a model in Chromium: the slides' numbers digit for digit, and the labs."""

from typing import TYPE_CHECKING

import pytest
import sacrebleu

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def cells(tab: "Page", name: str) -> list[list[str]]:
    rows = tab.locator(f'[data-matrix="{name}"] tbody tr')
    return [row.locator("[data-cell]").all_inner_texts() for row in rows.all()]


def table(text: str) -> list[list[str]]:
    return [row.split() for row in text.split("/")]


TOY = {
    "Q": "1 0 2 / 2 2 2 / 2 1 3",
    "K": "0 1 1 / 4 4 0 / 2 3 1",
    "V": "1 2 3 / 2 8 0 / 2 6 3",
    "scores": "2 4 4 / 4 16 12 / 4 12 10",
    "weights": "0.0634 0.4683 0.4683 / 0.0000 0.9820 0.0180 / 0.0003 0.8805 0.1192",
    "output": "1.9366 6.6831 1.5951 / 2.0000 7.9640 0.0540 / 1.9997 7.7599 0.3584",
    "grid-softmax": "1.0000 0.0000 0.0000 0.0000 / 0.0000 1.0000 0.0000 0.0000 / "
    "0.0000 0.0000 1.0000 0.0000 / 0.0000 0.0000 0.0000 1.0000",
    "grid-divided": "0.9998 0.0001 0.0000 0.0000 / 0.0004 0.9389 0.0007 0.0600 / "
    "0.0000 0.0005 0.9897 0.0097 / 0.0000 0.0417 0.0082 0.9500",
    "masked-softmax": "1.0000 0.0000 0.0000 0.0000 / 0.3775 0.6225 0.0000 0.0000 / "
    "0.2584 0.3156 0.4260 0.0000 / 0.2144 0.2619 0.2619 0.2619",
}


@pytest.mark.parametrize("name", TOY)
def test_every_figure_of_the_slides_is_on_the_page(toy: "Page", name: str) -> None:
    assert cells(toy, name) == table(TOY[name])


def test_the_paper_divides_by_the_root_of_d_k(toy: "Page") -> None:
    toy.check("#toy-scaled")
    assert cells(toy, "weights") == table("0.1361 0.4319 0.4319 / 0.0009 0.9088 0.0903 / 0.0074 0.7547 0.2378")
    assert cells(toy, "output") == table("1.8639 6.3194 1.7042 / 1.9991 7.8141 0.2735 / 1.9926 7.4796 0.7359")


def test_weights_rounded_to_one_digit_give_the_outputs_of_the_slide(toy: "Page") -> None:
    toy.check("#toy-rounded")
    assert cells(toy, "output") == table("2.0000 7.0000 1.5000 / 2.0000 8.0000 0.0000 / 2.0000 7.8000 0.3000")


def test_the_strict_mask_of_the_notes_leaves_the_first_word_nothing(toy: "Page") -> None:
    toy.check("#toy-strict")
    assert cells(toy, "masked-softmax")[0] == ["0/0"] * 4


def test_an_edited_number_changes_exactly_what_depends_on_it(toy: "Page") -> None:
    names = ["Q", "K", "V", "scores", "weights", "output", "grid-softmax", "grid-divided", "masked-softmax"]
    before = {name: cells(toy, name) for name in names}
    toy.fill('[data-cell="w_value-0-0"]', "5")
    toy.press('[data-cell="w_value-0-0"]', "Enter")
    after = {name: cells(toy, name) for name in names}
    changed = {name for name in names if before[name] != after[name]}
    assert changed == {"V", "output"}
    columns = {(i, j) for i in range(3) for j in range(3) if before["V"][i][j] != after["V"][i][j]}
    assert columns == {(0, 0), (2, 0)}  # the rows of x that have a 1 in their first entry
    toy.click("#toy-reset")
    assert {name: cells(toy, name) for name in names} == before


def test_cells_that_an_edit_changed_are_marked(toy: "Page") -> None:
    toy.click("#toy-reset")  # once more: the fixture's reset marks what it takes back
    assert toy.locator(".changed").count() == 0
    toy.fill('[data-cell="w_value-0-0"]', "5")
    toy.press('[data-cell="w_value-0-0"]', "Enter")
    marked = toy.locator(".changed").evaluate_all("cells => cells.map(cell => cell.dataset.cell)")
    assert marked == ["V-0-0", "V-2-0", "output-0-0", "output-1-0", "output-2-0"]


def test_words_as_columns_are_the_same_numbers_transposed(toy: "Page") -> None:
    before = {name: cells(toy, name) for name in ("Q", "scores", "output", "grid-softmax")}
    toy.check("#toy-columns")
    after = {name: cells(toy, name) for name in before}
    assert after["grid-softmax"] == before["grid-softmax"]
    for name in ("Q", "scores", "output"):
        assert after[name] == [list(column) for column in zip(*before[name], strict=True)]
    toy.fill('[data-cell="x-0-1"]', "3")  # the inputs are still those of the same word
    toy.press('[data-cell="x-0-1"]', "Enter")
    toy.uncheck("#toy-columns")
    assert toy.input_value('[data-cell="x-0-1"]') == "3"


def test_two_digits_are_those_of_the_exact_numbers(toy: "Page") -> None:
    exact = cells(toy, "weights")
    toy.check("#toy-short")
    assert cells(toy, "weights") == [[f"{float(x):.2f}" for x in row] for row in exact]


def test_a_cell_explains_itself_in_words(toy: "Page") -> None:
    toy.click('[data-cell="scores-0-1"]')
    assert "q1·k2 = 1·4 + 0·4 + 2·0 = 4" in toy.inner_text('[data-matrix="scores"]')


def test_every_mistake_can_be_opened(toy: "Page") -> None:
    details = toy.locator("details[id^=mistake]")
    assert details.count() == 14
    for one in details.all():
        one.locator("summary").click()
        assert len(one.locator("p").inner_text()) > 30


def test_a_link_keeps_the_numbers_that_were_changed(toy: "Page") -> None:
    toy.fill('[data-cell="w_value-0-0"]', "5")
    toy.press('[data-cell="w_value-0-0"]', "Enter")
    toy.check("#toy-scaled")
    toy.click('[data-cell="mask-1-0"]')
    link, before = toy.evaluate("location.hash"), toy.inner_text("#step")
    toy.click("#toy-reset")
    assert "toy" not in toy.evaluate("new URLSearchParams(location.hash.slice(1)).keys().toArray()")
    toy.evaluate("link => { location.hash = link }", link)
    toy.wait_for_selector('[data-cell="mask-1-0"].masked')
    assert toy.inner_text("#step") == before
    assert toy.input_value('[data-cell="w_value-0-0"]') == "5"
    toy.click("#toy-reset")


@pytest.mark.parametrize(
    "link", ["x.9.9=1", "x=3", "__proto__.x=1", "x.length=0", "mask.1=7", "x.0.0=", "x.0.0=NaN", "=;;=="]
)
def test_a_link_with_other_numbers_changes_nothing(toy: "Page", link: str) -> None:
    before = toy.inner_text("#step")
    toy.evaluate("link => { location.hash = 'mode=toy&toy=' + encodeURIComponent(link) }", link)
    toy.evaluate("() => new Promise(wake => setTimeout(wake, 50))")
    assert toy.inner_text("#step") == before


# Labs

TREE_LABS = ("chance", "tree", "parsing")
TIMES = "\u00d7"


def test_the_bleu_of_the_lab_is_sacrebleus(toy: "Page") -> None:
    toy.click("#mode-labs")
    toy.click("#lab-bleu")
    candidate, reference = "the cat sat on the red mat today", "the cat sat on the mat today ."
    toy.fill("#bleu-candidate", candidate)
    toy.fill("#bleu-reference", reference)
    toy.press("#bleu-reference", "Enter")
    expected = sacrebleu.corpus_bleu([candidate], [[reference]], tokenize="none", smooth_method="none").score
    assert toy.inner_text('[data-cell="bleu"]') == f"BLEU {expected:.2f}"


def test_the_variance_of_dot_products_is_d_k(toy: "Page") -> None:
    variance = toy.evaluate("[1, 16, 64, 256].map(d => lesson.tools.scalingExperiment(d).variance / d)")
    assert variance == pytest.approx([1.0] * 4, abs=0.12)


@pytest.mark.parametrize(
    "lab", ["scaling", "positions", "paths", "sparse", "align", "schedule", "smoothing", "bleu", *TREE_LABS]
)
def test_every_lab_opens(toy: "Page", lab: str) -> None:
    toy.click("#mode-labs")
    toy.click(f"#lab-{lab}")
    assert len(toy.inner_text("#step")) > 150


def test_linformer_has_weights_for_fewer_mixtures_than_keys(toy: "Page") -> None:
    toy.click("#mode-labs")
    toy.click("#lab-sparse")
    toy.select_option("#sparse-kind", "linformer")
    assert toy.locator(".matrix .size").all_inner_texts() == [f"8 {TIMES} 24", f"24 {TIMES} 8"]
    toy.locator(".matrix").nth(1).get_by_text("Numbers").click()
    row = toy.locator(".matrix").nth(1).locator("tbody tr").first.locator("td").all_inner_texts()
    assert sum(map(float, row)) == pytest.approx(1, abs=0.005 * len(row))


def test_a_dependency_tree_is_measured(toy: "Page") -> None:
    toy.click("#mode-labs")
    toy.click("#lab-tree")
    depths, distances = toy.locator(".matrix").all()
    assert depths.locator("td[data-row]").all_inner_texts() == ["2", "1", "0", "2", "1", "1"]
    first = distances.locator("tbody tr").first
    assert first.locator("td").all_inner_texts() == ["0", "1", "2", "4", "3", "3"]  # from "A" to "a": up two, down two
    toy.fill("#tree-heads", "2 1 0 5 3 3")
    toy.press("#tree-heads", "Enter")
    assert "do not make one tree" in toy.inner_text("#step")


def test_trees_are_compared_by_their_labeled_spans(toy: "Page") -> None:
    toy.click("#mode-labs")
    toy.click("#lab-parsing")
    assert "6 spans match: precision 1.000, recall 0.857, F1 92.3" in toy.inner_text('[data-cell="f1"]')
    assert "(S (NP XX XX )NP (VP XX (NP" in " ".join(toy.inner_text("#step").split())


def test_more_sentences_leave_less_to_chance(toy: "Page") -> None:
    spread = toy.evaluate(
        """() => [100, 2500].map((n) => {
          const found = lesson.tools.resample(n, 4), mean = found.reduce((a, b) => a + b) / found.length;
          return Math.sqrt(found.reduce((sum, x) => sum + (x - mean) ** 2, 0) / found.length);
        })"""
    )
    assert spread[0] / spread[1] == pytest.approx(5, rel=0.15)  # the root of 25
