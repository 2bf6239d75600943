"""Browsing with a client: what each call asks the broker for, and what it gives back.

Not covered: checks and paging (tests/unit/client/test_browsing.py), the broker (tests/integration).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import AsyncClient
from dejaqueue.errors import BadRequest
from tests.unit.client.fake_transport import FakeTransport, ok


def ask(transport: FakeTransport, call: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with AsyncClient(transport=transport) as client:
            return await call(client)

    return asyncio.run(main())


def changing(count: int) -> FakeTransport:
    answer = {"count": count, "next": None}
    return FakeTransport(ok, actions={"move_where": answer, "cancel_where": answer})


def test_peek_asks_for_the_messages_of_a_filter() -> None:
    transport = FakeTransport(ok)
    transport.pages = [pa.table({"id": [7]})]
    found = ask(transport, lambda c: c.peek("t", limit=5, group="g", state="leased"))
    assert found["id"].to_pylist() == [7]
    [ticket] = transport.tickets
    expected = {"op": "peek", "topic": "t", "limit": 5, "group": "g", "state": "leased"}
    assert {name: ticket[name] for name in expected} == expected


def test_a_history_is_of_one_message() -> None:
    answer = {"history": False, "changes": [], "gaps": [], "silent": [], "next": None}
    transport = FakeTransport(ok, actions={"message_history": answer})
    assert ask(transport, lambda c: c.history("t", 7)).changes == ()
    assert transport.calls == [("message_history", {"topic": "t", "id": 7, "after": None})]


def test_counts_are_by_state_unless_one_says() -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return {"rows": [{body["by"]: "x", "count": 3}], "next": None}

    transport = FakeTransport(ok, actions={"counts": answer})
    assert ask(transport, lambda c: c.counts("t")) == {"x": 3}
    ask(transport, lambda c: c.counts("t", by="tag", limit=9))
    asked = [(body["by"], body["limit"]) for _, body in transport.calls]
    assert asked == [("state", 100), ("tag", 9)]


def test_a_histogram_is_exact_unless_one_says() -> None:
    answer = {"due_from": 0, "bucket_ms": 1_500, "counts": [4], "error_max": 2}
    transport = FakeTransport(ok, actions={"histogram": answer})
    found = ask(
        transport,
        lambda c: c.histogram("t", bucket=timedelta(seconds=1.5), due_from=0, due_to=9),
    )
    assert (found.bucket_ms, found.counts.tolist(), found.error_max) == (1_500, [4], 2)
    ask(transport, lambda c: c.histogram("t", bucket=1.5, exact=False, due_from=0, due_to=9))
    bodies = [body for _, body in transport.calls]
    assert [(body["bucket_ms"], body["exact"]) for body in bodies] == [
        (1_500, True),
        (1_500, False),
    ]


def test_messages_of_a_filter_are_moved() -> None:
    transport = changing(3)
    moved = ask(transport, lambda c: c.move_where("t", by=-2, set_priority=1, group="g"))
    [(name, body)] = transport.calls
    assert (name, moved) == ("move_where", 3)
    expected = {"topic": "t", "group": "g", "by_ms": -2_000, "set_priority": 1, "dry_run": False}
    assert body == expected | {"after": None}


def test_messages_of_a_filter_are_cancelled() -> None:
    transport = changing(2)
    assert ask(transport, lambda c: c.cancel_where("t", tags_any=["a"])) == 2
    assert transport.calls == [
        ("cancel_where", {"topic": "t", "tags_any": ["a"], "after": None, "dry_run": False})
    ]


@pytest.mark.parametrize("name", ["move_where", "cancel_where"])
def test_a_dry_run_says_so(name: str) -> None:
    transport = changing(2)
    more = {"due": 1_767_225_600_000} if name == "move_where" else {}
    assert ask(transport, lambda c: getattr(c, name)("t", dry_run=True, **more)) == 2
    [(_, body)] = transport.calls
    assert body["dry_run"] is True


def test_purging_cancels_without_a_filter() -> None:
    transport = changing(9)
    assert ask(transport, lambda c: c.purge("t")) == 9
    assert transport.calls == [("cancel_where", {"topic": "t", "after": None, "dry_run": False})]


def test_what_is_wrong_is_refused_before_it_is_asked() -> None:
    transport = changing(1)
    for call in (
        lambda c: c.move_where("t", by="1h"),
        lambda c: c.cancel_where("t", state="asleep"),
        lambda c: c.histogram("t", bucket=1, due_from=0),
        lambda c: c.peek("t", ids=[1], keys=["a"]),
    ):
        with pytest.raises(BadRequest):
            ask(transport, call)
    assert transport.calls == []
    assert transport.tickets == []
