"""The API keys of a cluster on a coordinator: two brokers that write at once, and what is forged.

Room: testing; shipped, a part of the suite in coordinator_conformance.py.
Holds: a test names the duty of a coordinator that it needs; brokers are a key ring each, on
coordinators of their own, so that nothing but the server is between them.
See: cluster/shared_keys.py; docs/adr/0020-keys-of-a-cluster.md.
"""

# A test's name says what it checks.
# ruff: noqa: D102

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from dejaqueue.access.key_ring import PUT_BACK_AGAIN_MS, KeyRing
from dejaqueue.access.key_set import FORGET_AFTER_MS
from dejaqueue.access.seal import Seal
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.shared_keys import PREFIX, SharedKeys
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.errors import DejaQError, Refused, Unavailable
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.virtual_clock import VirtualClock

FACT = PREFIX + "keys"
LEASE_MS = 5_000
SEAL = Seal("a secret of this cluster")
PATIENCE_S = 180.0
"""A network that was mended may take so long to carry something."""


class Broker:
    """The keys as one broker has them."""

    def __init__(self, coordinator: Coordinator, clock: VirtualClock) -> None:
        self.ring = KeyRing(clock)
        self.keys = SharedKeys(coordinator, LEASE_MS, seal=SEAL)
        self.keys.open(self.ring)

    def make(self, name: str, ends_ms: int | None = None) -> str:
        """Make a key; its id."""
        return self.ring.create(name, ["produce:a"], ends_ms)[0].id

    def names(self) -> list[str]:
        """Names of the keys that work here, as they are stored now."""
        self.keys.refresh()
        return sorted(key.name for key in self.ring.all() if self.ring.is_live(key.id))


def stored(coordinator: Coordinator) -> dict[str, Any]:
    """The document as it is."""
    fact = coordinator.get(FACT)
    assert fact is not None
    values: dict[str, Any] = json.loads(fact.value)
    return values


def fails(error: type[DejaQError], call: Callable[[], object]) -> bool:
    """True if the call raises this."""
    try:
        call()
    except error:
        return True
    return False


def reached(call: Callable[[], object]) -> None:
    """Call until the server answers."""
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while fails(Unavailable, call):
        assert time.monotonic() < end, "the server did not come back"
        pause.wait(0.01)


class KeysConformance(ABC):
    """What the keys need of duties 2 and 3, on one server that stays."""

    @abstractmethod
    def opened(self, count: int) -> AbstractContextManager[list[Coordinator]]:
        """So many coordinators on the same facts."""

    def test_2_of_keys_that_two_make_and_revoke_at_once_none_is_lost(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(3) as (one, other, third):
            brokers = [Broker(one, clock)]
            brokers[0].ring.create("root", ["admin:*"])
            old = [brokers[0].make(f"old-{n}") for n in range(6)]
            brokers.append(Broker(other, clock))

            def work(number: int) -> list[str]:
                made = []
                for n in range(6):
                    made.append(brokers[number].make(f"new-{number}-{n}"))
                    if n < 3:
                        brokers[number].ring.revoke(f"old-{3 * number + n}")
                return made

            with ThreadPoolExecutor(2) as threads:
                made = [name for names in threads.map(work, range(2)) for name in names]
            late = Broker(third, clock)
            assert [late.ring.is_live(name) for name in made] == [True] * 12
            assert [late.ring.is_live(name) for name in old] == [False] * 6
            assert set(stored(one)["revoked"]) == set(old)

    def test_2_of_two_that_make_the_same_name_one_is_refused(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(2) as (one, other):
            brokers = [Broker(one, clock)]
            brokers[0].ring.create("root", ["admin:*"])
            brokers.append(Broker(other, clock))
            with ThreadPoolExecutor(2) as threads:
                refused = list(
                    threads.map(lambda side: fails(Refused, lambda: side.make("shop")), brokers)
                )
            assert sorted(refused) == [False, True]
            assert [broker.names() for broker in brokers] == [["root", "shop"]] * 2

    def test_2_a_key_that_another_broker_makes_between_read_and_write_is_kept(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(3) as (one, other, third):
            here = Broker(one, clock)
            here.ring.create("root", ["admin:*"])
            there = Broker(other, clock)
            read = one.get
            made: list[str] = []

            def read_late(key: str) -> Fact | None:
                fact = read(key)
                if not made:
                    made.append(there.make("between"))
                return fact

            one.get = read_late  # type: ignore[method-assign]
            here.make("shop")
            # Before the one who made it looks: it would put back what it misses.
            assert Broker(third, clock).names() == ["between", "root", "shop"]

    def test_3_a_document_of_before_a_forged_one_and_none_bring_no_revoked_key_back(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(3) as (one, other, third):
            here = Broker(one, clock)
            here.ring.create("root", ["admin:*"])
            gone = here.make("gone")
            before = one.get(FACT)
            assert before is not None
            here.ring.revoke("gone")
            here.make("shop")
            there = Broker(other, clock)
            values = stored(one)
            forged = values | {"keys": [*values["keys"], values["keys"][0] | {"name": "mine"}]}
            for bad in (before.value, json.dumps(forged).encode(), b"\xff{", None):
                clock.advance(ms=PUT_BACK_AGAIN_MS)
                if bad is None:
                    third.delete(FACT)
                else:
                    third.put(FACT, bad)
                assert there.names() == ["root", "shop"]
                assert here.names() == ["root", "shop"]
                assert gone in stored(third)["revoked"], "it was put back"
                assert Broker(third, clock).names() == ["root", "shop"]

    def test_3_a_revoked_key_is_remembered_until_a_day_after_its_end(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(2) as (one, other):
            here = Broker(one, clock)
            here.ring.create("root", ["admin:*"])
            short = here.make("short", clock.now_ms() + 1_000)
            long = here.make("long")
            for name in ("short", "long"):
                here.ring.revoke(name)
            clock.advance(ms=1_000 + FORGET_AFTER_MS - 1)
            there = Broker(other, clock)
            there.make("a")
            assert set(stored(one)["revoked"]) == {short, long}
            clock.advance(ms=1)
            there.make("b")
            assert set(stored(one)["revoked"]) == {long}
            assert here.names() == ["a", "b", "root"]


class ServedKeysConformance(KeysConformance):
    """The same where the network fails."""

    @abstractmethod
    def through_proxy(self) -> AbstractContextManager[tuple[CuttingProxy, Coordinator]]:
        """A coordinator whose connections go through a proxy."""

    def test_6_a_key_whose_answer_is_lost_is_there_once_or_not_at_all(self) -> None:
        clock = VirtualClock(SystemClock().now_ms())
        with self.opened(1) as (other,), self.through_proxy() as (proxy, one):
            here = Broker(one, clock)
            here.ring.create("root", ["admin:*"])
            here.make("old")
            there = Broker(other, clock)

            proxy.lose_answers()
            assert fails(Unavailable, lambda: here.make("new"))
            proxy.mend()
            reached(here.keys.refresh)
            made = there.names()
            assert made in (["new", "old", "root"], ["old", "root"])
            assert here.names() == made
            # Whoever asks again has it once, whatever became of the first time.
            assert fails(Refused, lambda: here.make("new")) == ("new" in made)

            proxy.lose_answers()
            assert fails(Unavailable, lambda: here.ring.revoke("old"))
            proxy.mend()
            reached(here.keys.refresh)
            if "old" in there.names():
                here.ring.revoke("old")
            assert there.names() == here.names() == ["new", "root"]
            assert len(stored(other)["revoked"]) == 1
