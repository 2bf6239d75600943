"""Watches: what open pages show is gathered once for all of them, and only news is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import dejaqueue.console.watches as module
from dejaqueue.console.api import ApiError
from dejaqueue.console.rows import Pace
from dejaqueue.console.watches import (
    KEPT_MAX,
    PERIOD_MS_MAX,
    UNSEEN_MS,
    Live,
    Part,
    Watch,
    Watches,
    pause_ms,
)


def part(count: int) -> Part:
    numbers = dict.fromkeys(("scheduled", "ready", "leased", "dead"), count) | {"next_due_ms": -1}
    return Part("topic_numbers", {"numbers": numbers, "pace": Pace()})


def told(news: str) -> list[str]:
    """Names of the parts in an event."""
    kind, data = news.split("\n")[:2]
    assert kind == "event: parts"
    values: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return list(values["parts"])


def test_what_is_the_same_is_not_told_again() -> None:
    watch = Watch()
    watch.take({"a": part(1), "b": part(1)}, 0)
    first = watch.version
    assert watch.news(first, 0) == ""
    watch.take({"a": part(1), "b": part(1)}, 0)
    assert watch.version == first
    watch.take({"a": part(1), "b": part(2)}, 0)
    watch.take({"a": part(3), "b": part(2)}, 0)
    assert told(watch.news(first, 0)) == ["a", "b"]  # who missed one gets both together
    assert told(watch.news(first + 1, 0)) == ["a"]
    assert "3" in watch.texts["a"]
    watch.take({"b": part(2), "a": part(3)}, 0)
    assert watch.news(first + 2, 0).startswith("event: again")


def test_all_who_look_at_the_same_share_one_look__and_nobody_looks_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    async def look() -> Live:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise ApiError(503, "not now")
        if looks == 3:
            raise ApiError(404, "no such topic")
        return Live({"a": part(looks)})

    async def main() -> None:
        watches = Watches(lambda: 7)
        watch, bells = watches.of(("k", "p")), [asyncio.Event() for _ in range(10)]
        assert watches.of(("k", "p")) is watch
        assert watches.of(("other key", "p")) is not watch
        for bell in bells:
            watches.listen(watch, bell, look)
        await asyncio.gather(*(bell.wait() for bell in bells))
        assert (looks, watch.version) == (1, 1)
        bells[0].clear()
        await bells[0].wait()  # the second look failed, and was nothing; the third: it is gone
        assert (looks, watch.news(1, 0)) == (3, "event: again\ndata: \n\n")
        for bell in bells:
            watches.leave(watch, bell)
        assert not watches._tasks
        watches.close()

    monkeypatch.setattr(module, "PERIOD_MS", 1)
    asyncio.run(main())


def test_watches_take_their_share_of_the_time_and_no_more() -> None:
    assert pause_ms(40.0, 1) == 4_000
    assert pause_ms(4.0, 10) == 4_000
    assert pause_ms(4_000.0, 10) == PERIOD_MS_MAX


def test_what_nobody_looks_at_is_forgotten() -> None:
    now_ms = [0]
    watches = Watches(lambda: now_ms[0])
    kept = [watches.of((str(n),)) for n in range(KEPT_MAX)]
    kept[1].bells.add(asyncio.Event())
    watches.of(("one more",))
    assert watches.of(("0",)) is not kept[0]
    assert watches.of(("1",)) is kept[1]
    now_ms[0] += UNSEEN_MS
    watches.of(("later",))
    assert watches.of(("1",)) is kept[1]
    assert watches.of(("150",)) is not kept[150]
