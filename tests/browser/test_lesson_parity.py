"""The lesson's engine in Chromium: it equals Python number by number, and every number is the sum of its terms."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import multihead
from multihead.inspection.trace import record_trace
from multihead.interop.hub import find_model
from multihead.lesson import page as lesson_page
from multihead.lesson.explain import EXAMPLES, sample, write_lesson
from multihead.model.transformer import Transformer
from multihead.storage.model_folder import ModelFolder
from multihead.text.encoding import normalize
from tests.browser.conftest import HOSTILE, make_model, open_lesson

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

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
        found[name] = float(np.abs(ours[~is_masked] - theirs[~is_masked]).max(initial=0.0)) if same_mask else np.inf
    return found


def random_sizes(seed: str) -> dict[str, object]:
    """Sizes that look random and are the same each time; sinusoids come in pairs, so d_model is even."""
    rng = random.Random(seed)
    sizes = {"d_model": 2 * rng.randint(3, 12), "n_heads": rng.randint(2, 4)}
    sizes |= {name: rng.randint(2, 12) for name in ("d_k", "d_v", "d_ff")}
    return {**sizes, **{name: rng.randint(1, 3) for name in ("encoder_layers", "decoder_layers")}}


@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_equals_that_of_python(tab: "Page", tmp_path: Path, name: str) -> None:
    folder, model = make_model(tmp_path / "model", **{**random_sizes(name), **SHAPES[name]})
    assert write_lesson(folder, SENTENCE, tmp_path / "page.html")
    found = differences(open_lesson(tab, tmp_path / "page.html"), model)
    assert len(found) > 50
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


@pytest.mark.parametrize("name", ["lesson", pytest.param("en-de", marks=pytest.mark.slow)])
def test_the_page_translates_as_the_exact_search_does(tab: "Page", tmp_path: Path, name: str) -> None:
    write_lesson(ModelFolder.open(find_model(name)), None, tmp_path / "page.html")
    open_lesson(tab, tmp_path / "page.html")
    model, texts = multihead.load(name, engine="torch"), [line.split("\t")[0] for line in sample("en-de")]
    for beam in (1, 4):
        options: dict[str, Any] = {"beam": beam, "alpha": 0.6, "shortlist": False, "guard": False, "split": False}
        expected = model.translate(texts, **options)
        script = "([texts, beam]) => Promise.all(texts.map(text => lesson.translate(text, {beam, alpha: 0.6})))"
        found = tab.evaluate(script, [texts, beam])
        assert [one["text"] for one in found] == [one.text for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)


def hostile_strings(n: int) -> list[str]:
    rng = random.Random(1)
    alphabets = [
        "abc XYZ 012.,!?'\u2019-",
        "äöüß ĳ ﬁ",
        "日本語 ひらがな",
        "हिन्दी क्‍ष",
        "🙂👩‍👩‍👧 \u200d\u200c",
        "\t\n\r\x0b\x00\u2028\ufeff</s><pad>",
        "e\u0301\u0323",
    ]
    known = [HOSTILE, "", " ", "  a  ", "</s>", "it's 'quoted'", "10,000.50"]
    known += ["a\u0301", "\ufeffa", "ﷺ", "\U0001f1e9\U0001f1ea"]
    mixed = [
        "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randint(1, 24))) for _ in range(n - len(known))
    ]
    return known + mixed


def test_the_tokenizer_cuts_every_text_as_pythons_does(lesson: "Page") -> None:
    folder = ModelFolder.open(find_model("lesson"))
    tokenizer, texts = folder.tokenizer(), hostile_strings(2000)
    found = lesson.evaluate("texts => texts.map(text => lesson.app.tokenizer.encode(text))", texts)
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
    operations = (
        "lookup scale positions add heads products mask softmax mix concat linear activation mean deviation norm"
    )
    assert set(worst) == set(operations.split())
    assert max(worst.values()) <= 1e-4, worst


def test_twelve_clicks_from_a_logit_reach_an_embedding(lesson: "Page") -> None:
    """Down the residual stream, as a reader would click: never into a sub-layer, a mean or the positions."""
    lesson.evaluate("lesson.app.update({s: 16, t: 0}).then(() => lesson.app.follow('logits', [0, 5]))")
    visited = ["logits"]
    while len(visited) < 12 and visited[-1] != "target.embedding":
        buttons = lesson.locator("#trail .terms button")
        names = buttons.all_inner_texts()
        aside = ("output", "mean", "positions")
        best = next(i for i, name in enumerate(names) if not any(word in name for word in aside))
        buttons.nth(best).click()
        visited.append(lesson.locator("#trail .value").inner_text().split("[")[0])
    assert visited[-1] == "target.embedding", visited
    assert "decoder.0.self.norm" in visited
    assert "a learned parameter" in lesson.locator("#trail .terms").inner_text()


# Laws of the model

CHANGED = """([text, change]) => {
  const {model, tokenizer} = lesson.app;
  const asSet = ([name, value]) => [name, Array.isArray(value) ? new Set(value) : value];
  const sets = Object.fromEntries(Object.entries(change).map(asSet));
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
          const row = (x, n) => [...x.slice(n * D, (n + 1) * D)];
          const distance = (a, b) => Math.max(...a.map((x, i) => Math.abs(x - b[i])));
          return Math.max(...order.map((from, to) => distance(row(one, from), row(other, to))));
        }"""
    )
    assert difference <= 1e-5


def test_a_later_word_changes_no_earlier_row(lesson: "Page") -> None:
    same = lesson.evaluate(
        """() => {
          const {model} = lesson.app, V = model.config.vocab_size, source = [40, 300, 3];
          const one = [...model.forward(source, [2, 50, 60, 70])];
          const other = model.forward(source, [2, 50, 60, 900]);
          const isSame = one.map((x, i) => x === other[i]);
          return isSame.slice(0, 3 * V).every(Boolean) && !isSame.slice(3 * V).every(Boolean);
        }"""
    )
    assert same


def test_padding_changes_no_vector_of_the_sentence(lesson: "Page") -> None:
    same = lesson.evaluate(
        """() => {
          const {model} = lesson.app, D = model.config.d_model;
          const alone = model.encode([40, 300, 3]), padded = model.encode([40, 300, 3, 0, 0], undefined, {visible: 3});
          const seen = model.encode([40, 300, 3, 0, 0]);
          return [alone.every((x, i) => x === padded[i]), alone.every((x, i) => x === seen[i])];
        }"""
    )
    assert same == [True, False]


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
