"""Covers: every operation of every client while something happens to the broker that it is about:
it is killed, it stands still, it leaves and hands its topics over, with the operation on its way.
On topics of another broker of a cluster, in shards, and of one of several processes.

All operations of all clients meet the same accident at the same time: what an accident costs are
the seconds until another broker has the topics. With DEJAQ_RELIABILITY=all also clients that stay
with the broker of their address, those without lanes, and accidents of that broker; where none
happens, test_keys_on_clusters.py has the same operations.

Not covered: what holds on one broker (test_conformance.py); clients under load in a cluster whose
brokers come and go (test_on_clusters.py); keys and TLS (test_keys_on_clusters.py).
"""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.drivers import Drivers
from tests.clients.operations import RETRY_MS
from tests.clients.places import Place
from tests.clients.stages import WAYS, staged, topics_of, wait_dealt
from tests.patience import until

pytestmark = [pytest.mark.crash]

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
Moved = Callable[[], bool]
"""Whether other brokers have the topics."""


class Accident(ABC):
    """What happens to a broker while operations are on their way to it.

    Attributes:
        is_planned: the broker hands its topics over.
    """

    is_planned = True

    @abstractmethod
    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        """Have it happen; operations are begun in the middle."""

    def end(self, place: Place) -> None:  # noqa: B027 - most are over by then
        """All operations have ended."""


class Nothing(Accident):
    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        begin()


class Killed(Accident):
    """It stands still first: what is sent to it is on its way for sure, and has no answer."""

    is_planned = False

    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        pid = place.freeze(victim)
        try:
            begin()
            until(place.is_written_to, "somebody waits for it")
        finally:
            place.die(victim)
            place.thaw(pid)


class StandsStill(Accident):
    """Until others have its topics, where others may; then it goes on, and does not know that."""

    is_planned = False

    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        pid = place.freeze(victim)
        try:
            begin()
            until(place.is_written_to, "somebody waits for it")
            if place.frees_topics:
                until(moved, "others have its topics")
        finally:
            place.thaw(pid)


class StaysAway(Accident):
    """It stands still until all operations have ended without it; then it goes on."""

    is_planned = False

    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        self._pid = place.freeze(victim)
        begin()

    def end(self, place: Place) -> None:
        place.thaw(self._pid)


class Leaves(Accident):
    """It hands its topics over, and stops."""

    def happen(self, place: Place, victim: str, begin: Callable[[], None], moved: Moved) -> None:
        leaving = threading.Thread(target=place.leave, args=(victim,))
        leaving.start()
        begin()
        leaving.join()


ACCIDENTS = {
    "nothing": Nothing(),
    "killed": Killed(),
    "stands still": StandsStill(),
    "stays away": StaysAway(),
    "leaves": Leaves(),
}
CASES = [
    pytest.param("brokers", accident, "follows", 1, id=f"brokers-{accident}")
    for accident in ("killed", "stays away", "leaves")
]
CASES += [pytest.param("processes", "killed", "follows", 1, id="processes-killed")]
if ALL:
    CASES += [
        pytest.param("brokers", accident, way, victim, id=f"brokers-{accident}-{way}-{victim}")
        for accident, way, victim in itertools.product(ACCIDENTS, WAYS, (0, 1))
        if (accident, way, victim)
        not in {(one, "follows", 1) for one in ("killed", "stays away", "leaves")}
    ]
    CASES += [
        pytest.param("processes", accident, way, 1, id=f"processes-{accident}-{way}")
        for accident, way in itertools.product(("killed", "stands still"), WAYS)
        if (accident, way) != ("killed", "follows")
    ]


@pytest.mark.parametrize(("where", "accident", "way", "victim"), CASES)
def test_whatever_happens_each_operation_is_done_once_or_its_outcome_is_said_to_be_unknown(
    request: pytest.FixtureRequest,
    programs: dict[str, Drivers],
    where: str,
    accident: str,
    way: str,
    victim: int,
) -> None:
    place: Place = request.getfixturevalue(where)
    place.come_back()
    happening = ACCIDENTS[accident]
    with staged(
        place, place.nodes[victim], programs, way, is_planned=happening.is_planned
    ) as stage:

        def begin() -> None:
            stage.each(lambda one: one.begin())

        try:
            happening.happen(place, place.nodes[victim], begin, stage.has_moved)
            stage.each(lambda one: one.end())
        finally:
            happening.end(place)
        place.come_back()
        with place.client(RETRY_MS) as ours:
            stage.each(lambda one: one.check(ours))
        stage.each(lambda one: one.close())


def test_what_may_be_repeated_waits_for_the_next_broker(brokers: Place) -> None:
    brokers.come_back()
    wait_dealt(brokers)
    victim = brokers.nodes[1]
    topics = topics_of(brokers, f"cron-{os.urandom(4).hex()}", kind="cron")
    cron = next(topic for topic, owner in topics if owner == victim)
    # The calls go at the same time: one that makes a topic again names what another one changes.
    plain, again = (
        next(
            topic
            for topic, owner in topics_of(brokers, f"plain-{os.urandom(4).hex()}")
            if owner == victim
        )
        for _ in range(2)
    )
    with brokers.client(RETRY_MS) as client:
        entries = client.cron(cron)
        entries.put("paused", every_ms=3_600_000)
        calls: list[Callable[[], object]] = [
            lambda: entries.put("made", every_ms=3_600_000, payload=b"go"),
            lambda: entries.pause("paused"),
            lambda: entries.get("paused"),
            lambda: client.create_topic(again),
            lambda: client.alter_topic(plain, lease_ms=9_000),
            lambda: client.create_subscription(plain, "audit"),
        ]
        pid = brokers.freeze(victim)
        with ThreadPoolExecutor(len(calls)) as calling:
            made = [calling.submit(call) for call in calls]
            try:
                until(brokers.is_written_to, "somebody waits for it")
            finally:
                brokers.die(victim)
                brokers.thaw(pid)
            for one in made:
                one.result()
        assert [entry.name for entry in entries.entries()] == ["made", "paused"]
        assert entries.get("paused").paused
        topic = client.topic(plain)
        assert (topic.lease_ms, list(topic.subscriptions)) == (9_000, ["audit"])
