"""Threads that append: in order, together, all before they stop; beside each other where they may
hang."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dejaqueue.broker.shard.committer import ApartCommitter, Committer
from dejaqueue.journal.interface import Append, Journal
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.testing.journal_conformance import make_ack

SECONDS_MAX = 20


class Shared:
    """A log that notes what is appended together, and waits before if it is asked to."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.may = threading.Event()
        self.begun = threading.Event()

    def append_all(self, appends: Sequence[Append]) -> None:
        self.begun.set()
        assert self.may.wait(SECONDS_MAX)
        self.groups.append([append.after for append in appends])


class OfShared:
    """A journal in such a log."""

    def __init__(self, log: Shared) -> None:
        self.log = log


def append_to(log: Shared, after: int, done: list[int]) -> Append:
    journal: Any = OfShared(log)
    return Append(journal, [], after, 1, lambda append: done.append(append.after))


def test_what_waits_is_appended_together_and_told_in_order() -> None:
    committer, log, other = Committer("test-committer"), Shared(), Shared()
    done: list[int] = []
    other.may.set()
    committer.start()
    assert committer.is_alive
    committer.submit(append_to(log, 0, done))
    assert log.begun.wait(SECONDS_MAX)
    for after in range(1, 50):
        committer.submit(append_to(log if after % 2 else other, after, done))
    log.may.set()
    committer.stop()
    committer.stop()
    odd, even = list(range(1, 50, 2)), list(range(2, 50, 2))
    assert (log.groups, other.groups) == ([[0], odd], [even])
    assert done == [0, *odd, *even]
    assert not committer.is_alive


def test_partitions_of_a_shard_share_a_sync_and_each_has_its_own_outcome() -> None:
    store = MemoryStore(shards=1)
    journals: list[Journal] = [store.open("t", number) for number in range(3)]
    landed = threading.Condition()
    done: list[Append] = []

    def tell(append: Append) -> None:
        with landed:
            done.append(append)
            landed.notify_all()

    committer = Committer("test-committer")
    for number, journal in enumerate(journals):
        # The second one is not at its tail.
        committer.submit(Append(journal, [make_ack(number)] * 2, int(number == 1), 1, tell))
    committer.start()
    committer.wait(landed, lambda: len(done) == 3)
    committer.stop()
    assert [append.tail for append in done] == [2, 0, 2]
    assert [type(append.error).__name__ for append in done] == ["NoneType", "Fenced", "NoneType"]
    assert [entry.rows for _, _, entry in journals[2].scan(0)] == [2, 2]


def test_an_append_that_hangs_holds_no_other__where_each_has_a_thread() -> None:
    apart, hangs, goes_on = ApartCommitter(ThreadPoolExecutor(2)), Shared(), Shared()
    goes_on.may.set()
    others = threading.Event()
    apart.start()
    journal: Any = OfShared(goes_on)
    apart.submit(append_to(hangs, 0, []))
    apart.submit(Append(journal, [], 0, 1, lambda _: others.set()))
    assert others.wait(SECONDS_MAX)
    hangs.may.set()
    apart.stop()


def test_what_a_turn_submits_is_appended_at_its_end__here_or_behind() -> None:
    committer, log = Committer("test-committer"), Shared()
    done: list[int] = []
    log.may.set()
    committer.begin_turn()
    for after in range(3):
        committer.submit(append_to(log, after, done))
    assert log.groups == []
    committer.end_turn(behind=False)
    assert log.groups == [[0, 1, 2]]
    committer.begin_turn()
    committer.submit(append_to(log, 3, done))
    committer.end_turn(behind=True)
    committer.begin_turn()
    committer.end_turn(behind=False)
    assert done == [0, 1, 2]
    committer.start()
    committer.stop()
    assert done == [0, 1, 2, 3]


def test_who_waits_in_a_turn_has_what_was_kept_appended() -> None:
    committer, log, landed = Committer("test-committer"), Shared(), threading.Condition()
    done: list[int] = []
    log.may.set()
    committer.start()
    committer.begin_turn()
    journal: Any = OfShared(log)

    def tell(append: Append) -> None:
        with landed:
            done.append(append.after)
            landed.notify_all()

    committer.submit(Append(journal, [], 0, 1, tell))
    committer.wait(landed, lambda: len(done) == 1)
    committer.end_turn(behind=False)
    committer.stop()
    assert log.groups == [[0]]
