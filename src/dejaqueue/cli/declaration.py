"""What a file says the topics of a broker should be: settings, and entries of cron topics.

Room: cli. Reads a file and checks it; asks no broker.
Holds: what is declared is complete: what the file does not say has its default. Everything wrong
with a file is found before anything is changed.
See: apply.py, which makes it so; docs/guides/declaring-topics.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic, TopicKind
from dejaqueue.schema.cron import FIELDS, CronEntry
from dejaqueue.subscriptions import SETTINGS
from dejaqueue.times import parse_instant_ms, parse_span_ms

ENTRIES = "entries"
"""The table of a topic's cron entries, beside its settings."""
_OTHER_ENDS = {"start": "start_ms", "end": "end_ms"}
_TABLES = ("weights", "labels", "subscriptions")
"""Settings of a topic that are tables themselves."""
_BY_THE_BROKER = ("next_ms", "last_id")
_ENTRY_FIELDS = tuple(name for name in FIELDS if name not in (*_BY_THE_BROKER, "name"))


@dataclass(frozen=True, slots=True)
class Declaration:
    """One topic as a file has it.

    Attributes:
        topic: all its settings, checked.
        said: names of the settings that the file itself has; of those of an entry as
            `entries.NAME.field`, of a subscription as `subscriptions.NAME.setting`.
        entries: its cron entries by name, checked but for what only a broker knows.
    """

    topic: Topic
    said: frozenset[str]
    entries: dict[str, CronEntry]


def read_declarations(file: Path) -> tuple[list[Declaration], list[BadRequest]]:
    """The topics that a file declares, in its order, and everything that is wrong with it.

    Raises:
        BadRequest: it cannot be read, is not TOML, or has no table `topics`.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest("topics file", "a file that can be read", str(file)) from error
    except ValueError as error:
        raise BadRequest("topics file", f"TOML ({error})", str(file)) from error
    for name in tables:
        if name != "topics":
            raise BadRequest("topics file", "tables [topics.NAME] alone", name)
    declared = tables.get("topics")
    if not isinstance(declared, dict):
        raise BadRequest("topics file", "a table [topics.NAME] for each topic", str(file))
    read: list[Declaration] = []
    problems: list[BadRequest] = []
    for name, values in declared.items():
        try:
            read.append(_declaration(name, values))
        except BadRequest as error:
            field = f"topics.{name}: {error.field}"
            problems.append(BadRequest(field, error.limit, error.value))
    return read, problems


def _declaration(name: str, values: Any) -> Declaration:
    if not isinstance(values, dict):
        raise BadRequest("topic", "a table of settings", values)
    settings = {field: value for field, value in values.items() if field != ENTRIES}
    for field, value in settings.items():
        if isinstance(value, dict) and field not in _TABLES:
            limit = f'a setting; a name that has dots is quoted: [topics."{name}.{field}"]'
            raise BadRequest(f"topic.{field}", limit, value)
    said = {*settings}
    if isinstance(subscriptions := settings.get("subscriptions"), dict):
        settings["subscriptions"] = {
            one: _subscription(one, of) for one, of in subscriptions.items()
        }
        said |= {
            f"subscriptions.{one}.{field}" for one, of in subscriptions.items() for field in of
        }
    topic = Topic.from_dict({"name": name, **_timed(settings, "topic")})
    entries = values.get(ENTRIES, {})
    if entries and topic.kind is not TopicKind.CRON:
        raise BadRequest("topic.entries", 'a topic with kind = "cron"', str(topic.kind))
    if not isinstance(entries, dict):
        raise BadRequest("topic.entries", "tables [topics.NAME.entries.ENTRY]", entries)
    if settings.get("partitions") == "auto":
        said = said - {"partitions"} | {"auto_partitions"}
    read = {one: _entry(one, of) for one, of in entries.items()}
    said |= {f"{ENTRIES}.{one}.{name}" for one, of in entries.items() for name in of}
    return Declaration(topic, frozenset(said), read)


def _subscription(name: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise BadRequest(f"subscription {name}", "a table of settings", values)
    for field in values:
        if field not in SETTINGS:
            raise BadRequest(
                f"subscription.{field}", f"one of {', '.join(SETTINGS)}", values[field]
            )
    return _timed(values, f"subscription {name}")


def _entry(name: str, values: Any) -> CronEntry:
    if not isinstance(values, dict):
        raise BadRequest(f"entry {name}", "a table of fields", values)
    fields = {_OTHER_ENDS.get(str(key), str(key)): value for key, value in values.items()}
    for field in fields:
        if field not in _ENTRY_FIELDS:
            raise BadRequest(f"entry.{field}", f"one of {', '.join(_ENTRY_FIELDS)}", fields[field])
    payload = fields.get("payload", "")
    if not isinstance(payload, str):
        raise BadRequest("entry.payload", "a text", payload)
    fields = _timed(fields, "entry") | {"payload": payload.encode()}
    try:
        return CronEntry(name, **fields).check()
    except TypeError as error:
        raise BadRequest(f"entry {name}", f"fields of their kinds ({error})", values) from error


def _timed(values: dict[str, Any], what: str) -> dict[str, Any]:
    """Values with times that are written as people do, "1m" or a date with its zone, in ms."""
    return {
        field: _milliseconds(f"{what}.{field}", value) if field.endswith("_ms") else value
        for field, value in values.items()
    }


def _milliseconds(field: str, value: Any) -> Any:
    read: Callable[[str], int] = parse_span_ms
    if field in ("entry.start_ms", "entry.end_ms"):
        read = parse_instant_ms
        value = value.isoformat() if isinstance(value, datetime) else value
    if not isinstance(value, str):
        return value
    try:
        return read(value)
    except ValueError as wrong:
        raise BadRequest(field, str(wrong).partition(", got:")[0], value) from None
