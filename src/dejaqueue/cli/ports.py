"""Ports that nobody listens on, for servers that are told of each other before they run.

Room: cli; the demo, the processes of a broker, and the project's own tests and benchmarks use it.
"""

from __future__ import annotations

import errno
import random
import socket
from contextlib import ExitStack
from pathlib import Path

PORT_MIN = 10_000
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that the kernel takes for connections that go out, from and to."""
OUTGOING_MIN = 32_768
TRIES_MAX = 1_000
_CHANCE = random.SystemRandom()
"""Not by a seed: programs that were seeded alike, as processes of a test run are, would choose the
same port at the same time, and one be answered by the other's server."""


def free_port(host: str = "127.0.0.1", count: int = 1) -> int:
    """A TCP port that nobody listens on now, with the next ones, so that `count` are free.

    For servers that cannot choose a port, or are told of each other before they run. It is below
    the ports of connections that go out: one of those may take any of theirs before the server
    listens, and while it is down.

    Raises:
        OSError: there is none, or the host has no address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ceiling = _outgoing_min() - count
    for tries in range(TRIES_MAX, 0, -1):
        first = _CHANCE.randint(PORT_MIN, ceiling) if ceiling > PORT_MIN else 0
        try:
            with ExitStack() as taken:
                for place in range(count):
                    port = first + place if first else 0
                    opened = taken.enter_context(socket.create_server((host, port), family=family))
                    first = first or int(opened.getsockname()[1])
                return first
        except OSError as error:
            if tries == 1 or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("unreachable")


def _outgoing_min() -> int:
    try:
        return int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_MIN
