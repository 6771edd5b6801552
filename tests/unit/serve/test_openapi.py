"""What /openapi.json says is true: whatever it allows is answered as it says, and nothing makes the server fail."""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

import multihead
from multihead.serve.app import AppState, make_app
from multihead.serve.options import Limits
from multihead.serve.service import Service

ROUTES = [
    ("/translate", "POST"),
    ("/detect", "POST"),
    ("/attention", "POST"),
    ("/explain", "GET"),
    ("/explain", "POST"),
    ("/languages", "GET"),
    ("/frontend/settings", "GET"),
    ("/health", "GET"),
    ("/ready", "GET"),
    ("/metrics", "GET"),
    ("/openapi.json", "GET"),
]


@pytest.fixture(scope="module")
def api() -> Any:
    """A server that takes short texts only, on the fastest engine: nonsense gets long translations."""
    state = AppState(limits=Limits(characters=30, texts=3, alternatives=2, beam=4))
    state.service = Service([multihead.load("en-de")], state.limits)
    return schemathesis.openapi.from_asgi("/openapi.json", make_app(state))


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_the_description_is_true(api: Any, path: str, method: str) -> None:
    """Status codes, content types and answers are as described, and none is a 500."""

    @settings(max_examples=40 if method == "POST" else 3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=api[path][method].as_strategy())
    def ask(case: Any) -> None:
        # A text of nothing but white space has no sentence to look into: what is allowed may be refused, in words.
        answer = case.call()
        assert answer.status_code in (200, 400)
        case.validate_response(answer, excluded_checks=[schemathesis.checks.CHECKS.get_one("positive_data_acceptance")])

    ask()


def test_every_route_is_described(client: TestClient) -> None:
    assert set(client.get("/openapi.json").json()["paths"]) == {path for path, _ in ROUTES}


def test_the_description_has_the_limits_of_this_server(client: TestClient) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["TranslateRequest"]["properties"]
    assert json.dumps(fields).count('"maxLength": 5000') == 2  # a single text, and one of a list
    assert "up to 50000 characters together" in json.dumps(fields)
    assert fields["source"]["enum"] == ["auto", "en"]
