"""Which link this process uses for a broker: one for all its connections, of the right kind.

Room: celery.
Holds: a process that was forked from one with a client in it has a helper, and so has one with
green threads; it never touches, closes or frees what it inherited.
See: proxy.py for why; docs/adr/0040-celery-without-grpc-across-forks.md.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from kombu.utils.compat import detect_environment

from dejaqueue.celery.link import Link, LocalLink
from dejaqueue.celery.proxy import ProxyLink
from dejaqueue.celery.routes import Routes
from dejaqueue.operating_system import after_fork

_mutex = threading.Lock()
_shared: dict[str, SharedLink] = {}
_inherited: list[object] = []
_local_process = 0
"""The process in which a client was made first; a fork of it cannot have one of its own."""


class SharedLink:
    """What the connections of a process to one broker share.

    Attributes:
        link: to the broker.
        routes: its table of exchanges and queues.
        process: the process that all of it is for.
    """

    def __init__(self, link: Link, routes: Routes) -> None:
        self.link = link
        self.routes = routes
        self.process = os.getpid()

    @property
    def is_mine(self) -> bool:
        """False in a process that was forked since."""
        return self.process == os.getpid()


def lives_apart() -> bool:
    """True if a client cannot live in this process."""
    return detect_environment() != "default" or _local_process not in {0, os.getpid()}


def shared(
    url: str, options: dict[str, Any], *, apart: bool | None, routes_topic: str
) -> SharedLink:
    """What this process shares of a broker.

    Args:
        options: of the client; see link.py.
        apart: whether the client has a process of its own; None = if it needs one.
        routes_topic: where bindings are kept.

    Raises:
        BadRequest: the URL or an option is wrong.
    """
    name = repr((os.getpid(), url, sorted(options.items(), key=str), apart, routes_topic))
    with _mutex:
        found = _shared.get(name)
        if found is None:
            link: Link
            if lives_apart() if apart is None else apart:
                link = ProxyLink(url, options)
            else:
                _note_client()
                link = LocalLink(url, options)
            found = _shared[name] = SharedLink(link, Routes(link, routes_topic))
        return found


def _note_client() -> None:
    global _local_process
    _local_process = _local_process or os.getpid()


def _forked() -> None:
    """In the child: nothing that was inherited may be used, nor collected as garbage."""
    global _mutex
    _mutex = threading.Lock()
    _inherited.extend(_shared.values())
    for one in _shared.values():
        if isinstance(one.link, ProxyLink):
            one.link.forget()
    _shared.clear()


def close_all() -> None:
    """Close every link of this process; the next one is made anew."""
    for one in list(_shared.values()):
        if one.is_mine:
            one.routes.close()
            one.link.close()
    _shared.clear()


after_fork(_forked)
atexit.register(close_all)
