"""The process in which the client of a ProxyLink lives: `python -m dejaqueue.celery.service FD`.

Room: celery. Answers one process over one socket.
Holds: ends when the socket does; calls that wait have threads of their own, and those that do not
wait are carried out in the order in which they came.
See: proxy.py, the other end; link.py, which does the work.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dejaqueue.celery.link import Arrivals, LocalLink
from dejaqueue.celery.proxy import read_frame, told, travelling, write_frame
from dejaqueue.errors import DejaQError

CALLS_MAX = 32
"""Calls that wait at the same time."""


class Service:
    """Carries out what the process at the other end of a socket asks for."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._link: LocalLink | None = None
        self._mutex = threading.Lock()
        self._pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="dejaq-service")

    def run(self) -> None:
        """Until the other end closes."""
        stream = self._end.makefile("rb")
        try:
            while True:
                number, name, arguments = read_frame(stream)
                if number:
                    self._pool.submit(self._answer, number, name, arguments)
                elif self._link is not None:
                    getattr(self._link, name)(*arguments)
        except (EOFError, OSError):
            return

    def _answer(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            value = self._call(name, arguments)
        except DejaQError as error:
            self._write(number, "error", told(error))
        else:
            self._write(number, "value", value)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "open":
            self._link = LocalLink(*arguments)
            return None
        if self._link is None:  # it could not be opened, and is only closed
            return None
        if name == "consume":
            topic, prefetch, mark = arguments
            return self._link.consume(topic, prefetch, partial(self._take, mark))
        return getattr(self._link, name)(*arguments)

    def _take(self, mark: int, arrivals: Arrivals | DejaQError) -> None:
        self._write(mark, *travelling(arrivals))

    def _write(self, number: int, kind: str, value: Any) -> None:
        try:
            with self._mutex:
                write_frame(self._end, (number, kind, value))
        except OSError:
            pass  # the process that asked has ended: `run` sees it, too


def main(descriptor: int) -> None:
    """Help the process at the other end of this socket."""
    with socket.socket(fileno=descriptor) as end:
        end.setblocking(True)  # green threads make theirs non-blocking
        Service(end).run()
    # Nothing is worth waiting for: whoever was helped is gone, and its leases end with the streams.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
