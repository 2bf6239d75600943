"""Covers: what the collector deletes and what not, where a broker stands for the topics.

Not covered: whole brokers, crashes, states of messages (tests/rules/test_rule_22_payloads.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dejaqueue.broker.payloads.payloads import STALE_MS, Payloads
from dejaqueue.broker.topic.payload_collector import PayloadCollector
from dejaqueue.errors import Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS, until
from tests.payload_stores import FaultyBucket

YOUNG = -(10**13)
"""Age of an orphan such that all files of a test are old: theirs is the machine's clock."""


class Collected:
    """A collector over a bucket; `owners` says whose payloads are whose."""

    def __init__(self, root: Path, keep_ms: int = 0) -> None:
        settings = PayloadSettings(url=str(root / "p"), keep_ms=keep_ms)
        self.clock = VirtualClock(4_000_000_000_000)  # later than files of a test
        self.payloads = Payloads(
            BrokerSettings(payloads=settings), self.clock, ThreadPoolExecutor(2)
        )
        store = open_store(str(root / "j"))
        self.payloads.open(store)
        store.close()
        self.bucket = FaultyBucket(root / "p")
        self.payloads.store = PayloadStore(self.bucket, self.clock.now_us)
        self.owners: dict[str, Any] = {}
        self.collector = PayloadCollector(self.payloads, self.find)

    def find(self, owner: str) -> Any:
        found = self.owners[owner]
        if isinstance(found, Exception):
            raise found
        return found

    def put(self, owner: str) -> str:
        return self.payloads.put_beside(owner, b"x").result().name

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.bucket.objects("")]


@pytest.fixture
def collected(tmp_path: Path) -> Iterator[Collected]:
    made = Collected(tmp_path)
    yield made
    made.payloads.close()


def test_what_is_doomed_goes_when_nobody_reads_it_any_more(collected: Collected) -> None:
    first, second = collected.put("1-t"), collected.put("1-t")
    collected.payloads.doom([first])
    collected.collector.delete_doomed()
    assert len(collected.names) == 2
    collected.clock.advance(ms=STALE_MS)
    collected.payloads.doom([second])
    collected.collector.delete_doomed()
    assert collected.names == [second]
    assert collected.payloads.counts.deleted == 1


def test_while_the_store_is_away_it_stays_doomed(collected: Collected) -> None:
    collected.payloads.doom([collected.put("1-t"), collected.put("1-t")])
    collected.bucket.is_away = True
    with pytest.raises(Unavailable):
        collected.collector.delete_doomed(0)
    assert len(collected.payloads.doomed) == 2


def test_payloads_of_topics_that_are_gone_go__those_of_others_stay(
    collected: Collected, caplog: pytest.LogCaptureFixture
) -> None:
    names = {owner: collected.put(owner) for owner in ("1-gone", "2-elsewhere", "3-unread")}
    collected.owners = {
        "1-gone": False,
        "2-elsewhere": True,
        "3-unread": Unavailable("its journal is away", 1),
    }
    with caplog.at_level(logging.WARNING):
        collected.collector.collect()
    collected.collector.delete_doomed(0)
    assert sorted(collected.names) == sorted([names["2-elsewhere"], names["3-unread"]])
    assert "payloads of 3-unread stay as they are for now" in caplog.text


def test_when_a_payload_ended_is_noted_durably_while_it_is_kept(tmp_path: Path) -> None:
    collected = Collected(tmp_path, keep_ms=5_000)
    name = collected.put("1-t")
    collected.owners["1-t"] = True
    collected.payloads.doom([name])
    collected.collector.delete_doomed(0)
    ended_ms, own = collected.clock.utc_ms(), collected.payloads.id
    assert sorted(collected.names) == sorted(
        [name, f"{own}/ended/{ended_ms}/{name.removeprefix(f'{own}/')}"]
    )
    collected.clock.advance(ms=4_999)
    collected.collector.collect()
    assert len(collected.names) == 2
    collected.clock.advance(ms=1)
    collected.collector.collect()
    assert collected.names == []
    collected.payloads.close()


def test_its_thread_deletes_by_itself_and_ends(collected: Collected) -> None:
    collected.owners["1-t"] = False
    thread = Thread(target=collected.collector.run)
    thread.start()
    try:
        collected.payloads.doom([collected.put("1-t")])
        until(lambda: collected.clock.next_instant_us() is not None, "it waits")
        until(lambda: _moved(collected), "it deletes what ended")
        collected.put("1-t")
        collected.collector.look_soon()
        until(lambda: bool(collected.payloads.doomed), "it finds what nobody told it of")
    finally:
        collected.collector.stop()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def _moved(collected: Collected) -> bool:
    collected.clock.advance(ms=STALE_MS)
    return not collected.names


def test_an_own_name_is_needed_to_be_deleted(collected: Collected) -> None:
    foreign = collected.bucket.root / "someone" / "1-t" / "x"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"x")
    collected.collector.collect(YOUNG)
    collected.collector.delete_doomed(0)
    assert collected.names == ["someone/1-t/x"]
