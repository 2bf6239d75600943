"""Ids of server-sent events: which messages a client has got when it has got this event.

Room: http. Pure.
Holds: an id names every message of its stream that is not acked yet, up to its own, each with its
attempt, so it can be acked by any broker, also one that was started since; a longer one than any
stream gives is refused.
See: event_stream.py, which gives them; routes/event_streams.py, which takes them; ADR 67.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dejaqueue.errors import BadRequest

UNACKED_MAX = 128
"""Messages that one id can name: at most 27 bytes each, and so less than 4 KiB of a header."""
_RUN = re.compile(r"([0-9]{1,19})(?:\+([0-9]{1,3}))?-([0-9]{1,5})")
_WHAT = "the id of the last event of a stream of this topic"

Row = tuple[int, int]
"""Id and attempt of a message."""


def event_id(rows: Sequence[Row]) -> str:
    """An id that names these messages. Messages that follow on one another are one run of them.

    >>> event_id([(7, 1), (8, 1), (9, 1), (11, 1), (12, 2)])
    '7+2-1,11-1,12-2'
    """
    parts: list[str] = []
    first = 0
    while first < len(rows):
        message_id, attempt = rows[first]
        last = first
        while last + 1 < len(rows) and rows[last + 1] == (message_id + last + 1 - first, attempt):
            last += 1
        more = f"+{last - first}" if last > first else ""
        parts.append(f"{message_id}{more}-{attempt}")
        first = last + 1
    return ",".join(parts)


def parse_event_id(text: str) -> list[Row]:
    """The messages that an id names. Raises BadRequest.

    >>> parse_event_id("7+2-1,12-2")
    [(7, 1), (8, 1), (9, 1), (12, 2)]
    """
    rows: list[Row] = []
    for part in text.split(",", UNACKED_MAX):
        found = _RUN.fullmatch(part)
        if found is None:
            raise BadRequest("Last-Event-ID", _WHAT, text)
        message_id, more, attempt = int(found[1]), int(found[2] or 0), int(found[3])
        if message_id + more >= 1 << 63 or attempt >= 1 << 16:
            raise BadRequest("Last-Event-ID", _WHAT, text)
        rows += [(message_id + step, attempt) for step in range(more + 1)]
        if len(rows) > UNACKED_MAX:
            raise BadRequest("Last-Event-ID", f"{_WHAT}, of {UNACKED_MAX} messages at most", text)
    return rows
