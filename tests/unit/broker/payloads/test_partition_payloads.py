"""Covers: payloads of deliveries: fetched, left out and let go, remembered until they are done.

Not covered: whole brokers (tests/rules/test_rule_22_payloads.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.payloads import partition_payloads
from dejaqueue.broker.payloads.partition_payloads import PartitionPayloads, ReleasedRows
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.registry import open_store
from dejaqueue.schema.messages import UNREAD
from dejaqueue.schema.references import MARK, Reference, escaped
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock


class Partition:
    """Payloads of a partition, and what was let go."""

    def __init__(self, root: Path) -> None:
        settings = BrokerSettings(payloads=PayloadSettings(url=str(root / "p")))
        self.payloads = Payloads(settings, VirtualClock(), ThreadPoolExecutor(2))
        store = open_store(str(root / "j"))
        self.payloads.open(store)
        store.close()
        self.gone: list[ReleasedRows] = []
        self.here = PartitionPayloads(self.payloads, self.gone.append, "topic t, partition 0")

    def stored(self, payload: bytes) -> Reference:
        return self.payloads.put_beside("1-t", payload).result()


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(tmp_path)
    yield made
    made.payloads.close()


def binary(*payloads: bytes | None) -> pa.BinaryArray:
    return pa.array(payloads, pa.binary())


def delivery(*payloads: bytes) -> pa.RecordBatch:
    ids = np.arange(len(payloads)) + 100 + (3 << limits.SEQUENCE_BITS)
    attempts = np.arange(len(payloads), dtype=np.uint16) + 1
    dues = np.arange(len(payloads)) + 1_000
    columns = {"id": ids, "attempts": attempts, "due": dues, "payload": binary(*payloads)}
    return pa.record_batch(columns)


def test_a_delivery_has_the_payloads_themselves(partition: Partition) -> None:
    large = [partition.stored(b"a" * 9_000), partition.stored(b"b" * 1_000)]
    plain = delivery(b"x", b"y")
    assert partition.here.fetched(plain) is plain
    batch = delivery(b"x", large[0].encode(), escaped(MARK + b"!"), large[1].encode())
    found = partition.here.fetched(batch)
    assert found.schema == batch.schema
    assert found.column("payload").to_pylist() == [b"x", b"a" * 9_000, MARK + b"!", b"b" * 1_000]
    assert not partition.gone
    assert partition.here.mean_bytes > 1_000


def test_what_is_damaged_is_left_out_and_let_go(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Reference("x/1-t/none", 1, b"d" * 32).encode()
    found = partition.here.seen_by("second").fetched(delivery(b"x", lost, MARK + b"\x09", b"y"))
    assert found.column("payload").to_pylist() == [b"x", b"y"]
    [gone] = partition.gone
    assert (gone.subscription, gone.delay_ms) == ("second", partition_payloads.DAMAGED_MS)
    assert (gone.sequences.tolist(), gone.attempts.tolist()) == ([101, 102], [2, 3])
    assert gone.due_ms == 1_002, "none of them comes before it is due"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "topic t, partition 0: message" in messages[0]
    assert "payload x/1-t/none of 1 bytes is missing" in messages[0]


def test_without_a_store_the_message_waits(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    reference = partition.stored(b"a" * 9_000).encode()
    partition.payloads.store = None
    assert partition.here.fetched(delivery(reference)).num_rows == 0
    assert [gone.delay_ms for gone in partition.gone] == [partition_payloads.AWAY_MS]
    partition.payloads.close()


def test_more_than_a_delivery_holds_comes_with_the_next(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 2_500)
    large = [partition.stored(bytes([number]) * 1_000).encode() for number in range(5)]
    found = partition.here.fetched(delivery(*large))
    assert found.num_rows == 2
    [gone] = partition.gone
    assert (gone.sequences.tolist(), gone.delay_ms) == ([102, 103, 104], 0)


def test_who_looks_is_told_what_is_missing__row_by_row(partition: Partition) -> None:
    lost = Reference("x/1-t/none", 1, b"d" * 32).encode()
    column = binary(b"x", partition.stored(b"a" * 2_000).encode(), None)
    payloads, failed = partition.here.read(column)
    assert (payloads.to_pylist(), failed) == ([b"x", b"a" * 2_000, None], {})
    plain = binary(b"x")
    assert partition.here.read(plain)[0] is plain
    payloads, failed = partition.here.read(binary(b"x", lost, b"y"))
    assert payloads.to_pylist() == [b"x", lost, b"y"]
    [(row, error)] = failed.items()
    assert row == 1
    assert isinstance(error, JournalDamaged)
    assert str(error).startswith("payload x/1-t/none of 1 bytes is missing")


def test_a_page_names_what_cannot_be_read__and_shows_the_rest(partition: Partition) -> None:
    lost = Reference("x/1-t/none", 1, b"d" * 32).encode()
    large = partition.stored(b"a" * 2_000).encode()
    plain = delivery(b"x", b"y")
    assert partition.here.shown(plain) is plain
    whole = partition.here.shown(delivery(b"x", large))
    assert whole.schema == plain.schema
    assert whole.column("payload").to_pylist() == [b"x", b"a" * 2_000]
    found = partition.here.shown(delivery(b"x", lost, large))
    assert found.column("id").to_pylist() == delivery(b"x", lost, large).column("id").to_pylist()
    assert found.column("payload").to_pylist() == [b"x", None, b"a" * 2_000]
    told = found.column(UNREAD.name).to_pylist()
    assert (told[0], told[2]) == (None, None)
    assert "payload x/1-t/none of 1 bytes is missing" in told[1]


@pytest.mark.parametrize("count", [1, 1_000])
def test_what_was_seen_is_doomed_when_it_is_done(partition: Partition, count: int) -> None:
    names = [partition.stored(bytes(2_000)) for _ in range(3)]
    column = binary(*(one.encode() for one in names), b"small", escaped(MARK))
    partition.here.note(column, np.array([10, 20, 30, 40, 50]))
    partition.here.ended(np.array([99]))
    assert not partition.payloads.doomed
    done = np.concatenate([np.array([20]), np.arange(1_000, 1_000 + count - 1)])
    partition.here.seen_by("second").ended(done)
    partition.here.ended(done)
    assert [one.name for one in partition.payloads.doomed] == [names[1].name]


def test_what_is_known_is_bounded(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_payloads, "SEEN_MAX", 2)
    own = partition.payloads.id
    column = binary(
        *(Reference(f"{own}/1-t/{number}", 1, b"d" * 32).encode() for number in range(3))
    )
    partition.here.note(column, np.array([1, 2, 3]))
    partition.here.ended(np.array([1, 2, 3]))
    assert [one.name[-1] for one in partition.payloads.doomed] == ["1", "2"]
