"""Covers: who may write to an outbox, and which rows are taken together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from dejaqueue.errors import Refused
from dejaqueue.outbox import tables
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[SqlAlchemyOutbox]:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    outbox = SqlAlchemyOutbox(engine)
    outbox.create()
    with engine.begin() as connection:
        for number in range(5):
            outbox.send(connection, "mails", str(number))
    yield outbox
    engine.dispose()


def test_one_relay_holds_an_outbox_until_its_time_is_over(outbox: SqlAlchemyOutbox) -> None:
    identity = tables.hold(outbox, "a", 1_000, 2_000)
    assert identity
    assert tables.hold(outbox, "b", 2_000, 3_000) is None
    assert tables.hold(outbox, "a", 1_500, 2_500) == identity
    assert tables.hold(outbox, "b", 2_501, 3_500) == identity
    with pytest.raises(Refused):
        tables.take(outbox, "a", 10)
    tables.release(outbox, "a")  # which has it no longer
    assert tables.hold(outbox, "a", 3_000, 4_000) is None
    tables.release(outbox, "b")
    assert tables.hold(outbox, "a", 3_000, 4_000) == identity


def test_an_open_batch_is_taken_again_as_it_was(outbox: SqlAlchemyOutbox) -> None:
    tables.hold(outbox, "a", 1_000, 2_000)
    (first,) = tables.take(outbox, "a", 2)
    assert tables.take(outbox, "a", 100) == [first]
    assert [message["payload"] for message in first.messages] == [b"0", b"1"]
    tables.refuse(outbox, "a", {first.ids[0]: "DUPLICATE"})
    (again,) = tables.take(outbox, "a", 2)
    assert (again.number, again.ids) == (first.number, first.ids[1:])
    tables.drop(outbox, "a", again)
    (second,) = tables.take(outbox, "a", 100)
    assert second.number > first.number
    assert [message["payload"] for message in second.messages] == [b"2", b"3", b"4"]
