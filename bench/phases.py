"""Where the time of a takeover goes, by the logs of the brokers that take over.

Room: bench. Reads text; the brokers log to the millisecond.
See: outages.py; cluster/node.py and broker/news.py, which say these things.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime

GONE = re.compile(r"node \S+ is gone")
TAKEN = re.compile(r"node \S+ has taken (\d+) slots")
READ = re.compile(r"topic (\S+), partition \d+: read in (\d+) ms")


def phases_of(since: float, logs: Mapping[str, str], topic: str) -> str:
    """What was said after `since`, in seconds from then on.

    Args:
        since: seconds since 1970.
        logs: what brokers have logged, by name.

    >>> line = '{"time":"1970-01-01T00:00:12.500Z","message":"node b has taken 3 slots over"}'
    >>> phases_of(10.0, {"b": line}, "t")
    'slots taken 2.50'
    """
    gone, taken, read, took_ms = list[float](), list[float](), list[float](), list[int]()
    for text in logs.values():
        for at, message in _lines(text):
            if at < since:
                continue
            if GONE.match(message):
                gone.append(at - since)
            elif TAKEN.match(message):
                taken.append(at - since)
            elif (found := READ.match(message)) and found[1] == topic:
                read.append(at - since)
                took_ms.append(int(found[2]))
    words = []
    if gone:
        words.append(f"seen as gone {min(gone):.2f}")
    if taken:
        words.append(f"slots taken {_span(taken)}")
    if read:
        mean_ms = sum(took_ms) / len(took_ms)
        words.append(f"{len(read)} partitions read {_span(read)}, {mean_ms:.0f} ms each")
    return ", ".join(words) or "nothing was taken over"


def _span(times: list[float]) -> str:
    first, last = f"{min(times):.2f}", f"{max(times):.2f}"
    return first if first == last else f"{first} to {last}"


def _lines(text: str) -> Iterator[tuple[float, str]]:
    for line in text.splitlines():
        try:
            values = json.loads(line)
            yield datetime.fromisoformat(values["time"]).timestamp(), str(values["message"])
        except (ValueError, KeyError, TypeError):
            continue  # what a server says that is none of ours
