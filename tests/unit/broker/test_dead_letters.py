"""Parcels: how much travels at once, what it is called, how failures are waited out.

Not covered: the whole way of a letter (tests/rules/test_rule_18_dead_letters.py), crashes
(tests/rules/test_rule_18_crashes.py).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker import dead_letters as module
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.dead_letters import (
    PARCEL_BYTES_MAX,
    Carrier,
    Parcel,
    letter_columns,
    read_rows,
    returned_columns,
)
from dejaqueue.engine.arrays import Words
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Fenced,
    InternalError,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock


class Rows:
    """Stored rows by locator; None as payload = the row is gone."""

    def __init__(self, payloads: list[bytes | None], **texts: list[str]) -> None:
        self._payloads, self._texts = payloads, texts
        self.reads: list[int] = []

    def read(self, locators: np.ndarray, columns: tuple[str, ...]) -> pa.RecordBatch:
        places = locators.tolist()
        self.reads.append(len(places))
        arrays = []
        for name in columns:
            if name == "payload":
                arrays.append(pa.array([self._payloads[p] for p in places], pa.binary()))
            else:
                texts = self._texts.get(name, [""] * len(self._payloads))
                arrays.append(pa.array([texts[p] or None for p in places], pa.utf8()))
        return pa.RecordBatch.from_arrays(arrays, list(TEXT_COLUMNS))


def parcel(rows: int, destination: str = "", max_payload_bytes: int = 1 << 20) -> Parcel:
    places = np.arange(rows, dtype=np.int64)
    return Parcel(
        Topic("t", max_payload_bytes=max_payload_bytes),
        2,
        destination,
        places + 5,
        np.ones(rows, dtype=np.uint16),
        places,
        None,
        None,
        Words(("why",), np.zeros(rows, dtype=np.int32)),
        np.full(rows, 99),
    )


def taken(payloads: list[bytes | None], max_payload_bytes: int = 1 << 20) -> list[bytes]:
    journal: Any = Rows(payloads)
    stored = read_rows(parcel(len(payloads), "", max_payload_bytes), journal)
    found: list[bytes] = stored.column("payload").to_pylist()
    return found


def test_small_rows_travel_all_at_once() -> None:
    payloads: list[bytes | None] = [b"%d" % number for number in range(1_000)]
    assert taken(payloads) == payloads


def test_large_rows_travel_few_at_a_time() -> None:
    megabyte = bytes(1 << 20)
    assert len(taken([megabyte] * 100)) == PARCEL_BYTES_MAX >> 20
    mixed: list[bytes | None] = [*[b""] * 50, *[megabyte] * 100]
    assert len(taken(mixed)) == 50 + (PARCEL_BYTES_MAX >> 20)


def test_one_row_travels_however_large() -> None:
    huge = bytes(PARCEL_BYTES_MAX + 1)
    assert len(taken([huge, b"a"], limits.PAYLOAD_BYTES_MAX)) == 1
    assert len(taken([b"a", huge, b"b"], limits.PAYLOAD_BYTES_MAX)) == 1


def test_no_more_is_read_than_memory_should_hold() -> None:
    journal: Any = Rows([bytes(1 << 20)] * 100)
    read_rows(parcel(100), journal)
    assert max(journal.reads) * (1 << 20) <= 4 * PARCEL_BYTES_MAX


def test_rows_that_were_copied_elsewhere_end_the_parcel() -> None:
    assert taken([b"a", b"b", None, b"c"]) == [b"a", b"b"]
    assert taken([None, b"c"]) == []


def test_equal_parcels_have_equal_numbers__and_others_do_not() -> None:
    whole = parcel(10)
    assert whole.number() == parcel(10).number()
    others = [
        whole.first(9),
        replace(whole, deaths_ms=whole.deaths_ms + 1),
        replace(whole, sequences=whole.sequences + 1),
    ]
    assert len({each.number() for each in [whole, *others]}) == 4
    assert 0 <= whole.number() < 1 << 63


def test_a_letter_of_full_headers_keeps_them_all() -> None:
    full = "n\x1f" + "v" * (limits.HEADERS_BYTES_MAX - 2)
    journal: Any = Rows([b"a"], headers=[full], key=["k" * limits.KEY_BYTES_MAX])
    one = parcel(1)
    columns = letter_columns(one, read_rows(one, journal), 7)
    assert columns.headers is not None
    assert columns.headers.to_pylist()[0].startswith(full)
    assert columns.keys is not None
    assert columns.keys.to_pylist() == [f"t:{(2 << limits.SEQUENCE_BITS) + 5}@99"]
    back: Any = Rows([b"a"], headers=columns.headers.to_pylist())
    returned = returned_columns(one, read_rows(one, back), 8)
    assert returned.headers is not None
    assert returned.keys is not None
    assert returned.headers.to_pylist() == [full]
    assert returned.keys.to_pylist() == ["k" * limits.KEY_BYTES_MAX]
    assert returned.dues_ms.tolist() == [8]


def test_the_key_of_a_letter_from_a_topic_with_a_long_name_is_a_key() -> None:
    journal: Any = Rows([b"a"])
    one = replace(parcel(1), topic=Topic("x" * 255))
    keys = letter_columns(one, read_rows(one, journal), 7).keys
    assert keys is not None
    assert len(keys.to_pylist()[0].encode()) <= limits.KEY_BYTES_MAX


@pytest.fixture
def broker() -> Any:
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), VirtualClock())
    made.start()
    yield made
    made.stop()


def carried(carrier: Carrier, one: Parcel, journal: Journal) -> tuple[int, DejaQError | None]:
    future: Future[tuple[int, DejaQError | None]] = Future()
    carrier.carry(one, journal, lambda rows, error: future.set_result((rows, error)))
    return future.result(10)


def test_what_goes_wrong_is_told_and_the_next_is_carried(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal: Any = Rows([b"a"])
    gone: Any = Rows([None])
    assert carried(broker.carrier, parcel(1), journal) == (1, None)
    assert broker.topic("t.dead").max_payload_bytes == limits.PAYLOAD_BYTES_MAX
    rows, error = carried(broker.carrier, parcel(1), gone)
    assert (rows, str(error)) == (0, "rows are being copied")
    rows, error = carried(broker.carrier, parcel(1, "no-such"), journal)
    assert (rows, "no-such" in str(error)) == (0, True)
    monkeypatch.setattr(module, "letter_columns", lambda *_: 1 / 0)
    rows, error = carried(broker.carrier, parcel(1), journal)
    assert isinstance(error, InternalError)


def test_a_closed_carrier_takes_nothing_and_says_nothing(broker: Broker) -> None:
    journal: Any = Rows([b"a"])
    carrier = Carrier(broker, ThreadPoolExecutor(1))
    carrier.close()
    answers: list[int] = []
    carrier.carry(parcel(1), journal, lambda rows, error: answers.append(rows))
    carrier.close()
    assert answers == []


class Waiting:
    """What a lane asks of a partition that has to wait."""

    number = 0

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def topic(self) -> Topic:
        return Topic("t")


@pytest.mark.parametrize(
    ("error", "first_ms", "most_ms"),
    [
        (Unavailable("the journal is away", 50), 50, 5_000),
        (ResourceExhausted("the disk is full", 100), 100, 5_000),
        (Fenced("another owner wrote"), 1_000, 5_000),
        (BadRequest("payload", "at most 10 bytes", 11), 1_000, 60_000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DejaQError) else None,
)
def test_what_passes_by_itself_is_looked_at_more_often(
    error: DejaQError, first_ms: int, most_ms: int
) -> None:
    waiting, lane = Waiting(), module._Lane()
    pauses_ms = []
    for _ in range(40):
        module.DeadLetters._pause(cast(Any, waiting), "", lane, error)
        pauses_ms.append((lane.until_us - waiting.clock.now_us()) // 1_000)
    assert pauses_ms[0] == first_ms
    assert pauses_ms == sorted(pauses_ms)
    assert pauses_ms[-1] == most_ms
