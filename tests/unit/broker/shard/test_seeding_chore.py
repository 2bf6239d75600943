"""The chore that gives subscriptions what they begin with: some pieces in each step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.broker.partition.view import follow_subscriptions, follows
from dejaqueue.broker.shard import seeding_chore
from dejaqueue.broker.shard.seeding_chore import SeedingChore
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served, journals


def test_pieces_until_all_have_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding_chore, "SPAN", 2)
    monkeypatch.setattr(seeding_chore, "PIECES_MAX", 1)
    served, chore = Served(), SeedingChore()
    served.send([b"1", b"2", b"3"])
    chore.step(served.core)
    assert chore.next_us(served.core) is None
    subscriptions = {name: {"start": "live", "born": 1} for name in ("a", "b")}
    served.topic = Topic("t", subscriptions=subscriptions).check()
    follow_subscriptions(served.core, served.topic)
    counts = []
    while chore.next_us(served.core) is not None:
        assert not follows(served.core)
        assert chore.next_us(served.core) == served.clock.now_us()
        chore.step(served.core)
        named = served.core.views.named.values()
        counts.append(tuple(view.engine.counts.live for view in named))
    assert counts == [(2, 0), (3, 0), (3, 2), (3, 3)]
    assert follows(served.core)


def test_what_a_subscription_begins_with_is_not_late_by_its_age() -> None:
    served, chore = Served(), SeedingChore()
    served.send([b"1", b"2"])
    served.topic = Topic("t", subscriptions={"a": {"start": "live", "born": 1}}).check()
    follow_subscriptions(served.core, served.topic)
    told: list[tuple[int, int]] = []
    counting = SimpleNamespace(came_back=lambda end, now_ms: told.append((end, now_ms)))
    served.core.seen_as["a"] = cast(Any, SimpleNamespace(counting=counting))
    chore.step(served.core)
    assert told == [(2, served.core.now_ms())]


def test_after_a_crash_the_rest_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding_chore, "SPAN", 2)
    monkeypatch.setattr(seeding_chore, "PIECES_MAX", 1)
    topic = Topic("t", subscriptions={"a": {"start": "live", "born": 1}}).check()
    opener = journals(topic)
    served, chore = Served(topic, opener), SeedingChore()
    served.send([b"1", b"2", b"3"])
    follow_subscriptions(served.core, topic)
    chore.step(served.core)
    served.core.commits.commit_all()
    hashed = served.core.views.state_hash()
    served.core.journal.close()
    again = Served(topic, opener)
    [view] = again.core.views.named.values()
    assert (view.engine.counts.live, follows(again.core)) == (2, False)
    assert again.core.views.state_hash() != hashed  # another owner
    chore.step(again.core)
    assert (view.engine.counts.live, follows(again.core)) == (3, True)
