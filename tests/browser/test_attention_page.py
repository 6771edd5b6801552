# ruff: noqa: RUF001
"""The attention page as a reader meets it: pointer, keyboard, narrow screen, the dark, and hostile text."""

import csv
import re
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
    assert all(answer.split()[0] in [*SOURCE.split(), "</s>"] and answer.endswith("%") for answer in answers)


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
    assert opened.inner_text("#large-title") == "Cross-attention · layer 2 · head 2"
    assert texts(opened, ".tops span") == [*SOURCE.split(), "</s>"]
    opened.hover(".field", position={"x": 3, "y": 3})
    weight = opened.evaluate(
        "(({ maps, scale }) => maps.cross[1][1][0][0] / scale)(JSON.parse(document.getElementById('data').textContent))"
    )
    assert opened.inner_text("#readout") == f"das looks at the with {weight:.4f}"


def test_nothing_is_explained_by_a_tooltip_only(opened: "Page") -> None:
    assert "the largest weight of a row" in opened.inner_text("#panel")
    assert "rest on </s>" in opened.inner_text("#panel")
    assert [text for text in opened.locator("[title]").evaluate_all("all => all.map(one => one.title)")] == [
        *TRANSLATION.split(),
        "</s>",
        *SOURCE.split(),
        "</s>",
    ]  # the full text of tokens, which may be cut off


def test_a_weight_has_the_same_strength_in_tiles_and_lines(opened: "Page") -> None:
    """The color of a tile and the opacity of a line are both linear in the weight."""
    opened.click(".layers label >> nth=0")
    far = opened.evaluate("""() => {
        const { maps, scale } = JSON.parse(document.getElementById("data").textContent);
        const pixels = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const ruler = pixels(document.getElementById("scale"));
        const tile = pixels(document.querySelector(".tile canvas"));
        const isAlike = (at, weight) => [-1, 0, 1].some((by) => {
            const place = Math.max(0, Math.min(159, Math.round(159 * weight / scale) + by));
            return [0, 1, 2].every((channel) => Math.abs(ruler[4 * place + channel] - tile[4 * at + channel]) <= 4);
        });
        const wrong = maps.cross[0][0].flat().filter((weight, at) => !isAlike(at, weight));
        const lines = [...document.querySelectorAll("#bipartite path")].map((path) => path.getAttribute("opacity"));
        const weights = maps.cross[0].flat(2).map((weight) => weight / scale).filter((weight) => weight >= 0.02);
        const [sky, ink] = [[0x78, 0xb6, 0xd6], [0x14, 0x1f, 0x57]]; // of the scale at 3/7 and at 1
        const isThere = (color, share) =>
            color.every((value, channel) => Math.abs(value - ruler[4 * Math.round(159 * share) + channel]) <= 4);
        if (!isThere(sky, 3 / 7) || !isThere(ink, 1)) return ["the scale is not linear"];
        return [wrong.length, lines.join() === weights.map((weight) => weight.toFixed(3)).join()];
    }""")
    assert far == [0, True]


# Where it is in the model, and which rows are read or written


def test_the_map_shows_the_attention_that_is_open_and_opens_another(opened: "Page") -> None:
    assert opened.locator("#map .lit text").all_text_contents() == ["Cross-attention"]
    opened.click("#map [data-part=encoder]")
    assert opened.get_attribute("#panel", "data-view") == "encoder"
    assert opened.locator("#map .lit text").all_text_contents() == ["Self-attention"]
    opened.locator("#layers input >> nth=1").check()
    assert "Encoder layer 2 of 2" in (opened.text_content("#map") or "")


@pytest.mark.parametrize("tab", ["decoder", "cross"])
def test_a_step_says_what_it_has_read_and_what_it_writes(opened: "Page", tab: str) -> None:
    opened.click(f"#tab-{tab}")
    opened.hover(".queries .token >> nth=1")
    shown = opened.inner_text("#step")
    assert re.fullmatch(
        r"Step 2 has read “das” and writes “alte”, with a probability of \d+\.\d%\.|.*< 0\.1%\.", shown
    ), shown


# The mask


def test_masked_cells_are_hatched(opened: "Page") -> None:
    """Above the diagonal nothing is painted, so that the hatching behind the canvas shows; all else is painted."""
    opened.click("#tab-decoder")
    holes = opened.evaluate("""() => {
        const canvas = document.querySelector(".tile canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const masked = [];
        for (let at = 0; at < pixels.length / 4; at++) {
            if (!pixels[4 * at + 3]) masked.push([Math.floor(at / canvas.width), at % canvas.width]);
        }
        return masked;
    }""")
    assert holes == [[query, key] for query in range(6) for key in range(6) if key > query]
    assert "repeating-linear-gradient" in opened.evaluate(
        "getComputedStyle(document.querySelector('.tile')).background"
    )


def test_a_masked_cell_says_so(opened: "Page") -> None:
    opened.click("#tab-decoder")
    opened.click(".tile >> nth=0")
    opened.focus(".field")
    opened.keyboard.press("ArrowRight")
    assert opened.inner_text("#readout") == "<s> must not look at das: its score is −∞, so its weight is 0"


# Numbers, CSV and PNG


def open_head(page: "Page") -> list[list[float]]:
    """Open head 2 of decoder layer 2, and return its weights."""
    page.click("#tab-decoder")
    page.click(".tile >> nth=4")
    weights: list[list[float]] = page.evaluate(
        "(({ maps, scale }) => maps.decoder[1][1].map(row => row.map(weight => weight / scale)))"
        "(JSON.parse(document.getElementById('data').textContent))"
    )
    return weights


def test_a_head_has_a_table_of_its_numbers(opened: "Page") -> None:
    weights = open_head(opened)
    opened.click("#numbers")
    assert texts(opened, ".numbers thead th") == texts(opened, ".numbers tbody th") == ["<s>", *TRANSLATION.split()]
    cells = [
        cell
        for row, values in enumerate(weights)
        for cell in (*(f"{weight:.3f}" for weight in values[: row + 1]), *["−∞"] * (len(values) - row - 1))
    ]
    assert texts(opened, ".numbers tbody td") == cells
    opened.click("#next")
    assert opened.locator(".numbers").is_visible()  # the choice stays
    opened.click("#numbers")
    assert opened.locator(".field").is_visible()


def test_a_head_is_saved_as_csv(opened: "Page") -> None:
    weights = open_head(opened)
    with opened.expect_download() as saved:
        opened.click("#save-csv")
    assert saved.value.suggested_filename == "decoder-layer-2-head-2.csv"
    head, *rows = csv.reader(saved.value.path().read_text(encoding="utf-8").splitlines())
    assert head == ["last token read / draws on", "<s>", *TRANSLATION.split()]
    assert [row[0] for row in rows] == ["<s>", *TRANSLATION.split()]
    assert [[float(number) for number in row[1:]] for row in rows] == weights


def test_a_head_is_saved_as_png(opened: "Page") -> None:
    open_head(opened)
    with opened.expect_download() as saved:
        opened.click("#save-png")
    assert saved.value.suggested_filename == "decoder-layer-2-head-2.png"
    content = saved.value.path().read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    assert width > 2 * 6 * 28 and height > 2 * 6 * 28  # labels, and six cells of 28 pixels at twice the resolution


def test_every_word_has_its_probability_under_it(opened: "Page") -> None:
    words = opened.evaluate("JSON.parse(document.getElementById('data').textContent).probabilities.words")
    shown = texts(opened, ".words .chance")
    assert len(shown) == len(words) == len(TRANSLATION.split())
    assert [float(text.strip("<> %")) / 100 for text in shown] == pytest.approx(words, abs=0.006)


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
    assert answers == ["<s> 100%"] * 3


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
    assert opened.inner_text("#large-title") == "Cross-attention · layer 2 · head 2"
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
    assert opened.inner_text("#large-title") == "Cross-attention · layer 1 · head 1"


# Screens and text of every kind


@pytest.mark.parametrize("tab", ["encoder", "decoder", "cross"])
def test_a_narrow_screen_never_scrolls_sideways(page: "Page", attention_page: Path, tab: str) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(attention_page.as_uri())
    page.click(f"#tab-{tab}")
    page.hover(".queries .token >> nth=1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.click(".tile >> nth=0")
    page.click("#numbers")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_dark_has_its_own_colors(page: "Page", attention_page: Path) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(attention_page.as_uri())
    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) == "rgb(14, 18, 23)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "Browser", attention_page: Path, scheme: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(attention_page.as_uri())
    for act in ("#tab-decoder", ".tile >> nth=4", "#numbers"):
        page.click(act)
        found = axe.run(page).response["violations"]
        assert [(act, rule["id"], rule["nodes"][0]["html"][:120]) for rule in found] == []
    context.close()


def test_hostile_text_is_shown_and_does_nothing(page: "Page", hostile_page: Path) -> None:
    page.goto(hostile_page.as_uri())
    assert page.inner_text("#source") == HOSTILE
    assert page.inner_text("#model") == "<i>tiny</i>"
    page.hover(".queries .token >> nth=1")
    page.click(".tile >> nth=0")
    page.hover(".field", position={"x": 3, "y": 3})
    page.click("#numbers")
    assert page.locator("img, #source *, #model *").count() == 0
