"""A real browser, and a page of a tiny model to open in it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from multihead.inspection.page import write_page
from multihead.inspection.record import record_attention
from multihead.model.transformer import Transformer
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import tiny_shape

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
