"""A real browser, and a page of a tiny model to open in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from multihead.config.schema import DataConfig, RunConfig
from multihead.inspection.page import write_page
from multihead.inspection.record import record_attention
from multihead.interop.hub import find_model
from multihead.lesson.explain import SENTENCE, write_lesson, write_toy_lesson
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.model.weights import to_arrays, weights_of
from multihead.storage.model_folder import ModelFolder, Provenance, save_model
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import tiny_shape

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize


SOURCE, TRANSLATION = "the old house stands here", "das alte Haus steht hier"
HOSTILE = "</script><img src=x onerror=alert(1)> & <b>bold</b>"
QUIET = [  # the browser itself asks nobody for anything either
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def attention_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("attention") / "page.html", SOURCE, TRANSLATION)


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("hostile") / "page.html", HOSTILE, HOSTILE)


def make_page(path: Path, source: str, translation: str) -> Path:
    """The page of a model that has learned nothing: 2 layers, 3 heads."""
    tokenizer = SubwordTokenizer.learn([SOURCE, TRANSLATION] * 3, 330)
    torch.manual_seed(1)
    model = Transformer(tiny_shape(vocab_size=tokenizer.vocab_size, max_len=100))
    maps = record_attention(model, tokenizer, tokenizer.encode(source), tokenizer.encode(translation))
    write_page(maps, path, source=source, translation=translation, model_name="<i>tiny</i>")
    return path


# The lesson

WIDE: "ViewportSize" = {"width": 1440, "height": 1000}
RESET = """q => {
  lesson.app.trail = [];
  return lesson.app.update(
    {mode: 'lesson', s: 0, side: 'encoder', layer: 0, head: 0, t: 0, row: 2, depth: 'numbers', q, beam: 4, alpha: 0.6});
}"""


def make_model(folder: Path, **changes: object) -> tuple[ModelFolder, Transformer]:
    """Return a model that has learned nothing, as a folder and as a module."""
    texts = ["the old house stands here", "das alte Haus steht hier", "a small fish eats the man"]
    tokenizer = SubwordTokenizer.learn(texts * 3, 330)
    shape = {"vocab_size": tokenizer.vocab_size, "max_len": 100, **changes}
    config = RunConfig(model=tiny_shape(**shape), data=DataConfig(max_length=64, batch_tokens=100))
    torch.manual_seed(1)
    model = build_model(config.model).eval()
    save_model(folder, to_arrays(weights_of(model)), config, tokenizer.files(), Provenance())
    return ModelFolder.open(folder), model


def open_lesson(tab: "Page", path: Path, link: str = "") -> "Page":
    tab.goto(path.as_uri() + (f"#{link}" if link else ""))
    tab.evaluate("window.lessonReady.then(() => true)")
    return tab


def wait_until(tab: "Page", condition: str) -> None:
    """Wait for an expression to be true (the page's policy refuses what `wait_for_function` does)."""
    tab.evaluate(f"async () => {{ while (!({condition})) await new Promise((wake) => setTimeout(wake, 20)); }}")


def watch(tab: "Page") -> list[str]:
    """Return the list that collects a tab's errors, and every request that leaves this machine."""
    troubles: list[str] = []
    tab.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("dialog", lambda dialog: troubles.append(dialog.message))
    local = ("file:", "blob:", "data:")
    tab.on("request", lambda request: None if request.url.startswith(local) else troubles.append(request.url))
    return troubles


@pytest.fixture
def tab(browser: "Browser") -> Iterator["Page"]:
    """A new tab; the test fails if the page writes an error or makes a request."""
    opened = browser.new_page(viewport=WIDE)
    troubles = watch(opened)
    yield opened
    opened.close()
    assert troubles == []


@pytest.fixture(scope="session")
def lesson_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lesson") / "lesson.html"
    assert write_lesson(ModelFolder.open(find_model("lesson")), None, path)
    return path


@pytest.fixture(scope="session")
def lesson_tab(browser: "Browser", lesson_file: Path) -> Iterator[tuple["Page", list[str]]]:
    opened = browser.new_page(viewport=WIDE)
    troubles = watch(opened)
    yield open_lesson(opened, lesson_file), troubles
    opened.close()


@pytest.fixture
def lesson(lesson_tab: tuple["Page", list[str]]) -> Iterator["Page"]:
    """The lesson about the bundled model at its first station, in a tab that tests share."""
    opened, troubles = lesson_tab
    opened.set_viewport_size(WIDE)
    opened.evaluate(RESET, SENTENCE)
    yield opened
    assert troubles == []


@pytest.fixture(scope="session")
def toy_tab(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple["Page", list[str]]]:
    path = tmp_path_factory.mktemp("toy") / "toy.html"
    write_toy_lesson(path)
    assert path.stat().st_size < 240_000
    opened = browser.new_page(viewport=WIDE)
    troubles = watch(opened)
    yield open_lesson(opened, path), troubles
    opened.close()


@pytest.fixture
def toy(toy_tab: tuple["Page", list[str]]) -> Iterator["Page"]:
    """The page without a model, with the numbers of the slides, in a tab that tests share."""
    opened, troubles = toy_tab
    opened.click("#mode-toy")
    opened.click("#toy-reset")
    yield opened
    assert troubles == []
