"""The audit log: which principal administered what, and which was refused.

Room: access. Logger `dejaqueue.audit`, one line for each call, as `name=value` with JSON values, so
that no text of a caller can make a line of its own; the same values are in the record's `audit`.
Holds: no payloads, no keys, no digests: the fields are those of `record`, and of a body the topic.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dejaqueue.access.api_keys import id_of, without_secrets
from dejaqueue.clock import Clock, SteadyClock, SystemClock
from dejaqueue.errors import DejaQError, NotAllowed
from dejaqueue.log_rate import LogRate

log = logging.getLogger("dejaqueue.audit")

LINES_PER_SECOND_MAX = 50
"""Lines of one caller about calls that were refused or failed, or that took a message by a GET:
nobody must fill the disk with them. What was administered is always written."""
NOBODY = "unknown"
"""Who calls without a key, or with a wrong one."""
TEXT_CHARS_MAX = 300


KEPT = 2_000
"""Lines of this process that are shown to admins who ask; older ones are in the log alone."""
_newest: deque[dict[str, object]] = deque(maxlen=KEPT)


def newest(limit: int, **wanted: str) -> list[dict[str, object]]:
    """The newest lines of this process, the newest first.

    Args:
        limit: so many at most.
        wanted: texts that fields have to contain, in any case; "" = anything.

    Returns:
        The fields of each line, and `at_ms`, UTC milliseconds.
    """
    found: list[dict[str, object]] = []
    for line in reversed(list(_newest)):
        if len(found) == limit:
            break
        shown = ((part, str(line.get(name, ""))) for name, part in wanted.items())
        if all(part.lower() in text.lower() for part, text in shown):
            found.append(line)
    return found


def record(who: str, peer: str, action: str, topic: str, outcome: str, **more: object) -> None:
    """Write a line.

    Args:
        who: name of the API key.
        peer: address and port of the caller, as the server has it.
        action: what was called.
        topic: on which topic; "" = none.
        outcome: `done`, or the name of the error that refused it.
        more: further facts of the change, as the id of a key.
    """
    fields: dict[str, object] = {
        "principal": who,
        "peer": peer,
        "action": action,
        "topic": topic,
        "outcome": outcome,
        **more,
    }
    short = {name: _short(value) for name, value in fields.items()}
    line = " ".join(f"{name}={json.dumps(value)}" for name, value in short.items())
    _newest.append({"at_ms": SystemClock().utc_ms(), **short})
    level = logging.INFO if outcome == "done" else logging.WARNING
    log.log(level, "%s", line, extra={"audit": short})


_rate = LogRate(LINES_PER_SECOND_MAX, 1.0)
"""By caller and kind of line: strangers do not use up the lines of those who have a key."""
_clock: Clock = SteadyClock()


def record_some(
    kind: str, who: str, peer: str, action: str, topic: str, outcome: str, **more: object
) -> None:
    """Write a line that a caller can cause again and again, unless there are too many of these.

    Args:
        kind: `refused`, `failed` or `taken`: how lines are called that were left out.
    """
    left_out = _rate.admit((who, kind), _clock.now_ms() / 1_000)
    if left_out is None:
        return
    if left_out:
        facts: dict[str, object] = {"principal": who, "outcome": "left out", kind: left_out}
        text = f'principal={json.dumps(who)} outcome="left out" {kind}={left_out}'
        log.warning("%s", text, extra={"audit": facts})
    record(who, peer, action, topic, outcome, **more)


def _short(value: object) -> object:
    if value is None or isinstance(value, int):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return without_secrets(text)[:TEXT_CHARS_MAX]


def refused(who: str, peer: str, action: str, topic: str, error: DejaQError) -> None:
    """Write that a call was not let through, unless there are too many of these."""
    record_some("refused", who, peer, action, topic, type(error).__name__)


@contextmanager
def recorded(
    who: str,
    peer: str,
    action: str,
    topic: str,
    *,
    always: bool = False,
    more: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Record what happens in the block: always, or only if it is refused.

    Args:
        more: further facts; the block may add some.
    """
    more = {} if more is None else more
    try:
        yield
    except DejaQError as error:
        if isinstance(error, NotAllowed):
            refused(who, peer, action, topic, error)
        elif always:
            record_some("failed", who, peer, action, topic, type(error).__name__, **more)
        raise
    if always:
        record(who, peer, action, topic, "done", **more)


_FACTS = ("to", "drop", "dry_run", "grants", "force", "partitions", "paused", "dead_letter")


_ERASED = (
    "keys",
    "group",
    "tags_any",
    "tags_all",
    "tags_none",
    "due_from",
    "due_to",
    "priority_from",
    "priority_to",
)


def facts(action: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What else of a call is worth a place in the log: short, and never a secret."""
    named = {name: body[name] for name in _FACTS if name in body}
    if action == "erase":
        named |= _digests(body)
    if action == "create_key":
        named["name"] = body.get("name")
    if action == "revoke_key":
        text = str(body.get("key"))
        named["key"] = id_of(text) or text  # never a whole key
    return named


def _digests(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an erasure was about, for whoever knows it: its texts may be what was to be erased."""
    found: dict[str, Any] = {"ids": body["ids"]} if body.get("ids") else {}
    for name in _ERASED:
        value = body.get(name)
        if isinstance(value, str):
            found[name] = _digest(value)
        elif isinstance(value, list):
            found[name] = [_digest(str(one)) for one in value]
        elif value is not None:
            found[name] = value
    return found


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


_OF_ERASURE = ("found", "ended", "held", "segments", "bytes", "payloads", "changes", "took_ms")


def facts_of_answer(action: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a call's answer that is logged: the id of the key that it is about, or what was
    erased."""
    if action == "erase":
        done = {name: answer[name] for name in _OF_ERASURE if name in answer}
        return done | {"is_done": answer.get("next") is None}
    return {"key_id": answer.get("id", "")} if action in ("create_key", "revoke_key") else {}
