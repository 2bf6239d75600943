"""Arrow that is not what it says, at a real broker: refused, answered, and gone.

Covered: offsets beyond their buffers, that go back, and lists beyond their values, over Flight as
bytes; texts that are no UTF-8; what is small on the wire and large unpacked; streams that leave no
thread behind. Not covered: what nobody has thought of (fuzz.py); a bad row (integration).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import Client, limits
from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import Reply
from tests.crash.broker_process import BrokerProcess
from tests.hostile.arrow_bytes import Message, messages_of, replaced, stream_of
from tests.hostile.raw_flight import RawPut
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

MB = 1 << 20
STREAMS = 50
PLAIN = pa.record_batch({"payload": pa.array([b"abcde", b"fghij"])})
TAGGED = pa.record_batch(
    {"payload": pa.array([b"a", b"b"]), "tags": pa.array([["abcde", "fghij"], ["k"]])}
)
WITH_HEADERS = pa.record_batch(
    {
        "payload": pa.array([b"a", b"b"]),
        "headers": pa.array([[("abcde", "v")], [("k", "lm")]], pa.map_(pa.utf8(), pa.utf8())),
    }
)
KEYED = pa.record_batch({"payload": pa.array([b"a", b"b"]), "key": pa.array(["abcde", "fghij"])})
ENCODED = pa.record_batch(
    {"payload": pa.array([b"a", b"b"]), "key": pa.array(["abcde", "fghij"]).dictionary_encode()}
)
VIEWS = pa.record_batch({"payload": pa.array([b"abcdefghijklmnopqrst", b"b"], pa.binary_view())})


def i32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def view(size: int, prefix: bytes) -> bytes:
    return struct.pack("<i", size) + prefix


FAULTS = {
    "payload_beyond": (PLAIN, "payload", i32(0, 5, 10), i32(0, 5, 9_000)),
    "payload_far_beyond": (PLAIN, "payload", i32(0, 5, 10), i32(0, 5, 2_000_000_000)),
    "payload_inner_beyond": (PLAIN, "payload", i32(0, 5, 10), i32(0, 9_000, 10)),
    "payload_goes_back": (PLAIN, "payload", i32(0, 5, 10), i32(0, 10, 5)),
    "payload_before": (PLAIN, "payload", i32(0, 5, 10), i32(-9_000, 5, 10)),
    "tags_beyond": (TAGGED, "tags", i32(0, 2, 3), i32(0, 2, 15)),
    "tags_go_back": (TAGGED, "tags", i32(0, 2, 3), i32(0, 9, 3)),
    "tag_beyond": (TAGGED, "tags", i32(0, 5, 10, 11), i32(0, 5, 10, 70)),
    "tag_not_utf8": (TAGGED, "tags", b"abcde", b"ab\xffde"),
    "header_beyond": (WITH_HEADERS, "headers", i32(0, 5, 6), i32(0, 5, 4_000)),
    "key_not_utf8": (KEYED, "key", b"abcde", b"ab\xffde"),
    "key_beyond": (KEYED, "key", i32(0, 5, 10), i32(0, 5, 200)),
    "dictionary_place": (ENCODED, "key", i32(0, 1), i32(0, 900_000)),
    "dictionary_text": (ENCODED, "key", i32(0, 5, 10), i32(0, 5, 200)),
    "dictionary_not_utf8": (ENCODED, "key", b"abcde", b"ab\xffde"),
    "view_beyond": (VIEWS, "payload", view(20, b"abcd"), view(2_000, b"abcd")),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(directory / "data", directory / "broker.log")
    process.start()
    with Client(process.url) as client:
        client.create_topic("t", max_payload_bytes=4 * MB)
    yield process
    process.kill()


def put(broker: BrokerProcess, messages: list[Message]) -> tuple[list[Reply], bytes]:
    """Send a stream's messages; the replies, and what ended it."""
    with RawPut(broker.port, topic="t", op="enqueue") as stream:
        for message in messages:
            stream.send(message.metadata, message.body)
        stream.end()
        stream.wait()
        assert stream.trailers is not None
        return stream.replies, stream.trailers


def is_served(broker: BrokerProcess) -> None:
    [reply], _ = put(broker, messages_of(PLAIN))
    assert reply.error is None
    assert "it is read again" not in broker.log_text()


def backlog(broker: BrokerProcess) -> int:
    with Client(broker.url) as client:
        return int(client.stats("t")["scheduled"])


def memory(broker: BrokerProcess, name: str) -> int:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_refused_by_the_name_of_its_column(broker: BrokerProcess, fault: str) -> None:
    batch, column, old, new = FAULTS[fault]
    before = backlog(broker)
    [reply], trailers = put(broker, replaced(messages_of(batch), old, new))
    assert isinstance(reply.error, BadRequest), reply
    assert f"column {column}" in str(reply.error)
    assert b"column " + column.encode() in trailers  # the stream ends with it
    assert backlog(broker) == before
    is_served(broker)


def test_what_arrow_itself_cannot_read_is_answered_too(broker: BrokerProcess) -> None:
    messages = messages_of(PLAIN)
    at = messages[-1].buffers()[2]
    struct.pack_into("<qq", messages[-1].metadata, at, 1 << 40, 1 << 40)
    replies, trailers = put(broker, messages)
    assert replies == []
    assert b"a valid Arrow record batch" in trailers
    is_served(broker)


def test_fifty_such_streams_leave_no_thread_behind(broker: BrokerProcess) -> None:
    def threads() -> int:
        return len(os.listdir(f"/proc/{broker.pid}/task"))

    is_served(broker)
    before = threads()
    batch, _, old, new = FAULTS["tags_beyond"]
    for _ in range(STREAMS):
        stream = RawPut(broker.port, topic="t", op="enqueue")
        for message in replaced(messages_of(batch), old, new):
            stream.send(message.metadata, message.body)
        stream.wait(replies=1)
        assert isinstance(stream.replies[0].error, BadRequest)
        stream.close()  # without an end
    # gRPC keeps some threads for the next calls.
    until(lambda: threads() <= before + 8, "their threads end")
    is_served(broker)


def bombs() -> dict[str, pa.Array]:
    text = "x" * MB
    places = pa.array([0] * 2_000, pa.int32())
    encoded = pa.DictionaryArray.from_arrays(places, pa.array([text]))
    _, one, content = pa.array([text], pa.string_view()).buffers()
    same = pa.py_buffer(one.to_pybytes()[:16] * 2_000)
    views = pa.Array.from_buffers(pa.string_view(), 2_000, [None, same, content])
    return {
        "payload": pa.DictionaryArray.from_arrays(places, pa.array([text.encode()])),
        "key": encoded,
        "group": views,
        "tags": pa.ListArray.from_arrays(pa.array(np.arange(2_001), pa.int32()), encoded),
        "headers": pa.MapArray.from_arrays(
            pa.array(np.arange(2_001), pa.int32()), pa.array(["n"] * 2_000), encoded
        ),
    }


@pytest.mark.parametrize("column", bombs())
def test_one_text_named_two_thousand_times_is_counted_as_often(
    broker: BrokerProcess, column: str
) -> None:
    columns = {"payload": pa.array([b"p"] * 2_000)} | {column: bombs()[column]}
    messages = messages_of(pa.record_batch(columns))
    assert sum(len(message.body) for message in messages) < 2 * MB
    is_served(broker)
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # VmHWM from now on
    before = memory(broker, "VmRSS")
    [reply], _ = put(broker, messages)
    assert isinstance(reply.error, BadRequest)
    assert "once dictionaries and views are unpacked" in str(reply.error)
    assert memory(broker, "VmHWM") - before < 32 * MB
    is_served(broker)


def test_a_dictionary_of_honest_size_is_unpacked(broker: BrokerProcess) -> None:
    columns = {
        "payload": pa.array([b"one", b"two", b"one"]).dictionary_encode(),
        "tags": pa.ListArray.from_arrays(
            pa.array([0, 1, 2, 2], pa.int32()), pa.array(["red", "red"]).dictionary_encode()
        ),
    }
    [reply], _ = put(broker, messages_of(pa.record_batch(columns)))
    assert (reply.error, reply.rows) == (None, 3)


def test_over_http_the_same_is_refused(broker: BrokerProcess) -> None:
    import httpx

    def post(messages: list[Message]) -> httpx.Response:
        return httpx.post(
            f"http://127.0.0.1:{broker.http_port}/v1/topics/t/messages",
            content=stream_of(messages),
            headers={"Content-Type": "application/vnd.apache.arrow.stream"},
            timeout=PATIENCE_SECONDS,
        )

    for batch, column, old, new in FAULTS.values():
        answer = post(replaced(messages_of(batch), old, new))
        assert answer.status_code == 400
        assert f"column {column}" in answer.text
    for name, bomb in bombs().items():
        before = memory(broker, "VmRSS")
        columns = {"payload": pa.array([b"p"] * 2_000)} | {name: bomb}
        answer = post(messages_of(pa.record_batch(columns)))
        assert answer.status_code == 400
        assert "once dictionaries and views are unpacked" in answer.text
        assert memory(broker, "VmRSS") - before < 32 * MB
    is_served(broker)


def packed(columns: dict[str, pa.Array], codec: str) -> list[Message]:
    return messages_of(pa.record_batch(columns), compression=codec)


def zeros(mib: int) -> pa.Array:
    return pa.array([bytes(mib * MB)], pa.large_binary())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_is_small_only_when_packed_is_refused_before_it_is_unpacked(
    broker: BrokerProcess, codec: str
) -> None:
    messages = packed({"payload": zeros(256)}, codec)
    assert sum(len(message.body) for message in messages) < 5 * MB
    is_served(broker)
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    before = memory(broker, "VmRSS")
    for _ in range(3):
        replies, trailers = put(broker, messages)
        assert replies == []
        assert b"no memory to read the batch" in trailers
    grown = memory(broker, "VmHWM") - before
    print(f"{grown / MB:.0f} MB")
    assert grown < 64 * MB
    is_served(broker)


def test_every_buffer_packed_to_the_limit_takes_less_than_a_gigabyte(
    broker: BrokerProcess,
) -> None:
    """All buffers that a batch may have, each as large as one may be."""
    rows = (limits.UNPACKED_BYTES_MAX - MB) // 8
    numbers = pa.array(np.zeros(rows, np.int64), mask=np.arange(rows) % 2 == 0)
    short = np.zeros(rows + 1, np.int32)
    content = pa.py_buffer(bytes(limits.UNPACKED_BYTES_MAX - MB))
    bits = pa.py_buffer(bytes(rows // 8 + 1))

    def texts(kind: pa.DataType) -> pa.Array:
        buffers = [bits, pa.py_buffer(short), content]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=rows)

    lists = pa.ListArray.from_arrays(pa.array(short), texts(pa.utf8()))
    maps = pa.MapArray.from_arrays(pa.array(short), pa.array([""] * rows), texts(pa.utf8()))
    columns = {
        "payload": texts(pa.binary()),
        "key": texts(pa.utf8()),
        "group": texts(pa.utf8()),
        "due": numbers,
        "expires": numbers,
        "partition": numbers,
        "priority": numbers,
        "tags": lists,
        "headers": maps,
    }
    messages = packed(columns, "zstd")
    size = sum(len(message.body) for message in messages)
    is_served(broker)
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    before = memory(broker, "VmRSS")
    _, trailers = put(broker, messages)
    grown = memory(broker, "VmHWM") - before
    print(f"{size / 1024:.0f} KB took {grown / MB:.0f} MB: {trailers[:200]!r}")
    assert grown < 1_024 * MB
    is_served(broker)
