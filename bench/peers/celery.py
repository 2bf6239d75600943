"""Celery: `send_task`, and a worker program of one process, which acks a task when it has run.

Room: bench. The broker is what the URL says; a message is a task whose argument is the payload, in
Celery's own JSON. A due time is an eta, which a worker keeps in its memory.
Holds: on RabbitMQ a send waits for the broker's confirm. Tasks run one after the other, and tell
the payload to this program (celery_worker.py): some 50 µs of what is measured are that.

Acks are Celery's: after the task, sent on, and not answered.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from bench.machine import family_seconds
from bench.peers.celery_worker import BROKER, QUEUE, SOCKET, TASK, make_app
from bench.peers.peer import Consumer, Peer, Queue, Sender

OPTIONS = ("-l", "CRITICAL", "--without-gossip", "--without-mingle", "--without-heartbeat")
START_SECONDS_MAX = 60.0
MESSAGE_BYTES_MAX = 1 << 16


def make_peer(url: str, _variant: str) -> Peer:
    """Of a broker."""
    return CeleryPeer(url)


class CeleryPeer(Peer):
    """Tasks on a broker, with a queue of Celery's for each queue."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, queue: Queue) -> None:
        """See Peer: whoever sends first declares it."""

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(self._url, queue.name)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(self._url, queue.name)


class _Sender(Sender):
    def __init__(self, url: str, name: str) -> None:
        self._app = make_app(url, name)
        # Of its own: Celery's pool of them is one for all that have the same URL.
        self._connection = self._app.connection_for_write()
        self._producer = self._app.amqp.Producer(self._connection, auto_declare=False)

    def send(self, payload: bytes) -> None:
        self._send(payload)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        # Not by a float: 1.001 s is 1.00099… in it, and an eta must not be before the due time.
        seconds, ms = divmod(due_ms, 1_000)
        due = datetime.fromtimestamp(seconds, UTC).replace(microsecond=1_000 * ms)
        self._send(payload, eta=due)

    def _send(self, payload: bytes, **options: object) -> None:
        argument = b64encode(payload).decode()
        self._app.send_task(TASK, (argument,), producer=self._producer, **options)

    def close(self) -> None:
        self._connection.release()


class _Consumer(Consumer):
    def __init__(self, url: str, name: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-celery-")
        path = str(Path(self._folder.name) / "taken")
        self._taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._taken.bind(path)
        worker = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "celery",
            "-A",
            "bench.peers.celery_worker:app",
        ]
        self._child = subprocess.Popen(
            [*worker, "worker", "-c", "1", *OPTIONS],
            env=os.environ | {BROKER: url, QUEUE: name, SOCKET: path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        self._taken.settimeout(START_SECONDS_MAX)
        while True:
            try:
                yield self._taken.recv(MESSAGE_BYTES_MAX)
            except TimeoutError:
                return
            self._taken.settimeout(idle_seconds)

    def ack(self) -> None:
        """See Consumer: the worker does it when the task has run."""

    def processor_seconds(self) -> float:
        """See Consumer."""
        return family_seconds([self._child.pid])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._taken.close()
        self._folder.cleanup()
