"""Crowds and floods at a real broker: it goes on serving, and its memory stays in bounds.

Covered: idle connections, consumers that never ack, batches that nobody waits for, compressed
batches that are larger than they look, one key at all its limits beside another. Not covered:
malformed bytes (integration, unit tests); milliseconds (`python -m tests.hostile.crowd`).
`make reliability` has 10,000 connections and 1,000 consumers; here are fewer.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue import Client
from dejaqueue.errors import ResourceExhausted
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Credit, DeliveryHead, Ping, Settle, SettleOp
from tests.crash.broker_process import BrokerProcess
from tests.hostile import crowd
from tests.patience import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash]

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
CONNECTIONS = 10_000 if ALL else 1_000
CONSUMERS = 1_000 if ALL else 60
INBOX_BYTES_MAX = GROUP_BYTES_MAX = 8 << 20
KB, MB = 1 << 10, 1 << 20
BOUND_BYTES = 1 << 30
PEAK_BYTES = 400 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        dispatch__inbox_bytes_max=INBOX_BYTES_MAX,
        dispatch__group_bytes_max=GROUP_BYTES_MAX,
    )
    process.start()
    yield process
    process.kill()


def own_bytes(broker: BrokerProcess) -> int:
    """Memory that is the broker's alone: neither code nor maps of its files."""
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) * KB


def descriptor(**fields: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def serves(broker: BrokerProcess) -> bool:
    with Client(broker.url, retry_ms_max=10_000) as client:
        client.create_topic("serves", exist_ok=True)
        client.send("serves", b"x", delay=600)
        scheduled: int = client.stats("serves")["scheduled"]
        return scheduled > 0


def test_idle_connections_hold_up_nobody(broker: BrokerProcess) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, soft - 500)
    assert serves(broker)
    before = own_bytes(broker)
    ports = [broker.port, broker.http_port]
    with contextlib.ExitStack() as opened:
        for number in range(count):
            silent = socket.create_connection(
                ("127.0.0.1", ports[number % 2]), timeout=PATIENCE_SECONDS
            )
            opened.callback(silent.close)
        assert serves(broker)
        grown = own_bytes(broker) - before
        print(f"{count} connections: {grown / MB:.0f} MB")
        assert grown < 64 * MB + count * 40 * KB
    assert serves(broker)


def test_consumers_that_never_ack_hold_up_nobody(broker: BrokerProcess) -> None:
    with Client(broker.url) as client:
        client.create_topic("busy", lease_ms=600_000)
        assert serves(broker)
        before = own_bytes(broker)
        raw = flight.connect(f"grpc+tcp://127.0.0.1:{broker.port}")
        streams = []
        for _ in range(CONSUMERS):
            writer, reader = raw.do_exchange(descriptor(topic="busy", batch_rows_max=10))
            writer.write_metadata(pa.py_buffer(frames.encode(Credit(10))))
            streams.append((writer, reader))
        for _ in range(10):  # each fits into the inbox
            client.send_batch("busy", [b"x" * 1_000] * CONSUMERS)
        acked = 0
        for number, (writer, reader) in enumerate(streams):
            if number % 2:
                continue  # gets its messages, and says nothing ever
            left = 10
            while left:
                chunk = reader.read_chunk()
                head = frames.decode(memoryview(chunk.app_metadata))
                assert isinstance(head, DeliveryHead)
                rows = chunk.data
                left -= rows.num_rows
                ids = rows.column("id").to_numpy()
                attempts = np.asarray(rows.column("attempts"))
                settle = Settle(SettleOp.ACK, number=0, ids=ids, attempts=attempts)
                writer.write_metadata(pa.py_buffer(frames.encode(settle)))
                acked += rows.num_rows
        assert acked == CONSUMERS // 2 * 10
        grown = own_bytes(broker) - before
        print(f"{CONSUMERS} consumers: {grown / MB:.0f} MB")
        assert grown < 64 * MB + CONSUMERS * 600 * KB
        assert serves(broker)
        assert client.stats("busy")["leased"] >= CONSUMERS // 2 * 10
        for writer, reader in streams:
            reader.cancel()
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.close()
        raw.close()


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data", tmp_path / "broker.log", server__memory_bytes_max=BOUND_BYTES
    )
    process.start()
    yield process
    process.kill()


def test_a_batch_that_unpacks_to_more_than_the_memory_there_is(bounded: BrokerProcess) -> None:
    """Arrow unpacks it before DejaQ can look at it; the system refuses it the memory."""
    assert serves(bounded)
    schema = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
    zeros = pa.record_batch([pa.array([bytes(BOUND_BYTES)], pa.binary())], schema=schema)
    packed = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    raw = flight.connect(f"grpc+tcp://127.0.0.1:{bounded.port}")
    for _ in range(3):
        writer, reader = raw.do_put(descriptor(topic="serves", op="enqueue"), schema, packed)
        writer.write_with_metadata(zeros, (1).to_bytes(4, "little"))
        writer.done_writing()
        with pytest.raises(flight.FlightError, match="no memory to read the batch"):
            reader.read()
            writer.close()
        assert own_bytes(bounded) < BOUND_BYTES // 2
    raw.close()
    assert serves(bounded)


def test_what_nobody_waits_for_is_bounded(broker: BrokerProcess) -> None:
    """Producers that send without reading answers get what fits; the rest is refused."""
    with Client(broker.url) as client:
        client.create_topic("flood")
    before = own_bytes(broker)
    payload = pa.array([bytes(4_000)] * 1_000, pa.binary())
    schema = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
    batch = pa.record_batch([payload], schema=schema)
    raw = flight.connect(f"grpc+tcp://127.0.0.1:{broker.port}")
    peak = sent = 0
    streams = [raw.do_put(descriptor(topic="flood", op="enqueue"), schema) for _ in range(4)]
    batches = 400 if ALL else 30
    for number in range(batches):
        for writer, _ in streams:
            writer.write_with_metadata(batch, (number + 1).to_bytes(4, "little"))
            sent += batch.nbytes
        if number % 10 == 0:
            peak = max(peak, own_bytes(broker) - before)
    for writer, _ in streams:
        writer.done_writing()
    for writer, reader in streams:
        while reader.read() is not None:
            pass
        writer.close()
    raw.close()
    # What was stored takes its place in the table of messages, some 100 bytes each. The rest is
    # given back, if not at once: glibc keeps what the pieces of batches leave behind.
    bound = 2 * INBOX_BYTES_MAX + 160 * MB + len(streams) * batches * 1_000 * 150
    until(lambda: own_bytes(broker) - before < bound, "memory is given back")
    print(
        f"{sent / MB:.0f} MB, peak {peak / MB:.0f}, {(own_bytes(broker) - before) / MB:.0f} after"
    )
    assert bound < sent
    assert peak < PEAK_BYTES
    assert serves(broker)


# --- one principal beside another -----------------------------------------------------------------


def thread_count(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/task"))


def probe(broker: BrokerProcess, path: str) -> int:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{broker.http_port}{path}", timeout=PATIENCE_SECONDS
    ) as answer:
        status: int = answer.status
    return status


def test_an_idle_stream_has_one_thread(broker: BrokerProcess) -> None:
    """gRPC's, which waits for the client; before, one of ours waited for something to send."""
    with Client(broker.url) as client:
        client.create_topic("quiet")
    assert serves(broker)
    before = thread_count(broker)
    raw = flight.connect(f"grpc+tcp://127.0.0.1:{broker.port}")
    schema = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
    consumers = [raw.do_exchange(descriptor(topic="quiet")) for _ in range(CONSUMERS)]
    producers = [
        raw.do_put(descriptor(topic="quiet", op="enqueue"), schema) for _ in range(CONSUMERS)
    ]
    for writer, _ in consumers:
        writer.write_metadata(pa.py_buffer(frames.encode(Ping(1, 0, 0, -1))))
    for _, reader in consumers:
        assert reader.read_chunk().app_metadata is not None  # its pong
    until(lambda: thread_count(broker) - before >= 2 * CONSUMERS, "all are open")
    spare = 16 + 8  # that wait for work, and gRPC's
    until(lambda: thread_count(broker) - before <= 2 * CONSUMERS + spare, "one for each")
    for writer, _ in producers:
        writer.close()
    for _, reader in consumers:
        reader.cancel()
    raw.close()


def test_probes_are_answered_beside_more_connections_than_there_may_be(tmp_path: Path) -> None:
    process = BrokerProcess(
        tmp_path / "data", tmp_path / "broker.log", server__http_connections_max=200
    )
    process.start()
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(400):
                silent = socket.create_connection(
                    ("127.0.0.1", process.http_port), timeout=PATIENCE_SECONDS
                )
                opened.callback(silent.close)
            for path in ("/livez", "/readyz", "/metrics", "/livez"):
                assert probe(process, path) == 200
            with pytest.raises(urllib.error.HTTPError, match="503"):
                probe(process, "/v1/topics")
        until(lambda: probe(process, "/v1/topics") == 200, "the others are gone")
    finally:
        process.kill()


def test_one_key_at_its_limits_is_told_so_and_another_is_served(tmp_path: Path) -> None:
    process = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        quotas__streams_max=5,
        quotas__transactions_max=3,
        quotas__rows_per_s=1_000,
    )
    process.start()
    try:
        root, keys = crowd.make_keys(process)
        headers = [(b"authorization", f"Bearer {keys['crowd']}".encode())]
        options = flight.FlightCallOptions(headers=headers)
        raw = flight.connect(f"grpc+tcp://127.0.0.1:{process.port}")
        held = [raw.do_exchange(descriptor(topic="crowd"), options) for _ in range(5)]
        for writer, reader in held:
            writer.write_metadata(pa.py_buffer(frames.encode(Ping(1, 0, 0, -1))))
            assert reader.read_chunk().app_metadata is not None
        _, sixth = raw.do_exchange(descriptor(topic="crowd"), options)
        with pytest.raises(
            flight.FlightError, match=r"quotas.streams_max: at most 5 for crowd, got: 6"
        ):
            sixth.read_chunk()
        for _, reader in held:
            reader.cancel()
        raw.close()

        with Client(process.url, api_key=keys["crowd"], retry_ms_max=0) as client:

            def is_let_in() -> bool:
                try:
                    return client.send("crowd", b"x") >= 0
                except ResourceExhausted:  # the broker has yet to see that the others are gone
                    return False

            until(is_let_in, "its streams are closed")
            with pytest.raises(ResourceExhausted, match=r"rows_per_s: at most 1000 for crowd, got"):
                for _ in range(100):  # as many as it takes where each one takes a while
                    client.send_batch("crowd", [b"x"] * 1_000)
        with Client(process.url, api_key=keys["watched"]) as client:
            client.send_batch("watched", [b"x"] * 1_000)

        with contextlib.closing(crowd.Staging(process.http_port, keys["crowd"])) as staging:
            assert [staging.another("crowd")[0] for _ in range(3)] == [201] * 3
            status, refused = staging.another("crowd")
        assert status == 429
        assert refused["detail"] == "quotas.transactions_max: at most 3 for crowd, got: 4"
        with contextlib.closing(crowd.Staging(process.http_port, keys["watched"])) as staging:
            assert staging.another("watched")[0] == 201

        counted = crowd.metrics(process, root)
        for quota in ("streams_max", "transactions_max", "rows_per_s"):
            label = f'quota="{quota}",principal="crowd"'
            assert f"dejaq_quota_refusals_total{{{label}}}" in counted
        assert 'principal="watched"' not in counted
        assert "refused: quotas.streams_max: at most 5 for crowd" in process.log_text()
    finally:
        process.kill()


def test_one_key_at_its_limits_leaves_the_broker_to_another(tmp_path: Path) -> None:
    """Others are served meanwhile. How much of their work they get done, how long they wait and
    whether each probe is in time depends on what else the machine does, so that is not judged here:
    `python -m tests.hostile.crowd` measures it. While a thousand streams were opened and dropped as
    they came, others got 4 % of their work done."""
    outcome = crowd.run(tmp_path, 60 if ALL else 6)
    print(outcome.text())
    assert outcome.done["streams"] > 0
    assert outcome.crowded.sends
    assert outcome.crowded.deliveries
    assert 'principal="watched"' not in outcome.metrics  # nothing of theirs was refused
