"""What changes nothing is asked again while no broker answers, for as long as retries last.

Not covered: processes that die (tests/crash/test_processes_kill.py).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import AsyncClient, Client
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.schema.messages import PEEK
from tests.unit.client.fake_transport import FakeTransport

BUCKETS = {"due_from": 0, "bucket_ms": 1, "counts": [3], "error_max": 0}
LIFE: dict[str, Any] = {"history": True, "changes": [], "gaps": [], "silent": [], "next": None}


class Away(FakeTransport):
    """Nobody answers so many calls."""

    def __init__(self, times: int, error: DejaQError | None = None) -> None:
        answers = {
            "counts": {"rows": [{"state": "ready", "count": 2}], "next": None},
            "histogram": BUCKETS,
            "message_history": LIFE,
            "describe_topic": {"name": "t"},
            "list_topics": {"topics": [{"name": "t"}]},
            "transactions": {"transactions": []},
            "cluster": {"nodes": []},
            "list_keys": {"keys": []},
        }
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

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
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


def test_what_changes_something_is_asked_once() -> None:
    transport = Away(1)
    with Client(transport=transport) as client:
        with pytest.raises(Unavailable):
            client.create_topic("t")
        with pytest.raises(Unavailable):
            transport.left = 1
            client.connect()
