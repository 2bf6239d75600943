"""A consumer of a topic in shards: one consumer of each shard, taken from in turn.

Room: client. For a topic that is served as a whole it is ConsumeCore, and nothing else.
Holds: each shard has its own stream, clock, leases and retries, so that one which moves to another
broker leaves the others alone; what a message's settle goes to is the core it came by (`owner`).
See: consuming/consume_core.py; docs/adr/0016-a-topic-in-shards.md.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace

from dejaqueue.client.alarm import Alarm
from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.link import WriteLink
from dejaqueue.client.transport import Transport
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, Elsewhere
from dejaqueue.schema.shards import shard_of_ids
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream


class TopicCore(ConsumeCore):
    """A consumer of a topic, which may turn out to be served in shards."""

    def __init__(
        self,
        transport: Transport,
        stream: ConsumeStream,
        settings: ConsumeSettings,
        clock: Clock,
        alarm: Alarm,
        link_for: Callable[[WriteStream], WriteLink],
        watch: ConnectionWatch,
    ) -> None:
        super().__init__(transport, stream, settings, clock, alarm, link_for, watch)
        self._shards: list[ConsumeCore] = []
        self._next_shard = 0
        self._becoming = threading.Lock()

    # --- the shards ----------------------------------------------------------------------------

    def _connect_once(self) -> None:
        try:
            super()._connect_once()
        except Elsewhere as error:
            if not error.spread > 1:
                raise
            self._divide(error.spread)

    def _on_end(self, generation: int, error: DejaQError | None) -> None:
        if isinstance(error, Elsewhere) and error.spread > 1:
            # A callback of the transport, which must not wait.
            spread = error.spread
            threading.Thread(target=self._divide, args=(spread,), name="dejaq-shards").start()
        else:
            super()._on_end(generation, error)

    def _divide(self, spread: int) -> None:
        """Open one consumer for each shard, all at once, and wait until they are open."""
        with self._becoming:
            if self._shards or self._closed:
                return
            settings = replace(self._settings, prefetch=-(-self._settings.prefetch // spread))
            shards = []
            whole = replace(self.stream, consumer_id=uuid.uuid4().hex)
            for shard in range(spread):
                stream = replace(whole, topic=shard_name(self.stream.topic, shard, spread))
                core = ConsumeCore(
                    self._transport,
                    stream,
                    settings,
                    self.clock,
                    self.alarm,
                    self._link_for,
                    self._watch,
                )
                core.lateness = self.lateness
                core.listen(self._ring)
                shards.append(core)
            self._drop_channel()
            self._shards = shards
        opening = [threading.Thread(target=core.open, name="dejaq-shards") for core in shards]
        for thread in opening:
            thread.start()
        for thread in opening:
            thread.join()
        self._close_late(shards)
        self._ring()

    def _close_late(self, shards: list[ConsumeCore]) -> None:
        """The consumer may have been closed meanwhile."""
        if self._closed:
            for core in shards:
                core.close()

    def _drop_channel(self) -> None:
        """The stream for the topic as a whole has ended, or will."""
        with self._mutex:
            self._generation += 1
            channel, self._channel = self._channel, None
            if self._pinging is not None:
                self._pinging.cancel()
        if channel is not None:
            threading.Thread(target=channel.close, name="dejaq-abandon", daemon=True).start()

    def owner(self, rows: Slice) -> ConsumeCore:
        """The core that these rows came by."""
        if not self._shards:
            return self
        return self._shards[int(shard_of_ids(rows.ids[:1], len(self._shards))[0])]

    # --- what the faces use --------------------------------------------------------------------

    def take(self, rows_max: int) -> Slice | None:
        """The next rows that are due, None if none is; raises what went wrong behind."""
        if not self._shards:
            return super().take(rows_max)
        self.raise_error()
        for _ in range(len(self._shards)):
            core = self._shards[self._next_shard]
            self._next_shard = (self._next_shard + 1) % len(self._shards)
            try:
                found = core.take(rows_max)
            except DejaQError:
                self.is_over = core.is_over
                raise
            if found is not None:
                return found
        return None

    def release_us(self) -> int | None:
        """The client's time at which the next held row may be handed over; None = not known."""
        if not self._shards:
            return super().release_us()
        known = [core.release_us() for core in self._shards]
        return min((instant for instant in known if instant is not None), default=None)

    def raise_error(self) -> None:
        """Raise what went wrong behind since the last call, if anything did."""
        super().raise_error()
        for core in self._shards:
            core.raise_error()

    def refuse_last(self, rows: Slice, reason: str) -> None:
        """Nack what was taken last, as the consumer closes; and do not be given it again."""
        owner = self.owner(rows)
        if owner is self:
            super().refuse_last(rows, reason)
        else:
            owner.refuse_last(rows, reason)

    def finish(self) -> None:
        """Take nothing any more; what was taken can still be settled, then the streams close."""
        if not self._shards:
            super().finish()
            return
        for core in self._shards:
            core.finish()
        if all(core.is_over for core in self._shards):
            self.close()

    def close(self) -> None:
        """Send acks that wait, give back what was not handed over. Blocks; twice is fine."""
        super().close()
        for core in self._shards:
            core.close()
