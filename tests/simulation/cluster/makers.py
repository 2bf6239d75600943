"""Programs that make topics with the client library, send, alter, delete and make them again.

Each has a topic name of its own. Judged here: what was acknowledged since the topic was made is
there at the end, nothing that was acknowledged in a topic of that name before it is, and nobody is
told that a living topic is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dejaqueue.errors import DejaQError, TopicUnknown
from tests.checker.fault import Fault
from tests.simulation.cluster.programs import SECOND, Program, Town

FAR_AHEAD_MS = 3_600_000


class Maker(Program):
    """One topic name, made again and again; it is asked for at any broker.

    Args:
        ends_gone: it is deleted in the end, and nothing of it may stay.

    Attributes:
        faults: what was seen to be wrong.
    """

    def __init__(self, name: str, town: Town, *, ends_gone: bool) -> None:
        super().__init__(name, town)
        self._topic = name
        self._ends_gone = ends_gone
        self._may_be_there = False
        """A program was killed, or its topic is there."""
        self._acknowledged: set[str] = set()
        self._before: set[str] = set()
        """What was acknowledged in topics that were deleted."""
        self.faults: list[Fault] = []

    def work(self) -> None:
        if self._may_be_there:  # whoever was killed did not say how far it was
            self._delete()
        while True:
            self._make()
            for _ in range(self.world.between(0, 4)):
                self._use()
            if self.town.stopped and not self._ends_gone:
                self._send()
                self._look()
                return
            self._delete()
            if self.town.stopped:
                return
            if self.world.chance(0.5):
                self.pause(400_000)

    def _make(self) -> None:
        self._may_be_there = True
        partitions = self.world.random.choice([1, 1, 2])
        self._until_done(lambda: self.client.create_topic(self._topic, partitions=partitions))

    def _delete(self) -> None:
        def delete() -> None:
            with suppress(TopicUnknown):  # the library asks again when an answer is lost
                self.client.delete_topic(self._topic)

        self._until_done(delete)
        self._before |= self._acknowledged
        self._acknowledged = set()
        self._may_be_there = False

    def _use(self) -> None:
        if self.world.chance(0.3):
            lease_ms = self.world.between(1_000, 60_000)
            self._until_done(lambda: self.client.alter_topic(self._topic, lease_ms=lease_ms))
        else:
            self._send()
        self.pause(SECOND)

    def _send(self) -> None:
        token = f"{self.token()}.{self.lives}"
        due_ms = self.world.now_us // 1_000 + FAR_AHEAD_MS
        if self._is_done(lambda: self.client.send(self._topic, token.encode(), due=due_ms)):
            self._acknowledged.add(token)

    def _look(self) -> None:
        seen: list[Any] = []

        def peek() -> None:
            seen[:] = self.client.peek(self._topic, limit=1_000).column("payload").to_pylist()

        self._until_done(peek)
        there = {payload.decode() for payload in seen}
        for token in sorted(self._acknowledged - there):
            self._fault(f"{token} was acknowledged and is gone from topic {self._topic}")
        for token in sorted(there & self._before):
            self._fault(f"{token} is of a topic {self._topic} that was deleted")

    def _until_done(self, call: Callable[[], Any]) -> None:
        while not self._is_done(call):
            self.pause(300_000)

    def _is_done(self, call: Callable[[], Any]) -> bool:
        """False: it was not answered, and may have been done."""
        try:
            call()
        except TopicUnknown:
            self._fault(f"topic {self._topic} is there, and a broker said it is not")
            return False
        except DejaQError as error:
            assert self.is_fine(error), f"{self.name}: {error!r}"
            return False
        return True

    def _fault(self, text: str) -> None:
        self.faults.append(Fault(1, text))
