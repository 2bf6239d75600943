"""Streams alone: answers in order, one at a time, and nothing left when one is refused.

Not covered: their messages on a broker, and waiting (tests/doq/test_grpc.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.access.roles import EVERYBODY
from dejaqueue.errors import Refused
from dejaqueue.http.doq.door import calls, streams


async def requests(*names: str) -> AsyncIterator[Any]:
    for name in names:
        yield SimpleNamespace(queueName=name)


def run(monkeypatch: pytest.MonkeyPatch, *names: str) -> tuple[list[str], list[str]]:
    """What was answered, and what was begun and not finished. `a` takes longer than `b`."""
    answered: list[str] = []
    cut_off: list[str] = []

    async def enqueue(shared: Any, caller: Any, request: Any) -> dict[str, Any]:
        name = request.queueName
        if name == "wrong":
            raise Refused("no")
        try:
            if name == "a":
                await asyncio.to_thread(int)
            elif name == "never":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut_off.append(name)
            raise
        return {"name": name}

    async def listen() -> None:
        caller: Any = SimpleNamespace(principal=EVERYBODY)
        shared: Any = None
        note = answered.append
        async for fields in streams.enqueue_stream(shared, caller, requests(*names)):
            note(fields["name"])

    monkeypatch.setattr(calls, "enqueue", enqueue)
    try:
        asyncio.run(listen())
    except Refused:
        answered.append("refused")
    return answered, cut_off


def test_answers_come_in_the_order_of_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ["a", "b"] * streams.AHEAD_MAX
    assert run(monkeypatch, *many) == (many, [])


def test_the_first_that_is_refused_ends_all_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "a", "wrong", "never") == (["a", "refused"], ["never"])
