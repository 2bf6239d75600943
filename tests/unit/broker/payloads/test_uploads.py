"""Covers: batches whose large payloads are stored first: which rows, in which order, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.payloads.uploads import Columns, Uploads, escaped, large_rows
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.references import MARK, Reference, decode
from dejaqueue.schema.send_rows import SendRows, joined_columns
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS, until
from tests.payload_stores import FaultyBucket

INLINE = 1_024
LARGE = b"L" * (INLINE + 1)


def rows_of(*payloads: bytes) -> SendRows:
    return SendRows(list(payloads), [0] * len(payloads), sum(map(len, payloads)))


def columns_of(*payloads: bytes) -> SendColumns:
    return joined_columns([rows_of(*payloads)])


class Stream:
    """The uploads of one stream, and what became of its batches."""

    def __init__(self, root: Path) -> None:
        settings = PayloadSettings(url=str(root / "p"), inline_bytes_max=INLINE)
        self.payloads = Payloads(
            BrokerSettings(payloads=settings), VirtualClock(), ThreadPoolExecutor(4)
        )
        store = open_store(str(root / "j"))
        self.payloads.open(store)
        store.close()
        self.bucket = FaultyBucket(root / "p")
        self.payloads.store = PayloadStore(self.bucket, self.payloads.clock.now_us)
        self.uploads = Uploads(self.payloads, "1-t")
        self.gone: list[Columns | DejaQError] = []

    def put(self, columns: Columns) -> None:
        direct = self.uploads.direct(columns)
        if direct is not None:
            self.gone.append(direct)
        else:
            self.uploads.put(columns, self.gone.append, self.gone.append)

    def wait(self, count: int) -> None:
        until(lambda: len(self.gone) == count, "all batches went on")


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    made = Stream(tmp_path)
    yield made
    made.payloads.close()


@pytest.mark.parametrize("make", [rows_of, columns_of])
def test_large_rows_are_those_over_the_bound(make: type) -> None:
    assert large_rows(make(b"a", LARGE, b"b" * INLINE, LARGE), INLINE) == [1, 3]
    assert large_rows(make(b"a" * 600, b"b" * 600), INLINE) == []
    assert large_rows(make(LARGE), -1) == []


@pytest.mark.parametrize("make", [rows_of, columns_of])
def test_what_looks_like_a_reference_becomes_a_literal(make: type) -> None:
    found = escaped(make(b"a", MARK + b"!"))
    column = found.columns().payloads if isinstance(found, SendRows) else found.payloads
    assert column[0].as_py() == b"a"
    assert decode(column[1].as_py()) == MARK + b"!"
    assert escaped(make(b"a")).payload_bytes == 1


@pytest.mark.parametrize("make", [rows_of, columns_of])
def test_references_take_the_place_of_large_payloads(stream: Stream, make: type) -> None:
    marked = MARK + LARGE
    stream.put(make(b"small", LARGE, marked, b"last"))
    stream.wait(1)
    [columns] = stream.gone
    assert isinstance(columns, SendColumns)
    first, second, third, last = columns.payloads.to_pylist()
    assert (first, last) == (b"small", b"last")
    found = [decode(stored) for stored in (second, third)]
    assert all(isinstance(one, Reference) for one in found)
    assert stream.payloads.get_all(found) == [LARGE, marked]  # type: ignore[arg-type]
    assert columns.payload_bytes == 9 + len(LARGE) + len(marked)
    taken = columns.take(np.array([1, 3]))
    assert taken.payload_bytes == len(LARGE) + 4
    assert taken.payloads.type == pa.binary()


def test_small_batches_behind_a_large_one_wait_for_it(stream: Stream) -> None:
    may_go = threading.Event()

    def wait(_name: str) -> None:
        may_go.wait(PATIENCE_SECONDS)

    stream.bucket.before_put = wait
    stream.put(rows_of(b"first"))
    assert len(stream.gone) == 1
    stream.put(rows_of(LARGE))
    stream.put(rows_of(b"third"))
    assert len(stream.gone) == 1
    may_go.set()
    stream.wait(3)
    assert isinstance(stream.gone[2], SendRows)
    stream.put(rows_of(b"fourth"))
    stream.wait(4)


def test_a_batch_whose_payload_cannot_be_stored_is_refused__and_those_behind_it_go_on(
    stream: Stream,
) -> None:
    stream.bucket.is_away = True
    stream.put(rows_of(b"small", LARGE, LARGE))
    stream.put(rows_of(b"small"))
    stream.wait(2)
    assert isinstance(stream.gone[0], Unavailable)
    assert isinstance(stream.gone[1], SendRows)
    assert stream.payloads._waiting_bytes == 0


def test_without_a_store_all_go_on_at_once() -> None:
    assert Uploads(None, "1-t").direct(rows_of(LARGE)) is not None
