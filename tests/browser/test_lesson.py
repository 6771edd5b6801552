# ruff: noqa: E501, RUF001
"""The lesson in Chromium: its engine equals Python's number by number, and every number says where it comes from."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import multihead
from multihead.config.schema import DataConfig, ModelConfig, RunConfig
from multihead.inspection.trace import record_trace
from multihead.interop.hub import find_model
from multihead.lesson import explain
from multihead.lesson import page as lesson_page
from multihead.lesson.explain import EXAMPLES, write_lesson, write_toy_lesson
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.model.weights import to_arrays, weights_of
from multihead.storage.model_folder import ModelFolder, Provenance, save_model
from multihead.text.tokenizer import SubwordTokenizer
from tests.browser.conftest import HOSTILE
from tests.conftest import tiny_shape

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

TEXTS = ["the old house stands here", "das alte Haus steht hier", "a small fish eats the man"]
SENTENCE = "a small house"
TOLERANCE = 2e-5

# Every setting that the page's engine knows, at least once.
SHAPES: dict[str, dict[str, object]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned", "activation": "gelu"},
    "no positions": {"positions": "none", "activation": "swish"},
    "untied with biases": {"tie_embeddings": "none", "attention_bias": True, "output_bias": True},
    "dot product": {"attention_score": "dot", "tie_embeddings": "target"},
    "additive": {"attention_score": "additive", "norm": "pre", "encoder_layers": 1, "decoder_layers": 3},
}


def make_model(folder: Path, **changes: object) -> tuple[ModelFolder, Transformer]:
    """A model that has learned nothing, as a folder."""
    tokenizer = SubwordTokenizer.learn(TEXTS * 3, 330)
    shape = {"vocab_size": tokenizer.vocab_size, "max_len": 100, **changes}
    config = RunConfig(model=tiny_shape(**shape), data=DataConfig(max_length=64, batch_tokens=100))
    torch.manual_seed(1)
    model = build_model(config.model).eval()
    save_model(folder, to_arrays(weights_of(model)), config, tokenizer.to_json(), Provenance())
    return ModelFolder.open(folder), model


@pytest.fixture
def tab(browser: "Browser") -> Iterator["Page"]:
    """A fresh tab; a test fails if the page writes an error or asks any machine for anything."""
    opened = browser.new_page(viewport={"width": 1440, "height": 1000})
    yield from _watched(opened)


def _watched(opened: "Page") -> Iterator["Page"]:
    troubles: list[str] = []
    opened.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("dialog", lambda dialog: troubles.append(dialog.message))
    allowed = ("file:", "blob:", "data:")
    opened.on("request", lambda request: None if request.url.startswith(allowed) else troubles.append(request.url))
    yield opened
    opened.close()
    assert troubles == []


def open_lesson(tab: "Page", path: Path, link: str = "") -> "Page":
    tab.goto(path.as_uri() + (f"#{link}" if link else ""))
    tab.wait_for_function("window.lessonReady && window.lessonReady.then(() => true)")
    return tab


@pytest.fixture(scope="session")
def lesson_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lesson") / "lesson.html"
    assert write_lesson(ModelFolder.open(find_model("lesson")), None, path)
    return path


@pytest.fixture(scope="module")
def lesson(browser: "Browser", lesson_file: Path) -> Iterator["Page"]:
    """The lesson about the bundled model, for tests that leave it as it is."""
    opened = browser.new_page(viewport={"width": 1440, "height": 1000})
    watched = _watched(opened)
    yield open_lesson(next(watched), lesson_file)
    next(watched, None)


# Parity


def differences(tab: "Page", model: Transformer) -> dict[str, float]:
    """The largest difference from Python of every tensor that the page has."""
    source, read = tab.evaluate("[lesson.app.run.source, lesson.app.run.read]")
    trace = record_trace(model, source, read)
    found = {}
    for name in tab.evaluate("lesson.names()"):
        tensor = tab.evaluate(
            "name => { const {shape, data} = lesson.tensor(name);"
            " return {shape, data: data.map(x => x === -Infinity ? null : x)} }",
            name,
        )
        ours = np.array([-np.inf if x is None else x for x in tensor["data"]]).reshape(tensor["shape"])
        theirs = trace[name]
        assert ours.shape == theirs.shape, name
        is_masked = np.isneginf(theirs)
        same_mask = bool((np.isneginf(ours) == is_masked).all())
        found[name] = float(np.abs(ours - theirs)[~is_masked].max(initial=0.0)) if same_mask else np.inf
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_equals_that_of_python(tab: "Page", tmp_path: Path, name: str) -> None:
    folder, model = make_model(tmp_path / "model", **SHAPES[name])
    assert write_lesson(folder, SENTENCE, tmp_path / "page.html")
    found = differences(open_lesson(tab, tmp_path / "page.html"), model)
    assert len(found) > 60
    assert max(found.values()) <= TOLERANCE, {name: x for name, x in found.items() if x > TOLERANCE}


MUTANTS = {
    "scale": ("const divisor = scaled ? Math.sqrt(K) : 1;", "const divisor = scaled ? K : 1;"),
    "mask": ("(query, key) => key <= query;", "(query, key) => key < query + 2;"),
    "heads": ("x[row * heads * width + head * width + k];", "x[row * heads * width + k * heads + head];"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_engine_is_noticed(tab: "Page", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    right, wrong = MUTANTS[mutant]
    original: Callable[[str], str] = lesson_page.asset
    assert original("engine.js").count(right) == 1
    monkeypatch.setattr(lesson_page, "asset", lambda name: original(name).replace(right, wrong))
    folder, model = make_model(tmp_path / "model")
    write_lesson(folder, SENTENCE, tmp_path / "page.html")
    assert max(differences(open_lesson(tab, tmp_path / "page.html"), model).values()) > 1e-3


def sentences(n: int) -> list[str]:
    folder = Path(__file__).parents[3] / "shared" / "data" / "tatoeba" / "en-de"
    if not folder.is_dir():
        return list(islice([*EXAMPLES, "Hello.", "I like tea.", "He is old."] * n, n))
    import gzip

    with gzip.open(folder / "valid.en.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, n)]


@pytest.mark.parametrize(("name", "n"), [("lesson", 50), pytest.param("en-de", 50, marks=pytest.mark.slow)])
def test_the_page_translates_as_the_exact_search_does(tab: "Page", tmp_path: Path, name: str, n: int) -> None:
    write_lesson(ModelFolder.open(find_model(name)), None, tmp_path / "page.html")
    open_lesson(tab, tmp_path / "page.html")
    model, texts = multihead.load(name, engine="torch"), sentences(n)
    for beam in (1, 4):
        options: dict[str, object] = {"beam": beam, "alpha": 0.6, "shortlist": False, "guard": False, "split": False}
        expected = model.translate(texts, **options)
        script = "([texts, beam]) => Promise.all(texts.map(text => lesson.translate(text, {beam, alpha: 0.6})))"
        found = tab.evaluate(script, [texts, beam])
        assert [one["text"] for one in found] == [one.text for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)


def hostile_strings(n: int) -> list[str]:
    rng = random.Random(1)
    alphabets = [
        "abc XYZ 012.,!?'’-",
        "äöüß ĳ ﬁ",
        "日本語 ひらがな",
        "हिन्दी क्‍ष",
        "🙂👩‍👩‍👧 \u200d\u200c",
        "\t\n\r\x0b\x00\u2028\ufeff</s><pad>",
        "e\u0301\u0323",
    ]
    known = [
        HOSTILE,
        "",
        " ",
        "  a  ",
        "</s>",
        "it's 'quoted'",
        "10,000.50",
        "a\u0301",
        "\ufeffa",
        "ﷺ",
        "\U0001f1e9\U0001f1ea",
    ]
    mixed = [
        "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randint(1, 24))) for _ in range(n - len(known))
    ]
    return known + mixed


def test_the_tokenizer_cuts_every_text_as_pythons_does(lesson: "Page") -> None:
    folder = ModelFolder.open(find_model("lesson"))
    tokenizer, texts = folder.tokenizer(), hostile_strings(2000)
    found = lesson.evaluate("texts => texts.map(text => lesson.app.tokenizer.encode(text))", texts)
    from multihead.text.encoding import normalize

    expected = [tokenizer.encode(normalize(text, folder.config.data.unicode)) for text in texts]
    assert [text for text, ours, theirs in zip(texts, found, expected, strict=True) if ours != theirs] == []
    decoded = lesson.evaluate("ids => ids.map(id => lesson.app.tokenizer.decode(id))", expected)
    assert decoded == [tokenizer.decode(ids) for ids in expected]


# Where a number comes from

CELLS = """n => {
  const {run, model} = lesson.app;
  const worst = {};
  let seed = 1;
  const pick = (k) => (seed = (seed * 48271) % 2147483647) % k;
  const kinds = Map.groupBy([...run.graph.nodes.values()], (node) => node.op);
  for (const [op, nodes] of kinds)
    for (let i = 0; i < n; i++) {
      const node = nodes[pick(nodes.length)];
      const index = node.shape.map(pick);
      const value = node.data[index.reduce((at, k, axis) => at * node.shape[axis] + k, 0)];
      const sum = lesson.terms(node.name, index).reduce((total, term) => total + term.value * term.factor, 0);
      const difference = value === sum ? 0 : Math.abs(value - sum) / Math.max(1, Math.abs(value));
      worst[op] = Math.max(worst[op] ?? 0, Number.isNaN(difference) ? 1 : difference);
    }
  return worst;
}"""


def test_every_number_is_the_sum_of_its_terms(lesson: "Page") -> None:
    worst = lesson.evaluate(CELLS, 500)
    assert {
        "lookup",
        "scale",
        "positions",
        "add",
        "heads",
        "products",
        "mask",
        "softmax",
        "mix",
        "concat",
        "linear",
        "norm",
    } <= set(worst)
    assert max(worst.values()) <= 1e-4, worst


def test_twelve_clicks_from_a_logit_reach_an_embedding(lesson: "Page") -> None:
    """Always along the first term that is not yet a parameter, as a reader would click."""
    lesson.evaluate("lesson.app.update({mode: 'lesson', s: 16, t: 0}).then(() => lesson.app.follow('logits', [0, 5]))")
    visited = ["logits"]
    for _ in range(12):
        buttons = lesson.locator("#trail .terms button")
        if not buttons.count():
            break
        names = buttons.all_inner_texts()
        # The residual stream leads straight down.
        best = next((i for i, name in enumerate(names) if "output" not in name and "mean" not in name), 0)
        buttons.nth(best).click()
        visited.append(lesson.locator("#trail .value").inner_text().split("[")[0])
    assert visited[-1] in ("target.embedding", "source.embedding"), visited
    assert "a learned parameter" in lesson.locator("#trail .terms").inner_text()
    lesson.click("#trail-close")


# Laws of the model

CHANGED = """([text, change]) => {
  const {model, tokenizer} = lesson.app;
  const sets = Object.fromEntries(Object.entries(change).map(([name, value]) => [name, Array.isArray(value) ? new Set(value) : value]));
  return lesson.tools.translate(model, tokenizer, text, {beam: 1, change: sets}).text;
}"""


def test_without_cross_attention_every_input_has_the_same_output(lesson: "Page") -> None:
    cross = ["decoder.0.cross", "decoder.1.cross"]
    outputs = {lesson.evaluate(CHANGED, [text, {"attention": cross}]) for text in EXAMPLES}
    assert len(outputs) == 1


def test_without_positions_the_memory_permutes_with_the_words(lesson: "Page") -> None:
    difference = lesson.evaluate(
        """() => {
          const {model} = lesson.app, D = model.config.d_model, ids = [40, 300, 77, 1200, 3];
          const order = [2, 0, 3, 1, 4];
          const one = model.encode(ids, undefined, {positions: false});
          const other = model.encode(order.map(i => ids[i]), undefined, {positions: false});
          return Math.max(...order.map((from, to) => Math.max(...Array.from({length: D}, (_, i) => Math.abs(one[from * D + i] - other[to * D + i])))));
        }"""
    )
    assert difference <= 1e-5


def test_a_later_word_changes_no_earlier_row(lesson: "Page") -> None:
    same = lesson.evaluate(
        """() => {
          const {model} = lesson.app, V = model.config.vocab_size, source = [40, 300, 3];
          const one = model.forward(source, [2, 50, 60, 70]), other = model.forward(source, [2, 50, 60, 900]);
          return one.slice(0, 3 * V).every((x, i) => x === other[i]) && !one.slice(3 * V).every((x, i) => x === other[3 * V + i]);
        }"""
    )
    assert same


def test_weights_add_up_to_one_and_masked_ones_are_zero(lesson: "Page") -> None:
    worst = lesson.evaluate(
        """() => {
          let worst = 0;
          for (const {name, shape: [H, T, S], data} of lesson.app.run.graph.nodes.values()) {
            if (!name.endsWith(".weights")) continue;
            const masked = lesson.app.run.graph.get(name.replace("weights", "masked")).data;
            for (let row = 0; row < H * T; row++) {
              const weights = data.slice(row * S, (row + 1) * S);
              worst = Math.max(worst, Math.abs(weights.reduce((a, b) => a + b, 0) - 1));
              weights.forEach((w, i) => { if (masked[row * S + i] === -Infinity && w !== 0) worst = 1; });
            }
          }
          return worst;
        }"""
    )
    assert worst <= 1e-6


# Beam


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
    from multihead.translation.engine import length_penalty

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


def test_a_forced_word_is_in_the_translation(tab: "Page", lesson_file: Path) -> None:
    open_lesson(tab, lesson_file, "s=18&q=Where+is+the+station?")
    node = tab.locator(".tree .node.pruned").first
    word = (node.get_attribute("aria-label") or "").split(",")[0]
    node.click()
    assert word in tab.locator("#step").inner_text()
    assert "With forced words" in tab.locator("#step").inner_text()


# By hand


@pytest.fixture
def toy(tab: "Page", tmp_path: Path) -> "Page":
    write_toy_lesson(tmp_path / "toy.html")
    assert (tmp_path / "toy.html").stat().st_size < 240_000
    return open_lesson(tab, tmp_path / "toy.html")


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
    "grid-softmax": "1.0000 0.0000 0.0000 0.0000 / 0.0000 1.0000 0.0000 0.0000 / 0.0000 0.0000 1.0000 0.0000 / 0.0000 0.0000 0.0000 1.0000",
    "grid-divided": "0.9998 0.0001 0.0000 0.0000 / 0.0004 0.9389 0.0007 0.0600 / 0.0000 0.0005 0.9897 0.0097 / 0.0000 0.0417 0.0082 0.9500",
    "masked-softmax": "1.0000 0.0000 0.0000 0.0000 / 0.3775 0.6225 0.0000 0.0000 / 0.2584 0.3156 0.4260 0.0000 / 0.2144 0.2619 0.2619 0.2619",
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


def test_a_cell_explains_itself_in_words(toy: "Page") -> None:
    toy.click('[data-cell="scores-0-1"]')
    assert "q1·k2 = 1·4 + 0·4 + 2·0 = 4" in toy.inner_text('[data-matrix="scores"]')


def test_every_mistake_can_be_opened(toy: "Page") -> None:
    details = toy.locator("details[id^=mistake]")
    assert details.count() == 14
    for one in details.all():
        one.locator("summary").click()
        assert len(one.locator("p").inner_text()) > 30


# Labs


def test_the_bleu_of_the_lab_is_sacrebleus(toy: "Page") -> None:
    import sacrebleu

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


@pytest.mark.parametrize("lab", ["scaling", "positions", "paths", "sparse", "align", "schedule", "smoothing", "bleu"])
def test_every_lab_opens(toy: "Page", lab: str) -> None:
    toy.click("#mode-labs")
    toy.click(f"#lab-{lab}")
    assert len(toy.inner_text("#step")) > 150


# The page


def test_every_station_is_reached_by_keyboard(tab: "Page", lesson_file: Path) -> None:
    open_lesson(tab, lesson_file)
    titles = []
    for _ in range(21):
        titles.append(tab.inner_text("#step h1"))
        assert len(tab.inner_text(".station")) > 20
        tab.keyboard.press("ArrowRight")
    assert len(set(titles)) == 21


def test_a_link_restores_a_view(browser: "Browser", tab: "Page", lesson_file: Path) -> None:
    open_lesson(tab, lesson_file, "s=8&side=cross&layer=1&head=2&q=I+am+fine.&cell=decoder.1.cross.weights|2|1|0")
    link = tab.evaluate("location.hash")
    assert tab.inner_text("#step h1") == "Softmax"
    assert tab.inner_text("#trail .value").startswith("decoder.1.cross.weights[2, 1, 0]")
    other = browser.new_page(viewport={"width": 1440, "height": 1000})
    other.goto(tab.url.split("#")[0] + link)
    other.wait_for_function("window.lessonReady && window.lessonReady.then(() => true)")
    assert other.inner_text("#step") == tab.inner_text("#step")


def test_masked_cells_are_hatched_and_marked(tab: "Page", lesson_file: Path) -> None:
    open_lesson(tab, lesson_file, "s=7&side=decoder")
    masked = tab.locator('[data-tensor="decoder.0.self.masked"] td.masked')
    assert masked.count() > 10
    assert set(masked.all_inner_texts()) == {"−∞"}


def test_hostile_text_is_inert(tab: "Page", lesson_file: Path) -> None:
    open_lesson(tab, lesson_file)
    tab.fill("#sentence", HOSTILE)
    tab.press("#sentence", "Enter")
    tab.wait_for_function("text => lesson.app.run && lesson.app.run.text === text", arg=HOSTILE)
    assert tab.locator("img").count() == 0
    for s in range(21):
        tab.evaluate(f"lesson.app.go({s})")
    assert tab.locator("img").count() == 0


@pytest.mark.parametrize("width", [320, 380, 760, 1080, 1600])
def test_nothing_sticks_out_sideways(tab: "Page", lesson_file: Path, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    open_lesson(tab, lesson_file)
    for s in range(21):
        tab.evaluate(f"lesson.app.go({s})")
        overflow = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, s
    for mode in ("toy", "labs"):
        tab.evaluate(f"lesson.app.update({{mode: '{mode}'}})")
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_it_works_where_workers_are_refused(browser: "Browser", lesson_file: Path) -> None:
    tab = browser.new_page()
    tab.add_init_script("window.Worker = class { constructor() { throw new Error('refused'); } };")
    open_lesson(tab, lesson_file, "q=Where+is+the+station?")
    assert tab.inner_text(".translation") == "Wo ist der Bahnhof?"
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "Browser", lesson_file: Path, scheme: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    tab = open_lesson(context.new_page(), lesson_file)
    for s in (0, 1, 2, 7, 8, 11, 15, 16, 17, 18, 19, 20):
        tab.evaluate(f"lesson.app.go({s})")
        found = axe.run(tab).response["violations"]
        assert [(s, one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
    for mode in ("toy", "labs"):
        tab.evaluate(f"lesson.app.update({{mode: '{mode}'}})")
        found = axe.run(tab).response["violations"]
        assert [(mode, one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
    context.close()


def test_the_page_is_small(lesson_file: Path) -> None:
    assert lesson_file.stat().st_size <= 4_000_000
    assert len(lesson_page.join_modules(lesson_page.MODULES)) <= 160_000


# A page without weights


def test_a_model_of_another_kind_is_shown_by_the_numbers_of_one_sentence(tab: "Page", tmp_path: Path) -> None:
    folder, model = make_model(tmp_path / "model", encoder_mixer="lstm")
    assert not write_lesson(folder, SENTENCE, tmp_path / "page.html")
    open_lesson(tab, tmp_path / "page.html")
    source = [*folder.tokenizer().encode(SENTENCE), 3]
    memory = record_trace(model, source, [2])["memory"]
    found = np.array(tab.evaluate("lesson.tensor('memory').data")).reshape(memory.shape)
    assert np.abs(found - memory).max() < 2e-3  # float16
    for s in range(21):
        tab.evaluate(f"lesson.app.go({s})")
        assert len(tab.inner_text("#step")) > 40


def test_code_beside_the_stations_is_the_code_that_runs() -> None:
    excerpts = explain.code_excerpts()
    assert all(one["text"].startswith(("def ", "class ")) for one in excerpts.values())
    assert "softmax" in excerpts["attention_weights"]["text"]


def test_every_text_of_the_page_is_used_and_there() -> None:
    strings = json.loads(lesson_page.asset("strings.en.json"))
    assert all(text.strip() for text in strings.values())
    assert isinstance(ModelConfig(), ModelConfig)
