"""Singles from many threads travel together, and each hears of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client._sync.waiting import send_row
from dejaqueue.client.link import WriteLink
from dejaqueue.client.sending.gather import VARIANTS, Gather, Gathered, Row, copy_error
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest, DuplicateKey, Unavailable
from dejaqueue.model import RowStatus
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import SECONDS_MAX, FakeTransport, ok


def row(payload: bytes = b"x", due_ms: int | None = None, key: str | None = None) -> Row:
    return (payload, due_ms, key, "", DEFAULT_PRIORITY, None, None, None)


def gather_to(transport: FakeTransport, kind: tuple[bool, bool] = (False, False)) -> Gather:
    link = WriteLink(transport, WriteStream("t"), SystemClock(), retry_ms_max=50)
    return Gather(link, VARIANTS[kind])


def in_threads(count: int, call: Any) -> tuple[list[threading.Thread], dict[int, Any]]:
    outcomes: dict[int, Any] = {}

    def run(number: int) -> None:
        try:
            outcomes[number] = call(number)
        except Exception as wrong:  # noqa: BLE001
            outcomes[number] = wrong

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads, outcomes


def test_one_alone_goes_at_once() -> None:
    transport = FakeTransport(ok)
    gather = gather_to(transport)
    assert [send_row(gather, row()) for _ in range(3)] == [1000, 2000, 3000]


def test_while_one_is_on_its_way_the_others_collect() -> None:
    transport = FakeTransport()
    gather = gather_to(transport)
    threads, outcomes = in_threads(1, lambda _: send_row(gather, row()))
    write = transport.wait_writes(1)
    write.wait_for(1)
    more, more_outcomes = in_threads(20, lambda n: send_row(gather, row(b"%d" % n)))
    while len(gather._open.rows) < 20:
        threading.Event().wait(0.001)
    assert len(write.sent) == 1
    write.answer(0)
    write.wait_for(2)
    _, batch, _ = write.sent[1]
    assert batch.num_rows == 20
    write.answer(1)
    for thread in threads + more:
        thread.join(SECONDS_MAX)
    assert outcomes == {0: 100}
    payloads = batch.column("payload").to_pylist()
    for number, message_id in more_outcomes.items():
        assert payloads[message_id - 200] == b"%d" % number


def test_many_threads_all_get_their_own_id() -> None:
    transport = FakeTransport(ok)
    gather = gather_to(transport)
    threads, outcomes = in_threads(16, lambda _: [send_row(gather, row()) for _ in range(50)])
    for thread in threads:
        thread.join(SECONDS_MAX)
    ids = [message_id for got in outcomes.values() for message_id in got]
    assert len(set(ids)) == 16 * 50


def test_a_bad_row_does_not_spoil_the_others() -> None:
    def broker(number: int, batch: pa.RecordBatch) -> Reply:
        if b"bad" in batch.column("payload").to_pylist():
            return Reply(number, batch.num_rows, error=BadRequest("payload", "not bad", "bad"))
        return ok(number, batch)

    transport = FakeTransport(broker)
    gather = gather_to(transport)
    gathered, _ = gather.add(row(b"good"), None, None)
    gather.add(row(b"bad"), None, None)
    gather.add(row(b"fine"), None, None)
    gather.pump()
    assert gathered.id_of(0) >= 1000
    with pytest.raises(BadRequest, match="payload: not bad"):
        gathered.id_of(1)
    assert gathered.id_of(2) >= 1000
    assert send_row(gather, row(b"next")) >= 1000


def test_values_that_do_not_fit_are_told_apart_too() -> None:
    gather = gather_to(FakeTransport(ok), (False, True))
    gathered, _ = gather.add((b"a", None, "k", "", 5, None, None, None), None, None)
    gather.add((b"b", None, "k", "", 70_000, None, None, None), None, None)
    gathered.future = Future()
    gather.pump()
    gathered.future.result(SECONDS_MAX)
    assert gathered.id_of(0) >= 1000
    with pytest.raises(BadRequest, match="message"):
        gathered.id_of(1)


def test_a_duplicate_key_carries_the_live_id() -> None:
    def broker(number: int, batch: pa.RecordBatch) -> Reply:
        import numpy as np

        statuses = np.array([0, RowStatus.DUPLICATE], dtype=np.uint8)
        return Reply(number, 2, ids=np.array([7, 3]), statuses=statuses)

    gather = gather_to(FakeTransport(broker), (False, True))
    gathered, _ = gather.add(row(key="a"), None, None)
    gather.add(row(key="b"), None, None)
    gather.pump()
    assert gathered.id_of(0) == 7
    with pytest.raises(DuplicateKey) as caught:
        gathered.id_of(1)
    assert (caught.value.id, caught.value.key) == (3, "b")


def test_no_broker_in_time_is_everybodys_error() -> None:
    transport = FakeTransport()
    transport.refuses = Unavailable("nobody there")
    gather = gather_to(transport)
    threads, outcomes = in_threads(3, lambda _: send_row(gather, row()))
    for thread in threads:
        thread.join(SECONDS_MAX)
    errors = list(outcomes.values())
    assert all(isinstance(error, Unavailable) for error in errors)
    assert len({id(error) for error in errors}) == 3


def test_columns_of_the_variants() -> None:
    full = (b"a", 5, "k", "g", 9, ["t"], [("h", "v")], 77)
    batch = VARIANTS[True, True].batch([full, row(b"b", 6)])
    assert batch.to_pylist()[0] == {
        "payload": b"a",
        "due": 5,
        "key": "k",
        "group": "g",
        "priority": 9,
        "tags": ["t"],
        "headers": [("h", "v")],
        "expires": 77,
    }
    assert batch.to_pylist()[1]["priority"] == 32_768
    assert VARIANTS[False, False].batch([row()]).schema.names == ["payload"]


def test_a_copied_error_says_the_same() -> None:
    error = BadRequest("due", "not negative", -1)
    copied = copy_error(error)
    assert copied is not error
    assert (str(copied), copied.fields()) == (str(error), error.fields())
    unanswered = Gathered().reply
    assert unanswered is None
    assert "without an answer" in str(copy_error(unanswered))
