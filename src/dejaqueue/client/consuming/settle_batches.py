"""Acks and nacks of single messages, gathered into frames, where no caller waits for the answer.

Room: client. Knows ids and attempts; not connections.
Holds: what is added is sent within a millisecond, or when there are a thousand of a kind; rows of
one kind keep their order; when `flush` returns, all that was added before it is sent.
See: consume_core.py, which sends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

import numpy as np

from dejaqueue.client.alarm import Alarm
from dejaqueue.client.consuming.holding import Slice, rows_of
from dejaqueue.client.sending.inputs import delay_ms_of, reason_of
from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import SettleOp

ROWS_MAX = 1_000
MS_MAX = 1.0

Fate: TypeAlias = tuple[SettleOp, int, str, bool]
"""ack or nack, its delay, its reason, and whether the messages die."""
ACKED: Fate = (SettleOp.ACK, 0, "", False)


def nack_fate(delay: timedelta | float | None, reason: str, dead: bool) -> Fate:
    """What a nack says. Raises BadRequest."""
    if dead and delay is not None:
        raise BadRequest("delay", "none for a message that dies now", delay)
    delay_ms = -1 if delay is None else delay_ms_of(delay)
    return SettleOp.NACK, delay_ms, reason_of(reason), dead


class SettleBatches:
    """Gathers settles by fate.

    Args:
        send: sends rows of one fate; called on the thread that adds, or the alarm's.
    """

    def __init__(self, alarm: Alarm, send: Callable[[Fate, Slice], None]) -> None:
        self._alarm = alarm
        self._send = send
        self._mutex = threading.Lock()
        self._sending = threading.Lock()
        self._pairs: dict[Fate, list[tuple[int, int]]] = {}

    def add(self, fate: Fate, message_id: int, attempt: int) -> None:
        """Settle one message, soon."""
        with self._mutex:
            is_first = not self._pairs
            pairs = self._pairs.get(fate)
            if pairs is None:
                pairs = self._pairs[fate] = []
            pairs.append((message_id, attempt))
            is_full = len(pairs) == ROWS_MAX
        if is_full:
            self.flush()
        elif is_first:
            self._alarm.after(MS_MAX, self.flush)

    def flush(self) -> None:
        """Send what was gathered, and wait for another thread that sends what it took before.

        Without that wait a consumer closes its stream, which ends its leases, while the alarm's
        thread still has acks in its hands.
        """
        with self._sending:
            with self._mutex:
                gathered, self._pairs = self._pairs, {}
            for fate, pairs in gathered.items():
                ids, attempts = zip(*pairs, strict=True)
                rows = rows_of(np.array(ids, np.int64), np.array(attempts, np.uint16))
                self._send(fate, rows)
