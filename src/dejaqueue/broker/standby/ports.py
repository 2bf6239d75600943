"""A broker, as the standby's part of it sees it.

Room: broker. Types alone.
Holds: nothing else of the broker is used by who follows an archive.
See: standby.py and directory.py, which use it; broker.py, which is it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dejaqueue.broker.site import Site
from dejaqueue.broker.standby.follower import FollowerPort
from dejaqueue.clock import Clock
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import BrokerSettings


class StandbyPort(FollowerPort, Protocol):
    """A broker, as its standby's part sees it."""

    clock: Clock
    settings: BrokerSettings
    store: JournalStore
    site: Site

    def serve_as_active(self) -> None: ...  # noqa: D102
    def exchange_store(  # noqa: D102
        self, exchanged: Callable[[], JournalStore]
    ) -> None: ...
