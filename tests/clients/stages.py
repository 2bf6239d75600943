"""Many operations of all clients at the same time, each on a topic of its own.

What an accident costs are the seconds until another broker has the topics: all operations have the
same one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from dejaqueue.errors import TryLater
from tests.clients.drivers import Drivers
from tests.clients.operations import OPERATIONS, HandOver, Operation
from tests.clients.own_driver import OwnDriver
from tests.clients.places import Place
from tests.patience import until

OWN = "own"
SPREAD = 3
WAYS: dict[str, dict[str, Any]] = {
    "follows": {},
    "stays": {"stays": True},
    "by Flight": {"flight_only": True},
}
"""How a client of another language goes to the broker."""
DEALT_TOPICS = 30
"""So many topics are in slots of all of three brokers, but for one in a hundred thousand times."""


def topics_of(place: Place, name: str, **settings: Any) -> Iterator[tuple[str, str]]:
    """New topics, and who serves each; such as nobody serves yet are passed over."""
    with place.client() as client:
        for number in itertools.count():
            topic = f"{name}-{number}"
            client.create_topic(topic, **settings)
            owners = {one["node"] for one in client.cluster(topic)["topics"]}
            if all(owners):
                yield topic, min(owners)


def wait_dealt(place: Place) -> None:
    """Return when each broker serves something: until one that has just come has its part, what the
    others serve may go to it at any moment."""
    name = f"dealt-{os.urandom(4).hex()}"
    with place.client() as client:
        for number in range(DEALT_TOPICS):
            client.create_topic(f"{name}-{number}")

        def are_dealt() -> bool:
            topics = client.cluster()["topics"]
            owners = {one["node"] for one in topics if one["topic"].startswith(name)}
            return owners == set(place.nodes)

        until(are_dealt, "each broker serves something")


class Stage:
    """Operations of all clients, each on a topic of its own.

    Args:
        victim: whom the accident happens to.
    """

    def __init__(self, place: Place, victim: str, name: str) -> None:
        self._place, self._victim = place, victim
        topics = topics_of(place, name)
        self._mine: list[str] = []
        self._others: list[str] = []
        self._in_shards = topics_of(place, f"{name}-shards", spread=SPREAD, partitions=SPREAD)
        self._topics = topics
        self.operations: dict[str, Operation] = {}

    def _topic(self, *, is_mine: bool) -> str:
        """A topic of the victim, or of anybody else."""
        kept = self._mine if is_mine else self._others
        while not kept:
            topic, owner = next(self._topics)
            (self._mine if owner == self._victim else self._others).append(topic)
        return kept.pop()

    def add(self, kind: type[Operation], language: str, make: Callable[[], Any]) -> None:
        """An operation on a topic of the victim."""
        mine, others = self._topic(is_mine=True), self._topic(is_mine=False)
        self.operations[f"{language}: {kind.words}"] = kind(make(), mine, others)

    def add_in_shards(self, kind: type[Operation], language: str, make: Callable[[], Any]) -> None:
        """An operation on a topic in shards, one of which is the victim's."""
        in_shards, _ = next(self._in_shards)
        more = self._topic(is_mine=False)
        self.operations[f"{language}: {kind.words}, in shards"] = kind(make(), in_shards, more)

    def has_moved(self) -> bool:
        """Whether nothing is the victim's any more."""
        with suppress(TryLater), self._place.client(retry_ms_max=0) as client:
            topics = {one.topic for one in self.operations.values()}
            told = client.cluster()["topics"]
            mine = [one for one in told if one["topic"].partition("=")[0] in topics]
            return bool(mine) and all(one["node"] not in ("", self._victim) for one in mine)
        return False  # whom it asked stands still

    def each(self, do: Callable[[Operation], None]) -> None:
        """Do it to all of them at the same time; say of all of them what went wrong."""
        faults = {}

        def one(name: str) -> None:
            try:
                do(self.operations[name])
            except Exception as wrong:  # noqa: BLE001 - it is told with those of the others
                faults[name] = wrong

        with ThreadPoolExecutor(len(self.operations)) as doing:
            list(doing.map(one, self.operations))
        told = "\n".join(f"{name}: {wrong!r:.600}" for name, wrong in sorted(faults.items()))
        assert not faults, f"{len(faults)} of {len(self.operations)}:\n{told}"


@contextmanager
def staged(
    place: Place,
    victim: str,
    programs: dict[str, Drivers],
    way: str,
    *,
    is_planned: bool = True,
    **connect: Any,
) -> Iterator[Stage]:
    """All operations of all clients; ours go the one way that they have.

    Args:
        is_planned: the accident is none: nothing waits for the end of a lease.
        connect: fields of all their `connect`.
    """
    stage = Stage(place, victim, f"accident-{os.urandom(4).hex()}")
    owns: list[OwnDriver] = []

    def own() -> OwnDriver:
        owns.append(OwnDriver())
        return owns[-1]

    makers: dict[str, Callable[[], Any]] = {OWN: own} | {
        language: (lambda program=program: program.make(**WAYS[way]))
        for language, program in programs.items()
    }
    try:
        for kind, language in itertools.product(OPERATIONS, makers):
            stage.add(kind, language, makers[language])
            stage.add_in_shards(kind, language, makers[language])
        for one in stage.operations.values():
            one.is_planned = is_planned or not isinstance(one, HandOver)
        stage.each(lambda one: one.prepare(url=place.url, **connect))
        yield stage
    finally:
        for driver in owns:
            driver.end()
