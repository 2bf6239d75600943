"""A broker is killed again and again while it records; history has each confirmed change once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa

import dejaqueue
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import DejaQError
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

TOPIC = "t"
KILLS = 3
SENT_BEFORE_KILL = 60
COLUMNS = ["position", "id", "change", "at_ms"]


def read(url: str) -> pa.Table:
    """All history of the topic, through the broker."""
    transport = FlightTransport(url)
    try:
        files = transport.action("history_files", {"name": TOPIC}).result(PATIENCE_SECONDS)["files"]
        batches = []
        for file in files:
            named = {"partition": file["partition"], "file": file["name"], "columns": COLUMNS}
            batches += list(transport.scan({"op": "history", "topic": TOPIC, **named}))
        return pa.Table.from_batches(batches)
    finally:
        transport.close()


def test_kills_neither_lose_nor_double_history(tmp_path: Path) -> None:
    # Files and snapshots so often that a kill meets them at every point of their making.
    settings = {"history__roll_ms": 100, "journal__snapshot_entries": 25}
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log", **settings)
    sent: list[int] = []
    acked: list[int] = []
    try:
        for round_number in range(KILLS + 1):
            broker.start()
            with dejaqueue.Client(broker.url, retry_ms_max=300) as client:
                client.create_topic(TOPIC, history=True)
                work(client, broker, sent, acked, kill=round_number < KILLS)
        table = read(broker.url)
    finally:
        broker.kill()
    rows = list(zip(*(table.column(name).to_pylist() for name in COLUMNS[:3]), strict=True))
    assert len(rows) == len(set(rows))
    assert not [row for row in rows if row[2] == "gap"]
    found = Counter((change, message_id) for _, message_id, change in rows)
    assert set(sent) <= {message_id for change, message_id in found if change == "enqueued"}
    assert set(acked) <= {message_id for change, message_id in found if change == "acked"}
    assert {count for (change, _), count in found.items() if change in ("enqueued", "acked")} == {1}
    times = table.sort_by("position").column("at_ms").to_pylist()
    assert times == sorted(times)


def work(
    client: dejaqueue.Client,
    broker: BrokerProcess,
    sent: list[int],
    acked: list[int],
    *,
    kill: bool,
) -> None:
    """Send and ack, and note what was confirmed; the broker is killed in the middle."""
    enough = threading.Event()

    def consume() -> None:
        try:
            with client.consume(TOPIC, prefetch=8, idle_ms=1_000) as messages:
                for message in messages:
                    message.ack(wait=True)
                    acked.append(message.id)
        except DejaQError:
            pass  # killed: whether that ack arrived is not known

    def produce() -> None:
        try:
            for number in range(SENT_BEFORE_KILL * 2):
                sent.append(client.send(TOPIC, b"x"))
                if number == SENT_BEFORE_KILL:
                    enough.set()
        except DejaQError:
            pass  # killed

    threads = [threading.Thread(target=one) for one in (consume, produce)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE_SECONDS)
    if kill:
        broker.kill()
        client.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
