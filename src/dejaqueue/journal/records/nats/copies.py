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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from dejaqueue.connections.nats.answers import ApiRefusal, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats.reading import is_whole

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
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Reply]]:
    """Yield (number, record) as one server has them, from `first` or the next there is on.

    A record that the server cannot read is left out by it.

    Args:
        check: called now and then; what it raises ends the reading.

    Raises:
        Unavailable: no reader got onto that server, or it does not answer.
    """
    came: queue.SimpleQueue[Reply] = queue.SimpleQueue()

    async def take(message: Any) -> None:
        headers = message.headers or {}
        came.put(Reply(message.subject, message.data, headers, message.reply or ""))

    check()
    name = _place(connection, stream, server, first)
    inbox, end_listening = connection.listen(take)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    try:
        yield from _windows(connection, subject, inbox, came, check)
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
            number, left = _place_of(reply)
            yield number, reply
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
    """(number, how many are left) of a record that a reader gave."""
    tokens = reply.answer_to.split(".")
    # Newer servers put the domain and the account before the stream.
    shift = 0 if len(tokens) < 11 else 2
    return int(tokens[5 + shift]), int(tokens[8 + shift])


def _place(connection: NatsConnection, stream: str, server: str, first: int) -> str:
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(first, 1),
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": FORGET_NS,
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
    *,
    is_dense: bool,
    check: Callable[[], None] = lambda: None,
) -> int | None:
    """The first record that one server lacks, cannot read or has altered; None = all are whole.

    Args:
        first, end: of a range that is there on the server, as it says.
        is_dense: True if all numbers in between should be there.
        check: see `read_copy`.

    Raises:
        Unavailable: nothing can be said; also where only the very last record is damaged.
    """
    expected = first
    for number, reply in read_copy(connection, stream, server, first, check):
        if is_dense and number != expected:
            return expected
        if number >= end:
            return None
        if not is_whole(reply):
            return number
        expected = number + 1
        if expected >= end:
            return None
    return expected if is_dense else None
