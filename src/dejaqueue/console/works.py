"""Works: changes of many messages that go on after their page was answered, piece by piece.

Room: console. On the event loop.
Holds: each piece is a request of the API with the viewer's key; a work that ends, however it ends,
has said how many messages it changed, to the viewer and to the audit log; what is over is
forgotten, the oldest first.
See: changes.py, which makes the pieces; access/audit.py.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from dejaqueue.access import audit
from dejaqueue.console.api import ApiError

KEPT_MAX = 200
RUNNING_MAX = 16


@dataclass(slots=True)
class Work:
    """One of them.

    Attributes:
        title: what it does, for people.
        owner: the principal that began it.
        peer: whence.
        action, topic: as the audit log has them.
        wanted: how many messages it is about, as the preview counted them.
        done: how many are changed.
        outcome: "" = it goes on; `done`, or the sentence of the error that ended it.
        number: its own, which nobody guesses.
    """

    title: str
    owner: str
    peer: str
    action: str
    topic: str
    wanted: int
    done: int = 0
    outcome: str = ""
    number: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    @property
    def percent(self) -> int:
        """How far it is."""
        if self.outcome == "done" or not self.wanted:
            return 100
        return min(99, self.done * 100 // self.wanted)


class Works:
    """Those that go on, and those that have ended lately."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Work, pieces: AsyncIterator[int]) -> Work:
        """Go on with it.

        Args:
            pieces: does a piece at each step, and says how many messages that changed.

        Raises:
            ApiError: too many go on already.
        """
        if len(self._tasks) >= RUNNING_MAX:
            raise ApiError(503, f"{RUNNING_MAX} changes go on already: wait for one of them")
        ended = [one.number for one in self._works.values() if one.outcome]
        for number in ended[: max(0, len(self._works) + 1 - KEPT_MAX)]:
            del self._works[number]
        self._works[work.number] = work
        task = asyncio.ensure_future(self._run(work, pieces))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return work

    def find(self, number: str, owner: str) -> Work:
        """One that this principal began. Raises ApiError: there is none."""
        work = self._works.get(number)
        if work is None or work.owner != owner:
            raise ApiError(404, "no such change: it was forgotten, or the broker has started again")
        return work

    def close(self) -> None:
        """End them where they are."""
        for task in self._tasks:
            task.cancel()

    async def _run(self, work: Work, pieces: AsyncIterator[int]) -> None:
        try:
            async for count in pieces:
                work.done += count
            work.outcome = "done"
        except ApiError as error:
            work.outcome = error.detail
        except asyncio.CancelledError:
            work.outcome = "the broker stops"
            raise
        finally:
            audit.record(
                work.owner, work.peer, work.action, work.topic,
                "done" if work.outcome == "done" else "failed", count=work.done,
            )  # fmt: skip
