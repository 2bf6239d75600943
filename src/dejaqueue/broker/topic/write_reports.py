"""What programs report of their writes, for who asks afterwards: the last few of each topic.

Room: broker. Any thread may call it; in memory.
Holds: a report is forgotten when the broker ends or the topic moves to another broker.
See: reports.py for the calls; spark/written.py, whose sinks have no other way to answer the program
that uses them: they run in a process of Spark's, on a machine that may be another one.
"""

from __future__ import annotations

import threading
from typing import Any

REPORTS_MAX = 64
"""Reports of a topic; the oldest goes first."""


class WriteReports:
    """The last reports of a topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, int], dict[str, Any]] = {}

    def add(self, sender: str, report: dict[str, Any]) -> None:
        """Keep a report, in the place of the same sender's with the same label and epoch."""
        name = (sender, report["label"], report["epoch"])
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = report
            if len(self._kept) > REPORTS_MAX:
                del self._kept[next(iter(self._kept))]

    def find(self, sender: str | None, label: str) -> list[dict[str, Any]]:
        """Reports with a label, "" = any, of a sender, None = any; the oldest first."""
        with self._lock:
            return [
                report
                for (reporter, reported, _), report in self._kept.items()
                if sender in (None, reporter) and label in ("", reported)
            ]
