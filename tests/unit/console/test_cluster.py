"""The page of the cluster: of a broker that is alone, and of brokers that the API tells of.

Not covered: what a cluster answers (tests/cluster).
"""

from __future__ import annotations

import asyncio
from html import unescape
from typing import Any, cast

from starlette.requests import Request

from dejaqueue.access.roles import EVERYBODY
from dejaqueue.console import cluster
from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.samples import Samples
from dejaqueue.console.session import Session
from dejaqueue.console.visit import Visit
from dejaqueue.console.watches import Watches
from dejaqueue.console.works import Works
from tests.unit.console.conftest import Browser

TOLD: dict[str, Any] = {
    "node": "a", "coordinator": "nats", "astray": 2,
    "nodes": [
        {"node": "a", "url": "dejaq://a", "version": "1", "leaving": False,
         "clock": {"ahead_ms_min": 0, "ahead_ms_max": 0}},
        {"node": "<b>", "url": "dejaq://b", "version": "2", "leaving": False, "short": True,
         "clock": {"ahead_ms_min": -2, "ahead_ms_max": 1_000}},
    ],
    "topics": [{"topic": "t", "node": "a"}, {"topic": "u", "node": ""}],
    "servers": [{"server": "s", "state": "sick", "leads": 1, "copies": 3, "lag": 4, "bytes": 5,
                 "version": "2.11", "meta_leader": True, "why": "its disk fails"}],
}  # fmt: skip


def test_a_broker_that_is_alone_says_so__and_changes_no_node(browser: Browser) -> None:
    assert "This broker is alone" in browser.get("/cluster")
    assert "Have it leave" not in browser.get("/cluster")
    assert "alone" in browser.post("/cluster", 409, verb="repair", node="b")
    assert "type the name" in browser.post("/cluster", 400, verb="remove", node="b", typed="c")
    browser.post("/cluster", 400, verb="burn", node="b")
    assert "not known" in browser.get("/cluster?node=b&verb=repair")


class _Told:
    """An API that knows a cluster whose change has failed."""

    async def get(self, path: str, **query: Any) -> Any:
        if path.endswith("/nodes/b/progress"):
            assert query == {"change": "repair_node"}
            return {"node": "b", "state": "working", "text": "3 of 40 copies"}
        if path != "/v1/cluster":
            raise ApiError(404, path)
        return TOLD


def test_all_that_is_told_of_a_cluster_is_shown() -> None:
    scope = {
        "type": "http", "query_string": b"node=b&verb=repair", "headers": [], "path": "/console",
    }  # fmt: skip
    session = Session(None, "w", EVERYBODY, "", False, "/console/cluster?node=b&verb=repair")
    api, samples = cast(Api, _Told()), Samples(lambda: 7)
    visit = Visit(Request(scope), session, api, samples, Works(), Watches(lambda: 7))
    answer = asyncio.run(cluster.show_cluster(visit))
    assert b"<b>" not in bytes(answer.body)
    page = unescape(bytes(answer.body).decode())
    for text in (
        "2 topics are astray", "1 topics have no owner", "disk is short, producers wait",
        "-2 to +1,000 ms", "its disk fails", "b: working. 3 of 40 copies", "Have it leave",
    ):  # fmt: skip
        assert text in page, text
