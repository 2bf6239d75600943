"""How a named object is read where its content lies in pieces beside its name.

A writer stores new pieces, has the name mean them, and then deletes those of before. Whoever reads
at that time may find a part of the pieces gone; the name then means others already.

Room: journal. Knows neither servers nor names.
Holds: an object is called damaged only if its name still means the very pieces that are not whole;
one that is replaced again and again while it is read is not damaged.
See: interface.py (`get_object`); redis.py, cassandra.py, nats/objects.py, which read so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from dejaqueue.errors import JournalDamaged, Unavailable

READS: Final = 3
"""Reads of the same pieces before they count as damaged: a server may err once."""
LOOKS_MAX: Final = 1_000
"""Times a name is looked up: each look but the last few has met yet another content."""

_Facts = TypeVar("_Facts")


def read_whole(
    name: str, find: Callable[[], _Facts | None], read: Callable[[_Facts], bytes | None]
) -> bytes | None:
    """An object's content; None if there is no such object.

    Args:
        name: of the object and where it is, for errors.
        find: what the name means now; None = there is no such object.
        read: the content by that; None = it is not there as it was stored.

    Raises:
        JournalDamaged: the name means the same pieces still, and they are not whole.
        Unavailable: it was replaced again and again. And what `find` and `read` raise.
    """
    known: _Facts | None = None
    reads_left = READS
    for _ in range(LOOKS_MAX):
        facts = find()
        if facts is None:
            return None
        if facts != known:
            known, reads_left = facts, READS
        elif not reads_left:
            raise JournalDamaged(f"object {name}: not what was stored")
        reads_left -= 1
        content = read(facts)
        if content is not None:
            return content
    raise Unavailable(f"object {name}: it was replaced {LOOKS_MAX} times while it was read")
