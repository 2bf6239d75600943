"""Covers: messages that count with the transaction they are written in, by Django; a relay sends
them.

Not here: relays that are killed, and PostgreSQL (tests/integration/test_outbox.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections, transaction

import dejaqueue
from dejaqueue.errors import BadRequest
from dejaqueue.outbox import Relay
from dejaqueue.outbox.django import DjangoOutbox
from dejaqueue.tasks import Tasks
from tests.unit.outbox.django.scene import SQLITE, database


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[DjangoOutbox]:
    with database(ENGINE=SQLITE, NAME=tmp_path / "shop.db") as made:
        yield made


def test_what_is_committed_is_sent_once__and_what_is_rolled_back_never(
    outbox: DjangoOutbox,
) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        outbox.send("mails", "never")
        1 / 0  # noqa: B018
    with transaction.atomic():
        outbox.send("mails", json={"order": 1}, key="k", headers={"x": "1"})
        outbox.send("mails", b"two")
    with dejaqueue.open("memory:") as client:
        client.create_topic("mails")
        assert Relay(client, outbox).send() == 2
        first = client.get("mails", key="k")
        assert first is not None
        assert (first.json(), dict(first.headers)) == ({"order": 1}, {"x": "1"})
        assert client.stats("mails").scheduled == 2
        assert Relay(client, outbox).send() == 0


def test_a_task_is_sent_with_the_rows_that_it_is_about(outbox: DjangoOutbox) -> None:
    with dejaqueue.open("memory:") as client:
        app = Tasks(client=client)

        @app.task(name="invite", unique=True)
        def invite(name: str) -> None: ...

        app.create_all()
        with transaction.atomic():
            outbox.send(**invite.message("alice"))
        assert Relay(client, outbox).send() == 1
        (payload,) = client.peek("tasks")["payload"].to_pylist()
        assert payload == b'{"task":"invite","args":{"name":"alice"}}'
        assert invite.send("alice").is_new is False


def test_without_a_transaction_it_is_refused(outbox: DjangoOutbox) -> None:
    with pytest.raises(BadRequest, match=r"transaction\.atomic\(\)"):
        outbox.send("mails", "x")
    with transaction.atomic(), pytest.raises(BadRequest, match="priority"):
        outbox.send("mails", "x", priority=-1)


def test_another_database_is_refused(outbox: DjangoOutbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    with pytest.raises(BadRequest, match="postgresql or sqlite"):
        outbox.send("mails", "x")
