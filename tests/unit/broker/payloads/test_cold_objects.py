"""Objects of cold payloads: stored, read back, and few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dejaqueue.broker.payloads.cold_objects import AT_ONCE, ColdObjects, is_cold_name
from dejaqueue.broker.payloads.payloads import THREADS, Payloads
from dejaqueue.errors import InternalError, Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS
from tests.payload_stores import FaultyBucket


class Kept:
    def __init__(self, root: Path) -> None:
        settings = BrokerSettings(payloads=PayloadSettings(url=str(root / "p")))
        self.clock = VirtualClock()
        self.payloads = Payloads(settings, self.clock, ThreadPoolExecutor(THREADS))
        store = open_store(str(root / "j"))
        self.payloads.open(store)
        store.close()
        self.bucket = FaultyBucket(root / "p")
        self.payloads.store = PayloadStore(self.bucket, self.clock.now_us)
        self.cold = ColdObjects(self.payloads)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.payloads.close()


def outcome(future: Any) -> Any:
    assert future is not None
    return future.result(PATIENCE_SECONDS)


def test_what_was_stored_is_read(kept: Kept) -> None:
    whole = outcome(kept.cold.put("3-t", b"many payloads"))
    assert is_cold_name(whole.name)
    assert outcome(kept.cold.get(whole)) == b"many payloads"
    kept.cold.end([whole.name])
    assert [one.name for one in kept.payloads.doomed] == [whole.name]


def test_what_cannot_be_read_back_is_not_there(kept: Kept) -> None:
    kept.bucket.fails_get = True
    with pytest.raises(Unavailable):
        outcome(kept.cold.put("3-t", b"many payloads"))
    assert kept.payloads.counts.failed == 1


def test_few_are_under_way_at_once(kept: Kept) -> None:
    gate = Event()

    def wait(_: str) -> None:
        gate.wait(PATIENCE_SECONDS)

    kept.bucket.before_put = wait
    futures = [kept.cold.put("3-t", b"x") for _ in range(AT_ONCE)]
    assert kept.cold.put("3-t", b"x") is None
    gate.set()
    for future in futures:
        outcome(future)
    assert outcome(kept.cold.put("3-t", b"x"))


def test_a_bug_of_ours_is_one_of_our_errors(kept: Kept) -> None:
    def fail(_: str) -> None:
        raise ValueError("oh")

    kept.bucket.before_put = fail
    with pytest.raises(InternalError, match="cold payloads: ValueError: oh"):
        outcome(kept.cold.put("3-t", b"x"))


def test_when_the_broker_stops_nothing_is_asked(kept: Kept) -> None:
    kept.payloads.close()
    with pytest.raises(Unavailable, match="stopping"):
        kept.cold.put("3-t", b"x")


def test_while_messages_come_one_is_stored_in_a_second(kept: Kept) -> None:
    assert kept.cold.takes_turn(5_000_000)
    assert not kept.cold.takes_turn(5_999_999)
    assert kept.cold.takes_turn(6_000_000)
