"""Rule 22, cold payloads: what is due much later leaves the journal and is back before it is due.

Also here: a store that is away, crashes at each step, moves, cancels, subscriptions, erasure, and
what is deleted. Not covered: real clients and object stores
(tests/integration/test_cold_payloads.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.shard import cold_chore
from dejaqueue.broker.shard.core import PartitionCore
from tests.patience import until
from tests.rules.broker_fixture import TOPIC
from tests.rules.test_rule_22_payloads import Kept

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PAYLOADS = [bytes([65 + number % 26]) * 1_024 for number in range(64)]


@pytest.fixture
def make_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    monkeypatch.setattr(cold_chore, "OBJECT_BYTES", 16_384)
    monkeypatch.setattr(cold_chore, "CONTENT_BYTES_MIN", 1_024)
    made: list[Kept] = []

    def make(**topic: Any) -> Kept:
        settings = {"cold_after_ms": HOUR_MS} | topic
        made.append(Kept(tmp_path / "payloads", tmp_path / "journal", **settings))
        return made[-1]

    yield make
    for one in made:
        one.fixture.stop()


def core_of(kept: Kept) -> PartitionCore:
    return kept.fixture.broker.runtime(TOPIC).partitions[0].core


def cold_count(kept: Kept) -> int:
    return core_of(kept).cold.row_count


def settle_at(kept: Kept, count: int) -> None:
    """Wait until so many messages are cold, by the journal."""

    def is_so() -> bool:
        kept.fixture.advance(100)
        kept.fixture.settle_down()
        return cold_count(kept) == count

    until(is_so)


def send_late(kept: Kept, payloads: list[bytes] = PAYLOADS, delay_ms: int = DAY_MS) -> int:
    """Send, and have it go to the store; when they are due."""
    due_ms = kept.fixture.clock.utc_ms() + delay_ms
    dues = pa.array([due_ms] * len(payloads), pa.int64())
    kept.fixture.write("enqueue", {"payload": pa.array(payloads, pa.binary()), "due": dues})
    kept.fixture.advance(1_000)
    settle_at(kept, len(payloads))
    return due_ms


def advance_to(kept: Kept, instant_ms: int) -> None:
    kept.fixture.advance(instant_ms - kept.fixture.clock.utc_ms())
    kept.fixture.settle_down()


def test_what_is_due_tomorrow_leaves__and_is_back_before_it_is_due(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    due_ms = send_late(kept)
    assert kept.stored == 4, "many messages share an object"
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS
    counts = kept.fixture.broker.payloads.counts
    assert (counts.cold_stored, counts.cold_returned) == (64, 0)
    advance_to(kept, due_ms - HOUR_MS // 2 - 1_000)
    assert cold_count(kept) == 64
    advance_to(kept, due_ms - HOUR_MS // 4)
    settle_at(kept, 0)
    assert (counts.cold_returned, counts.cold_late) == (64, 0)
    kept.clean()
    assert kept.stored == 0, "nobody needs the objects any more"
    advance_to(kept, due_ms)
    kept.bucket.is_away = True
    assert kept.take() == PAYLOADS
    assert counts.cold_late == 0
