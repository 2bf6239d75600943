"""Reading the copy of one server: a reader of the stream's that is placed on that server.

Room: journal. Direct reads are answered by any server that has a copy, without saying which, and
all other reads by the leader; a reader (a consumer, in JetStream's words) reads the copy of the
server that it lives on, and the server says where that is.
Holds: a reader is removed when it is done with, by the server itself if need be.
See: watch.py.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats.reading import SEQUENCE, is_whole

PLACES_MAX = 15
"""So often is a reader made until it is where it should be; with three servers, 1 in 400 times
that is not enough."""
FORGET_NS = 10_000_000_000
EXPIRES_NS = 1_000_000_000
ANSWER_S, CHECK_S = 2.0, 0.1
SILENT_MAX = 3
WINDOW_BYTES = 4 << 20
WINDOW_RECORDS = 500


def read_copy(
    connection: NatsConnection,
    stream: str,
    server: str,
    first: int,
    subject: str = "",
    *,
    headers_only: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Generator[tuple[int, Reply]]:
    """Yield (sequence, record) as one server has them, from `first` or the next there is on.

    A record that the server cannot read is left out by it.

    Args:
        subject: only records of this one.
        headers_only: without their contents.
        check: called now and then; what it raises ends the reading.

    Raises:
        Unavailable: no reader got onto that server, or it does not answer.
    """
    came: queue.SimpleQueue[Reply] = queue.SimpleQueue()

    async def take(message: Any) -> None:
        headers = message.headers or {}
        came.put(Reply(message.subject, message.data, headers, message.reply or ""))

    more: dict[str, object] = {"filter_subject": subject} if subject else {}
    if headers_only:
        more["headers_only"] = True
    check()
    name = _place(connection, stream, server, first, more)
    inbox, end_listening = connection.listen(take)
    asked = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    try:
        yield from _windows(connection, asked, inbox, came, check)
    finally:
        end_listening()
        _remove(connection, stream, name)


def _windows(
    connection: NatsConnection,
    subject: str,
    inbox: str,
    came: queue.SimpleQueue[Reply],
    check: Callable[[], None],
) -> Iterator[tuple[int, Reply]]:
    asked = {"batch": WINDOW_RECORDS, "max_bytes": WINDOW_BYTES, "expires": EXPIRES_NS}
    silent = 0
    while True:
        connection.ask(subject, json.dumps(asked).encode(), inbox)
        got = 0
        while True:
            reply = _next(came, check)
            if reply is None or reply.status:
                break
            got += 1
            sequence, left = _place_of(reply)
            yield sequence, replace(reply, headers=reply.headers | {SEQUENCE: str(sequence)})
            if not left:
                return
            if got == WINDOW_RECORDS:
                break
        silent = 0 if got else silent + 1
        if silent == SILENT_MAX:
            raise Unavailable(f"{subject}: no answer")


def _next(came: queue.SimpleQueue[Reply], check: Callable[[], None]) -> Reply | None:
    """What comes next; None = nothing came in time."""
    left_s = ANSWER_S
    while left_s > 0:
        check()
        with suppress(queue.Empty):
            return came.get(timeout=min(CHECK_S, left_s))
        left_s -= CHECK_S
    return None


def _place_of(reply: Reply) -> tuple[int, int]:
    """(sequence, how many are left) of a record that a reader gave."""
    tokens = reply.answer_to.split(".")
    # Newer servers put the domain and the account before the stream.
    shift = 0 if len(tokens) < 11 else 2
    return int(tokens[5 + shift]), int(tokens[8 + shift])


def _place(
    connection: NatsConnection, stream: str, server: str, first: int, more: dict[str, object]
) -> str:
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(first, 1),
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": FORGET_NS,
        **more,
    }
    asked = {"stream_name": stream, "config": config}
    for _ in range(PLACES_MAX):
        try:
            made = connection.api(f"CONSUMER.CREATE.{stream}", asked)
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error
        name = str(made["name"])
        if (made.get("cluster") or {}).get("leader", server) == server:
            return name
        _remove(connection, stream, name)
    raise Unavailable(f"{stream}: no reader gets onto server {server}")


def _remove(connection: NatsConnection, stream: str, name: str) -> None:
    with suppress(ApiRefusal, Unavailable):
        connection.api(f"CONSUMER.DELETE.{stream}.{name}")


def find_damage(
    connection: NatsConnection,
    stream: str,
    server: str,
    first: int,
    end: int,
    others: Sequence[str] = (),
    *,
    check: Callable[[], None] = lambda: None,
) -> int | None:
    """The first record that one server lacks, cannot read or has altered; None = all are whole.

    Args:
        first, end: of a range that is there on the server, as it says.
        others: servers with copies of it; a record that one of them has, this one should have, too.
        check: see `read_copy`.

    Raises:
        Unavailable: nothing can be said.
    """
    with ExitStack() as stack:
        beside = [_OtherCopy(connection, stream, other, first, check) for other in others]
        for one in beside:
            stack.callback(one.close)
        copy = read_copy(connection, stream, server, first, check=check)
        stack.callback(copy.close)
        # Side by side: a copy with records that cannot be read may fall silent at its end.
        for sequence, reply in copy:
            lacking = [one.lacking(min(sequence, end)) for one in beside]
            if any(lacking):
                return min(filter(None, lacking))
            if sequence >= end:
                return None
            if not is_whole(reply):
                return sequence
        return min(filter(None, (one.lacking(end) for one in beside)), default=None)


class _OtherCopy:
    """The copy of another server, read as far as the one that is looked at."""

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        server: str,
        first: int,
        check: Callable[[], None],
    ) -> None:
        self._from = partial(read_copy, connection, stream, server, headers_only=True, check=check)
        self._records = self._from(first)
        self._next = 0

    def lacking(self, sequence: int) -> int:
        """The first record here that comes before this one, and did not come there; 0 = none has.

        The record itself is passed by. What was dropped meanwhile is not there any more.
        """
        while (there := self._peek()) and there < sequence:
            self._next = 0
            if self._has_still(there):
                return there
        if there == sequence:
            self._next = 0
        return 0

    def _peek(self) -> int:
        """The next record here, 0 = there is none, or none that can be read."""
        if not self._next:
            with suppress(StopIteration, Unavailable):
                self._next = next(self._records)[0]
        return self._next

    def _has_still(self, sequence: int) -> bool:
        again = self._from(sequence)
        try:
            return next(again)[0] == sequence
        except (StopIteration, Unavailable):
            return False
        finally:
            again.close()

    def close(self) -> None:
        """Read no more."""
        self._records.close()
