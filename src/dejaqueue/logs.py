"""Logs: one line for people, or one JSON object for programs, for each thing worth knowing.

Room: vocabulary. `set_up` is for a process that is a broker; a library that is imported never calls
it, and leaves logging to the program around it.
Holds: a record is one line, with its traceback inside; the same warning again and again is counted
instead of written; no payload, key or password is logged.
See: docs/guides/logs.md.

Fields of a line: `time` (UTC, to the millisecond), `level`, `logger`, `message`; then whatever the
call gave as `extra=` of FIELDS, the dictionary `audit` of the audit log, and `exception`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

from dejaqueue.log_rate import LogRate
from dejaqueue.settings import LogSettings

FIELDS = (
    "topic",
    "partition",
    "consumer",
    "principal",
    "peer",
    "duration_ms",
    "entry_count",
    "ahead_count",
    "row_count",
    "setting",
    "left_out",
    "task",
    "message_id",
    "attempt",
)
"""Facts that a record may have of its own, in the order in which they are written."""
OWN = "dejaqueue"
"""Loggers below this one obey `log.level`; those of other libraries are heard from warning on."""

REPEAT_SECONDS = 10
REPEATS_MAX = 5
"""So many warnings from one line of code about one topic in such a time; others are counted."""
PLACES_MAX = 1_000
"""Places in the code, and topics, whose warnings are counted at once."""


def set_up(settings: LogSettings, stream: IO[str] | None = None) -> None:
    """Write the logs of this process to a stream, as the settings say. Again: as they say now.

    Args:
        stream: standard error unless given.
    """
    target = stream or sys.stderr
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Lines)]:
        root.removeHandler(old)
    lines = _Lines(target)
    is_text = settings.format == "text" or (settings.format == "auto" and target.isatty())
    lines.setFormatter(TextFormatter() if is_text else JsonFormatter())
    lines.addFilter(Repeats())
    root.addHandler(lines)
    root.setLevel(logging.WARNING)
    for name in list(_levelled):
        logging.getLogger(name).setLevel(logging.NOTSET)
    _levelled.clear()
    for name, level in {OWN: settings.level, **settings.levels}.items():
        logging.getLogger(name).setLevel(level.upper())
        _levelled.add(name)
    # uvicorn installs nothing of its own (log_config=None); what gRPC prints cannot be caught and
    # is silenced by GRPC_VERBOSITY in client/flight_transport.py.
    logging.captureWarnings(True)


def tear_down() -> None:
    """Undo `set_up`; for tests and programs that end a broker and go on."""
    root = logging.getLogger()
    for old in [one for one in root.handlers if isinstance(one, _Lines)]:
        root.removeHandler(old)
    for name in list(_levelled):
        logging.getLogger(name).setLevel(logging.NOTSET)
    _levelled.clear()
    logging.captureWarnings(False)


_levelled: set[str] = set()


class _Lines(logging.StreamHandler[IO[str]]):
    """Ours among the root's."""


class JsonFormatter(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        values: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        values.update(facts(record))
        if record.exc_info and record.exc_info[0] is not None:
            values["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            values["stack"] = record.stack_info
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)


class TextFormatter(logging.Formatter):
    """A record as a line for people, in local time; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created).astimezone()
        clock = f"{at:%H:%M:%S}.{int(record.msecs):03d}"
        name = record.name.removeprefix(f"{OWN}.")
        # A line is a line, whatever a caller has put into a name.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        text = f"{clock} {record.levelname.lower():<7} {name}: {message}"
        left_out = getattr(record, "left_out", 0)
        if left_out:
            text += f" (and {left_out} more like it)"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self.formatException(record.exc_info)
        return text


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that a record has beside its message."""
    values = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
    audit = getattr(record, "audit", None)
    if isinstance(audit, dict):
        values.update(audit)
    return values


def _utc(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1_000:03d}Z"


class Repeats(logging.Filter):
    """Lets few warnings and errors of one kind through; the next says how many were left out.

    With a traceback or without: whoever finds a request that breaks something can send it for ever.
    The audit log has a rate of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rate = LogRate(REPEATS_MAX, REPEAT_SECONDS, PLACES_MAX)

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the record is to be written."""
        if record.levelno < logging.WARNING or record.name == "dejaqueue.audit":
            return True
        place = (record.pathname, record.lineno, str(getattr(record, "topic", "")))
        left_out = self._rate.admit(place, record.created)
        if left_out:
            record.left_out = left_out
        return left_out is not None
