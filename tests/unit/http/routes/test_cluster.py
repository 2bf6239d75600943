"""The routes of the cluster and of the audit log, of a broker that is alone.

Not covered: roles of those who ask (tests/integration/test_authorisation.py), clusters
(tests/cluster).
"""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_a_broker_that_is_alone_lists_nobody__and_repairs_nothing(api: Api) -> None:
    found = api.get("/v1/cluster")
    assert (found["node"], found["nodes"], found["topics"]) == ("", [], [])
    assert api.ask("GET", "/v1/cluster", params={"servers": "true"})[1]["servers"] == []
    assert api.ask("GET", "/v1/cluster", params={"topic": "nothing"})[0] == 404
    for change in ("remove", "repair"):
        found = api.post(f"/v1/cluster/nodes/b/{change}", {}, status=409)
        assert "alone" in found["detail"]
    status, _ = api.ask("GET", "/v1/cluster/nodes/b/progress", params={"change": "none"})
    assert status in (400, 422)


def test_what_will_hurt_is_shown__of_a_broker_in_memory_nothing(api: Api) -> None:
    assert api.get("/v1/findings") == {"node": "", "findings": []}


def test_the_audit_log_is_shown_newest_first_and_filtered(api: Api) -> None:
    for name in ("audited-one", "audited-two"):
        api.post("/v1/topics", {"name": name}, status=201)
        api.post(f"/v1/topics/{name}/pause", {})
    status, found = api.ask("GET", "/v1/audit", params={"topic": "AUDITED"})
    assert status == 200
    assert found["lines"][0]["topic"] == "audited-two"
    assert {line["outcome"] for line in found["lines"]} == {"done"}
    _, found = api.ask("GET", "/v1/audit", params={"topic": "audited-one", "limit": "1"})
    assert [line["topic"] for line in found["lines"]] == ["audited-one"]
    assert found["lines"][0]["at_ms"] > 1_700_000_000_000
    assert api.ask("GET", "/v1/audit", params={"principal": "somebody else"})[1]["lines"] == []
