"""A stream that was just made is used once all its servers have it, or none can undo it any more.

JetStream undoes the making of a stream, with all that was acknowledged in it, if one of its servers
says within five seconds that it could not make its copy (its disk is read-only, say). A server
that keeps up with the leader has made it, and says no such thing.

Room: connections.
See: journal/records/nats/streams.py, coordinator/jetstream.py; tests/cluster/test_disk.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from dejaqueue.clock import SystemClock, Wake

UNDONE_MS = 6_000
"""Five seconds, and what the answer of the server takes on its way."""
OLD = timedelta(seconds=60)
"""By the clocks of two servers, which may be apart: a stream of this age is not young."""
LOOK_US = 20_000


def settled(look: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """What the leader says of a stream, once it stays; None = it is not there, or not any more.

    Servers that are away are not waited for: they would have to come back within the time. Nor is
    anybody for a stream that has, or had, a record.

    Args:
        look: asks for it; None = there is no such stream.
    """
    clock, wake = SystemClock(), Wake()
    until_us = clock.now_us() + UNDONE_MS * 1_000
    while True:
        answer = look()
        if answer is None or _was_used(answer) or _is_old(answer) or _all_have_it(answer):
            return answer
        if clock.now_us() >= until_us:
            return answer
        clock.wait_until(clock.now_us() + LOOK_US, wake)


def _was_used(found: dict[str, Any]) -> bool:
    """Whoever put the first record in had waited here. Without this, brokers that took a hundred
    young streams over from a server that had died waited six seconds for each."""
    return int((found.get("state") or {}).get("last_seq", 0)) > 0


def _all_have_it(found: dict[str, Any]) -> bool:
    followers = (found.get("cluster") or {}).get("replicas") or []
    return all(one.get("current") or one.get("offline") for one in followers)


def _is_old(found: dict[str, Any]) -> bool:
    made, now = _instant(found.get("created")), _instant(found.get("ts"))
    return made is not None and now is not None and now - made > OLD


def _instant(text: object) -> datetime | None:
    """
    >>> _instant("2026-01-02T03:04:05.678901234Z") - _instant("2026-01-02T03:04:05Z")
    datetime.timedelta(0)
    """
    # Whole seconds do; nanoseconds are more than can be read.
    return datetime.fromisoformat(text[:19]) if isinstance(text, str) else None
