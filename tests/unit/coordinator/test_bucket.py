"""Covers: facts in a bucket beyond the contract: how many requests it takes, what vanishes, URLs.

Not covered: the contract itself (tests/conformance/test_coordinator_bucket.py).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dejaqueue.coordinator.bucket import BucketCoordinator, open_url
from dejaqueue.coordinator.interface import Conflict
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.memory_bucket import MemoryBucket


class Cluster:
    """Coordinators on one bucket, each with the same elapsed time."""

    def __init__(self) -> None:
        self.bucket, self.clock = MemoryBucket(), VirtualClock()

    def open(self) -> BucketCoordinator:
        return BucketCoordinator(self.bucket, self.clock)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def waiting() -> MemoryBucket:
    return MemoryBucket(answer_ms=20)


def test_changes_that_meet_go_together(waiting: MemoryBucket) -> None:
    one = BucketCoordinator(waiting)
    one.get("a")
    waiting.requests.clear()
    threads = [
        threading.Thread(target=one.put, args=(f"owners/{number}", b"", 0)) for number in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(one.list("owners/")) == 40
    assert waiting.requests["put"] <= 20


def test_a_change_is_two_requests__a_look_is_one(cluster: Cluster) -> None:
    one = cluster.open()
    one.put("a", b"")
    cluster.bucket.requests.clear()
    one.put("a", b"")
    assert cluster.bucket.requests == {"put": 1, "get": 1}
    one.get("a")
    assert cluster.bucket.requests == {"put": 1, "get": 2}


def test_a_fact_vanishes_when_one_has_heard_no_renewal_for_a_ttl(cluster: Cluster) -> None:
    one, other = cluster.open(), cluster.open()
    one.put("members/a", b"", ttl_ms=5_000)
    cluster.clock.advance(ms=4_000)
    assert other.get("members/a") is not None  # it hears of it only now
    cluster.clock.advance(ms=4_000)
    assert other.get("members/a") is not None
    assert one.renew("members/a") is True  # nobody has said that it is over
    cluster.clock.advance(ms=4_000)
    assert other.get("members/a") is not None
    cluster.clock.advance(ms=5_000)
    assert other.get("members/a") is None
    assert not one.renew("members/a")


def test_who_slept_hears_of_renewals_before_it_says_that_something_vanished(
    cluster: Cluster,
) -> None:
    one, sleeper = cluster.open(), cluster.open()
    one.put("members/a", b"", ttl_ms=5_000)
    assert sleeper.get("members/a") is not None
    for _ in range(10):
        cluster.clock.advance(ms=4_000)
        assert one.renew("members/a")
    assert sleeper.get("members/a") is not None
    assert one.renew("members/a")


def test_a_bucket_that_is_away_is_said__and_rings_when_it_is_back(cluster: Cluster) -> None:
    one = cluster.open()
    rung = threading.Event()
    watch = one.watch("a", rung.set)
    try:
        revision = one.put("a", b"1")
        assert rung.wait(60)
        cluster.bucket.is_away = True
        for call in (
            lambda: one.get("a"),
            lambda: one.put("a", b"2"),
            lambda: one.delete("a"),
            lambda: one.list(""),
        ):
            with pytest.raises(Unavailable, match="away"):
                call()
        rung.clear()
        cluster.bucket.is_away = False
        assert one.put("b", b"") > revision
        assert rung.wait(60)
        with pytest.raises(Conflict, match=f"a has revision {revision}, expected 1"):
            one.put("a", b"", 1)
    finally:
        watch.close()
        one.close()


def test_urls(tmp_path: Path) -> None:
    made = open_coordinator(f"bucket://{tmp_path}/b?between_ms=5")
    assert made.summary == f"bucket file://{tmp_path}/b"
    made.close()
    with pytest.raises(BadRequest, match="bucket:///path"):
        open_url("bucket://relative")
