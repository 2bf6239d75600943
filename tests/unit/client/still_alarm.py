"""An alarm that tests move by hand."""

from __future__ import annotations

import threading

from dejaqueue.client.alarm import Alarm
from dejaqueue.testing.virtual_clock import VirtualClock


class StillAlarm(Alarm):
    """Without its thread: tests call what is due."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._thread = threading.current_thread()
