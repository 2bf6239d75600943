"""What happened to one message, as the brokers recorded it.

Room: client. `ask` blocks: it runs on a thread that may.
See: _aio/browse.py, whose `history` answers with it; docs/guides/history.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from dejaqueue.client.browsing import Caller
from dejaqueue.client.sending.inputs import int64s_of
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.topic_names import check_topic_name

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class MessageChange:
    """One thing that happened to a message.

    Attributes:
        change: what: `enqueued`, `moved`, `delivered`, `nacked`, `acked` and others
            (docs/guides/history.md).
        at_ms: when, by the broker's clock, UTC milliseconds.
        position: of the entry in the partition's journal: the order in which things happened.
        attempt: deliveries so far.
        due_ms: when it is due from now on; of a delivery when it was due. None of an ack.
        key: of a message that came in; None later.
        lateness_ms: of a delivery: from `due_ms` until it went to its consumer.
        consumer: of a delivery: who got it; None if it is not known.
        reason: why, where somebody or something gave a reason.
    """

    change: str
    at_ms: int
    position: int
    attempt: int = 0
    due_ms: int | None = None
    key: str | None = None
    group: str = ""
    priority: int = DEFAULT_PRIORITY
    lateness_ms: int | None = None
    consumer: str | None = None
    reason: str = ""

    @property
    def at(self) -> datetime:
        """When it happened, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.at_ms)


@dataclass(frozen=True, slots=True)
class HistoryGap:
    """Positions of the journal of which nobody recorded what happened.

    Attributes:
        missed: how many changes; None = it is not known.
    """

    first: int
    last: int
    at_ms: int
    reason: str = ""
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """What is known of a message's life.

    Attributes:
        is_on: the topic's history is on now: what happens from now on is recorded.
        changes: oldest first; none, if nothing of the message was recorded, or is kept still.
        gaps: what is not known, of the time of the message.
        silent: brokers that did not answer; what they recorded is missing.
    """

    is_on: bool
    changes: tuple[MessageChange, ...] = ()
    gaps: tuple[HistoryGap, ...] = ()
    silent: tuple[str, ...] = ()


def check_history(topic: str, message_id: int) -> dict[str, Any]:
    """The body of the call. Raises BadRequest."""
    check_topic_name(topic)
    return {"topic": topic, "id": int64s_of([message_id], "id").tolist()[0]}


def ask(caller: Caller, body: dict[str, Any]) -> MessageHistory:
    """The history of a message, answer by answer until there is no more."""
    changes: list[MessageChange] = []
    gaps: dict[tuple[int, int], HistoryGap] = {}
    silent: set[str] = set()
    after: int | None = None
    while True:
        answer = caller.action("message_history", body | {"after": after}).result()
        changes += [_change_of(row) for row in answer["changes"]]
        gaps |= {(row["first"], row["last"]): _gap_of(row) for row in answer["gaps"]}
        silent |= set(answer["silent"])
        after = answer["next"]
        if after is None:
            missing = tuple(gaps[stretch] for stretch in sorted(gaps))
            return MessageHistory(answer["history"], tuple(changes), missing, tuple(sorted(silent)))


def _change_of(row: dict[str, Any]) -> MessageChange:
    named = {"due_ms" if name == "due" else name: value for name, value in row.items()}
    return MessageChange(**{name: named[name] for name in _CHANGE_FIELDS if name in named})


def _gap_of(row: dict[str, Any]) -> HistoryGap:
    known = {name: row[name] for name in _GAP_FIELDS if row.get(name) is not None}
    return HistoryGap(**known)


_CHANGE_FIELDS = tuple(field.name for field in fields(MessageChange))
_GAP_FIELDS = tuple(field.name for field in fields(HistoryGap))
"""What a newer broker says beside these is left out."""
