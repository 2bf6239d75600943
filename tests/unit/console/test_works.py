"""Works: they say how far they are and how they ended, to their owner and to the audit log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from dejaqueue.console.api import ApiError
from dejaqueue.console.works import KEPT_MAX, RUNNING_MAX, Work, Works


def work(wanted: int = 10) -> Work:
    return Work("Cancel", "root", "127.0.0.1:5", "console cancel", "t", wanted)


async def pieces(
    *counts: int, error: str = "", bell: asyncio.Event | None = None
) -> AsyncIterator[int]:
    for count in counts:
        yield count
    if error:
        raise ApiError(503, error)
    if bell is not None:
        await bell.wait()


def test_a_work_goes_on_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dejaqueue.audit")

    async def run() -> tuple[Work, Work]:
        works = Works()
        one = works.begin(work(), pieces(4, 6))
        two = works.begin(work(), pieces(3, error="the disk is full"))
        assert (one.percent, one.outcome) == (0, "")
        while not (one.outcome and two.outcome):
            await asyncio.sleep(0)
        assert works.find(one.number, "root") is one
        for number, owner in ((one.number, "eve"), ("x", "root")):
            with pytest.raises(ApiError, match="no such change"):
                works.find(number, owner)
        return one, two

    one, two = asyncio.run(run())
    assert (one.done, one.percent, one.outcome) == (10, 100, "done")
    assert (two.done, two.percent, two.outcome) == (3, 30, "the disk is full")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("outcome=")[2] for line in lines] == [
        '"done" count=10',
        '"failed" count=3',
    ]


def test_too_many_are_refused__and_those_that_ended_are_forgotten() -> None:
    async def run() -> None:
        works, bell = Works(), asyncio.Event()
        for _ in range(RUNNING_MAX):
            works.begin(work(), pieces(bell=bell))
        with pytest.raises(ApiError, match="go on already"):
            works.begin(work(), pieces(1))
        works.close()

    asyncio.run(run())
    asyncio.run(_forget())


async def _forget() -> None:
    works = Works()
    first = works.begin(work(), pieces(1))
    while not first.outcome:
        await asyncio.sleep(0)
    for _ in range(KEPT_MAX):
        last = works.begin(work(), pieces(1))
        while not last.outcome:
            await asyncio.sleep(0)
    with pytest.raises(ApiError):
        works.find(first.number, "root")


def test_what_goes_on_when_the_server_stops_says_so() -> None:
    async def run() -> Work:
        works = Works()
        one = works.begin(work(), pieces(4, bell=asyncio.Event()))
        while not one.done:
            await asyncio.sleep(0)
        works.close()
        while not one.outcome:
            await asyncio.sleep(0)
        return one

    one = asyncio.run(run())
    assert (one.done, one.outcome) == (4, "the broker stops")
