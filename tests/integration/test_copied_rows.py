"""Covers: rows that compaction copies forward between a look at a partition and the reading of what
is stored: each comes once, in scans and pages of a peek, while the topic does not change.

Not covered: rows that are done meanwhile (test_scan.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import claims
from dejaqueue.broker.calls.scan import parse, scan
from dejaqueue.broker.consumers.gathering import peek_batch
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import copy_rows
from dejaqueue.errors import DejaQError
from dejaqueue.model import pack_id
from tests.backups import client_of, started
from tests.patience import until

ROWS = 600
SEGMENTS_LATER = 16
"""When all was copied so often again, the segments are gone that had it."""


class Copying:
    """Copies all rows of a topic forward, again and again, on a thread."""

    def __init__(self, broker: Broker, *topics: str) -> None:
        self._topics, self.count = [broker.runtime(topic) for topic in topics], 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._again)
        self._thread.start()

    @staticmethod
    def _copy(core: PartitionCore) -> None:
        live = np.concatenate([np.zeros(0, np.int64), *core.engine.live_sequences()])
        copy_rows(core, core.stored, live[core.views.locators(live).argsort(kind="stable")])

    def _again(self) -> None:
        while not self._ends.is_set():
            try:
                for topic in self._topics:
                    topic.change(0, self._copy).result(60)
                self.count += 1
            except DejaQError:  # the broker is busy, or stops
                self._ends.wait(0.01)

    def wait(self, times: int) -> None:
        """Return when all was copied so often again."""
        last = self.count + times
        until(lambda: self.count >= last, "all is copied")

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = started(tmp_path / "data", segment_bytes=1 << 16, snapshot_entries=4)
    yield broker
    broker.stop()


@pytest.fixture
def copying(broker: Broker) -> Iterator[Copying]:
    client_of(broker).create_topic("a")
    with client_of(broker).producer("a") as producer:
        for number in range(ROWS):
            producer.send(b"%d" % number * 100, key=f"{number}", delay=3_600)
    client_of(broker).create_topic("now", lease_ms=600_000)
    with client_of(broker).producer("now") as producer:
        for number in range(ROWS):
            producer.send(b"%d" % number)
    copying = Copying(broker, "a", "now")
    yield copying
    copying.end()


@pytest.mark.parametrize("columns", [("id", "payload"), ("id", "group"), ("id", "key", "payload")])
def test_a_scan_that_is_read_slowly_has_each_row_once(
    broker: Broker, copying: Copying, columns: tuple[str, ...]
) -> None:
    topic = broker.runtime("a")
    ticket = parse({"partition": 0, "columns": list(columns)}, topic.partitions, 0)
    found = list[dict[str, object]]()
    for batch in scan(topic, ticket):
        found += batch.to_pylist()
        copying.wait(SEGMENTS_LATER)
    assert [one["id"] for one in found] == [pack_id(0, number) for number in range(ROWS)]
    for number, one in enumerate(found):
        assert one.get("payload", b"%d" % number * 100) == b"%d" % number * 100
        assert one.get("key", f"{number}") == f"{number}"


def test_a_page_has_each_row_once(
    broker: Broker, copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: Any) -> pa.RecordBatch:
        copying.wait(SEGMENTS_LATER)
        return peek_batch(*given)

    monkeypatch.setattr("dejaqueue.broker.calls.peek.peek_batch", late)
    page = client_of(broker).peek("a", limit=ROWS)
    assert page.column("payload").to_pylist() == [b"%d" % n * 100 for n in range(ROWS)]


def test_the_rows_of_a_claim_that_is_read_slowly_come_once(
    broker: Broker, copying: Copying
) -> None:
    claim = broker.call("claim", {"topic": "now", "partition": 0, "rows": ROWS})["claim"]
    wanted = {"topic": "now", "partition": 0, "claim": claim}
    found = list[bytes]()
    for batch in claims.read(broker.runtime("now").view(""), wanted)[1]:
        found += batch.column("payload").to_pylist()
        copying.wait(SEGMENTS_LATER)
    assert found == [b"%d" % n for n in range(ROWS)]


def test_rows_that_are_done_meanwhile_are_left_out(broker: Broker, copying: Copying) -> None:
    topic = broker.runtime("a")
    ticket = parse({"partition": 0, "columns": ["id", "payload"]}, topic.partitions, 0)
    batches = scan(topic, ticket)
    next(batches)
    last = [pack_id(0, number) for number in range(ROWS - 10, ROWS)]
    client_of(broker).cancel("a", ids=last)
    copying.wait(SEGMENTS_LATER)
    found = [one for batch in batches for one in batch.column("id").to_pylist()]
    assert found[-1] == pack_id(0, ROWS - 11)
