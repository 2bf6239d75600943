"""Calls that keep reports of writes, and show them: how many rows had which status.

Room: broker. Any thread may call it.
Holds: a report changes nothing in a topic.
See: write_reports.py; docs/wire.md.
"""

from __future__ import annotations

from typing import Any

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus

_STATUSES = [status.name for status in RowStatus]


def note_write(
    topic: ServedTopic, body: dict[str, Any], sender: Sender, now_ms: int
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
    topic.write_reports.add(sender.name, note | {"at_ms": now_ms})
    return {}


def writes(topic: ServedTopic, body: dict[str, Any], sender: Sender) -> dict[str, Any]:
    """What was noted of a topic, the oldest first: the sender's own if it is limited to that.
    Raises BadRequest."""
    return {"writes": topic.write_reports.find(sender.owner, _label(body.get("label", "")))}


def _label(value: object) -> str:
    most = limits.LABEL_BYTES_MAX
    if not isinstance(value, str) or len(value.encode()) > most:
        raise BadRequest("label", f"a text of at most {most} bytes", value)
    return value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.SEQUENCE_MAX
