"""Samples: the broker is asked once for all who look; a cluster says of its brokers, too."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from dejaqueue.console.api import Api, ApiError
from dejaqueue.console.rows import Pace
from dejaqueue.console.samples import NODES_PERIOD_MS, PERIOD_MS, Sample, Samples

NODES = [{"node": "b", "short": True}]


class _Asked:
    """An API that counts how often it was asked for what."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.counts = {"/v1/stats": 0, "/v1/cluster": 0}
        self.is_cluster, self.fails = is_cluster, False

    async def get(self, path: str) -> Any:
        self.counts[path] += 1
        if path == "/v1/cluster":
            if self.fails:
                raise ApiError(503, "away")
            return {"nodes": NODES}
        topic = {"acked_per_s": 3.5, "consumers": [{"credit": 2}, {"credit": 3}]}
        return {"topics": {"t": topic}} | ({"silent": ["c"]} if self.is_cluster else {})


def _look(samples: Samples, asked: _Asked, count: int = 1) -> Sample:
    async def look() -> list[Sample]:
        return await asyncio.gather(*(samples.newest(cast(Api, asked)) for _ in range(count)))

    found = asyncio.run(look())
    assert len({one.at_ms for one in found}) == 1
    return found[0]


def test_ten_pages_ask_once_in_a_period() -> None:
    asked, now_ms = _Asked(), [1_000_000]
    samples = Samples(lambda: now_ms[0])
    newest = _look(samples, asked, 10)
    now_ms[0] += PERIOD_MS - 1
    _look(samples, asked, 10)
    assert asked.counts == {"/v1/stats": 1, "/v1/cluster": 0}
    now_ms[0] += 1
    _look(samples, asked, 10)
    assert asked.counts["/v1/stats"] == 2
    assert (newest.topics["t"]["consumers"], newest.topics["t"]["credit"]) == (2, 5)
    assert newest.paces == {"t": Pace(rate_out=3.5)}


def test_brokers_of_a_cluster_are_asked_about_less_often() -> None:
    asked, now_ms = _Asked(is_cluster=True), [1_000_000]
    samples = Samples(lambda: now_ms[0])
    newest = _look(samples, asked)
    assert (newest.silent, newest.nodes) == (("c",), (NODES[0],))
    now_ms[0] += PERIOD_MS
    assert _look(samples, asked).nodes == (NODES[0],)
    assert asked.counts == {"/v1/stats": 2, "/v1/cluster": 1}
    now_ms[0] += NODES_PERIOD_MS
    asked.fails = True
    assert _look(samples, asked).nodes == ()
