"""The page of the server in a real browser: typing, alternatives, alignment, heads; keyboard, sizes, dark; inert."""

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import uvicorn

import multihead
from multihead.serve.app import AppState, make_app
from multihead.serve.options import Limits
from multihead.serve.service import Service
from multihead.translation.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PAYLOADS = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>",
    "<svg><script>window.hacked=1</script></svg>",
    "<iframe src=javascript:window.hacked=1>",
    "<body onload=window.hacked=1>",
    "<a href=javascript:window.hacked=1>x</a>",
    "<details open ontoggle=window.hacked=1>",
    "<input autofocus onfocus=window.hacked=1>",
    "<math><mi//xlink:href='javascript:window.hacked=1'>",
    "<style>@import 'javascript:window.hacked=1'</style>",
    "<object data=javascript:window.hacked=1>",
    "'\"><script>window.hacked=1</script>",
    "</textarea><script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "${window.hacked=1}",
    "{{constructor.constructor('window.hacked=1')()}}",
    "javascript:window.hacked=1",
    "<marquee onstart=window.hacked=1>",
    "<template><img src=x onerror=window.hacked=1></template>",
]


@pytest.fixture(scope="module")
def en_de() -> Translator:
    return multihead.load("en-de", engine="torch")


@pytest.fixture(scope="module")
def how_old(en_de: Translator) -> str:
    """What the model says to the question that the tests type."""
    return en_de.translate("How old are you?").text


@pytest.fixture(scope="module")
def address(en_de: Translator) -> Iterator[str]:
    state = AppState(limits=Limits())
    state.service = Service([en_de], state.limits)
    process = uvicorn.Server(uvicorn.Config(make_app(state), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=process.run)
    thread.start()
    while not process.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{process.servers[0].sockets[0].getsockname()[1]}"
    process.should_exit = True
    thread.join(10)


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    """A page that must not log an error, nor ask another machine for anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    errors: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    yield opened
    assert errors == []
    assert all(url.startswith((address, "data:")) for url in asked), asked
    context.close()


def show(page: "Page", address: str, text: str) -> None:
    page.goto(f"{address}/#from=en&to=de&q={quote(text)}")
    page.wait_for_selector("#viewer:not([hidden])")


def said(page: "Page", text: str) -> None:
    """Wait until the page says this."""
    page.wait_for_function("text => document.getElementById('said').textContent.trim() === text", arg=text)


def test_a_first_visit_shows_an_example(page: "Page", address: str) -> None:
    page.goto(address)
    said(page, "Wo ist der Bahnhof?")
    assert page.input_value("#text") == "Where is the station?"


def test_only_languages_that_can_be_translated_from_are_offered(page: "Page", address: str) -> None:
    page.goto(address)
    said(page, "Wo ist der Bahnhof?")
    assert page.locator("#from option").evaluate_all("options => options.map(option => option.value)") == ["en"]
    assert page.locator("#to option").evaluate_all("options => options.map(option => option.textContent)") == ["German"]


def test_what_is_typed_is_translated_while_typing(page: "Page", address: str, how_old: str) -> None:
    page.goto(address)
    said(page, "Wo ist der Bahnhof?")
    page.fill("#text", "")
    page.locator("#text").press_sequentially("How old are you?", delay=5)
    said(page, how_old)
    page.click("#clear")
    said(page, "")
    assert page.is_hidden("#viewer")


def test_without_torch_the_page_translates_and_hides_the_view_of_attention(
    page: "Page", address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multihead.serve.app.is_installed", lambda module: False)
    page.goto(address)
    said(page, "Wo ist der Bahnhof?")
    page.wait_for_selector("#others:not([hidden])")
    assert page.locator("#alternatives bdi").count() == 4
    assert page.is_hidden("#viewer")
    assert page.is_hidden("#options")


def test_alternatives_have_scores_and_the_best_comes_first(page: "Page", address: str) -> None:
    show(page, address, "I forgot my umbrella.")
    scores = [float(score) for score in page.locator("#alternatives .score").all_text_contents()]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert page.locator("#alternatives bdi").first.text_content() == page.locator("#said").inner_text().strip()


def test_a_word_points_at_its_partners_in_the_text(page: "Page", address: str) -> None:
    show(page, address, "Where is the station?")
    page.hover("#said .w >> nth=-1")
    assert "station?" in page.locator("#mirror mark").all_text_contents()
    assert page.locator("#said .w.on").count() == 1
    page.mouse.move(0, 0)
    assert page.locator("#mirror mark").count() == 0


def test_every_head_of_every_layer_can_be_opened(page: "Page", address: str) -> None:
    show(page, address, "Where is the station?")
    for view, layers in (("encoder", 4), ("decoder", 2), ("cross", 2)):
        page.click(f"#tab-{view}")
        assert page.locator("#grid .tile").count() == layers * 4
    page.click("#grid .tile >> nth=5")
    assert page.text_content("#large-title") == "Cross-attention · layer 2 · head 2"
    page.keyboard.press("Escape")
    assert page.is_hidden("#large")


def test_the_sentence_under_the_cursor_is_the_one_to_look_at(page: "Page", address: str, how_old: str) -> None:
    show(page, address, "How old are you? Where is the station?")
    said(page, f"{how_old} Wo ist der Bahnhof?")
    assert page.locator("#sentences button").count() == 2
    page.click("#sentences button >> nth=1")
    page.wait_for_function(
        "() => document.querySelector('#sentences [aria-current=true]').textContent.startsWith('Where')"
    )
    assert page.locator("#ribbon .words >> nth=0").text_content() == "Whereisthestation?"


def test_beam_and_length_penalty_can_be_played_with(page: "Page", address: str) -> None:
    show(page, address, "I forgot my umbrella.")
    before = page.locator("#alternatives .score").first.text_content()
    page.click("#options summary")
    page.locator("#alpha").fill("2")
    page.wait_for_function(
        "before => document.querySelector('#alternatives .score').textContent !== before", arg=before
    )
    assert page.text_content("#alpha-value") == "2"


def test_a_link_brings_back_what_was_typed(page: "Page", address: str, how_old: str) -> None:
    page.goto(address)
    said(page, "Wo ist der Bahnhof?")
    page.fill("#text", "How old are you?")
    said(page, how_old)
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    said(page, how_old)


def test_everything_can_be_reached_by_keyboard(page: "Page", address: str) -> None:
    show(page, address, "Where is the station?")
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"brand", "from", "to", "theme", "text", "said", "copy", "share"} <= reached
    assert any(name.startswith("tab-") for name in reached)
    assert any("tile" in name for name in reached)


@pytest.mark.parametrize("width", [380, 800, 1600])
def test_it_fits_into_any_window(page: "Page", address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    show(page, address, "Where is the station? I forgot my umbrella.")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for part in ("#text", "#said", "#grid", "#from"):
        box = page.locator(part).bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width


def test_light_and_dark_can_be_chosen_and_stay(page: "Page", address: str) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    show(page, address, "Where is the station?")
    assert background() == "rgb(255, 255, 255)"
    page.click("#theme")
    assert background() == "rgb(14, 18, 23)"
    page.reload()
    page.wait_for_selector("#viewer:not([hidden])")
    assert background() == "rgb(14, 18, 23)"


def test_scripts_in_a_text_are_text(page: "Page", address: str) -> None:
    """Each is shown, translated and looked into, and none of them runs."""
    show(page, address, "Where is the station?")
    for payload in PAYLOADS:
        page.fill("#text", payload)
        page.wait_for_function(
            "text => text.includes(document.querySelector('#ribbon .word')?.textContent ?? text) &&"
            " !document.getElementById('said').classList.contains('old')",
            arg=payload,
        )
        page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None, payload
        assert page.input_value("#text") == payload
