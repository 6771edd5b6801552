"""docs/serving.md, replayed: every request in it gets the answer that it shows; `...` stands for anything."""

import json
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```\n(GET|POST) (\S+)\n(.*?)\n?\n(\d{3})\n(.*?)\n```", PAGE, re.DOTALL)
ANYTHING = "anything at all"


def matches(shown: object, found: object) -> bool:
    if isinstance(shown, dict) and isinstance(found, dict):
        return shown.keys() == found.keys() and all(matches(shown[name], found[name]) for name in shown)
    if isinstance(shown, list) and isinstance(found, list):
        return len(shown) == len(found) and all(map(matches, shown, found))
    return shown in (ANYTHING, found)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_true(client: TestClient, example: tuple[str, str, str, str, str]) -> None:
    method, route, body, code, answer = example
    found = client.request(method, route, content=body, headers={"content-type": "application/json"})
    shown = json.loads(re.sub(r": \.\.\.", f': "{ANYTHING}"', answer))
    assert (found.status_code, matches(shown, found.json())) == (int(code), True), found.text


def test_there_are_examples_of_every_kind() -> None:
    assert len(EXAMPLES) == 9
    assert {route for _, route, *_ in EXAMPLES} == {"/translate", "/detect", "/languages", "/attention", "/health"}
