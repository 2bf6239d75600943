"""The chore of retention by key: which messages go as newer ones have their keys, and how fast."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.broker.partition.view import follow_subscriptions
from dejaqueue.broker.shard import key_retention_chore
from dejaqueue.broker.shard.key_retention_chore import KeyRetentionChore
from dejaqueue.engine.commands import Ack, Lease
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served


def serving() -> tuple[Served, KeyRetentionChore]:
    served = Served(Topic("t", retention_keys=True).check())
    follow_subscriptions(served.core, served.topic)
    return served, KeyRetentionChore()


def send(served: Served, keys: str) -> None:
    """Messages with these keys, a space = none; all of them are acked at once."""
    for key in keys:
        more = {} if key == " " else {"keys": [key]}
        served.send([b"x"], **more)
        now_ms = served.core.now_ms()
        leased = served.core.apply_lease(
            Lease(now_ms, served.core.next_position(), now_ms, 10, now_ms + 10)
        )
        assert leased is not None
        served.core.apply(Ack(now_ms, leased.lease_id))
        served.core.commits.commit_all()


def settle(served: Served, chore: KeyRetentionChore) -> int:
    """Step until there is nothing to do; how many steps that took."""
    steps = 0
    while chore.next_us(served.core) is not None:
        served.clock.advance(ms=1_000)
        chore.step(served.core)
        served.core.commits.commit_all()
        steps += 1
        assert steps < 100
    served.core.views.check()
    return steps


def kept(served: Served) -> list[int]:
    assert served.core.views.retained is not None
    found: list[int] = served.core.views.retained.oldest(1 << 40, 100).tolist()
    return found


def test_the_newest_of_each_key_stays_and_what_has_none() -> None:
    served, chore = serving()
    assert settle(served, chore) == 0
    send(served, "ab aab c")
    assert settle(served, chore) == 1
    assert kept(served) == [2, 4, 5, 6, 7]
    send(served, "c")
    assert settle(served, chore) == 1
    assert kept(served) == [2, 4, 5, 6, 8]
    assert settle(served, chore) == 0


def test_in_pieces_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WINDOW", "ROWS_MAX", "READ_MAX"):
        monkeypatch.setattr(key_retention_chore, name, 2)
    served, chore = serving()
    send(served, "abacabad")
    assert settle(served, chore) > 4
    assert kept(served) == [3, 5, 6, 7]


def test_equal_hashes_are_not_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = lambda column: np.full(len(column.offsets) - 1, 7, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr("tests.unit.broker.cores.hash_column", hashes)
    served, chore = serving()
    send(served, "ab")
    settle(served, chore)
    assert kept(served) == [0, 1]
    send(served, "b")
    settle(served, chore)
    assert kept(served) == [0, 2]


def test_another_setting_ends_it() -> None:
    served, chore = serving()
    send(served, "aa")
    served.topic = Topic("t", retention_ms=1_000).check()
    chore.configured(served.core)
    assert chore.next_us(served.core) is None
    chore.step(served.core)
    assert kept(served) == [0, 1]
