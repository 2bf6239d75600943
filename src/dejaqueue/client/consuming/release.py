"""What a consumer gives back: to the broker of its stream, or to the one its topic went to.

Room: client. Knows streams and rows; which rows are a consumer's is known by consume_core.py.
Holds: what was not taken by the broker that had the topic is offered to the one that has it now, by
(id, attempt), which is right on any connection (rule 4); nobody waits for that longer than
RELEASE_MS_MAX, and nobody is told if it fails: then leases run out.
See: open_rows.py; consume_core.py, `close`;
docs/adr/0090-a-consumer-that-closes-while-its-topic-moves.md.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.link import WriteLink
from dejaqueue.client.transport import ConsumeChannel, Transport
from dejaqueue.clock import Clock
from dejaqueue.errors import Unavailable
from dejaqueue.schema import messages
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp

RELEASE_MS_MAX = 1_000
"""A hand-over takes less."""


STEP_MS = 50
"""What is due within so much of each other goes back together: so much later it may come again."""


def releases_of(rows: Slice, reached_us: int) -> list[Settle]:
    """What gives these rows back, without a number. Nobody looked at them: that does not wear them
    out.

    Args:
        reached_us: the broker's clock at least: none comes before it is due (rule 2).
    """
    delays_ms = np.clip(rows.dues_ms - reached_us // 1000, 0, limits.SPIKE_AHEAD_MS_MAX)
    steps = np.maximum(delays_ms - 1, 0) // STEP_MS
    releases = []
    for step in np.unique(steps).tolist():
        of_step = steps == step
        rest = int(delays_ms[of_step].max()), rows.ids[of_step], rows.attempts[of_step]
        releases.append(Settle(SettleOp.NACK, 0, 0, -1, *rest, release=True))
    return releases


class Release:
    """Rows of one consumer that others may have.

    Args:
        topic: whose rows.
    """

    def __init__(
        self, transport: Transport, topic: str, clock: Clock, watch: ConnectionWatch
    ) -> None:
        self._transport, self._topic = transport, topic
        self._clock, self._watch = clock, watch

    def send(self, release: Settle, channel: ConsumeChannel | None) -> None:
        """Give rows back by this stream; if there is none, or it breaks, where the topic is now.
        Does not wait.

        Args:
            release: with a number, ids and attempts.
        """

        def answered(answer: Future[Reply]) -> None:
            wrong = answer.exception()
            if wrong is None:
                wrong = answer.result().error
            if isinstance(wrong, Unavailable):
                self._offer(release)

        if channel is None:
            self._offer(release)
        else:
            channel.settle(release).add_done_callback(answered)

    def send_last(self, releases: list[Settle], channel: ConsumeChannel) -> bool:
        """Give these back, and all else that came by this stream, and end it. Waits for its end.

        Returns:
            False if that may have come to nothing: the topic was going to another broker.
        """
        for release in releases:
            channel.settle(replace(release, number=0))
        return channel.close()

    def send_elsewhere(self, releases: list[Settle]) -> None:
        """Give these back where the topic is now; return when that is done, or after
        RELEASE_MS_MAX."""
        until_us = self._clock.now_us() + RELEASE_MS_MAX * 1_000
        for offered in [self._offer(release) for release in releases]:
            with suppress(TimeoutError):
                offered.exception(max(0, until_us - self._clock.now_us()) / 1e6)

    def _offer(self, release: Settle) -> Future[Reply]:
        """On a stream of its own, which is closed when that is answered, or was tried for long."""
        stream = WriteStream(
            self._topic, "nack", argument_ms=release.argument_ms, released=release.release
        )
        columns = [pa.array(release.ids, pa.int64()), pa.array(release.attempts, pa.uint16())]
        batch = pa.RecordBatch.from_arrays(columns, schema=messages.SETTLE)
        link = WriteLink(
            self._transport, stream, self._clock, retry_ms_max=RELEASE_MS_MAX, watch=self._watch
        )

        def close(_answer: Future[Reply]) -> None:
            # A callback of the transport, which must not wait.
            threading.Thread(target=link.close, name="dejaq-abandon", daemon=True).start()

        answer = link.send_in_window(batch, wait=False)
        answer.add_done_callback(close)
        return answer
