"""Clients that put cron entries, until the broker says that it has them."""

from __future__ import annotations

from functools import partial

from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.schema.cron import CronEntry, Misfire
from dejaqueue.testing.simulation.machine import Reachable
from dejaqueue.testing.simulation.network import Connection
from dejaqueue.testing.simulation.world import World
from tests.checker.history import History, Outcome, PutEntry


class Planner:
    """Puts one entry that fires every second or so, for a while."""

    def __init__(self, name: str, world: World, machine: Reachable, history: History) -> None:
        self._name = name
        self._world = world
        self._machine = machine
        self._history = history

    def act(self) -> None:
        """Choose an entry and put it."""
        world = self._world
        start_ms = self._machine.clock.now_ms() + world.between(0, 3_000)
        entry = CronEntry(
            self._name,
            every_ms=world.random.choice([1_000, 1_300, 4_000]),
            start_ms=start_ms,
            end_ms=start_ms + world.between(1_000, 15_000),
            misfire=world.random.choice(list(Misfire)),
            jitter_ms=world.random.choice([0, 0, 300]),
            payload=self._name.encode(),
        )
        note = PutEntry(
            world.now_us,
            name=entry.name,
            every_ms=entry.every_ms,
            start_ms=entry.start_ms,
            end_ms=entry.end_ms,
            misfire=str(entry.misfire),
        )
        self._history.entries.append(note)
        self._put(entry, note)

    def _put(self, entry: CronEntry, note: PutEntry) -> None:
        connection = Connection(self._world, self._machine.pick("cron"))
        answered = [False]

        def again() -> None:
            if not answered[0]:
                answered[0] = True
                later_us = self._world.between(10_000, 400_000)
                self._world.after(later_us, lambda: self._put(entry, note))

        def told(error: DejaQError | None) -> None:
            made = any(entry.outcome is Outcome.OK for entry in self._history.entries)
            # In a cluster the first broker may still be making the topic.
            if error is not None and (
                error.retry or (isinstance(error, TopicUnknown) and not made)
            ):
                again()
                return
            assert error is None, f"an entry was refused: {error!r}"
            if not answered[0]:
                answered[0] = True
                note.answer(self._world.now_us, Outcome.OK, self._machine.time_us)

        def arrive() -> None:
            body = {"topic": "cron", "entries": [entry.to_dict()]}
            try:
                connection.machine.require().call("cron_put", body)
            except DejaQError as error:
                connection.to_client(partial(told, error))
            else:
                connection.to_client(partial(told, None))

        connection.on_break_here = again
        connection.to_broker(arrive)
