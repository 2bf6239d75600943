"""Covers: rows that were committed become messages once: in order, in spite of relays that end
between any two of their steps, beside one another, and of rows that the broker refuses.

Not here: processes that are killed, and PostgreSQL (tests/integration/test_outbox.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.pool import NullPool

import dejaqueue
from dejaqueue.client import Client
from dejaqueue.client.core import ClientCore
from dejaqueue.errors import TopicUnknown
from dejaqueue.outbox import Relay, tables
from dejaqueue.outbox.relay import HOLD_MS
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox
from dejaqueue.testing import VirtualClock


class Killed(BaseException):
    """The relay ends here."""


class Stage:
    """A broker in memory, an outbox in a file, and a clock."""

    def __init__(self, path: Path, client: Client, clock: VirtualClock) -> None:
        self.client, self.clock = client, clock
        self.engine = create_engine(f"sqlite:///{path / 'shop.db'}", poolclass=NullPool)
        self.outbox = SqlAlchemyOutbox(self.engine)
        self.outbox.create()

    def write(self, *payloads: str, topic: str = "mails", **fields: Any) -> None:
        with self.engine.begin() as connection:
            for payload in payloads:
                self.outbox.send(connection, topic, payload, **fields)

    def sent(self, topic: str = "mails") -> list[str]:
        found = self.client.peek(topic).to_pydict()
        return [payload.decode() for payload in found["payload"]]

    def left(self) -> list[tuple[str, str | None]]:
        with self.outbox.transaction() as execute:
            rows = execute("SELECT payload, refused FROM dejaq_outbox ORDER BY id", ())
        return [(payload.decode(), refused) for payload, refused in rows]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    clock = VirtualClock()
    with dejaqueue.open("memory:", clock=clock) as client:
        client.create_topic("mails")
        made = Stage(tmp_path, client, clock)
        yield made
        made.engine.dispose()


def test_rows_become_messages_with_all_their_fields(stage: Stage) -> None:
    due = stage.clock.now_ms() + 60_000
    stage.write("late", due=due, key="k", tags=["a"], headers={"x": "1"})
    assert Relay(stage.client, stage.outbox).send() == 1
    found = stage.client.get("mails", key="k")
    assert found is not None
    assert (found.due_ms, found.payload, list(found.tags)) == (due, b"late", ["a"])
    assert dict(found.headers) == {"x": "1"}
    assert stage.left() == []
    assert Relay(stage.client, stage.outbox).send() == 0


@contextmanager
def ends_at(monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[None]:
    """A relay that ends before or after a step."""
    when, name = step.split()
    whole = ClientCore.call

    def call(core: ClientCore, action: str, body: Any) -> Any:
        if action == name and when == "before":
            raise Killed
        found = whole(core, action, body)
        if action == name:
            raise Killed
        return found

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if name == "drop":
            patch.setattr(tables, "drop", killed)
        else:
            patch.setattr(ClientCore, "call", call)
        yield


@pytest.mark.parametrize(
    "step", ["before commit_epoch", "after commit_epoch", "before drop", "before describe_topic"]
)
def test_a_relay_that_ends_halfway_sends_nothing_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    stage.write("one", "two")
    stage.write("three", key="three")
    with ends_at(monkeypatch, step), pytest.raises(Killed):
        Relay(stage.client, stage.outbox).send()
    stage.write("four")
    follower = Relay(stage.client, stage.outbox)
    assert follower.send() == 0  # the other one may be at work
    stage.clock.advance(ms=HOLD_MS + 1)
    assert follower.send() == 3
    assert follower.send() == 1
    assert sorted(stage.sent()) == ["four", "one", "three", "two"]
    assert stage.left() == []


def test_a_relay_that_was_overtaken_does_no_harm(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write("one", key="one")
    paused, other = Relay(stage.client, stage.outbox), Relay(stage.client, stage.outbox)
    stage_rows = paused._stage

    def stage_late(*given: Any) -> dict[int, str]:
        stage.clock.advance(ms=HOLD_MS + 1)
        assert other.send() == 1
        stage.write("two")
        return stage_rows(*given)

    monkeypatch.setattr(paused, "_stage", stage_late)
    with pytest.raises(dejaqueue.Refused, match="another relay"):
        paused.send()
    assert other.send() == 1
    assert sorted(stage.sent()) == ["one", "two"]
    assert stage.left() == []


def test_rows_that_are_refused_are_put_aside_and_the_others_sent(stage: Stage) -> None:
    stage.client.send("mails", "there", key="k")
    stage.write("before")
    stage.write("again", key="k")
    stage.write("after")
    relay = Relay(stage.client, stage.outbox)
    assert relay.send() == 2
    assert relay.send() == 0
    assert sorted(stage.sent()) == ["after", "before", "there"]
    assert stage.left() == [("again", "DUPLICATE")]


def test_a_topic_that_is_not_there_holds_no_other(stage: Stage) -> None:
    stage.write("lost", topic="absent")
    stage.write("found")
    relay = Relay(stage.client, stage.outbox)
    with pytest.raises(TopicUnknown):
        relay.send()
    assert stage.sent() == ["found"]
    stage.client.create_topic("absent")
    assert relay.send() == 1
    assert stage.sent("absent") == ["lost"]


def test_run_sends_until_it_is_stopped(stage: Stage) -> None:
    relay = Relay(stage.client, stage.outbox)
    stage.write("one", "two")

    @event.listens_for(stage.engine, "commit")
    def stop_when_empty(connection: Any) -> None:
        count = connection.exec_driver_sql("SELECT count(*) FROM dejaq_outbox").scalar()
        if count == 0:
            relay.stop()

    relay.run()
    assert sorted(stage.sent()) == ["one", "two"]
    event.remove(stage.engine, "commit", stop_when_empty)
    stage.write("three")
    assert Relay(stage.client, stage.outbox).send() == 1  # at once, as the other one has ended
