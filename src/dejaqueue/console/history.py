"""What happened to a message, in sentences; and where its trace is to be seen.

Room: console. Pure functions.
Holds: every change that history may name has a sentence, and one that it does not know is shown by
its name; a link goes where the operator said, with nothing of the message in it but a trace's id.
See: docs/guides/history.md; messages.py, whose page shows both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dejaqueue.console import words

_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_NO_TRACE = "0" * 32
_SAID = {
    "staged": "Sent in a transaction that is not decided yet",
    "aborted": "The transaction that sent it was aborted",
    "acked": "Acked: it is done",
    "lapsed": "The lease ended before its consumer was done",
    "cancelled": "Cancelled",
    "dead": "Dead: nobody gets it here any more",
    "expired": "Its time to live was over",
    "departed": "Sent back to its topic",
}


def sentence(change: Mapping[str, Any]) -> str:
    """What a change says, as the API tells of it.

    >>> sentence({"change": "nacked", "attempt": 1, "reason": "busy"})
    'Given back: busy'
    >>> sentence({"change": "delivered", "attempt": 1, "consumer": "mailer", "lateness_ms": 3})
    'Leased by mailer for attempt 1, 3 ms late'
    """
    kind, reason = change["change"], change.get("reason")
    due = f", due {words.absolute(change['due'])}" if "due" in change else ""
    if kind in ("delivered", "redelivered"):
        said = f"Leased by {change.get('consumer') or 'a consumer'} for attempt {change['attempt']}"
        return said + _late(change.get("lateness_ms"))
    if kind == "enqueued":
        said = f"Sent{due}"
    elif kind == "moved":
        said = f"Moved{due}{_place(change)}"
    elif kind == "nacked":
        said = "Given back"
    else:
        said = _SAID.get(kind, kind)
    return f"{said}: {reason}" if reason else said


def _late(late_ms: int | None) -> str:
    if late_ms is None:
        return ""
    return f", {words.length(late_ms)} {'ahead' if late_ms < 0 else 'late'}"


def _place(change: Mapping[str, Any]) -> str:
    group = f", group {change['group']}" if change.get("group") else ""
    return f", priority {change['priority']}{group}" if "priority" in change else group


def lines(history: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Changes and gaps, each with `at_ms` and `text`, in the order in which things happened."""
    told = [
        (change["position"], {"at_ms": change["at_ms"], "text": sentence(change), "is_gap": False})
        for change in history["changes"]
    ]
    for gap in history["gaps"]:
        number = "Some changes" if gap.get("missed") is None else f"{gap['missed']} changes"
        why = f": {gap['reason']}" if gap.get("reason") else ""
        text = f"{number} in its partition are not recorded{why}"
        told.append((gap["last"], {"at_ms": gap["at_ms"], "text": text, "is_gap": True}))
    return [line for _, line in sorted(told, key=lambda pair: pair[0])]


def trace_link(url: str, headers: Mapping[str, str]) -> str:
    """Where the trace of a message is to be seen; "" = it has none, or nobody said where.

    Args:
        url: of the settings, with {trace_id} in it.

    >>> parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    >>> trace_link("https://x.example/{trace_id}", {"traceparent": parent})
    'https://x.example/4bf92f3577b34da6a3ce929d0e0e4736'
    >>> trace_link("https://x.example/{trace_id}", {"traceparent": "javascript:alert(1)"})
    ''
    """
    parent = _PARENT.fullmatch(headers.get("traceparent", ""))
    if not url or parent is None or parent[1] == _NO_TRACE:
        return ""
    return url.replace("{trace_id}", parent[1])
