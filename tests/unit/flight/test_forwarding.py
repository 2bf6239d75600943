"""Streams on their way through a broker: what is answered where the other one falls silent.

Both ends are the test's. Not covered: two brokers and their network
(tests/integration/test_forwarding.py).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_errors import error_of
from dejaqueue.errors import BadRequest, DejaQError, Forbidden, Unavailable
from dejaqueue.flight import forwarding as module
from dejaqueue.flight.errors import translated
from dejaqueue.flight.forwarding import Forwarding, Onward, _Consuming, _Writing
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Close, Credit, Frame, Pong, Reply

SECONDS_MAX = 20
BATCH = pa.record_batch({"payload": pa.array([b"1", b"2"], pa.binary())})
URL = "dejaq://far:1"


@dataclass
class Chunk:
    data: pa.RecordBatch | None
    app_metadata: pa.Buffer | None = None


def numbered(number: int) -> Chunk:
    return Chunk(BATCH, pa.py_buffer(number.to_bytes(4, "little")))


def frame(content: Frame) -> pa.Buffer:
    return pa.py_buffer(frames.encode(content))


class Far:
    """The other broker's side of a stream: what it got, and what it says, one after the other."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.says: queue.Queue[Any] = queue.Queue()
        self.status: Exception | None = None
        self.answers: list[Any] = []
        """Said when the last batch of the test has come."""
        self.cancelled = threading.Event()
        self.schema = BATCH.schema

    # --- towards it

    def _take(self, one: Any) -> None:
        self.got.append(one)

    def write_batch(self, batch: Any) -> None:
        self._take(batch)

    def write_with_metadata(self, batch: Any, metadata: pa.Buffer) -> None:
        self._take(int.from_bytes(metadata, "little"))

    def write_metadata(self, metadata: pa.Buffer) -> None:
        self._take(frames.decode(metadata))

    def done_writing(self) -> None:
        for answer in [*self.answers, None]:
            self.says.put(answer)

    def close(self) -> None:
        if self.status is not None:
            raise self.status

    # --- from it

    def _next(self) -> Any:
        said = self.says.get(timeout=SECONDS_MAX)
        if isinstance(said, Exception):
            raise said
        return said

    def read(self) -> Any:
        return self._next()

    def read_chunk(self) -> Any:
        said = self._next()
        if said is None:
            raise StopIteration
        return said

    def cancel(self) -> None:
        self.cancelled.set()
        self.says.put(None)


class Caller:
    """Who calls: what it sends, and what it hears. Without `ends` it stays."""

    def __init__(self, *chunks: Any, ends: bool = True) -> None:
        self._left = list(chunks)
        self._ends = ends
        self.left = threading.Event()
        self.heard: list[Any] = []
        self._hears = threading.Condition()
        self.schema: Any = None
        self.is_gone = self.closes = False

    def read_chunk(self) -> Any:
        if self._left:
            return self._left.pop(0)
        if not self._ends:
            assert self.left.wait(SECONDS_MAX)
        if self.closes:
            return Chunk(None, frame(Close()))
        raise StopIteration

    def begin(self, schema: pa.Schema) -> None:
        self.schema = schema

    def _hear(self, one: Any) -> None:
        if self.is_gone:
            raise pa.ArrowInvalid("the client is gone")
        with self._hears:
            self.heard.append(one)
            self._hears.notify_all()

    def write(self, content: pa.Buffer) -> None:
        self._hear(frames.decode(content))

    def write_metadata(self, content: pa.Buffer) -> None:
        self._hear(frames.decode(content))

    def write_with_metadata(self, batch: Any, content: pa.Buffer) -> None:
        self._hear(batch.num_rows)

    def wait(self, count: int) -> list[Any]:
        with self._hears:
            assert self._hears.wait_for(lambda: len(self.heard) >= count, SECONDS_MAX)
        return self.heard


def refusal(error: DejaQError) -> Exception:
    """As gRPC brings it."""
    try:
        with translated():
            raise error
    except Exception as found:  # noqa: BLE001 - whatever Flight makes of it
        assert type(error_of(found)) is type(error)
        return found
    raise AssertionError


# --- batches ------------------------------------------------------------------------------------


def write(far: Far, caller: Caller, *, wants_replies: bool = True) -> DejaQError | None:
    """What the stream ends with."""
    sides = cast(Any, far), cast(Any, far), cast(Any, caller)
    try:
        _Writing(URL, *sides, wants_replies).run(cast(Any, caller))
    except DejaQError as error:
        return error
    return None


def test_batches_go_there_under_their_numbers__and_replies_come_back() -> None:
    far, caller = Far(), Caller(numbered(7), Chunk(BATCH))
    far.answers = [frame(Reply(number, 2)) for number in (7, 2)]
    assert write(far, caller) is None
    assert far.got == [7, BATCH]
    assert [reply.number for reply in caller.heard] == [7, 2]


def test_where_it_falls_silent_every_batch_without_a_reply_gets_one() -> None:
    far, caller = Far(), Caller(numbered(7), numbered(8), numbered(9))
    far.answers = [frame(Reply(8, 2))]
    assert write(far, caller) is None
    assert [(reply.number, reply.rows, type(reply.error)) for reply in caller.heard] == [
        (8, 2, type(None)),
        (7, 2, Unavailable),
        (9, 2, Unavailable),
    ]


def test_why_it_ended_the_stream_is_what_the_caller_is_told() -> None:
    far, caller = Far(), Caller(numbered(7))
    far.status = refusal(Forbidden("the key has ended"))
    far.answers = [refusal(Forbidden("the key has ended"))]
    assert isinstance(write(far, caller), Forbidden)
    assert isinstance(caller.heard[0].error, Forbidden)


def test_who_wants_no_replies_gets_none() -> None:
    far, caller = Far(), Caller(Chunk(BATCH), Chunk(BATCH))
    assert write(far, caller, wants_replies=False) is None
    assert caller.heard == []
    assert len(far.got) == 2


def test_a_caller_who_is_gone_does_not_stop_his_batches() -> None:
    far, caller = Far(), Caller(numbered(7), numbered(8))
    caller.is_gone = True
    far.answers = [frame(Reply(7, 2))]
    assert write(far, caller) is None
    assert far.got == [7, 8]


def test_metadata_without_a_batch_ends_the_stream() -> None:
    far, caller = Far(), Caller(Chunk(None, pa.py_buffer(b"\0\0\0\0")))
    error = write(far, caller)
    assert isinstance(error, BadRequest)
    assert error.field == "batch"


def test_a_batch_that_cannot_be_carried_on_is_answered_here() -> None:
    offsets = pa.py_buffer(b"".join(place.to_bytes(4, "little") for place in (0, 5, 2)))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
    batch = pa.RecordBatch.from_arrays([broken], ["payload"])
    far, caller = Far(), Caller(Chunk(batch, pa.py_buffer((7).to_bytes(4, "little"))))
    assert isinstance(write(far, caller), BadRequest)
    assert far.got == []
    assert [(reply.number, type(reply.error)) for reply in caller.heard] == [(7, BadRequest)]


def test_a_broker_that_is_gone_ends_the_stream_at_once__though_it_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOIN_SECONDS", 0.01)
    far, caller = Far(), Caller(numbered(7), ends=False)
    monkeypatch.setattr(far, "done_writing", lambda: None)
    sides = cast(Any, far), cast(Any, far), cast(Any, caller)
    writing = _Writing(URL, *sides, True)
    thread = threading.Thread(target=writing.run, args=(caller,))
    thread.start()
    try:
        while not far.got:
            assert thread.is_alive()
        writing.drop()
        [reply] = caller.wait(1)
        assert (reply.number, type(reply.error)) == (7, Unavailable)
    finally:
        caller.left.set()
        thread.join(SECONDS_MAX)
        far.says.put(None)
    assert not thread.is_alive()


# --- deliveries ---------------------------------------------------------------------------------


class Through:
    """A consumer's stream on its way through, run on a thread as gRPC does."""

    def __init__(self, far: Far, caller: Caller) -> None:
        self.far, self.caller = far, caller
        self.consuming = _Consuming(URL, *cast(Any, (far, far, caller)))
        self.consuming.begin()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.consuming.run(cast(Any, self.caller))
        self.consuming.end()

    def join(self) -> None:
        self.thread.join(SECONDS_MAX)
        assert not self.thread.is_alive()


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.says.put(None)


def test_deliveries_and_frames_come_through__and_a_close_ends_it_in_order(far: Far) -> None:
    caller = Caller(Chunk(None, frame(Credit(5))), ends=False)
    through = Through(far, caller)
    far.says.put(Chunk(BATCH, pa.py_buffer(b"head")))
    far.says.put(Chunk(None, frame(Pong(1, 2, 3))))
    assert caller.wait(2) == [2, Pong(1, 2, 3)]
    assert caller.schema == BATCH.schema
    caller.closes = True
    caller.left.set()
    far.says.put(Chunk(None, frame(Close())))
    far.says.put(None)
    through.join()
    assert far.got == [Credit(5), Close()]
    assert caller.heard[2:] == [Close()], "and no error"


def test_a_broker_that_breaks_off_is_told_to_the_caller_once__with_the_end(far: Far) -> None:
    caller = Caller(ends=False)
    through = Through(far, caller)
    far.says.put(flight.FlightUnavailableError("broken"))
    error, close = caller.wait(2)
    assert isinstance(error.error, Unavailable)
    assert isinstance(close, Close)
    through.consuming.stop()
    through.consuming.drop()
    caller.left.set()
    through.join()
    assert len(caller.heard) == 2


@pytest.mark.parametrize("how", ["stop", "drop"])
def test_a_server_that_stops_and_a_broker_that_is_gone_are_told(far: Far, how: str) -> None:
    caller = Caller(ends=False)
    through = Through(far, caller)
    getattr(through.consuming, how)()
    error, close = caller.wait(2)
    words = "is stopping" if how == "stop" else "went away"
    assert words in str(error.error)
    assert isinstance(close, Close)
    caller.left.set()
    through.join()


def test_a_caller_who_is_gone_ends_it_there_as_if_the_consumer_had_died(far: Far) -> None:
    through = Through(far, Caller())
    through.join()
    assert far.cancelled.is_set()
    assert far.got == [], "nothing gives its leases back before their time"


def test_a_chunk_without_a_frame_is_refused(far: Far) -> None:
    caller = Caller(Chunk(BATCH))
    through = Through(far, caller)
    through.join()
    assert isinstance(caller.heard[0].error, BadRequest)


# --- connections --------------------------------------------------------------------------------


def test_a_key_goes_on_with_the_call__and_is_in_no_text() -> None:
    assert "secret" not in repr(Onward(URL, "secret"))
    assert isinstance(Onward(URL, "secret").options(3), flight.FlightCallOptions)


def test_connections_are_kept__deliveries_have_their_own__and_a_gone_broker_is_forgotten() -> None:
    forwarding = Forwarding(Tls())
    bulk = forwarding._client("dejaq://127.0.0.1:1")
    assert forwarding._client("dejaq://127.0.0.1:1") is bulk
    deliveries = forwarding._client("dejaq://127.0.0.1:1", deliveries=True)
    other = forwarding._client("dejaq://127.0.0.1:2")
    assert len({id(one) for one in (bulk, deliveries, other)}) == 3
    forwarding.drop("dejaq://127.0.0.1:1")
    assert forwarding._client("dejaq://127.0.0.1:1") is not bulk
    assert forwarding._client("dejaq://127.0.0.1:1", deliveries=True) is not deliveries
    assert forwarding._client("dejaq://127.0.0.1:2") is other
    forwarding.renew()
    assert forwarding._client("dejaq://127.0.0.1:2") is not other


def test_only_streams_to_the_broker_that_is_gone_are_dropped() -> None:
    dropped: list[str] = []

    class Stream:
        def __init__(self, url: str) -> None:
            self.url = url

        def drop(self) -> None:
            dropped.append(self.url)

    forwarding = Forwarding()
    with forwarding._open(cast(Any, Stream("dejaq://a:1"))):
        with forwarding._open(cast(Any, Stream("dejaq://b:1"))):
            forwarding.drop("dejaq://a:1")
        forwarding.drop("dejaq://b:1")
    assert dropped == ["dejaq://a:1"]
