"""LibreTranslate's interface: fields, answers, errors and codes; and our own routes beside it."""

import asyncio
import json
import logging
import shutil
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import multihead
from multihead.errors import UsageError
from multihead.interop.hub import find_model
from multihead.lesson.explain import lesson_page
from multihead.lesson.page import content_policy
from multihead.serve.access import Access
from multihead.serve.app import AppState, make_app
from multihead.serve.errors import RateLimited
from multihead.serve.lessons import Lesson, Page
from multihead.serve.options import Limits
from multihead.serve.service import Service
from multihead.storage.model_folder import ModelFolder
from multihead.translation.targets import Targets
from multihead.translation.translator import Translator
from tests.unit.serve.conftest import client_of, in_a_loop

PAIR = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def good_morning(en_de: Translator) -> str:
    return en_de.translate("Good morning.").text


def translate(client: TestClient, q: object, **more: object) -> dict[str, Any]:
    answer = client.post("/translate", json={"q": q, **PAIR, **more})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def test_a_text_is_translated(client: TestClient) -> None:
    assert translate(client, "Where is the station?") == {"translatedText": "Wo ist der Bahnhof?"}


def test_a_form_is_as_good_as_json(client: TestClient) -> None:
    fields = {"q": "Where is the station?", **PAIR}
    for kind in ({"data": fields}, {"files": {name: (None, value) for name, value in fields.items()}}):
        answer = client.post("/translate", **kind)
        assert answer.json() == {"translatedText": "Wo ist der Bahnhof?"}


def test_a_list_is_answered_with_a_list(client: TestClient, good_morning: str) -> None:
    both = translate(client, ["Where is the station?", "", "Good morning."])
    assert both == {"translatedText": ["Wo ist der Bahnhof?", "", good_morning]}


def test_white_space_and_paragraphs_are_kept(client: TestClient, good_morning: str) -> None:
    text = "  Where is the station?  Good morning.\n\n\tGood morning.\n"
    said = f"  Wo ist der Bahnhof?  {good_morning}\n\n\t{good_morning}\n"
    assert translate(client, text) == {"translatedText": said}


def test_a_sentence_is_translated_the_same_wherever_it_stands(client: TestClient, en_de: Translator) -> None:
    sentences = ["Where is the station?", "I have lost my passport.", "Good morning."]
    alone = [en_de.translate(sentence).text for sentence in sentences]
    assert translate(client, " ".join(sentences)) == {"translatedText": " ".join(alone)}


def test_languages_are_found_out_and_codes_are_case_insensitive(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "Where is the station?", "source": "AUTO", "target": "DE"}).json()
    assert answer["translatedText"] == "Wo ist der Bahnhof?"
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100


def test_alternatives_are_given_if_asked_for(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "I forgot my umbrella.", **PAIR, "alternatives": 3}).json()
    assert 1 <= len(answer["alternatives"]) <= 3
    assert answer["translatedText"] not in answer["alternatives"]
    assert len(set(answer["alternatives"])) == len(answer["alternatives"])


def test_html_keeps_its_tags(client: TestClient, good_morning: str) -> None:
    markup = "<p>Where is the <b>station</b>?</p><script>1 < 2</script><p>Good morning.</p>"
    answer = client.post("/translate", json={"q": markup, **PAIR, "format": "html"}).json()["translatedText"]
    assert answer == f"<p>Wo ist der <b>Bahnhof?</b></p><script>1 < 2</script><p>{good_morning}</p>"


@pytest.mark.parametrize(
    ("fields", "code", "error"),
    [
        ({}, 400, "Invalid request: missing q parameter"),
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": "x"}, 400, "Invalid request: missing source parameter"),
        ({"q": "x", "source": "en"}, 400, "Invalid request: missing target parameter"),
        ({"q": "x", "source": "zz", "target": "de"}, 400, "zz is not supported"),
        ({"q": "x", "source": "en", "target": "zz"}, 400, "zz is not supported"),
        (
            {"q": "x", "source": "de", "target": "en"},
            400,
            "English (en) is not available as a target language from German (de)",
        ),
        ({"q": "x" * 5001, **PAIR}, 400, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["x", "x" * 5001], **PAIR}, 400, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["x" * 5000] * 11, **PAIR}, 400, "Invalid request: request (55000) exceeds text limit (50000)"),
        ({"q": ["x"] * 51, **PAIR}, 400, "Invalid request: request (51) exceeds text limit (50)"),
        ({"q": ["x", 1], **PAIR}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": {"a": 1}, **PAIR}, 400, "Invalid request: q must be a text or a list of texts"),
        ({"q": "x", **PAIR, "format": "pdf"}, 400, "Invalid request: format must be text or html"),
        ({"q": "x", **PAIR, "alternatives": 11}, 400, "Invalid request: alternatives must be a number from 0 to 10"),
        ({"q": "x", **PAIR, "alternatives": -1}, 400, "Invalid request: alternatives must be a number from 0 to 10"),
        ({"q": "x", **PAIR, "alternatives": 1e400}, 400, "Invalid request: the body is not JSON"),
        ({"q": "x", **PAIR, "alternatives": True}, 400, "Invalid request: alternatives must be a number from 0 to 10"),
        ({"q": "x", **PAIR, "alternatives": 1.5}, 400, "Invalid request: alternatives must be a whole number"),
        ({"q": "x", "source": ["en"], "target": "de"}, 400, "Invalid request: source must be the code of a language"),
    ],
)
def test_what_cannot_be_served_is_refused_in_libretranslates_words(
    client: TestClient, fields: dict[str, object], code: int, error: str
) -> None:
    answer = client.post("/translate", content=json.dumps(fields), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (code, {"error": error})


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"q": NaN, "source": "en", "target": "de"}',
        b"[" * 60_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"q": "x", "source": "en", "target": "de", "alternatives": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe",
        b"\x00",
    ],
)
def test_a_body_that_is_no_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_half_of_a_surrogate_pair_is_no_error(client: TestClient) -> None:
    body = b'{"q": "\\ud800 Good morning. \\udfff", "source": "en", "target": "de"}'
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    refused = client.post("/translate", content=b'{"q": "x", "source": "\\ud800", "target": "de"}')
    assert (refused.status_code, refused.json()["error"]) == (400, "\ud800 is not supported")


def test_a_line_of_many_characters_is_served(client: TestClient) -> None:
    assert list(translate(client, "word " * 1000)) == ["translatedText"]


def test_a_large_body_is_refused_before_it_is_read(client: TestClient) -> None:
    """The bound is what the longest texts could need, in the longest way to write them."""
    assert client.post("/translate", content=b"x" * 610_001).status_code == 413
    announced = client.post("/translate", content=b"{}", headers={"content-length": str(50_000_000)})
    assert (announced.status_code, announced.headers["connection"]) == (413, "close")
    longest = json.dumps({"q": [" \U0001f600" * 2500] + ["\U0001f600" * 5000] * 9, **PAIR, "target": "zz"})
    answer = client.post("/translate", content=longest, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (400, "zz is not supported")


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded"])
def test_a_large_body_that_is_not_announced_is_refused_when_it_has_grown(client: TestClient, kind: str) -> None:
    chunks = (b"x" * 1000 for _ in range(700))
    answer = client.post("/translate", content=chunks, headers={"content-type": kind})
    assert (answer.status_code, answer.json()) == (413, {"error": "the request is larger than 610000 bytes"})


def test_a_large_multipart_form_is_refused(client: TestClient) -> None:
    answer = client.post("/translate", files={"q": (None, "x" * 700_000)})
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    headers = {"content-type": "multipart/form-data; boundary=b"}
    chunks = (b"--b\r\ncontent-disposition: form-data; name=q\r\n\r\n", *(b"x" * 1000 for _ in range(700)))
    answer = client.post("/translate", content=iter(chunks), headers=headers)
    assert (answer.status_code, answer.json()) == (413, {"error": "the request is larger than 610000 bytes"})


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=b"])
def test_a_broken_form_is_refused(client: TestClient, kind: str) -> None:
    answer = client.post("/translate", content=b"no form", headers={"content-type": kind})
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


def test_a_form_may_leave_fields_empty(client: TestClient) -> None:
    fields = {"q": "Where is the station?", **PAIR, "format": "", "alternatives": "", "api_key": ""}
    assert client.post("/translate", data=fields).json() == {"translatedText": "Wo ist der Bahnhof?"}


def test_pages_of_others_may_ask(client: TestClient) -> None:
    """A browser asks first whether it may send JSON."""
    origin = {"origin": "https://example.org"}
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert client.options("/translate", headers=origin | wanted).headers["access-control-allow-origin"] == "*"
    assert client.get("/languages", headers=origin).headers["access-control-allow-origin"] == "*"


def test_detect_ranks_what_it_may_be(client: TestClient) -> None:
    for text, code in (("Where is the station?", "en"), ("Wo ist der Bahnhof?", "de")):
        found = client.post("/detect", json={"q": text}).json()
        assert found[0]["language"] == code
        assert found[0]["confidence"] > 50
    assert client.post("/detect", json={"q": "12345"}).json() == [{"confidence": 0.0, "language": "en"}]
    assert client.post("/detect", json={}).json() == {"error": "Invalid request: missing q parameter"}


def test_languages_are_listed_even_if_the_request_has_a_body(client: TestClient) -> None:
    answer = client.request("GET", "/languages", data={"api_key": "x"})
    assert answer.json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]


def test_weblate_finds_both_languages_and_sends_a_batch(client: TestClient) -> None:
    """Its machinery takes the codes of the list, wants both languages in them, and sends up to 20 strings at once."""
    supported = {one["code"] for one in client.get("/languages").json()}
    assert {"en", "de"} <= supported
    strings = [("Where is the station? " * 20)[:400] for _ in range(20)]
    answer = client.post("/translate", json={"q": strings, **PAIR})
    assert answer.status_code == 200
    assert len(answer.json()["translatedText"]) == 20


@pytest.mark.long
def test_the_largest_request_is_served_by_an_idle_server(en_de: Translator, good_morning: str) -> None:
    """Although its many short sentences count as more than may wait."""
    client = client_of(en_de, limits=Limits(seconds=300))
    text = "Good morning. " * 357  # 4,998 characters
    answer = client.post("/translate", json={"q": [text] * 10, **PAIR})
    assert answer.status_code == 200
    assert answer.json()["translatedText"] == [f"{good_morning} " * 357] * 10


# Languages that cannot be told apart


def speaking(translator: Translator, source: str, target: str) -> Translator:
    """The same model, said to be for other languages."""
    other = copy(translator)
    data = replace(translator.config.data, source_lang=source, target_lang=target)
    other.config = replace(translator.config, data=data)
    other.targets = Targets(other.name, data, other.tokenizer)
    return other


def test_a_language_that_the_detector_does_not_know_is_never_certain(en_de: Translator) -> None:
    both = client_of(speaking(en_de, "en", "fon"), speaking(en_de, "fon", "en"))
    for text in ("Where is the station?", "A yì Kútɔ̀nù à?"):
        assert both.post("/detect", json={"q": text}).json() == [{"confidence": 0.0, "language": "en"}]
        answer = both.post("/translate", json={"q": text, "source": "auto", "target": "fon"})
        assert (answer.status_code, answer.json()["error"]) == (
            400,
            "the language of the text cannot be detected, because the detector does not know fon; "
            "set source to one of en, fon",
        )
    assert both.post("/attention", json={"q": "x", "source": "auto", "target": "fon"}).status_code == 400
    assert both.post("/translate", json={"q": "Hello.", "source": "en", "target": "fon"}).status_code == 200


def test_a_text_without_letters_is_translated_from_any_language(en_de: Translator) -> None:
    both = client_of(speaking(en_de, "en", "fon"), speaking(en_de, "fon", "en"))
    for target, source in (("fon", "en"), ("en", "fon")):
        answer = both.post("/translate", json={"q": "12345", "source": "auto", "target": target})
        assert answer.json()["detectedLanguage"] == {"confidence": 0.0, "language": source}


def test_the_only_source_language_is_taken_where_none_can_be_detected(en_de: Translator) -> None:
    one_way = client_of(speaking(en_de, "en", "fon"))
    answer = one_way.post("/translate", json={"q": "Where is the station?", "source": "auto", "target": "fon"})
    assert answer.json()["detectedLanguage"] == {"confidence": 0.0, "language": "en"}


def test_a_regional_code_is_detected_as_its_language(en_de: Translator) -> None:
    brazil = client_of(speaking(en_de, "en", "pt-BR"), speaking(en_de, "pt-BR", "en"))
    found = brazil.post("/detect", json={"q": "Onde fica a estação de trem?"}).json()
    assert found[0]["language"] == "pt-br"
    assert found[0]["confidence"] > 90
    both = client_of(speaking(en_de, "en", "zh-Hans"), speaking(en_de, "en", "zh-Hant"))
    assert both.post("/detect", json={"q": "火车站在哪里"}).json()[0]["confidence"] == 0


def test_the_settings_of_the_page(client: TestClient) -> None:
    answer = client.get("/frontend/settings").json()
    assert (answer["charLimit"], answer["keyRequired"]) == (5000, False)
    assert answer["language"]["target"] == {"code": "de", "name": "German"}
    assert answer["attention"] is True


def test_without_torch_the_route_of_attention_answers_501_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    light = client_of(multihead.load("en-de"))
    assert translate(light, "Where is the station?") == {"translatedText": "Wo ist der Bahnhof?"}
    assert light.get("/frontend/settings").json()["attention"] is False
    answer = light.post("/attention", json={"q": "Where is the station?", **PAIR})
    assert answer.status_code == 501
    assert answer.json() == {"error": "this server does not show attention: PyTorch is not installed"}


# Keys and rates


def test_without_a_key_nobody_is_served_if_keys_are_set(en_de: Translator) -> None:
    guarded = client_of(en_de, access=Access(frozenset({"secret"})))
    fields = {"q": "Good morning.", **PAIR}
    for key in ({}, {"api_key": "wrong"}, {"api_key": 1}, {"api_key": "\ud800"}):
        answer = guarded.post("/translate", content=json.dumps({**fields, **key}))
        assert (answer.status_code, answer.json()) == (403, {"error": "Invalid API key"})
    assert guarded.post("/translate", json={**fields, "api_key": "secret"}).status_code == 200
    assert guarded.get("/languages").status_code == 200


def test_who_asks_too_often_is_told_when_to_come_again(en_de: Translator) -> None:
    limited = client_of(en_de, access=Access(rate_limit="2/minute"))
    codes = [limited.post("/detect", json={"q": "hello"}) for _ in range(3)]
    assert [answer.status_code for answer in codes] == [200, 200, 429]
    assert codes[2].json()["error"].startswith("Slowdown: ")
    assert 1 <= int(codes[2].headers["retry-after"]) <= 60


def test_wrong_keys_are_limited_even_without_a_rate(en_de: Translator) -> None:
    guarded = client_of(en_de, access=Access(frozenset({"secret"})))

    def status(**key: str) -> int:
        return guarded.post("/detect", json={"q": "hello", **key}).status_code

    assert [status() for _ in range(20)] == [403] * 20  # without a key nothing is guessed
    assert [status(api_key=f"guess {n}") for n in range(12)] == [403] * 10 + [429] * 2
    limited = guarded.post("/detect", json={"q": "hello", "api_key": "secret"})  # or the next guess could be right
    assert limited.status_code == 429
    assert 1 <= int(limited.headers["retry-after"]) <= 60


def test_clients_are_counted_by_network_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.serve.access.MAX_CLIENTS", 50)
    access = Access(rate_limit="3/hour")
    for n in range(3):
        access.check(None, f"2001:db8::{n}")
    with pytest.raises(RateLimited):
        access.check(None, "2001:db8::ffff")
    for n in range(4):  # as IPv4 addresses appear on an IPv6 socket: each is a client of its own
        access.check(None, f"::ffff:10.1.0.{n}")
    for address in [*(f"10.0.0.{n}" for n in range(200)), "a:b:c", "x" * 10_000, ""]:
        access.check(None, address)
    assert len(access._storage.events) <= 51
    assert max(map(len, access._storage.events)) < 200


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\n\n two \n", encoding="utf-8")
    assert Access.from_file(tmp_path / "keys", "").keys == {"one", "two"}
    (tmp_path / "none").write_text("\n", encoding="utf-8")
    for path, rate, word in ((tmp_path / "none", "", "contains no key"), (tmp_path / "nowhere", "", "cannot read")):
        with pytest.raises(UsageError, match=word):
            Access.from_file(path, rate)
    with pytest.raises(UsageError, match="60/minute"):
        Access(rate_limit="often")


# Our own routes


def test_health_answers_while_the_models_are_loaded_and_nothing_else_does() -> None:
    loading = TestClient(make_app(AppState()))
    assert loading.get("/health").json() == {"status": "ok"}
    for route in ("/ready", "/languages"):
        answer = loading.get(route)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert loading.post("/translate", json={"q": "x", **PAIR}).status_code == 503


def test_a_server_that_is_leaving_is_not_ready_but_serves_what_comes(en_de: Translator, good_morning: str) -> None:
    state = AppState()
    state.service = Service([en_de], state.limits)
    leaving = TestClient(make_app(state))
    assert leaving.get("/ready").json() == {"status": "ready"}
    state.is_draining = True
    assert leaving.get("/ready").status_code == 503
    assert translate(leaving, "Good morning.") == {"translatedText": good_morning}


def test_attention_shows_a_sentence_of_a_text(client: TestClient) -> None:
    fields = {"q": "Good morning. Where is the station?", **PAIR, "sentence": 1, "alternatives": 2}
    answer = client.post("/attention", json=fields).json()
    assert answer["sentences"] == ["Good morning.", "Where is the station?"]
    assert answer["translation"] == "Wo ist der Bahnhof?"
    assert answer["score"] > answer["alternatives"][0]["score"]
    layers, heads = len(answer["maps"]["cross"]), len(answer["maps"]["cross"][0])
    assert (layers, heads) == (2, 4)
    rows = answer["maps"]["encoder"][0][0]
    assert all(sum(row) == pytest.approx(answer["scale"], rel=0.01) for row in rows)
    assert len(rows) == len(answer["tokens"]["source"])


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"q": "One.", "sentence": 1}, "no sentence 1"),
        ({"q": "x" * 401}, "up to 400 characters"),
        ({"q": "x", "beam": 13}, "beam must be"),
        ({"q": "x", "beam": 0}, "beam must be"),
        ({"q": "x", "alpha": -1}, "alpha must be"),
        ({"q": ["x"]}, "q must be a text"),
        ({"q": " "}, "no sentence 0"),
    ],
)
def test_attention_is_bounded(client: TestClient, fields: dict[str, object], word: str) -> None:
    answer = client.post("/attention", json={**PAIR, **fields})
    assert answer.status_code == 400
    assert word in answer.json()["error"]


# The lesson


def test_the_lesson_of_a_model_is_a_page_with_its_own_policy(client: TestClient) -> None:
    answer = client.get("/explain", params=PAIR)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.text == lesson_page(ModelFolder.open(find_model("en-de")), None)[0]
    policy = answer.headers["content-security-policy"]
    assert content_policy() in policy and "frame-ancestors 'self'" in policy and "unsafe" not in policy
    assert client.post("/explain", data=PAIR).content == answer.content  # as the form of the page asks


def test_the_lesson_is_sent_once(client: TestClient) -> None:
    etag = client.get("/explain", params=PAIR).headers["etag"]
    again = client.get("/explain", params=PAIR, headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")


def test_the_lesson_is_made_once(en_de: Translator) -> None:
    lesson = Lesson(en_de.folder)

    async def ask_together() -> list[Page]:
        return await asyncio.gather(*(lesson.page() for _ in range(4)))

    first, *others = in_a_loop(ask_together)
    assert all(other is first for other in others)


def test_a_client_that_leaves_does_not_stop_a_lesson_that_others_wait_for(en_de: Translator) -> None:
    lesson = Lesson(en_de.folder)

    async def leave() -> Page:
        leaving, staying = asyncio.ensure_future(lesson.page()), asyncio.ensure_future(lesson.page())
        await asyncio.sleep(0.05)
        leaving.cancel()
        return await staying

    assert len(in_a_loop(leave).content) > 1_000_000


def test_a_lesson_that_could_not_be_made_is_made_again(en_de: Translator, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(find_model("en-de"), tmp_path / "model"))
    moved = copy(en_de)
    moved.folder = ModelFolder.open(folder)
    client = client_of(moved)
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    assert client.get("/explain", params=PAIR).status_code == 500
    (tmp_path / "tokenizer.json").rename(folder / "tokenizer.json")
    assert client.get("/explain", params=PAIR).status_code == 200


def test_a_model_without_a_lesson_is_refused_in_words(en_de: Translator) -> None:
    bare = copy(en_de)
    bare.folder = None
    client = client_of(bare)
    answer = client.get("/explain", params=PAIR)
    assert answer.status_code == 400
    assert "more than 12 million parameters" in answer.json()["error"]
    assert client.get("/frontend/settings").json()["lessons"] == []


def test_a_server_may_keep_the_weights_to_itself(en_de: Translator) -> None:
    state = AppState(offers_lesson=False)
    state.service = Service([en_de], state.limits)
    client = TestClient(make_app(state))
    for answer in (client.get("/explain", params=PAIR), client.post("/explain", json=PAIR)):
        assert (answer.status_code, answer.json()) == (400, {"error": "this server does not offer the lesson"})
    assert client.get("/frontend/settings").json()["explain"] is False


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "missing source"),
        ({"source": "en"}, "missing target"),
        ({"source": "en", "target": "x" * 21}, "code of a language"),
        ({"source": "auto", "target": "de"}, "auto is not supported"),
        ({"source": "de", "target": "en"}, "not available"),
    ],
)
def test_a_lesson_about_nothing_is_refused(client: TestClient, fields: dict[str, str], word: str) -> None:
    for answer in (client.get("/explain", params=fields), client.post("/explain", json=fields)):
        assert answer.status_code == 400
        assert word in answer.json()["error"]


def test_no_lesson_is_made_for_a_client_without_access(en_de: Translator) -> None:
    """A key is taken from the body only: an address is logged by every proxy."""
    state = AppState(access=Access(frozenset({"secret"}), "2/minute"))
    state.service = Service([en_de], state.limits)
    client = TestClient(make_app(state))
    assert client.get("/explain", params=PAIR).status_code == 403
    assert client.get("/explain", params={**PAIR, "api_key": "secret"}).status_code == 403
    assert client.post("/explain", data={**PAIR, "api_key": "wrong"}).status_code == 403
    assert state.service.directions["en", "de"].lesson._page is None
    codes = [client.post("/explain", data={**PAIR, "api_key": "secret"}).status_code for _ in range(3)]
    assert codes == [200, 200, 429]


def test_metrics_count_and_tell_nothing_of_anybody(client: TestClient) -> None:
    translate(client, "A secret sentence.")
    client.get("/no/such/route/with/a/secret")
    text = client.get("/metrics").text
    assert 'multihead_requests_total{route="/translate",status="200"}' in text
    assert 'route="other",status="404"' in text
    assert "multihead_batch_pieces_count" in text
    for secret in ("secret", "testclient", "en-de"):
        assert secret not in text


def test_the_log_has_no_text_and_no_address(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="multihead.serve"):
        translate(client, "A secret sentence.")
    (line,) = [json.loads(record.message) for record in caplog.records if record.name == "multihead.serve"]
    assert set(line) == {"time", "method", "route", "status", "seconds"}


@pytest.mark.parametrize("kind", ["text", "html"])
@pytest.mark.long
def test_no_text_makes_the_server_fail(client: TestClient, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(text=st.text("<>![]-&;/\"'= ab", min_size=1, max_size=25))
    @example(text="<![ MySecretName 555-1234")
    @example(text="<![foo[ bar")
    @example(text="<![%")
    @example(text="&#" + "9" * 4400 + ";")
    def ask(text: str) -> None:
        answer = client.post("/translate", json={"q": text, **PAIR, "format": kind})
        assert answer.status_code == 200, answer.text

    ask()
    assert not any(record.levelno >= logging.WARNING for record in caplog.records)


def test_an_unexpected_error_tells_the_log_its_type_and_place_and_no_text(
    en_de: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("My secret sentence.")

    broken = copy(en_de)
    monkeypatch.setattr(broken, "stream", fail)
    answer = client_of(broken).post("/translate", json={"q": "My secret sentence.", **PAIR}, headers={"origin": "x"})
    assert (answer.status_code, answer.json()) == (500, {"error": "internal server error"})
    assert answer.headers["access-control-allow-origin"] == "*"
    (line,) = [json.loads(record.message) for record in caplog.records if record.levelno == logging.ERROR]
    assert (line["error"], line["at"][-1].partition(":")[0]) == ("LookupError", Path(__file__).name)
    assert "secret" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


def test_what_is_not_there_is_an_error_in_json(client: TestClient) -> None:
    for answer, code in ((client.get("/nowhere"), 404), (client.get("/translate"), 405)):
        assert (answer.status_code, set(answer.json())) == (code, {"error"})


def test_the_page_and_its_files_have_a_strict_policy(client: TestClient) -> None:
    for path in ("/", "/app.js", "/attention.js", "/head.js", "/map.js", "/attention.css", "/style.css", "/icon.svg"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "__VIEWER__" not in client.get("/").text
