"""The attention page as a reader meets it: pointer, keyboard, narrow screen, the dark, and hostile text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import HOSTILE, SOURCE, TRANSLATION

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page


# One browser is enough: two test processes share the work by groups.
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


@pytest.fixture
def page(browser: "Browser") -> Iterator["Page"]:
    """A fresh tab; a test fails if the page writes an error, opens a dialog or asks any machine for anything."""
    tab = browser.new_page(viewport={"width": 1440, "height": 1000})
    troubles: list[str] = []

    def dismiss(dialog: "Dialog") -> None:
        troubles.append(dialog.message)
        dialog.dismiss()

    tab.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("dialog", dismiss)
    tab.on("request", lambda request: troubles.append(request.url) if not request.url.startswith("file:") else None)
    yield tab
    tab.close()
    assert troubles == []


@pytest.fixture
def opened(page: "Page", attention_page: Path) -> "Page":
    page.goto(attention_page.as_uri())
    return page


def texts(page: "Page", selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def focused(page: "Page", attribute: str) -> Any:
    return page.evaluate("name => document.activeElement.getAttribute(name)", attribute)


def n_lines(page: "Page") -> int:
    return page.locator("#bipartite path").count()


# What is shown


def test_the_sentence_and_its_translation_are_on_top(opened: "Page") -> None:
    assert (opened.inner_text("#source"), opened.inner_text("#translation")) == (SOURCE, TRANSLATION)


def test_every_token_is_shown(opened: "Page") -> None:
    assert texts(opened, ".keys .token bdi") == [*SOURCE.split(), "</s>"]
    assert texts(opened, ".queries .token bdi") == [*TRANSLATION.split(), "</s>"]


def test_every_head_of_every_layer_has_its_tile(opened: "Page") -> None:
    assert opened.locator(".tile canvas").count() == 2 * 3


def test_a_tile_is_painted_with_its_weights(opened: "Page") -> None:
    """One pixel a weight, and not all of one color."""
    size, n_colors = opened.evaluate("""() => {
        const canvas = document.querySelector(".tile canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colors = new Set();
        for (let at = 0; at < pixels.length; at += 4) colors.add(pixels.slice(at, at + 3).join());
        return [[canvas.width, canvas.height], colors.size];
    }""")
    assert size == [6, 6]
    assert n_colors > 5


# The pointer


def test_pointing_at_a_token_leaves_its_own_lines_only(opened: "Page") -> None:
    every = n_lines(opened)
    opened.hover(".queries .token >> nth=1")
    assert 0 < n_lines(opened) < every
    assert texts(opened, ".queries .token.on bdi") == ["alte"]


def test_pointing_at_a_token_says_where_each_head_looks(opened: "Page") -> None:
    assert all(text.startswith("peak ") for text in texts(opened, ".head small"))
    opened.hover(".queries .token >> nth=1")
    answers = texts(opened, ".head small")
    assert len(answers) == 3
    assert all(answer.split()[0] in [*SOURCE.split(), "</s>"] and answer.endswith(" %") for answer in answers)


def test_strips_beside_the_keys_are_the_weights(opened: "Page") -> None:
    opened.hover(".queries .token >> nth=0")
    shown = opened.evaluate(
        "[...document.querySelectorAll('.keys .token')].map(t => Number(t.querySelector('i').style.opacity))"
    )
    assert sum(shown) == pytest.approx(1, abs=0.01)
    assert opened.locator(".keys .strips >> nth=0").is_visible()


def test_a_click_pins_a_token_and_escape_lets_go(opened: "Page") -> None:
    opened.click(".queries .token >> nth=2")
    opened.mouse.move(5, 5)
    assert texts(opened, ".token.on bdi") == ["Haus"]
    opened.keyboard.press("Escape")
    assert opened.locator(".token.on").count() == 0


def test_a_head_can_be_hidden_and_all_brought_back(opened: "Page") -> None:
    every = n_lines(opened)
    opened.click(".head >> nth=0")
    assert n_lines(opened) < every
    assert opened.locator(".head >> nth=0").get_attribute("aria-pressed") == "false"
    opened.click("#all-heads")
    assert n_lines(opened) == every


def test_another_layer_has_other_lines(opened: "Page") -> None:
    def strokes() -> Any:
        return opened.evaluate("[...document.querySelectorAll('#bipartite path')].map(p => p.getAttribute('opacity'))")

    first, other = strokes(), 1 - opened.evaluate("Number(document.querySelector('#layers input:checked').value)")
    opened.locator(f"#layers input >> nth={other}").check()
    assert strokes() != first
    assert opened.locator(".tile.on").count() == 3


def test_pointing_at_a_word_shows_its_partners(opened: "Page") -> None:
    opened.hover(".words >> nth=1 >> .word >> nth=0")
    assert "das" in texts(opened, ".word.on")
    assert len(texts(opened, ".word.on")) >= 2
    assert opened.inner_text("#answer").startswith("das ← ")


def test_a_tile_opens_large_with_labels_and_values(opened: "Page") -> None:
    opened.click(".tile >> nth=4")
    assert opened.inner_text("#large-title") == "Cross attention · layer 2 · head 2"
    assert texts(opened, ".tops span") == [*SOURCE.split(), "</s>"]
    opened.hover(".field", position={"x": 3, "y": 3})
    weight = opened.evaluate(
        "(({ maps, scale }) => maps.cross[1][1][0][0] / scale)(JSON.parse(document.getElementById('data').textContent))"
    )
    assert opened.inner_text("#readout") == f"das looks at the with {weight:.4f}"


# Tabs


@pytest.mark.parametrize(("tab", "queries"), [("encoder", SOURCE), ("decoder", TRANSLATION)])
def test_a_tab_shows_its_own_tokens(opened: "Page", tab: str, queries: str) -> None:
    opened.click(f"#tab-{tab}")
    shown = texts(opened, ".queries .token bdi")
    assert [text for text in shown if text not in ("<s>", "</s>")] == queries.split()
    assert shown == texts(opened, ".keys .token bdi")
    assert opened.locator("[role=tab][aria-selected=true]").inner_text().lower() == tab


def test_the_decoder_never_looks_ahead(opened: "Page") -> None:
    opened.click("#tab-decoder")
    opened.hover(".queries .token >> nth=0")
    answers = texts(opened, ".head small")
    assert answers == ["<s> 100 %"] * 3


# The keyboard


def test_arrow_keys_move_over_tabs(opened: "Page") -> None:
    opened.focus("#tab-cross")
    opened.keyboard.press("ArrowLeft")
    assert focused(opened, "id") == "tab-decoder"
    assert opened.get_attribute("#panel", "data-view") == "decoder"


def test_arrow_keys_move_over_tokens(opened: "Page") -> None:
    opened.focus(".queries .token >> nth=0")
    opened.keyboard.press("ArrowDown")
    assert texts(opened, ".token.on bdi") == ["alte"]
    opened.keyboard.press("ArrowRight")
    assert texts(opened, ".token.on bdi") == ["old"]
    assert focused(opened, "data-side") == "keys"


def test_the_focus_can_be_seen(opened: "Page") -> None:
    opened.focus(".queries .token >> nth=0")
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_head_opens_moves_and_closes_by_keyboard(opened: "Page") -> None:
    opened.focus(".tile >> nth=0")
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("Enter")
    assert opened.inner_text("#large-title") == "Cross attention · layer 2 · head 2"
    opened.focus(".field")
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowRight")
    assert opened.inner_text("#readout").startswith("alte looks at old with 0.")
    opened.keyboard.press("Escape")
    assert not opened.locator("#large").is_visible()
    assert focused(opened, "aria-label") == "Layer 2, head 2"


def test_the_next_head_follows(opened: "Page") -> None:
    opened.click(".tile >> nth=5")
    opened.click("#next")
    assert opened.inner_text("#large-title") == "Cross attention · layer 1 · head 1"


# Screens and text of every kind


@pytest.mark.parametrize("tab", ["encoder", "decoder", "cross"])
def test_a_narrow_screen_never_scrolls_sideways(page: "Page", attention_page: Path, tab: str) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(attention_page.as_uri())
    page.click(f"#tab-{tab}")
    page.hover(".queries .token >> nth=1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.click(".tile >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_dark_has_its_own_colors(page: "Page", attention_page: Path) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(attention_page.as_uri())
    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) == "rgb(14, 18, 23)"


def test_hostile_text_is_shown_and_does_nothing(page: "Page", hostile_page: Path) -> None:
    page.goto(hostile_page.as_uri())
    assert page.inner_text("#source") == HOSTILE
    assert page.inner_text("#model") == "<i>tiny</i>"
    page.hover(".queries .token >> nth=1")
    page.click(".tile >> nth=0")
    page.hover(".field", position={"x": 3, "y": 3})
    assert page.locator("img, #source *, #model *").count() == 0
