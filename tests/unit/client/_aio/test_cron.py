"""Entries of a cron topic: what travels, in what pieces, and what is refused before it does.

Not covered: when entries fire (tests/unit/broker/cron, tests/rules).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pytest

from dejaqueue.client import AsyncClient
from dejaqueue.client._aio.cron import CALL_ENTRIES, AsyncCron
from dejaqueue.errors import BadRequest
from dejaqueue.schema.cron import CronEntry
from tests.unit.client.fake_transport import FakeTransport, ok

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YEAR_MS = 1_767_225_600_000
HOURLY = CronEntry("a", every_ms=3_600_000)


class Broker(FakeTransport):
    """Keeps nothing; answers with what it is given, or with a fixed list of names."""

    def __init__(self, *names: str) -> None:
        super().__init__(ok)
        self._entries = [CronEntry(name, every_ms=3_600_000).to_dict() for name in names]

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        self.calls.append((name, body))
        future: Future[dict[str, Any]] = Future()
        future.set_result(self._answer_to(name, body))
        return future

    def _answer_to(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "cron_put":
                # A newer broker may tell more of an entry than this client knows.
                return {"entries": [one | {"next_ms": 5, "colour": 1} for one in body["entries"]]}
            case "cron_list":
                later = [one for one in self._entries if one["name"] > body["after"]]
                return {"entries": later[:2]}
            case "cron_drop":
                return {"dropped": len(body["names"])}
            case "cron_run":
                return {"id": 77}
            case "cron_next":
                return {"firings": [1, 2]}
            case _:
                return {"entries": self._entries}


def ask(broker: Broker, call: Callable[[AsyncCron], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with AsyncClient(transport=broker) as client:
            return await call(client.cron("t"))

    return asyncio.run(main())


def test_a_put_entry_comes_back_with_its_next_firing() -> None:
    broker = Broker()
    made = ask(broker, lambda c: c.put("daily", cron="0 9 * * *", payload=b"go"))
    assert (made.name, made.payload, made.next_ms) == ("daily", b"go", 5)
    [(_, body)] = broker.calls
    assert body["topic"] == "t"


def test_start_and_end_may_be_times() -> None:
    made = ask(Broker(), lambda c: c.put("a", every_ms=1_000, start=NEW_YEAR, end=NEW_YEAR_MS + 1))
    assert (made.start_ms, made.end_ms) == (NEW_YEAR_MS, NEW_YEAR_MS + 1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"colour": 1}, "entry.colour"), ({"every_ms": -1}, "entry.every_ms"), ({}, "entry.cron")],
)
def test_a_wrong_entry_is_refused_before_it_is_sent(fields: dict[str, Any], field: str) -> None:
    broker = Broker()
    with pytest.raises(BadRequest, match=f"^{field}"):
        ask(broker, lambda c: c.put("a", **fields))
    assert broker.calls == []


def test_many_entries_travel_in_calls_of_bounded_size() -> None:
    broker = Broker()
    names = [f"e{number:04}" for number in range(CALL_ENTRIES + 1)]
    entries = (CronEntry(name, every_ms=1_000) for name in names)
    made = ask(broker, lambda c: c.put_all(entries))
    assert [entry.name for entry in made] == names
    assert [len(body["entries"]) for _, body in broker.calls] == [CALL_ENTRIES, 1]


def test_one_wrong_entry_of_many_sends_none() -> None:
    broker = Broker()
    with pytest.raises(BadRequest):
        ask(broker, lambda c: c.put_all([HOURLY, CronEntry("b")]))
    assert broker.calls == []


def test_every_entry_is_fetched_page_by_page() -> None:
    async def names(cron: AsyncCron) -> list[str]:
        return [entry.name async for entry in cron.entries()]

    broker = Broker("a", "b", "c")
    assert ask(broker, names) == ["a", "b", "c"]
    assert [body["after"] for _, body in broker.calls] == ["", "b", "c"]


def test_one_entry_is_got_by_name() -> None:
    assert ask(Broker("a"), lambda c: c.get("a")) == HOURLY


def test_pausing_and_resuming_are_one_call_with_a_flag() -> None:
    broker = Broker()
    ask(broker, lambda c: c.pause("a", "b"))
    ask(broker, lambda c: c.resume("a"))
    assert broker.calls == [
        ("cron_pause", {"topic": "t", "names": ["a", "b"], "paused": True}),
        ("cron_pause", {"topic": "t", "names": ["a"], "paused": False}),
    ]


def test_dropping_says_how_many_there_were() -> None:
    assert ask(Broker(), lambda c: c.drop("a", "b")) == 2


def test_running_gives_the_id_of_the_message() -> None:
    assert ask(Broker(), lambda c: c.run("a")) == 77


def test_next_firings_are_from_now_or_from_an_instant() -> None:
    broker = Broker()
    assert ask(broker, lambda c: c.next_ms("a", 2)) == [1, 2]
    ask(broker, lambda c: c.next_ms("a", after=NEW_YEAR))
    assert [(body["count"], body["after_ms"]) for _, body in broker.calls] == [
        (2, None),
        (10, NEW_YEAR_MS),
    ]


def test_a_preview_carries_the_entry_itself__and_names_no_topic() -> None:
    broker = Broker()
    assert ask(broker, lambda c: c.preview_ms(HOURLY, 2, after=NEW_YEAR_MS)) == [1, 2]
    expected = {"entry": HOURLY.to_dict(), "count": 2, "after_ms": NEW_YEAR_MS}
    assert broker.calls == [("cron_next", expected)]
