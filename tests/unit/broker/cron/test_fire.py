"""Entries of one partition fire. When: test_firings.py; whole brokers: tests/rules."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.broker.cron import fire as module
from dejaqueue.broker.cron.fire import FULL_RETRY_MS, entry_of, sender_of, spec_of
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Cancel, PutEntries
from dejaqueue.schema.cron import CronEntry, Misfire, Overlap
from tests.unit.broker.cores import Served

EVERY_MS = 60_000


@pytest.fixture
def served() -> Served:
    return Served()


def put(served: Served, *entries: CronEntry) -> int:
    """The entries fire in one interval for the first time; returns when."""
    now_ms = served.core.now_ms()
    next_ms = now_ms + EVERY_MS
    put = tuple((one.name, spec_of(one, "who"), next_ms, next_ms) for one in entries)
    served.core.apply(PutEntries(now_ms, put))
    served.core.commits.commit_all()
    return next_ms


def entry(name: str, served: Served, **more: object) -> CronEntry:
    start_ms = served.core.now_ms()
    return CronEntry(name, every_ms=EVERY_MS, start_ms=start_ms, **more)  # type: ignore[arg-type]


def fire(served: Served) -> int:
    """Fire what is due; how many messages came of it."""
    before = served.core.engine.counts.enqueued
    module.fire(served.core)
    served.core.commits.commit_all()
    return served.core.engine.counts.enqueued - before


def test_nothing_fires_before_its_time(served: Served) -> None:
    put(served, entry("a", served))
    position = served.core.position
    assert fire(served) == 0
    assert served.core.position == position


def test_entries_that_fire_together_are_one_journal_entry(served: Served) -> None:
    next_ms = put(served, *(entry(name, served) for name in "abc"))
    served.clock.advance(ms=EVERY_MS)
    position = served.core.position
    assert fire(served) == 3
    assert served.core.position == position + 1
    core = served.core
    assert core.engine.dues(np.arange(3)).tolist() == [next_ms] * 3
    schedule = core.engine.schedule.by_name
    assert {schedule[name].next_ms for name in "abc"} == {next_ms + EVERY_MS}
    assert fire(served) == 0


def test_a_message_has_what_its_entry_says__and_which_firing_it_is(served: Served) -> None:
    made = entry("a", served, payload=b"x", headers={"h": "1"}, tags=("t", "u"), group="g")
    next_ms = put(served, made)
    served.clock.advance(ms=EVERY_MS)
    fire(served)
    locators = served.core.engine.locators(np.arange(1))
    columns = ("group", "tags", "headers", "payload")
    [row] = served.core.journal.read(locators, columns).to_pylist()
    assert (row["group"], row["tags"].split("\x1f"), row["payload"]) == ("g", ["t", "u"], b"x")
    headers = dict(pair.split("\x1f") for pair in row["headers"].split("\x1e"))
    assert headers["h"] == "1"
    assert {"a", str(next_ms)} <= set(headers.values())
    senders = served.core.engine.senders(np.arange(1))
    assert senders is not None
    assert senders.names == ("who",)


def test_missed_firings_are_all_made_up_for__if_the_entry_wants_that(served: Served) -> None:
    put(served, entry("all", served, misfire=Misfire.ALL), entry("once", served))
    served.clock.advance(ms=3 * EVERY_MS)
    assert fire(served) == 4


def test_an_entry_that_skips_waits_for_its_last_message(served: Served) -> None:
    put(served, entry("a", served, overlap=Overlap.SKIP))
    fired = []
    for _ in range(3):
        served.clock.advance(ms=EVERY_MS)
        fired.append(fire(served))
    assert fired == [1, 0, 0]
    served.core.apply(Cancel(served.core.now_ms(), np.arange(1)))
    served.clock.advance(ms=EVERY_MS)
    assert fire(served) == 1


def test_a_crowd_fires_over_several_steps(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CRON_STEP_ENTRIES_MAX", 2)
    put(served, *(entry(name, served) for name in "abcde"))
    served.clock.advance(ms=EVERY_MS)
    assert [fire(served) for _ in range(4)] == [2, 2, 1, 0]


def test_entries_wait_for_room_on_the_disk(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    put(served, entry("a", served))
    served.clock.advance(ms=EVERY_MS)
    monkeypatch.setattr(PartitionCore, "has_room", lambda core, rows: False)
    assert fire(served) == 0
    assert module.next_wake_ms(served.core) == served.core.now_ms() + FULL_RETRY_MS
    monkeypatch.undo()
    assert fire(served) == 1


def test_an_entry_is_kept_without_what_is_as_ever__and_read_back() -> None:
    made = CronEntry("a", cron="0 9 * * *", payload=b"\xff", tags=("t",), next_ms=5, last_id=7)
    spec = spec_of(made, "who")
    assert set(json.loads(spec)) == {"cron", "payload", "tags", "sender"}
    assert sender_of(spec) == "who"
    back = entry_of("a", spec)
    assert (back.name, back.cron, back.payload, back.tags) == ("a", made.cron, b"\xff", ("t",))
    assert (back.next_ms, back.last_id) == (-1, -1)
    assert sender_of(spec_of(made, "")) == ""
