"""Samples: the broker is asked once for all who look, and rates come of what it said."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from dejaqueue.console.api import Api
from dejaqueue.console.samples import PERIOD_MS, Samples


class _Asked:
    """An API that counts how often it was asked, and messages since."""

    def __init__(self) -> None:
        self.count = 0

    async def get(self, path: str) -> Any:
        assert path == "/v1/stats"
        self.count += 1
        topic = {"enqueued": 100 * self.count, "consumers": [{"credit": 2}, {"credit": 3}]}
        return {"topics": {"t": topic}}


def test_ten_pages_ask_once_in_a_period() -> None:
    asked, now_ms = _Asked(), [1_000_000]
    samples = Samples(lambda: now_ms[0])

    async def look() -> int:
        found = await asyncio.gather(*(samples.newest(cast(Api, asked)) for _ in range(10)))
        return len({one.at_ms for one in found})

    assert asyncio.run(look()) == 1
    now_ms[0] += PERIOD_MS - 1
    assert asyncio.run(look()) == 1
    assert asked.count == 1
    now_ms[0] += 1
    asyncio.run(look())
    assert asked.count == 2
    assert samples.rates("t", "enqueued") == [50.0]
    assert samples.recent_rate("t", "enqueued") == 50.0
    assert samples.recent_rate("none", "enqueued") == 0.0
    now_ms[0] += 60_000  # nobody looked for a minute
    newest = asyncio.run(samples.newest(cast(Api, asked)))
    assert samples.rates("t", "enqueued") == []
    assert (newest.topics["t"]["consumers"], newest.topics["t"]["credit"]) == (2, 5)
