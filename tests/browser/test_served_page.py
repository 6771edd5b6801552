"""The page of the server in a real browser: typing, alternatives, alignment, heads; keyboard, sizes, dark; inert."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import uvicorn

import multihead
from multihead.serve.access import Access
from multihead.serve.app import AppState, make_app
from multihead.serve.options import Limits
from multihead.serve.service import Service
from multihead.translation.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Page


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
    with serving(AppState(limits=Limits()), en_de) as address:
        yield address


@contextmanager
def serving(state: AppState, *translators: Translator) -> Iterator[str]:
    """Serve in a thread, and give the address."""
    state.service = Service(translators, state.limits)
    process = uvicorn.Server(uvicorn.Config(make_app(state), port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=process.run)
    thread.start()
    while not process.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{process.servers[0].sockets[0].getsockname()[1]}"
    finally:
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
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
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
    assert page.is_hidden("#options") and page.is_hidden("#score-note")
    page.click("#show-tree")  # the lesson computes in the browser
    assert lesson_of(page).locator("#step").get_attribute("data-station") == "beam"


def test_alternatives_have_scores_and_the_best_comes_first(page: "Page", address: str) -> None:
    show(page, address, "I forgot my umbrella.")
    scores = [float(score.replace("\u2212", "-")) for score in page.locator("#alternatives .score").all_text_contents()]
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


# Probabilities


def test_every_word_has_its_probability_under_it(page: "Page", address: str) -> None:
    show(page, address, "Where is the station?")
    shown = page.locator("#said .w").evaluate_all("words => words.map(word => word.dataset.chance)")
    fields = {"q": "Where is the station?", "source": "en", "target": "de", "beam": 4}
    words = page.request.post(f"{address}/attention", data=fields).json()["probabilities"]["words"]
    assert len(shown) == len(words) == 4
    assert [float(text.strip("<> %")) / 100 for text in shown] == pytest.approx(words, abs=0.006)
    assert page.is_visible("#chance-note")
    page.click("#clear")
    said(page, "")
    assert page.is_hidden("#chance-note")


def test_copied_text_has_no_probabilities(page: "Page", address: str) -> None:
    show(page, address, "Where is the station?")
    copied = page.evaluate("getSelection().selectAllChildren(document.getElementById('said')), String(getSelection())")
    assert copied.strip() == "Wo ist der Bahnhof?"


# The lesson


def lesson_of(page: "Page") -> "FrameLocator":
    """The lesson in its frame, once it has translated."""
    frame = page.frame_locator("#lesson")
    frame.locator("output.translation bdi").wait_for(timeout=30_000)
    page.wait_for_function("() => document.getElementById('lesson-note').textContent === ''")  # the frame is complete
    return frame


def test_the_tab_explain_is_the_lesson_about_the_served_model(page: "Page", address: str) -> None:
    show(page, address, "I forgot my umbrella.")
    translation = page.locator("#said").text_content()
    page.click("#mode-explain")
    lesson = lesson_of(page)
    assert lesson.locator("#sentence").input_value() == "I forgot my umbrella."
    assert lesson.locator("output.translation").text_content() == translation
    assert "en-de" in (lesson.locator(".eyebrow").text_content() or "")
    assert page.is_hidden("#text")
    page.click("#mode-translate")
    assert page.is_visible("#text")


@pytest.mark.parametrize(("button", "station"), [("#show-tree", "beam"), ("#show-what-if", "whatif")])
def test_a_button_opens_its_station(page: "Page", address: str, button: str, station: str) -> None:
    show(page, address, "Where is the station?")
    page.click(button)
    lesson = lesson_of(page)
    assert lesson.locator("#step").get_attribute("data-station") == station
    assert lesson.locator("output.translation").text_content() == "Wo ist der Bahnhof?"


def test_the_lesson_follows_the_sentence(page: "Page", address: str, how_old: str) -> None:
    show(page, address, "Where is the station?")
    page.click("#mode-explain")
    lesson_of(page)
    page.click("#mode-translate")
    page.fill("#text", "How old are you?")
    said(page, how_old)
    page.click("#mode-explain")
    lesson = lesson_of(page)
    lesson.locator("output.translation", has_text=how_old).wait_for(timeout=30_000)
    assert lesson.locator("#sentence").input_value() == "How old are you?"


def test_a_link_brings_back_the_lesson(page: "Page", address: str) -> None:
    page.goto(f"{address}/#from=en&to=de&q={quote('Where is the station?')}&view=explain")
    assert lesson_of(page).locator("output.translation").text_content() == "Wo ist der Bahnhof?"
    assert "view=explain" in page.url


@pytest.mark.parametrize("width", [380, 1440])
def test_the_lesson_fits_into_any_window_and_is_as_dark_as_the_page(page: "Page", address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    show(page, address, "Where is the station?")
    page.click("#theme")
    page.click("#mode-explain")
    root = lesson_of(page).locator("html")
    assert root.evaluate("root => getComputedStyle(root).backgroundColor") == "rgb(14, 18, 23)"
    assert root.evaluate("root => root.scrollWidth - root.clientWidth") <= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_key_opens_the_lesson_and_is_part_of_no_address(browser: "Browser", en_de: Translator) -> None:
    asked: list[str] = []
    with serving(AppState(access=Access(frozenset({"secret"}))), en_de) as address:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.click("#mode-explain")
        assert "needs the API key" in page.inner_text("#lesson-note")
        assert not any("/explain" in url for url in asked)
        page.click("#options summary")
        page.fill("#key", "wrong")
        page.locator("#key").blur()
        page.wait_for_function("() => document.getElementById('lesson-note').textContent === 'Invalid API key'")
        page.fill("#key", "secret")
        page.locator("#key").blur()
        lesson_of(page)
        page.close()
    assert any(url.endswith("/explain") for url in asked)
    assert not any("secret" in url for url in asked)


def test_a_model_without_a_lesson_says_so(browser: "Browser", en_de: Translator) -> None:
    bare = copy(en_de)
    bare.folder = None
    with serving(AppState(), bare) as address:
        page = browser.new_page()
        page.goto(address)
        page.click("#mode-explain")
        assert "There is no lesson about this model" in page.inner_text("#lesson-note")
        assert page.is_hidden("#lesson")
        page.close()


def test_a_server_without_lessons_has_no_tab(browser: "Browser", en_de: Translator) -> None:
    with serving(AppState(offers_lesson=False), en_de) as address:
        page = browser.new_page()
        page.goto(address)
        said(page, "Wo ist der Bahnhof?")
        assert page.is_hidden("#modes") and page.is_hidden("#show-tree") and page.locator("#show-what-if").count() == 0
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: "Browser", address: str, scheme: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    show(page, address, "Where is the station? I forgot my umbrella.")
    found = axe.run(page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"][:120]) for rule in found] == []
    context.close()


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
