"""The chore of retention: when it wakes, and how much it forgets at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dejaqueue.broker.partition.view import follow_subscriptions, follows
from dejaqueue.broker.shard import retention_chore
from dejaqueue.broker.shard.retention_chore import RetentionChore
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served

RETENTION_MS = 60_000


def serving() -> tuple[Served, RetentionChore]:
    served = Served(Topic("t", retention_ms=RETENTION_MS).check())
    assert not follows(served.core)
    follow_subscriptions(served.core, served.topic)
    assert follows(served.core)
    return served, RetentionChore()


def retained(served: Served) -> int:
    assert served.core.views.retained is not None
    return served.core.views.retained.count


def test_without_retention_it_wants_nothing() -> None:
    served, chore = Served(), RetentionChore()
    chore.step(served.core)
    assert chore.next_us(served.core) is None
    served, chore = serving()  # nothing is retained yet
    chore.step(served.core)
    assert chore.next_us(served.core) is None


def test_it_forgets_some_at_a_time_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_chore, "ROWS_MAX", 2)
    served, chore = serving()
    came_ms = served.core.now_ms()
    served.send([b"1", b"2", b"3"])
    chore.step(served.core)
    assert retained(served) == 3
    assert chore.next_us(served.core) == (came_ms + RETENTION_MS) * 1_000 + served.clock.ahead_us
    served.clock.advance(ms=1_000)
    served.send([b"4"])
    served.clock.advance(ms=RETENTION_MS - 1_000)
    chore.step(served.core)
    assert retained(served) == 2
    assert chore.next_us(served.core) == served.clock.now_us()  # there is more
    chore.step(served.core)
    assert retained(served) == 1
    chore.step(served.core)
    assert retained(served) == 1  # not old enough
    served.clock.advance(ms=2_000)
    chore.step(served.core)
    assert retained(served) == 0
    served.core.views.check()


def test_a_shorter_time_holds_at_once() -> None:
    served, chore = serving()
    served.send([b"1"])
    served.clock.advance(ms=10_000)
    chore.step(served.core)
    served.topic = replace(served.topic, retention_ms=5_000)
    chore.configured(served.core)
    chore.step(served.core)
    assert retained(served) == 0
    served.topic = replace(served.topic, retention_ms=0)
    follow_subscriptions(served.core, served.topic)
    assert served.core.views.retained is None


def test_what_is_too_much_goes_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_chore, "ROWS_MAX", 2)
    served = Served(Topic("t", retention_bytes=10).check())
    follow_subscriptions(served.core, served.topic)
    chore = RetentionChore()
    served.send([b"12345", b"12345"])
    chore.step(served.core)
    assert retained(served) == 2  # exactly as much
    assert chore.next_us(served.core) is None  # and no age is too old
    served.send([b"1", b"1", b"1"])
    assert chore.next_us(served.core) is not None
    while chore.next_us(served.core) is not None:
        served.clock.advance(ms=1_000)
        chore.step(served.core)
    assert retained(served) == 4
    served.send([b"12345678"])
    while chore.next_us(served.core) is not None:
        served.clock.advance(ms=1_000)
        chore.step(served.core)
    assert retained(served) == 3  # 1 1 12345678
    served.core.views.check()
