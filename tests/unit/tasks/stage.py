"""An application on a broker in this process, whose time the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dejaqueue
from dejaqueue.client import Client
from dejaqueue.tasks import Rehearsal, Tasks
from dejaqueue.testing import VirtualClock


class Stage:
    """Tasks that are registered on `app` run when `rehearse()` lets them."""

    def __init__(self, client: Client, clock: VirtualClock) -> None:
        self.client, self.clock = client, clock
        self.app = Tasks(client=client, clock=clock)

    def rehearse(self) -> Rehearsal:
        """A worker; made when all tasks are registered."""
        return Rehearsal(self.app, self.clock)


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage, which ends with the block."""
    clock = VirtualClock()
    with dejaqueue.open("memory:", clock=clock) as client:
        yield Stage(client, clock)
