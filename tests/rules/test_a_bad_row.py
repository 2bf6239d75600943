"""Rule 15: a bad row is that row's fault, also where it got past the door.

What is bad here comes in behind the checks of a batch, as rows did that an earlier version let in.
Not covered: that the door refuses them (tests/hostile, tests/integration/test_wire_bad_input.py).
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.partition import enqueueing
from dejaqueue.broker.partition.merging import merge as merge_requests
from dejaqueue.broker.partition.requests import ChangeRequest, EnqueueRequest, SettleRequest
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Cancel
from dejaqueue.engine.engine import Engine
from dejaqueue.errors import BadRequest, InternalError, ResourceExhausted
from dejaqueue.model import Topic
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.texts import mended
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, SettleOp
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

BAD = b"bad \xff\xfe text"
MENDED = "bad \ufffd\ufffd text"


def text(*contents: bytes) -> pa.StringArray:
    """A utf8 column of these bytes, whatever they are."""
    return pa.array(contents, pa.binary()).view(pa.utf8())


def columns(broker: BrokerFixture, rows: int = 1, **given: Any) -> SendColumns:
    """A batch as the partition gets it; its first payload says what it is."""
    payloads = pa.array([b"%d" % row for row in range(rows)], pa.binary())
    found: dict[str, Any] = {
        "rows": rows,
        "dues_ms": np.full(rows, broker.now_ms, dtype=np.int64),
        "payloads": payloads,
        "keys": None,
        "groups": None,
        "tags": None,
        "headers": None,
        "partitions": None,
        "payload_bytes": rows,
    }
    return SendColumns(**found | given)


def bring(broker: BrokerFixture, batches: list[SendColumns]) -> list[Reply]:
    """Have the batches lie before the worker at once, and be taken in one step."""
    writer = broker.broker.open_write(WriteStream(TOPIC))
    waits, go_on = threading.Event(), threading.Event()
    runtime = broker.broker.runtime(TOPIC)

    def wait(_core: PartitionCore) -> None:
        waits.set()
        assert go_on.wait(PATIENCE_SECONDS)

    looked = runtime.look(0, wait)
    assert waits.wait(PATIENCE_SECONDS)
    replies: list[Future[Reply]] = [Future() for _ in batches]
    for number, (batch, reply) in enumerate(zip(batches, replies, strict=True)):
        writer.submit_columns(number, batch, None, reply.set_result)
    go_on.set()
    looked.result(PATIENCE_SECONDS)
    return [reply.result(PATIENCE_SECONDS) for reply in replies]


def engine_of(broker: BrokerFixture) -> Engine:
    broker.settle_down()
    engine: Engine = broker.broker.runtime(TOPIC).partitions[0].core.engine
    return engine


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("field", ["groups", "tags"])
def test_text_that_is_none_is_refused_alone(make_broker: MakeBroker, field: str) -> None:
    broker = make_broker()
    engine = engine_of(broker)
    batches = [columns(broker) for _ in range(9)]
    batches[5] = columns(broker, **{field: text(BAD)})
    replies = bring(broker, batches)
    refused = [number for number, reply in enumerate(replies) if reply.error is not None]
    assert refused == [5]
    error = replies[5].error
    assert isinstance(error, BadRequest)
    assert "text in UTF-8, got: b'bad" in str(error)
    assert broker.counts()["ready"] == 8
    assert engine_of(broker) is engine, "the partition was read again"


@pytest.mark.one_broker("looks into a broker")
def test_whatever_fails_before_the_state_changes_is_found_by_halving(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker()
    engine = engine_of(broker)
    inner = merge_requests
    calls: list[int] = []

    def merge(requests: list[EnqueueRequest]) -> Any:
        calls.append(len(requests))
        if any(request.number in {3, 60} for request in requests):
            raise ZeroDivisionError("what nobody thought of")
        return inner(requests)

    monkeypatch.setattr(enqueueing, "merge", merge)
    replies = bring(broker, [columns(broker) for _ in range(64)])
    refused = {number: reply.error for number, reply in enumerate(replies) if reply.error}
    assert set(refused) == {3, 60}
    assert all(isinstance(error, InternalError) for error in refused.values())
    assert len(calls) < 30
    assert broker.counts()["ready"] == 62
    assert engine_of(broker) is engine


@pytest.mark.one_broker("looks into a broker")
def test_offsets_that_go_back_are_refused_before_they_are_applied(make_broker: MakeBroker) -> None:
    broker = make_broker()
    engine = engine_of(broker)
    offsets = np.array([0, 2, 1], dtype=np.int32)
    bent = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")])
    good, bad = bring(broker, [columns(broker), columns(broker, 2, payloads=bent)])
    assert good.error is None
    assert isinstance(bad.error, BadRequest)
    assert broker.counts()["ready"] == 1
    assert engine_of(broker) is engine


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize(
    "settle",
    [{"reason": "\ud800"}, {"argument_ms": 1 << 63}, {"argument_ms": 1 << 70}],
    ids=["a reason that is no text", "a delay beyond 64 bits", "a longer one"],
)
def test_a_settle_that_cannot_be_written_changes_nothing(
    make_broker: MakeBroker, settle: dict[str, Any]
) -> None:
    broker = make_broker()
    broker.send([b"x"])
    got = broker.consumer().get()
    engine = engine_of(broker)
    answered: Future[Reply] = Future()
    sequences, attempts = np.array([0]), np.array([1], dtype=np.uint16)
    request = SettleRequest(
        SettleOp.NACK, 1, answered.set_result, sequences=sequences, attempts=attempts, **settle
    )
    broker.broker.runtime(TOPIC).submit(0, request)
    assert answered.result(PATIENCE_SECONDS).error is not None
    assert engine_of(broker) is engine
    assert broker.counts()["leased"] == 1
    assert got.payloads == [b"x"]


@pytest.mark.one_broker("looks into a broker")
@pytest.mark.parametrize("applies", [False, True])
def test_the_partition_is_read_again_only_if_something_had_changed(
    make_broker: MakeBroker, applies: bool
) -> None:
    broker = make_broker()
    engine = engine_of(broker)

    def change(place: PartitionCore) -> None:
        if applies:
            place.apply(Cancel(place.now_ms(), np.zeros(1, dtype=np.int64)))
        raise KeyError("a bug")

    answered: Future[Reply] = Future()
    broker.broker.runtime(TOPIC).submit(0, ChangeRequest(change, answered.set_result))
    assert isinstance(answered.result(PATIENCE_SECONDS).error, InternalError)
    assert (engine_of(broker) is engine) is not applies


@pytest.mark.one_broker("looks into a broker")
def test_no_memory_for_one_request_is_that_requests_matter(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker()
    engine = engine_of(broker)

    def merge(_requests: list[EnqueueRequest]) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(enqueueing, "merge", merge)
        [reply] = bring(broker, [columns(broker)])
    assert isinstance(reply.error, ResourceExhausted)
    assert broker.send([b"x"]).error is None
    assert engine_of(broker) is engine


# --- what is stored already -----------------------------------------------------------------------


def store_bad_rows(broker: BrokerFixture, rows: int = 3) -> None:
    """A good row, one of which key and headers are no text, and a good one."""
    contents = [b"0", BAD, b"2"][:rows]
    headers = [b"name\x1f" + content for content in contents]
    [reply] = bring(broker, [columns(broker, rows, keys=text(*contents), headers=text(*headers))])
    assert reply.error is None


@pytest.mark.one_broker("looks into a broker")
def test_stored_text_that_is_none_breaks_nobody(make_broker: MakeBroker) -> None:
    broker = make_broker()
    store_bad_rows(broker)
    peeked = broker.peek(limit=9)
    assert [row["key"] for row in peeked] == ["0", MENDED, "2"]
    assert [row["headers"]["name"] for row in peeked] == ["0", MENDED, "2"]
    [schema_and_rows] = [broker.broker.read("scan", {"topic": TOPIC, "partition": 0})]
    scanned = [row for batch in schema_and_rows[1] for row in batch.to_pylist()]
    assert [row["key"] for row in scanned] == ["0", MENDED, "2"]
    got = broker.consumer().get()
    got_rows = got.batch.to_pylist()
    assert [row["key"] for row in got_rows] == ["0", MENDED, "2"]
    assert [row["payload"] for row in got_rows] == [b"0", b"1", b"2"]
    got.batch.validate(full=True)


@pytest.mark.one_broker("looks into a broker")
def test_stored_text_that_is_none_is_found_by_its_key_and_kept_as_it_is(
    on_files: MakeBroker,
) -> None:
    broker = on_files()
    store_bad_rows(broker)
    broker.restart()
    [reply] = bring(broker, [columns(broker, 1, keys=text(BAD))])
    assert reply.statuses is not None, "the bytes are the key, and it is taken"
    assert [row["key"] for row in broker.peek(limit=9)] == ["0", MENDED, "2"]


@pytest.mark.one_broker("looks into a broker")
def test_a_dead_letter_of_such_a_row_arrives(make_broker: MakeBroker) -> None:
    broker = make_broker(max_attempts=1)
    broker.broker.create_topic(Topic(f"{TOPIC}.dead"))
    store_bad_rows(broker)
    consumer = broker.consumer()
    got = consumer.get()
    consumer.settle(SettleOp.NACK, lease_id=got.lease_id, partition=0)
    broker.letters_arrive()
    letters = broker.peek(broker.broker.topic(TOPIC).dead_letter_name, limit=9)
    assert sorted(row["headers"]["dejaq-dead-key"] for row in letters) == ["0", "2", MENDED]
    assert sorted(row["headers"]["name"] for row in letters) == ["0", "2", MENDED]


@pytest.mark.one_broker("looks into a broker")
def test_a_journal_with_a_group_that_is_no_text_is_read(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No version let such a group in; a journal of other hands may have it."""
    broker = on_files()
    with monkeypatch.context() as patch:
        inner = entries.words

        def lenient(column: pa.StringArray | None, name: str = "group") -> Any:
            return inner(None if column is None else mended(column), name)

        patch.setattr(entries, "words", lenient)
        [reply] = bring(broker, [columns(broker, 2, groups=text(BAD, b"good"))])
        assert reply.error is None
    broker.restart()
    assert sorted(str(row["group"]) for row in broker.peek(limit=9)) == [MENDED, "good"]
