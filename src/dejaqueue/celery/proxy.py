"""The link of a client in a process of its own, which this process talks to over a socket.

gRPC does not survive a fork, and its threads know nothing of green ones. Where either matters, the
client lives in a helper: `python -m dejaqueue.celery.service`, started anew and not forked.

Room: celery. Loads neither pyarrow nor gRPC.
Holds: a helper ends with the process that it helps, however that ends: its socket is closed then;
what the helper cannot answer any more raises Unavailable.
See: service.py, the other end; choice.py for when it is used.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

from dejaqueue import errors
from dejaqueue.celery.link import Arrivals, Row, Take
from dejaqueue.errors import DejaQError, Unavailable

_LENGTH = struct.Struct("!I")
CALL_SECONDS_MAX = 120.0
"""A helper that answers nothing for so long is gone; the client's own retries end sooner."""


def write_frame(end: socket.socket, frame: object) -> None:
    """Send one frame; both ends are this program's."""
    content = pickle.dumps(frame)
    end.sendall(_LENGTH.pack(len(content)) + content)


def read_frame(stream: io.BufferedReader) -> Any:
    """The next frame. Raises EOFError at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return pickle.loads(content)


def told(error: DejaQError) -> tuple[str, str]:
    """An error as it travels: its class and its text."""
    return type(error).__name__, str(error)


def error_of(name: str, text: str) -> DejaQError:
    """The error that was told."""
    kind = getattr(errors, name, DejaQError)
    error: DejaQError = kind.__new__(kind)
    error.args = (text,)
    if isinstance(error, errors.TryLater):
        error.retry_after_ms = 100
    return error


class ProxyLink:
    """The link of a client in a helper process. Arguments are those of LocalLink."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._end, theirs = socket.socketpair()
        self._numbers = count(1)
        self._calls: dict[int, Future[Any]] = {}
        self._takes: dict[int, Take] = {}
        self._mutex = threading.Lock()
        self._closed = self._done = False
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dejaqueue.celery.service", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the worker, who still has to ack
            )
        self._reader = threading.Thread(target=self._read, name="dejaq-service", daemon=True)
        self._reader.start()
        try:
            self._ask("open", url, options)
        except DejaQError:
            self.close()
            raise

    def _ask(self, name: str, *arguments: Any) -> Any:
        answer: Future[Any] = Future()
        with self._mutex:
            number = next(self._numbers)
            self._calls[number] = answer
        self._write(number, name, *arguments)
        return answer.result(CALL_SECONDS_MAX)

    def _write(self, number: int, name: str, *arguments: Any) -> None:
        """Send a call; of number 0 nobody waits for the answer."""
        try:
            with self._mutex:
                if self._closed:
                    raise Unavailable("the helper of this process has ended")
                write_frame(self._end, (number, name, arguments))
        except OSError as error:
            raise Unavailable("the helper of this process has ended") from error

    def _read(self) -> None:
        stream = self._end.makefile("rb")
        try:
            while True:
                number, kind, value = read_frame(stream)
                if kind == "arrivals":
                    self._takes[number](value)
                elif kind == "end":
                    self._takes[number](error_of(*value))
                elif kind == "error":
                    self._calls.pop(number).set_exception(error_of(*value))
                else:
                    self._calls.pop(number).set_result(value)
        except (EOFError, OSError, ValueError):
            gone = Unavailable("the helper of this process has ended")
            with self._mutex:
                was_closed, self._closed = self._closed, True
                calls, self._calls = list(self._calls.values()), {}
            for answer in calls:
                answer.set_exception(gone)
            if not was_closed:
                for take in list(self._takes.values()):
                    take(gone)

    # --- calls ---------------------------------------------------------------------------------

    def connect(self) -> None:
        """Check that a broker answers."""
        self._ask("connect")

    def declare(self, topic: str, settings: dict[str, Any]) -> None:
        """Make a topic; one that is there is taken as it is."""
        self._ask("declare", topic, settings)

    def delete(self, topic: str) -> None:
        """Delete a topic, if it is there."""
        self._ask("delete", topic)

    def size(self, topic: str) -> int:
        """Messages that wait and are due. Raises TopicUnknown."""
        return int(self._ask("size", topic))

    def purge(self, topic: str) -> int:
        """Cancel all that no consumer has; how many there were."""
        return int(self._ask("purge", topic))

    def send(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message with fields of `Client.send`. A key that is taken is left away: what
        counts is the message."""
        self._ask("send", topic, payload, fields)

    def put(self, topic: str, key: str, payload: bytes, due_ms: int | None, life_ms: int) -> None:
        """Send one message whose key names it, in a topic that keeps or replaces; it is due then,
        or after its life."""
        self._ask("put", topic, key, payload, due_ms, life_ms)

    def post(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message that may be lost, with fields of `Client.send`."""
        self._write(0, "post", topic, payload, fields)

    def rows(self, topic: str) -> list[Row]:
        """All that wait in a topic. Raises TopicUnknown."""
        rows: list[Row] = self._ask("rows", topic)
        return rows

    def get(self, topic: str, key: str) -> bytes | None:
        """The payload of the live message with a key."""
        payload: bytes | None = self._ask("get", topic, key)
        return payload

    def get_many(self, topic: str, keys: Sequence[str]) -> list[bytes | None]:
        """The same of many keys, by one call for each 10,000."""
        return list(self._ask("get_many", topic, list(keys)))

    def renew(self, topic: str, keys: Sequence[str], life_ms: int) -> list[bool]:
        """Have messages due this long from now; which of them are there."""
        return list(self._ask("renew", topic, list(keys), life_ms))

    def cancel(self, topic: str, keys: Sequence[str], if_due: int | None = None) -> int:
        """Cancel messages; how many there were."""
        return int(self._ask("cancel", topic, list(keys), if_due))

    # --- consumers -----------------------------------------------------------------------------

    def consume(self, topic: str, prefetch: int, take: Take) -> int:
        """Have messages pushed: `prefetch` unsettled at most. Returns the consumer's number."""
        with self._mutex:
            mark = next(self._numbers)
        self._takes[mark] = take
        try:
            return int(self._ask("consume", topic, prefetch, mark))
        except DejaQError:
            del self._takes[mark]
            raise

    def settle(self, number: int, tag: int, verb: str, *, wait: bool = False) -> None:
        """`ack`, `requeue` or `reject` a message of a consumer."""
        if wait:
            self._ask("settle", number, tag, verb)
        else:
            self._write(0, "settle", number, tag, verb)

    def drain(self, number: int) -> None:
        """Have no more pushed; what came can still be settled."""
        self._write(0, "drain", number)

    def end(self, number: int) -> None:
        """End a consumer: what was not settled is given back at once."""
        self._ask("end", number)

    def close(self) -> None:
        """End all. Twice is fine."""
        if self._done:
            return
        self._done = True
        with contextlib.suppress(Unavailable):  # it has ended already
            self._ask("close")
        with self._mutex:
            self._closed = True
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._end.close()
        self._process.wait()

    def forget(self) -> None:
        """In a fork of the process: let go of the socket, so that the helper sees its owner end."""
        os.close(self._end.fileno())


def travelling(arrivals: Arrivals | DejaQError) -> tuple[str, Any]:
    """What came to a consumer, as it travels."""
    if isinstance(arrivals, DejaQError):
        return "end", told(arrivals)
    return "arrivals", arrivals
