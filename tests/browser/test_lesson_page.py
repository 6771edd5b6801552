"""The lesson as a page in Chromium: beam search, links, keyboard, narrow screens, dark mode, hostile text, axe."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from multihead.inspection.trace import record_trace
from multihead.interop.hub import find_model
from multihead.lesson import page as lesson_page
from multihead.lesson.explain import code_excerpts, measure_roles, sample, write_lesson, write_toy_lesson
from multihead.storage.model_folder import ModelFolder
from multihead.translation.engine import length_penalty
from tests.browser.conftest import HOSTILE, WIDE, make_model, open_lesson, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

N_STATIONS = 22
N_LABS = 11
MINUS = "\u2212"


def test_figure_1_of_a_model_with_pre_norm_says_so(tab: "Page", tmp_path: Path) -> None:
    folder, _ = make_model(tmp_path / "model", norm="pre")
    write_lesson(folder, "the old house", tmp_path / "page.html")
    open_lesson(tab, tmp_path / "page.html", "s=11")
    assert tab.locator("#map").get_by_text("Norm first, add").count() == 5
    assert "pre-norm" in tab.inner_text("#side .differs")


def test_the_best_leaf_of_the_tree_is_the_translation(lesson: "Page") -> None:
    found = lesson.evaluate(
        """() => {
          const {found, tokenizer} = lesson.app, ids = [];
          const leaves = found.nodes.filter(node => node.state === "finished").sort((a, b) => b.score - a.score);
          for (let node = leaves[0]; node.parent !== null; node = found.nodes[node.parent]) ids.unshift(node.token);
          return [tokenizer.decode(ids).trim(), found.text];
        }"""
    )
    assert found[0] == found[1]


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_another_length_penalty_ranks_the_leaves_as_python_does(lesson: "Page", alpha: float) -> None:
    ranked, nodes = lesson.evaluate(
        "alpha => [lesson.tools.rerank(lesson.app.found.nodes, alpha), lesson.app.found.nodes]", alpha
    )
    leaves = [node for node in nodes if node["state"] == "finished"]
    scores = {node["id"]: node["logProb"] / float(length_penalty(node["depth"], alpha)) for node in leaves}
    assert [one["node"] for one in ranked] == sorted(scores, key=lambda id: -scores[id])
    assert [one["score"] for one in ranked] == pytest.approx(sorted(scores.values(), reverse=True))


def test_a_beam_of_one_is_a_path(lesson: "Page") -> None:
    kept = lesson.evaluate(
        """() => {
          const {model, tokenizer} = lesson.app;
          const {nodes} = lesson.tools.translate(model, tokenizer, "Where is the station?", {beam: 1});
          const depths = nodes.filter(node => node.state !== "pruned").map(node => node.depth);
          return new Set(depths).size === depths.length;
        }"""
    )
    assert kept


def test_a_forced_word_is_in_the_translation(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 18, q: 'Where is the station?'})")
    node = lesson.locator(".tree .node.pruned").first
    word = (node.get_attribute("aria-label") or "").split(",")[0]
    node.click()
    assert re.search(rf"With forced words: .*{re.escape(word)}", lesson.inner_text("#step"))


# Stations


def test_every_station_is_reached_by_keyboard(lesson: "Page") -> None:
    titles = []
    for _ in range(N_STATIONS):
        titles.append(lesson.inner_text("#step h1"))
        assert len(lesson.inner_text(".station")) > 20
        lesson.keyboard.press("ArrowRight")
    assert len(set(titles)) == N_STATIONS


def test_a_link_restores_a_view(tab: "Page", lesson_file: Path, lesson: "Page") -> None:
    link = "s=8&side=cross&layer=1&head=2&row=3&q=I+am+fine.&cell=decoder.1.cross.weights|2|1|0"
    open_lesson(tab, lesson_file, link)
    assert tab.inner_text("#step h1") == "Softmax"
    assert tab.inner_text("#trail .value").startswith("decoder.1.cross.weights[2, 1, 0]")
    own = tab.evaluate("location.hash.slice(1)")
    lesson.evaluate("link => { location.hash = link }", own)
    wait_until(lesson, "lesson.app.run.text === 'I am fine.' && lesson.app.trail.length === 1")
    assert lesson.inner_text("#main") == tab.inner_text("#main")
    assert lesson.inner_text("#trail") == tab.inner_text("#trail")


def test_a_cell_opened_by_keyboard_keeps_the_focus(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(5)")
    cell = lesson.locator('[data-tensor="encoder.0.self.products"] td[tabindex="0"]')
    cell.focus()
    lesson.keyboard.press("ArrowRight")
    lesson.keyboard.press("Enter")
    assert lesson.inner_text("#trail .value").startswith("encoder.0.self.products[0, 0, 1]")
    assert lesson.evaluate("document.activeElement.dataset.column") == "1"
    lesson.click('[data-focus="other-0"]')
    assert lesson.inner_text("#trail .value").startswith("encoder.0.self.k[0, 1")


def test_masked_cells_are_hatched_and_marked(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(7)")
    n = lesson.evaluate("lesson.app.run.read.length")
    masked = lesson.locator('[data-tensor="decoder.0.self.masked"] td.masked')
    assert masked.all_inner_texts() == [f"{MINUS}∞"] * (n * (n - 1) // 2)
    lesson.evaluate("lesson.app.go(8)")
    hidden = lesson.locator('[data-tensor="decoder.0.self.weights"] td.masked')
    assert hidden.all_inner_texts() == ["0"] * (n * (n - 1) // 2)


def test_a_row_of_the_softmax_is_computed_step_by_step(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 8, side: 'cross', row: 1})")
    figure = lesson.locator(".matrix", has_text="step by step")
    scores, powers, shares = (
        [float(x.replace(MINUS, "-")) for x in row.locator("td").all_inner_texts()]
        for row in figure.locator("tbody tr").all()
    )
    assert powers == pytest.approx(np.exp(scores), rel=0.02, abs=0.01)
    assert shares == pytest.approx(np.array(powers) / sum(powers), abs=0.01)
    assert sum(shares) == pytest.approx(1, abs=0.03)


def test_a_picture_turns_into_a_table(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(2)")
    figure = lesson.locator('[data-tensor="source.embedding"]')
    figure.get_by_text("Numbers").click()
    assert figure.locator("tbody tr").count() == lesson.evaluate("lesson.app.run.source.length")
    assert figure.locator("tbody tr").first.locator("td").count() == 128


def test_every_number_of_a_wide_matrix_is_written_at_the_deepest_level(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 2, depth: 'every'})")
    figure = lesson.locator('[data-tensor="source.scaled"]')
    d_model = lesson.evaluate("lesson.app.about.config.d_model")
    assert figure.locator("tbody tr").first.locator("td").count() == d_model
    lesson.evaluate("lesson.app.update({depth: 'numbers'})")
    assert figure.locator("tbody tr").count() == 0


def test_the_scaled_embedding_has_the_colors_of_the_one_before(lesson: "Page") -> None:
    """Or the factor would not be seen."""
    sizes = lesson.evaluate(
        """async () => {
          await lesson.app.update({s: 2});
          await new Promise(requestAnimationFrame);
          return ["embedding", "scaled"].map((name) => {
            const canvas = document.querySelector(`[data-tensor="source.${name}"] canvas`);
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return data.filter((_, i) => i % 4 === 3).reduce((sum, alpha) => sum + alpha, 0);
          });
        }"""
    )
    assert sizes[1] > 5 * sizes[0] > 0


def test_the_histogram_counts_every_score_of_the_head(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(6)")
    n = lesson.evaluate("lesson.app.run.source.length")
    figure = lesson.locator(".matrix", has_text="are near each value")
    for row in figure.locator("tbody tr").all():
        assert sum(int(x) for x in row.locator("td").all_inner_texts()) == n * n


def test_the_queries_of_all_heads_are_the_columns_of_one_product(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 4, head: 1})")
    figure = lesson.locator(".matrix", has_text="Queries of all heads")
    figure.get_by_text("Numbers").click()
    shown = float(figure.locator("tbody tr").nth(2).locator("td").nth(32 + 5).inner_text().replace(MINUS, "-"))
    width = lesson.evaluate("lesson.app.about.config.d_k")
    assert width == 32
    value = lesson.evaluate(
        "() => { const {shape: [, n, K], data} = lesson.tensor('encoder.0.self.q'); return data[(n + 2) * K + 5]; }"
    )
    assert shown == pytest.approx(value, abs=0.005)


def test_several_heads_are_switched_off_together(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 20, side: 'cross', layer: 1})")
    changes = []
    for head in range(4):
        lesson.click(f'[data-focus="off-{head}"]')
        wait_until(lesson, f"document.querySelector('.outcome .note')?.textContent.includes('head {head + 1}')")
        changes.append(float(lesson.locator(".outcome dd").nth(2).inner_text().replace(MINUS, "-")))
    whole = lesson.evaluate(
        """async () => {
          const {run, runner, found} = lesson.app;
          const request = {text: run.text, options: {beam: 4, alpha: 0.6}, source: run.source};
          const change = {attention: new Set(["decoder.1.cross"])};
          return (await runner.run("outcome", {...request, target: run.written.slice(0, -1), change})).difference;
        }"""
    )
    assert changes[3] == pytest.approx(whole, abs=0.001)  # all four: as if the sub-layer were off
    assert len(set(changes)) == 4
    lesson.click('[data-focus="knob-ffn"]')
    assert lesson.locator('[data-focus^="off-"][aria-pressed="true"]').count() == 0


def test_a_uniform_row_has_equal_weights_where_the_mask_allows(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 20, side: 'decoder', layer: 1, head: 2})")
    lesson.select_option("#query", "3")
    lesson.click("#uniform")
    wait_until(lesson, "document.querySelector('.outcome dd')")
    shown = float(lesson.locator(".outcome dd").nth(2).inner_text().replace(MINUS, "-"))
    expected = lesson.evaluate(
        """async () => {
          const {run, runner} = lesson.app;
          const row = run.read.map((_, key) => ({head: 2, query: 3, key, weight: key <= 3 ? 1 / 4 : 0}));
          const change = {weights: new Map([["decoder.1.self", row]])};
          const request = {text: run.text, options: {beam: 4, alpha: 0.6}, source: run.source};
          return (await runner.run("outcome", {...request, target: run.written.slice(0, -1), change})).difference;
        }"""
    )
    assert shown == pytest.approx(expected, abs=0.001)
    assert expected != 0


def test_a_printed_worksheet_leaves_numbers_to_compute(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(8)")
    lesson.emulate_media(media="print")
    color = "(cell) => getComputedStyle(cell).color"
    weights = lesson.locator(".station .matrix.cells").last.locator("tbody tr")
    assert weights.nth(1).locator("td").first.evaluate(color) == "rgba(0, 0, 0, 0)"
    assert weights.nth(0).locator("td").first.evaluate(color) != "rgba(0, 0, 0, 0)"
    scores = lesson.locator(".station .matrix.cells").first.locator("tbody tr").nth(1)
    assert scores.locator("td").first.evaluate(color) != "rgba(0, 0, 0, 0)"
    lesson.emulate_media(media="screen")


def test_knobs_are_not_printed(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(18)")
    lesson.emulate_media(media="print")
    assert not lesson.locator("#beam-width").is_visible()
    lesson.emulate_media(media="screen")
    assert lesson.locator("#beam-width").is_visible()


def test_what_if_shows_the_old_and_the_new_translation(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(20)")
    lesson.click('[data-focus="knob-cross"]')
    lesson.wait_for_selector(".outcome dd")
    before, after, difference = lesson.locator(".outcome dd").all_inner_texts()
    assert before == lesson.inner_text(".translation")
    assert after != before
    assert float(difference.replace(MINUS, "-")) < -5


def test_without_positions_the_reverse_order_has_the_same_translation(lesson: "Page") -> None:
    own, reverse = lesson.evaluate(
        """() => {
          const {model, run} = lesson.app, change = {positions: false}, ids = run.source;
          const search = (source) => lesson.tools.beamSearch(model, source, {change}).hypotheses[0];
          return [search(ids), search([...ids.slice(0, -1).reverse(), ids.at(-1)])];
        }"""
    )
    assert own["ids"] == reverse["ids"]
    assert own["score"] == pytest.approx(reverse["score"], abs=1e-4)


def test_one_vector_of_memory_makes_the_translation_less_likely(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(20)")
    lesson.click('[data-focus="knob-memory"]')
    lesson.wait_for_selector(".outcome dd")
    difference = lesson.locator(".outcome dd").all_inner_texts()[2]
    assert float(difference.replace(MINUS, "-")) < -1


def test_heads_through_their_own_part_of_the_matrix_add_up_to_the_output(lesson: "Page") -> None:
    for side in ("encoder", "decoder", "cross"):
        lesson.evaluate("side => lesson.app.update({s: 10, side})", side)
        assert re.search(r"difference: (0|.*10⁻[⁷⁸⁹])\.$", lesson.inner_text("#separate"))


def test_the_logit_of_a_word_is_the_product_with_its_row(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 16, t: 2})")
    shown = re.search(r"add up to (\S+): the logit", lesson.inner_text(".station"))
    logit = lesson.evaluate(
        "() => { const {run, about} = lesson.app;"
        " return run.graph.get('logits').data[2 * about.config.vocab_size + run.written[2]]; }"
    )
    assert shown
    assert float(shown[1].replace(MINUS, "-")) == pytest.approx(logit, abs=1e-3)


def test_a_matrix_is_saved_as_a_drawing(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.update({s: 8, q: 'I <b>am</b> fine.'})")
    with lesson.expect_download() as saved:
        lesson.locator('[data-tensor="encoder.0.self.weights"]').get_by_text("SVG").click()
    picture = ElementTree.parse(saved.value.path()).getroot()
    n = lesson.evaluate("lesson.app.run.source.length")
    assert len(picture.findall("{*}rect")) == n * n
    assert saved.value.suggested_filename == "Weights.svg"


def test_head_roles_over_many_sentences_are_shown(tab: "Page", tmp_path: Path) -> None:
    shares = {"same": 0.5, "previous": 0.25, "next": 0.125, "end": 0.0}
    heads = [{"side": "encoder", "layer": 0, "head": 0, "shares": shares, "peak": 0.75}]
    folder, _ = make_model(tmp_path / "model")
    write_lesson(folder, "a small house", tmp_path / "page.html", {"sentences": 60, "heads": heads})
    open_lesson(tab, tmp_path / "page.html", "s=19")
    figure = tab.locator(".matrix", has_text="Over 60 sentences")
    assert figure.locator("td[data-row]").all_inner_texts() == ["0.50", "0.25", "0.13", "0", "0.75"]
    tab.evaluate("lesson.app.update({side: 'cross'})")
    assert figure.count() == 0


@pytest.mark.long
def test_heads_of_the_lesson_are_measured_when_its_page_is_written() -> None:
    roles = measure_roles(ModelFolder.open(find_model("lesson")))
    assert roles is not None
    assert (roles["sentences"], len(roles["heads"])) == (60, 24)
    assert all(0 <= share <= 1 for head in roles["heads"] for share in [*head["shares"].values(), head["peak"]])


def test_every_head_is_measured(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(20)")
    lesson.click("#importance")
    lesson.wait_for_selector(".station .bars li")
    assert lesson.locator(".station .bars li").count() == 24


def test_hostile_text_is_inert(lesson: "Page") -> None:
    lesson.fill("#sentence", HOSTILE)
    lesson.press("#sentence", "Enter")
    wait_until(lesson, f"lesson.app.run.text === {json.dumps(HOSTILE)}")
    for s in range(N_STATIONS):
        lesson.evaluate(f"lesson.app.go({s})")
        assert lesson.locator("img").count() == 0


OVERFLOW = """async ([stations, labs]) => {
  const root = document.documentElement;
  const views = [...Array(stations).keys()].map((s) => ({mode: 'lesson', s}));
  views.push({mode: 'toy'}, ...[...Array(labs).keys()].map((lab) => ({mode: 'labs', lab})));
  const wide = [];
  for (const view of views) {
    await lesson.app.update(view);
    if (root.scrollWidth > root.clientWidth) wide.push([view, root.scrollWidth]);
  }
  return wide;
}"""


TOP_OF_THE_STEP = "document.getElementById('step').getBoundingClientRect().top"


@pytest.mark.parametrize("size", [(380, 700), (1440, 900)])
def test_the_next_station_begins_at_its_title(lesson: "Page", size: tuple[int, int]) -> None:
    lesson.set_viewport_size({"width": size[0], "height": size[1]})
    lesson.evaluate("lesson.app.go(10)")
    lesson.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    lesson.click("#next")
    assert lesson.inner_text("#step h1") == "Add and normalize"
    assert lesson.evaluate(TOP_OF_THE_STEP) == pytest.approx(0, abs=1)


@pytest.mark.parametrize("size", [(380, 700), (1440, 900)])
def test_the_way_to_the_next_station_is_always_in_sight(lesson: "Page", size: tuple[int, int]) -> None:
    lesson.set_viewport_size({"width": size[0], "height": size[1]})
    lesson.evaluate("lesson.app.go(10)")
    for at in (0, 700, 1400):
        lesson.evaluate("at => window.scrollTo(0, at)", at)
        box = lesson.locator("#next").bounding_box()
        assert box is not None
        assert 0 < box["y"] < size[1] - box["height"]
        assert box["x"] + box["width"] <= size[0]


def test_no_code_is_cut_off(lesson: "Page") -> None:
    for s in range(N_STATIONS):
        lesson.evaluate("s => lesson.app.go(s)", s)
        assert lesson.evaluate("[...document.querySelectorAll('pre')].every(one => one.scrollWidth <= one.clientWidth)")


def test_a_browser_without_light_dark_gets_the_light_colors(
    tab: "Page", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = lesson_page._code
    monkeypatch.setattr(lesson_page, "_code", lambda: (original()[0], original()[1].replace("light-dark(", "unknown(")))
    write_toy_lesson(tmp_path / "page.html")
    tab.emulate_media(color_scheme="dark")
    open_lesson(tab, tmp_path / "page.html")
    color = tab.locator("#toy-reset").evaluate("(button) => getComputedStyle(button).backgroundColor")
    assert color == "rgb(31, 95, 168)"


def test_escape_ends_presenting(lesson: "Page") -> None:
    presenting = "document.documentElement.classList.contains('presenting')"
    lesson.evaluate("lesson.app.go(8)")
    lesson.click("#present")
    assert lesson.evaluate(presenting)
    lesson.keyboard.press("Escape")
    wait_until(lesson, f"!{presenting}")


@pytest.mark.parametrize("width", [320, 380, 760, 1080, 1600])
def test_nothing_sticks_out_sideways(lesson: "Page", width: int) -> None:
    lesson.set_viewport_size({"width": width, "height": 800})
    assert lesson.evaluate(OVERFLOW, [N_STATIONS, N_LABS]) == []


def test_it_works_where_workers_are_refused(tab: "Page", lesson_file: Path) -> None:
    tab.add_init_script("window.Worker = class { constructor() { throw new Error('refused'); } };")
    open_lesson(tab, lesson_file, "q=Where+is+the+station?")
    assert tab.inner_text(".translation") == "Wo ist der Bahnhof?"


AXE_VIEWS: dict[str, list[dict[str, str | int]]] = {
    "light": [
        *({"mode": "lesson", "s": s} for s in (0, 1, 2, 5, 7, 9, 10, 15, 16, 17, 18, 19, 20, 21)),
        {"mode": "toy"},
        *({"mode": "labs", "lab": lab} for lab in (1, 2, 9, 10)),
    ],
    "narrow": [
        *({"mode": "lesson", "s": s} for s in (0, 2, 5, 10, 17, 18, 21)),
        *({"mode": "labs", "lab": lab} for lab in (2, 9)),
    ],
    "dark": [
        *({"mode": "lesson", "s": s} for s in (0, 8, 16, 18, 19, 21)),
        {"mode": "toy"},
        {"mode": "labs", "lab": 3},
    ],
}


@pytest.mark.parametrize("kind", AXE_VIEWS)
def test_axe_finds_nothing(browser: "Browser", lesson_file: Path, kind: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    scheme: Literal["dark", "light"] = "dark" if kind == "dark" else "light"
    size: ViewportSize = {"width": 380, "height": 700} if kind == "narrow" else WIDE
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce", viewport=size)
    tab = open_lesson(context.new_page(), lesson_file)
    found = []
    for view in AXE_VIEWS[kind]:
        tab.evaluate("view => lesson.app.update(view)", view)
        violations = axe.run(tab).response["violations"]
        found += [(view, one["id"], one["nodes"][0]["html"][:160]) for one in violations]
    context.close()
    assert found == []


def test_the_page_is_small(lesson_file: Path) -> None:
    assert lesson_file.stat().st_size <= 4_000_000
    assert len(lesson_page.join_modules(lesson_page.MODULES).encode()) <= 160_000


# A page without weights


@pytest.mark.parametrize("mixer", ["lstm", "local", "linformer"])
def test_a_model_of_another_kind_is_shown_by_the_numbers_of_one_sentence(
    tab: "Page", tmp_path: Path, mixer: str
) -> None:
    sentence = "a small house"
    folder, model = make_model(tmp_path / "model", encoder_mixer=mixer)
    assert not write_lesson(folder, sentence, tmp_path / "page.html")
    open_lesson(tab, tmp_path / "page.html")
    source = [*folder.tokenizer().encode(sentence), 3]
    memory = record_trace(model, source, [2])["memory"]
    found = np.array(tab.evaluate("lesson.tensor('memory').data")).reshape(memory.shape)
    assert np.abs(found - memory).max() < 2e-3  # float16
    for s in range(N_STATIONS):
        for side in ("encoder", "decoder", "cross"):
            tab.evaluate("([s, side]) => lesson.app.update({s, side})", [s, side])
            assert len(tab.inner_text("#step")) > 40


# What Python puts into the page


def test_code_beside_the_stations_is_the_code_that_runs() -> None:
    excerpts = code_excerpts()
    assert all(one["text"].startswith(("def ", "class ")) for one in excerpts.values())
    assert [key for key, one in excerpts.items() if one["text"].count("\n") < 1] == []
    assert "softmax" in excerpts["attention_weights"]["text"]


def test_every_text_of_the_page_is_used_and_there() -> None:
    strings = json.loads(lesson_page.asset("strings.en.json"))
    script = lesson_page.join_modules(lesson_page.MODULES)
    literal = set(re.findall(r'\btext\("([\w.-]+)"', script))
    assert literal - set(strings) == set()
    families = tuple(re.findall(r"`([a-z]\w*\.[\w.]*)\$\{", script))  # the beginnings of keys that end in a name
    loose = {key for key in strings if key not in script and not key.startswith(families)}
    assert loose == set()
    assert all(text.strip() for text in strings.values())


def test_the_lesson_has_sixty_sentences_with_their_translations() -> None:
    pairs = [line.split("\t") for line in sample("en-de")]
    assert len({text for text, _ in pairs}) == 60
    accepted = dict(pairs)
    assert re.fullmatch(accepted["Where is the station?"], "Wo ist der Bahnhof?")
    assert not any(re.fullmatch(expression, "") for expression in accepted.values())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("const a = b + +c; // a comment\n", "let a=b+ +c;"),
        ('f("a  // b", `x  ${y}`, /[/ ]  "/);\n', 'f("a  // b",`x  ${y}`,/[/ ]  "/);'),
        ("if (a) {\n  b();\n  return [\n    1,\n  ];\n}\nelse c / d;\n", "if(a){b();return[1]}\nelse c/d;"),
        ("a - -b; typeof x; x in y\n", "a- -b;typeof x;x in y"),
        ('return true; f(false, "true")\n', 'return !0;f(!1,"true")'),
        ("f((x) => x, (a, b) => a, async (x) => x)\n", "f(x=>x,(a,b)=>a,async(x)=>x)"),
    ],
)
def test_a_script_loses_only_what_a_browser_does_not_need(source: str, expected: str) -> None:
    assert lesson_page.squeeze(source) == expected


def test_no_template_is_inside_another_one() -> None:
    """Spaces are removed outside of literals, and a literal ends at the next backquote."""
    nested = re.compile(r"`[^`]*\$\{[^}`]*`")
    assert [name for name in lesson_page.MODULES if nested.search(lesson_page.asset(f"{name}.js"))] == []
