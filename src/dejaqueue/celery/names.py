"""What Celery calls a thing, and what DejaQ does: queues and topics, tasks and keys, priorities.

Room: celery. Pure functions.
Holds: two queues never share a topic; a name that is fine as a topic's is taken as it is.
See: docs/guides/from-celery.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dejaqueue.limits import KEY_BYTES_MAX

RETRIES_MAX = 32
"""A task that retries keeps its id: so many of its messages have keys apart, then they repeat."""
PRIORITY_MAX = 255
"""As in AMQP: 255 is the most urgent."""
_STRANGE = re.compile(r"[^A-Za-z0-9._-]|_(?=[0-9a-f]+_)")
_TOPIC_CHARACTERS_MAX = 255


def topic_of(queue: str) -> str:
    """The topic of a queue: characters that a topic's name may not have become `_hex_`.

    >>> topic_of("celery"), topic_of("celery@host.pidbox")
    ('celery', 'celery_40_host.pidbox')
    """
    name = _STRANGE.sub(lambda found: f"_{ord(found[0]):x}_", queue)
    if len(name) <= _TOPIC_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(queue.encode()).hexdigest()
    return f"{name[: _TOPIC_CHARACTERS_MAX - len(digest) - 1]}-{digest}"


def key_of(headers: Mapping[str, Any]) -> str | None:
    """The key of a task's message, so that it can be cancelled by its id; None = it has none.

    >>> key_of({"task": "add", "id": "a1"}), key_of({"task": "add", "id": "a1", "retries": 2})
    ('a1', 'a1/2')
    """
    task_id, retries = headers.get("id"), headers.get("retries") or 0
    if "task" not in headers or not isinstance(task_id, str) or not isinstance(retries, int):
        return None
    key = f"{task_id}/{retries % RETRIES_MAX}" if retries % RETRIES_MAX else task_id
    return key if 0 < len(key.encode()) <= KEY_BYTES_MAX else None


def keys_of(task_id: str) -> list[str]:
    """All keys that messages of a task may have."""
    keys = [task_id, *(f"{task_id}/{number}" for number in range(1, RETRIES_MAX))]
    return [key for key in keys if 0 < len(key.encode()) <= KEY_BYTES_MAX]


def due_ms_of(headers: Mapping[str, Any]) -> int | None:
    """When a task is due by its `eta`, UTC milliseconds, rounded up; None = now, or not known.

    An eta without a time zone is for the worker, who knows which one is meant.

    >>> due_ms_of({"eta": "1970-01-01T00:00:01.000001+00:00"})
    1001
    """
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        instant = datetime.fromisoformat(eta)
    except ValueError:
        return None
    if instant.tzinfo is None:
        return None
    since = instant - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return max(-(-us // 1_000), 0)


def ttl_of(properties: Mapping[str, Any], life_ms: int | None) -> float | None:
    """How long a message lives, in seconds: its own `expiration` or its queue's, the shorter one.

    >>> ttl_of({"expiration": "2000"}, 5_000), ttl_of({}, None)
    (2.0, None)
    """
    given = [int(properties["expiration"])] if properties.get("expiration") else []
    lives_ms = given if life_ms is None else [*given, life_ms]
    return min(lives_ms) / 1_000 if lives_ms else None


def priority_of(properties: Mapping[str, Any]) -> int | None:
    """DejaQ's priority, of which 0 is first, from AMQP's, of which the highest is first.

    >>> priority_of({"priority": 9}), priority_of({"priority": 0})
    (246, None)
    """
    priority = int(properties.get("priority") or 0)
    return PRIORITY_MAX - min(priority, PRIORITY_MAX) if priority > 0 else None
