"""Sending a small file by rows: shown first, with its errors by line; then sent in one call.

Room: console.
Holds: nothing is sent but what was shown just before, nothing of a file with an error, and nothing
twice, however often a button is pressed; what was sent is in the audit log with its count.
See: row_files.py, which reads the file; messages.py for one message.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from dejaqueue.access import audit
from dejaqueue.console import session as sessions
from dejaqueue.console.api import ApiError, topic_path
from dejaqueue.console.message_fields import plain
from dejaqueue.console.row_files import BYTES_MAX, ROWS_MAX, LineError, RowFile, read_rows
from dejaqueue.console.visit import Visit

FORM_BYTES_MAX = 4 * BYTES_MAX
"""A file in a form: what is not a letter takes three bytes there."""
SHOWN_ROWS, SHOWN_ERRORS = 10, 20
_SHOWN_CHARS = 80
_ROW = re.compile(r"\brow (\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file that was sent.

    Attributes:
        counts: status -> messages.
        lines: of those that were not taken, the first ones: line, status, id of the live message.
    """

    counts: dict[str, int]
    lines: list[tuple[int, str, str]]


async def show_rows(visit: Visit) -> Response:
    """The form for a file."""
    await visit.api.get(topic_path(visit.name("topic")))
    return _page(visit, "", RowFile(), {})


async def send_rows(visit: Visit) -> Response:
    """Show what is in the file; if that was shown already and is to be sent, send it."""
    topic, form = visit.name("topic"), visit.form
    text = plain(form.get("rows", ""))
    due_column = form.get("due_column", "").strip() or "due"
    file = await run_in_threadpool(read_rows, text, due_column)
    seen = hashlib.sha256(f"{topic}\0{due_column}\0{text}".encode(errors="replace")).hexdigest()
    # What is pressed twice is one request, told by what the preview had: its answer is the same.
    word = form.get("word", "") or sessions.new_word()
    values: dict[str, Any] = {"seen": seen, "word": word}
    is_wanted = form.get("verb") == "send"
    if is_wanted and form.get("seen") != seen:
        values["problem"] = "The file is another one now: look at it again. Nothing was sent."
    elif is_wanted and file.rows and not file.errors:
        try:
            outcome = await _sent(visit, topic, file, f"{word}-{seen}")
        except ApiError as error:
            if error.status == 401:
                raise
            values["problem"] = f"Nothing was sent. {_at_line(error.detail, file)}"
            return _page(visit, text, file, values, error.status)
        return _page(visit, "", replace(file, rows=[], lines=[]), {"outcome": outcome})
    return _page(visit, text, file, values, 400 if file.errors else 200)


async def _sent(visit: Visit, topic: str, file: RowFile, name: str) -> Outcome:
    """Send all rows in one call. Raises ApiError."""
    headers = {"idempotency-key": name}
    body = {"messages": file.rows}
    path = topic_path(topic, "messages")
    answer = await visit.api.call("POST", path, body=body, headers=headers)
    rows = answer["messages"]
    counts = Counter(row["status"] for row in rows)
    audit.record(
        visit.session.name, visit.peer, "console send", topic, "done",
        count=counts.get("OK", 0), rows=len(rows),
    )  # fmt: skip
    others = [
        (line, row["status"], row.get("id") or "")
        for line, row in zip(file.lines, rows, strict=True)
        if row["status"] != "OK"
    ]
    return Outcome(dict(counts), others[:SHOWN_ERRORS])


def _at_line(detail: str, file: RowFile) -> str:
    """What the API says of a row, with its line."""
    found = _ROW.search(detail)
    if found is None or int(found[1]) >= len(file.lines):
        return detail
    return f"Line {file.lines[int(found[1])]}: {detail}"


def _page(
    visit: Visit, text: str, file: RowFile, more: dict[str, Any], status: int = 200
) -> Response:
    topic, now_ms = visit.name("topic"), visit.now_ms
    dues = [row.get("due", now_ms + row.get("delay_ms", 0)) for row in file.rows]
    is_right = bool(file.rows) and not file.errors
    values: dict[str, Any] = {
        "topic": topic,
        "link": quote(topic, safe=""),
        "text": text,
        "due_column": visit.form.get("due_column", ""),
        "kind": file.kind,
        "count": len(file.rows),
        "rows": [
            _shown(line, row, due_ms)
            for line, row, due_ms in zip(file.lines, file.rows, dues, strict=True)
        ][:SHOWN_ROWS]
        if is_right
        else [],
        "first_ms": min(dues, default=0) if is_right else 0,
        "last_ms": max(dues, default=0) if is_right else 0,
        "now_count": sum(due_ms <= now_ms for due_ms in dues) if is_right else 0,
        "errors": file.errors[:SHOWN_ERRORS],
        "error_count": len(file.errors),
        "is_right": is_right,
        "bytes_max": BYTES_MAX,
        "rows_max": ROWS_MAX,
        "problem": "",
        "outcome": None,
    }
    return visit.page("rows", values | more, status)


def _shown(line: int, row: dict[str, Any], due_ms: int) -> dict[str, Any]:
    payload = str(row.get("payload", row.get("payload_base64", row.get("json", ""))))
    short = payload[:_SHOWN_CHARS] + ("…" if len(payload) > _SHOWN_CHARS else "")
    return {
        "line": line,
        "due": due_ms,
        "key": row.get("key", ""),
        "group": row.get("group", ""),
        "tags": ", ".join(row.get("tags", ())),
        "short": short,
    }


__all__ = ["FORM_BYTES_MAX", "LineError", "Outcome", "send_rows", "show_rows"]
