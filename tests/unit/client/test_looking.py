"""What may be asked twice is asked again while no broker answers, for as long as retries last.

Not covered: processes that die (tests/crash/test_processes_kill.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import AsyncClient, Client
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.schema.cron import CronEntry
from dejaqueue.schema.messages import PEEK
from tests.unit.client.fake_transport import FakeTransport

_SUMS = ("found", "ended", "held", "segments", "bytes", "payloads", "changes", "took_ms")
_LISTS = ("backups", "unread", "silent")
BUCKETS = {"due_from": 0, "bucket_ms": 1, "counts": [3], "error_max": 0}
ENTRY = CronEntry("e", every_ms=1_000).to_dict()
ERASED: dict[str, Any] = dict.fromkeys(_SUMS, 0) | {name: [] for name in _LISTS}
LIFE: dict[str, Any] = {"history": True, "changes": [], "gaps": [], "silent": [], "next": None}


def _subscribed(body: dict[str, Any]) -> dict[str, Any]:
    return {"subscriptions": {"s": {}}} if "subscriptions" in body else {}


class Away(FakeTransport):
    """Nobody answers so many calls."""

    def __init__(self, times: int, error: DejaQError | None = None) -> None:
        answers: dict[str, Any] = {
            "counts": {"rows": [{"state": "ready", "count": 2}], "next": None},
            "histogram": BUCKETS,
            "message_history": LIFE,
            "describe_topic": {"name": "t"},
            "list_topics": {"topics": [{"name": "t"}]},
            "transactions": {"transactions": []},
            "cluster": {"nodes": []},
            "list_keys": {"keys": []},
            "create_topic": {"name": "t"},
            "alter_topic": lambda body: {"name": "t"} | _subscribed(body),
            "erase": {"next": None, "letters": []} | ERASED,
            "cron_list": lambda body: {"entries": [] if body["after"] else [ENTRY]},
            "cron_next": {"firings": [1]},
        } | {name: {"entries": [ENTRY]} for name in ("cron_put", "cron_get", "cron_pause")}
        super().__init__(actions=answers)
        self.pages = [PEEK.empty_table()]
        self.left, self.error = times, error or Unavailable("nobody answers", 1)

    def _may_fail(self) -> Future[Any] | None:
        if not self.left:
            return None
        self.left -= 1
        failed: Future[Any] = Future()
        failed.set_exception(self.error)
        return failed

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        return self._may_fail() or super().action(name, body)

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        return self._may_fail() or super().rows(ticket)


LOOKS = {
    "peek": ("t",),
    "counts": ("t",),
    "dead_letters": ("t",),
    "api_keys": (),
    "history": ("t", 1),
    "topic": ("t",),
    "topics": (),
    "transactions": ("t",),
    "assignments": ("t",),
    "cluster": (),
    "backup_progress": (),
    "standby": (),
    "stats": (),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_is_made_again(name: str) -> None:
    transport = Away(2)
    with Client(transport=transport) as client:
        getattr(client, name)(*LOOKS[name])
        assert client.histogram("t", due_from=0, due_to=1, bucket=1).counts.tolist() == [3]
    assert transport.left == 0


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_is_made_again__the_asynchronous_client(name: str) -> None:
    transport = Away(2)

    async def look() -> None:
        async with AsyncClient(transport=transport) as client:
            await getattr(client, name)(*LOOKS[name])

    asyncio.run(look())
    assert transport.left == 0


@pytest.mark.parametrize("name", ["peek", "cluster"])
def test_where_retries_are_over_or_the_broker_refuses_it_is_said(name: str) -> None:
    with Client(transport=Away(2), retry_ms_max=0) as client, pytest.raises(Unavailable):
        getattr(client, name)(*LOOKS[name])
    refused = Away(1, BadRequest("topic", "another", "t"))
    with Client(transport=refused) as client, pytest.raises(BadRequest):
        getattr(client, name)(*LOOKS[name])


CHANGES: dict[str, Callable[[Client], object]] = {
    "create_topic": lambda client: client.create_topic("t"),
    "alter_topic": lambda client: client.alter_topic("t", lease_ms=9_000),
    "pause_topic": lambda client: client.pause_topic("t"),
    "create_subscription": lambda client: client.create_subscription("t", "s"),
    "subscribe": lambda client: client.subscribe("t", "s"),
    "erase": lambda client: client.erase("t", keys=["k"]),
    "cron put": lambda client: client.cron("t").put("e", every_ms=1_000),
    "cron pause": lambda client: client.cron("t").pause("e"),
    "cron resume": lambda client: client.cron("t").resume("e"),
    "cron get": lambda client: client.cron("t").get("e"),
    "cron entries": lambda client: list(client.cron("t").entries()),
    "cron next": lambda client: client.cron("t").next_ms("e"),
    "cron preview": lambda client: client.cron("t").preview_ms(CronEntry("e", every_ms=1_000)),
}
"""What does twice what it does once."""

ONCE: dict[str, Callable[[Client], object]] = {
    "connect": lambda client: client.connect(),
    "create_topic": lambda client: client.create_topic("t", exist_ok=False),
    "delete_topic": lambda client: client.delete_topic("t"),
    "delete_subscription": lambda client: client.delete_subscription("t", "s"),
    "seek": lambda client: client.seek("t", to="end"),
    "move_where": lambda client: client.move_where("t", by=1),
    "cancel_where": lambda client: client.cancel_where("t"),
    "redrive": lambda client: client.redrive("t"),
    "create_key": lambda client: client.create_key("k", ["admin:*"]),
    "revoke_key": lambda client: client.revoke_key("k"),
    "backup": lambda client: client.backup("/somewhere"),
    "promote": lambda client: client.promote(),
    "cron run": lambda client: client.cron("t").run("e"),
    "cron drop": lambda client: client.cron("t").drop("e"),
}
"""What would do more the second time, or be answered otherwise."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_be_repeated_is_made_again(name: str) -> None:
    transport = Away(2)
    with Client(transport=transport) as client:
        CHANGES[name](client)
    assert transport.left == 0


def test_what_may_be_repeated_is_made_again__the_asynchronous_client() -> None:
    transport = Away(2)

    async def change() -> None:
        async with AsyncClient(transport=transport) as client:
            await client.create_topic("t")
            transport.left = 2
            await client.cron("t").put("e", every_ms=1_000)

    asyncio.run(change())
    assert transport.left == 0


@pytest.mark.parametrize("name", ONCE)
def test_what_would_do_more_the_second_time_is_made_once(name: str) -> None:
    transport = Away(2)
    with Client(transport=transport) as client, pytest.raises(Unavailable):
        ONCE[name](client)
    assert transport.left == 1


def test_a_client_that_is_closed_asks_nobody_again() -> None:
    transport = Away(1_000)
    client = Client(transport=transport)
    client.close()
    with pytest.raises(Unavailable):
        client.stats()
    assert transport.left == 999


def test_who_waits_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    with Client(transport=Away(2)) as client:
        client.create_topic("t")
    [said] = [record.getMessage() for record in caplog.records]
    assert "asking again: nobody answers" in said
