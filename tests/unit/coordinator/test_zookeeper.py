"""Covers: who ends the session of a fact, and when; when bells ring.

Not covered: facts, which only a server keeps (tests/conformance/test_coordinator_zookeeper.py).
"""

from __future__ import annotations

import threading
from typing import cast

from dejaqueue.connections.zookeeper import ZooKeeperSession
from dejaqueue.coordinator.bells import Bells
from dejaqueue.coordinator.zookeeper import _Changes, _key, _Lease, _Leases
from dejaqueue.errors import Unavailable
from tests.patience import PATIENCE_SECONDS, until


class Session:
    """A session that notes how it was ended."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def end(self) -> None:
        self.said.append("end")

    def abandon(self) -> None:
        self.said.append("abandon")


def lease(ttl_s: float) -> tuple[Session, _Lease]:
    session = Session()
    return session, _Lease(cast(ZooKeeperSession, session), 1, ttl_s)


def test_a_fact_that_nobody_renews_is_let_go_in_a_process_that_lives() -> None:
    leases = _Leases()
    hung, short = lease(0.05)
    kept, long = lease(600)
    leases.take("hung", short)
    leases.take("kept", long)
    until(lambda: hung.said == ["end"], "its session was ended")
    assert leases.find("hung") is None
    assert not leases.renew("hung", short)
    assert leases.renew("kept", long)
    leases.close()
    assert kept.said == ["abandon"], "what is left is left to vanish"


def test_a_session_ends_with_its_fact_and_no_other() -> None:
    leases = _Leases()
    first, one = lease(600)
    second, other = lease(600)
    leases.take("a", one)
    leases.take("a", other)
    assert first.said == ["end"]
    leases.drop("a", one)
    leases.drop("b")
    assert leases.find("a") is other
    assert not leases.renew("a", one)
    leases.drop("a")
    assert second.said == ["end"]
    leases.close()


def test_bells_ring_after_each_change_and_when_the_server_is_back() -> None:
    bells, rung = Bells(), threading.Semaphore(0)
    bells.add("", rung.release)
    is_away, asked = threading.Event(), threading.Semaphore(0)

    def arm() -> None:
        asked.release()
        if is_away.is_set():
            raise Unavailable("away")

    changes = _Changes(bells, arm)
    changes.start()
    assert rung.acquire(timeout=PATIENCE_SECONDS)
    changes.look_at(object())
    assert rung.acquire(timeout=PATIENCE_SECONDS)
    is_away.set()
    changes.look()
    for _ in range(3):
        assert asked.acquire(timeout=PATIENCE_SECONDS)
    is_away.clear()
    assert rung.acquire(timeout=PATIENCE_SECONDS)
    changes.stop()
    changes.stop()


def test_a_name_is_read_as_the_key_it_was_made_of() -> None:
    assert _key("=owner:a.b") == "owner/a.b"
