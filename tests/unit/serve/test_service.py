"""A request as a whole: one deadline, one admission, and nothing in the event loop that grows with the text."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

import pytest

from multihead.config.schema import ModelSearch, SearchConfig
from multihead.serve import html
from multihead.serve import service as service_module
from multihead.serve.errors import Overloaded
from multihead.serve.languages import Detector
from multihead.serve.options import Limits
from multihead.serve.service import Service
from multihead.translation.translator import Translation, Translator
from tests.unit.serve.conftest import client_of, in_a_loop

PAIR = {"source": "en", "target": "de"}


def wait_until_nothing_waits(serving: Service) -> None:
    deadline = time.monotonic() + 20
    while any(direction.batcher.waiting_seconds for direction in serving.directions.values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_time_for_an_answer_is_that_of_the_whole_request(
    en_de: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty sentences of 0.2 seconds each, of which every single one would be in time."""
    called: list[str] = []

    def slow(lines: Iterable[str], config: SearchConfig, chunk_size: int, details: bool) -> Iterator[Translation]:
        for line in lines:
            called.append(line)
            time.sleep(0.2)
            yield from en_de.stream([line], config, details=details)

    patient = copy(en_de)
    monkeypatch.setattr(patient, "stream", slow)
    client = client_of(patient, limits=Limits(seconds=1, batch=1))
    text = " ".join(f"<b>Room {n}</b> is free." for n in range(100, 120))
    began = time.monotonic()
    answer = client.post("/translate", json={"q": text, **PAIR, "format": "html"})
    assert answer.json() == {"error": "the translation took too long"}
    assert answer.status_code == 503
    assert time.monotonic() - began < 3
    n_called = len(called)
    time.sleep(0.5)
    assert len(called) <= n_called + 1  # what was under way, and nothing after it


def test_a_request_that_is_refused_is_not_begun(en_de: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither split into sentences nor translated."""
    go, translated, split = threading.Event(), list[str](), list[str]()

    def stream(lines: Iterable[str], config: SearchConfig, chunk_size: int, details: bool) -> Iterator[Translation]:
        for line in lines:
            translated.append(line)
            assert go.wait(20)
            yield Translation(text=line)

    def split_sentences(text: str) -> tuple[list[str], list[str]]:
        split.append(text)
        return en_de.split_sentences(text)

    held = copy(en_de)
    monkeypatch.setattr(held, "stream", stream)
    monkeypatch.setattr(held, "split_sentences", split_sentences)
    serving = Service([held], Limits(seconds=20))

    async def ask() -> None:
        first = asyncio.create_task(serving.translate(["First."], "en", "de"))
        while not translated:
            await asyncio.sleep(0.01)
        many = [asyncio.create_task(serving.translate(["Text. " * 800] * 10, "en", "de")) for _ in range(5)]
        await asyncio.sleep(0.2)
        refused = [task for task in many if task.done()]
        assert refused
        assert all(isinstance(task.exception(), Overloaded) for task in refused)
        assert len(split) <= 1 + 10 * (len(many) - len(refused))
        for task in many:
            task.cancel()
        await asyncio.gather(*many, return_exceptions=True)
        go.set()
        assert (await first)[0][0].text == "First."

    in_a_loop(ask)
    wait_until_nothing_waits(serving)
    assert translated == ["First."]
    assert serving.close(10)


def test_tags_are_placed_by_the_attention_of_the_search(en_de: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the model is asked again, nor torch, where CTranslate2 searches."""
    fast = copy(en_de)
    for name in ("attention", "_load_models"):
        monkeypatch.setattr(fast, name, None)
    fields = {"q": ["Where is the <b>station</b>?"] * 2, **PAIR, "format": "html", "alternatives": 2}
    answer = client_of(fast).post("/translate", json=fields).json()
    assert answer["translatedText"] == ["Wo ist der <b>Bahnhof?</b>"] * 2
    assert [len(others) for others in answer["alternatives"]] == [2, 2]
    assert all(text.count("<b>") == 1 for others in answer["alternatives"] for text in others)


def test_words_are_aligned_only_for_tags_inside_a_sentence(en_de: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def stream(lines: Iterable[str], config: SearchConfig, chunk_size: int, details: bool) -> Iterator[Translation]:
        asked.append(details)
        return en_de.stream(lines, config, details=details)

    counted = copy(en_de)
    monkeypatch.setattr(counted, "stream", stream)
    client = client_of(counted)
    for text, markup in (("Hello.", "text"), ("<p><b>Hello.</b></p>", "html"), ("<b>Good</b> morning.", "html")):
        client.post("/translate", json={"q": text, **PAIR, "format": markup})
    assert asked == [False, False, True]


@pytest.mark.long
def test_nothing_that_grows_with_the_text_runs_in_the_event_loop(
    en_de: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, int] = {}

    def watch(owner: Any, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **more: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(*arguments, **more)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        *((service_module, name) for name in ("join_translations", "page_data")),
        (Translator, "split_sentences"),
        *((html, name) for name in ("parse", "place_tags")),
        (Detector, "rank"),
    ):
        watch(owner, name)
    serving = Service([en_de], Limits())

    async def ask() -> int:
        text = "Where is the station? " * 20
        await serving.translate([text], "auto", "de")
        await serving.translate([f"{text} Where is the <b>station</b>?"], "en", "de", is_html=True)
        await serving.attention(text, 0, "en", "de", SearchConfig())
        return threading.get_ident()

    loop_thread = in_a_loop(ask)
    assert set(threads) == {"split_sentences", "join_translations", "page_data", "parse", "place_tags", "rank"}
    assert loop_thread not in threads.values()
    assert serving.close(10)


PARAGRAPH = (
    'I have a dog. "He is very old." We go to the park every day!\n\nDo you want to come with us? It would be nice.'
)


@pytest.mark.long
def test_the_server_and_the_command_line_translate_a_paragraph_alike(en_de: Translator) -> None:
    answer = client_of(en_de).post("/translate", json={"q": PARAGRAPH, **PAIR, "alternatives": 2}).json()
    expected = en_de.translate(PARAGRAPH, n_best=3)
    assert answer["translatedText"] == expected.text
    assert answer["alternatives"] == [other.text for other in expected.alternatives]
    html = PARAGRAPH.replace('"', "&quot;")
    answer = client_of(en_de).post("/translate", json={"q": html, **PAIR, "format": "html"}).json()
    assert answer["translatedText"] == expected.text


def test_the_length_penalty_is_the_models_own_unless_it_is_asked_for(en_de: Translator) -> None:
    generous = copy(en_de)
    generous.search = ModelSearch(alpha=5.0)
    client, fields = client_of(generous), {"q": "Tom has a dog.", **PAIR}
    assert client.post("/attention", json=fields).json()["score"] == pytest.approx(
        en_de.translate("Tom has a dog.", alpha=5.0).score
    )
    asked = client.post("/attention", json={**fields, "alpha": 0.6}).json()
    assert asked["score"] == pytest.approx(en_de.translate("Tom has a dog.", alpha=0.6).score)
