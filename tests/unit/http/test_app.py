"""The application: what is served where."""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_probes_and_stats_are_served(api: Api) -> None:
    assert api.get("/livez") == {"status": "alive"}
    assert api.get("/readyz") == {"status": "ready"}
    assert api.get("/stats")["topics"]["t"]["topic"] == "t"


def test_what_is_not_there_is_a_problem(api: Api) -> None:
    for method, path, status in (("GET", "/none", 404), ("PUT", "/livez", 405)):
        answer = api.http.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
