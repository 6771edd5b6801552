"""`multihead bench serve`: a load test for each number of clients, in both modes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from multihead.bench import serving
from multihead.bench.serving import Load, ServingReport, bench_serving

LOAD = Load(clients=8, requests_per_second=20.0, p50=1.0, p95=2.0, p99=3.0)


@pytest.mark.long
def test_a_load_test_measures_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "WARM_UP", 0.1)
    monkeypatch.setattr(serving, "CLIENTS", (1, 4))
    with ThreadPoolExecutor(1) as pool:  # the browser of other tests has an event loop in this thread
        report = pool.submit(bench_serving, "en-de", "torch", 1.0).result()
    for loads in (report.merged, report.one_at_a_time):
        assert [load.clients for load in loads] == [1, 4]
        assert all(load.requests_per_second > 0 and load.p50 <= load.p95 <= load.p99 for load in loads)


def test_a_report_is_a_table_and_an_object() -> None:
    report = ServingReport(model="en-de", merged=[LOAD], one_at_a_time=[LOAD])
    assert json.loads(json.dumps(report.to_dict()))["merged"]["8"]["p99"] == 3.0
    assert "one at a time" in report.as_text()
