"""The Celery app of celery.py, and of its worker program, which the environment tells what to take.

Room: bench. Run as `celery -A bench.peers.celery_worker:app worker`, with BROKER, QUEUE and SOCKET.
Holds: a task ends when its payload was told; it is acked then.
"""

from __future__ import annotations

import os
import socket
from base64 import b64decode

from celery import Celery

BROKER, QUEUE, SOCKET = "BENCH_URL", "BENCH_QUEUE", "BENCH_SOCKET"
"""Environment variables: of the broker; a name; the socket that payloads are told to."""
TASK = "bench.peers.take"
_sockets: list[socket.socket] = []


def make_app(url: str, name: str) -> Celery:
    """A Celery that knows one queue."""
    app = Celery(name, broker=url)
    app.conf.update(
        task_default_queue=name,
        task_ignore_result=True,
        task_acks_late=True,
        broker_connection_retry_on_startup=True,
        worker_enable_remote_control=False,
        broker_transport_options={"confirm_publish": True} if url.startswith("amqp") else {},
    )
    return app


def take(payload: str) -> None:
    """Tell a payload to the program that counts."""
    if not _sockets:
        _sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        _sockets[0].connect(os.environ[SOCKET])
    _sockets[0].send(b64decode(payload))


app = make_app(os.environ.get(BROKER, ""), os.environ.get(QUEUE, ""))
app.task(name=TASK)(take)
