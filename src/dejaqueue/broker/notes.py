"""What programs note of their writes: how many rows had which status, for who asks afterwards.

Room: broker. Any thread may call it; in memory, of each topic the last few.
Holds: a note changes nothing in a topic; it is forgotten when the broker ends or the topic moves to
another broker.
See: docs/wire.md; spark/written.py, whose sinks have no other way to answer the program that uses
them: they run in a process of Spark's, on a machine that may be another one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus

if TYPE_CHECKING:
    from dejaqueue.broker.runtime import TopicRuntime

NOTES_MAX = 64
"""Notes of a topic; the oldest goes first."""
_STATUSES = [status.name for status in RowStatus]


class Notes:
    """The last notes of a topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, int], dict[str, Any]] = {}

    def add(self, sender: str, note: dict[str, Any]) -> None:
        """Keep a note, in the place of the same sender's with the same label and epoch."""
        name = (sender, note["label"], note["epoch"])
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = note
            if len(self._kept) > NOTES_MAX:
                del self._kept[next(iter(self._kept))]

    def find(self, sender: str | None, label: str) -> list[dict[str, Any]]:
        """Notes with a label, "" = any, of a sender, None = any; the oldest first."""
        with self._lock:
            return [
                note
                for (noted_by, noted, _), note in self._kept.items()
                if sender in (None, noted_by) and label in ("", noted)
            ]


def note_write(
    runtime: TopicRuntime, body: dict[str, Any], sender: Sender, now_ms: int
) -> dict[str, Any]:
    """Keep how many rows of a write had which status. Raises BadRequest."""
    epoch, committed, counts = body.get("epoch", -1), body.get("committed", True), body["counts"]
    if not _is_count(epoch) and epoch != -1:
        raise BadRequest("epoch", "a whole number from 0", epoch)
    if not isinstance(committed, bool):
        raise BadRequest("committed", "true or false", committed)
    is_known = isinstance(counts, dict) and all(name in _STATUSES for name in counts)
    if not is_known or not all(_is_count(count) for count in counts.values()):
        raise BadRequest("counts", f"rows by {', '.join(_STATUSES)}", counts)
    label = _label(body["label"])
    if not label:
        raise BadRequest("label", "a text that is not empty", label)
    note = {"label": label, "epoch": epoch, "committed": committed, "counts": counts}
    runtime.notes.add(sender.name, note | {"at_ms": now_ms})
    return {}


def writes(runtime: TopicRuntime, body: dict[str, Any], sender: Sender) -> dict[str, Any]:
    """What was noted of a topic, the oldest first: the sender's own if it is limited to that.
    Raises BadRequest."""
    return {"writes": runtime.notes.find(sender.owner, _label(body.get("label", "")))}


def _label(value: object) -> str:
    most = limits.LABEL_BYTES_MAX
    if not isinstance(value, str) or len(value.encode()) > most:
        raise BadRequest("label", f"a text of at most {most} bytes", value)
    return value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.SEQUENCE_MAX
