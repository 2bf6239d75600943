"""Looking at many messages, and changing them by filter: what both clients share.

Room: client. Requests and answers as values; calls block, the faces wait for them.
Holds: what is asked is checked here, with the user's own words; answers of any length are fetched
piece by piece.
See: _aio/browse.py for the calls; docs/guides/browsing.md.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.changes import shift_ms_of
from dejaqueue.client.sending.inputs import delay_ms_of, due_ms_of, int64s_of, texts_of
from dejaqueue.errors import BadRequest
from dejaqueue.schema import messages
from dejaqueue.subscriptions import check_subscription_name
from dejaqueue.topic_names import check_served_name, check_topic_name, subscription_name

NEXT = b"next"
"""Where the metadata of a page says how to go on."""


STATES = ("scheduled", "ready", "leased", "dead", "staged", "staged_ack")


EPHEMERAL_MS = 60_000
"""How long an ephemeral subscription stays without consumers, if nobody says."""


class Where(TypedDict, total=False):
    """Which messages: all that is given holds of them; nothing given = all.

    Keys:
        due_from: due at this time or later: a datetime with a time zone, or UTC milliseconds.
        due_to: due before this time.
        state: `scheduled` (waits for its time, or for a consumer), `ready` (of those: its time has
            come), `leased`, `dead` (on its way to the dead-letter topic), `staged`, `staged_ack`
            (in a transaction that is not decided yet). Only the first two can be changed.
        group: of exactly this group; "" = of none.
        tags_any, tags_all, tags_none: with any, each, none of these tags.
        priority_from, priority_to: of a priority between the two, both included.
    """

    due_from: datetime | int | None
    due_to: datetime | int | None
    state: str | None
    group: str | None
    tags_any: Sequence[str]
    tags_all: Sequence[str]
    tags_none: Sequence[str]
    priority_from: int | None
    priority_to: int | None


@dataclass(frozen=True, slots=True)
class DueHistogram:
    """How many messages are due in each stretch of time.

    Attributes:
        due_from_ms: when the first stretch begins, UTC milliseconds.
        bucket_ms: how long each is.
        counts: messages due in each, int64 array, shape (n,).
        error_max: by how much the sum of the counts may be too high; 0 = they are exact.
    """

    due_from_ms: int
    bucket_ms: int
    counts: npt.NDArray[np.int64]
    error_max: int = 0

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def dues_ms(self) -> npt.NDArray[np.int64]:
        """When each stretch begins, UTC milliseconds, int64 array, shape (n,)."""
        steps = np.arange(len(self.counts), dtype=np.int64)
        return self.due_from_ms + self.bucket_ms * steps


class Caller(Protocol):
    """The part of a transport that is needed here."""

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """One call."""
        ...

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        """Rows without leasing."""
        ...


# --- requests ---------------------------------------------------------------------------------


def check_where(topic: str, where: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request about these messages. Raises BadRequest."""
    fields: dict[str, Any] = {"topic": check_served_name(topic)}
    known = Where.__annotations__
    for name, value in where.items():
        if name not in known:
            raise BadRequest(name, f"one of {', '.join(known)}", value)
        if value is None:
            continue
        if name in {"due_from", "due_to"}:
            fields[name] = due_ms_of(value, name, is_bound=True)
        elif name.startswith("tags_"):
            fields[name] = list(tags_of(name, value))
        elif name == "state" and value not in STATES:
            raise BadRequest("state", f"one of {', '.join(STATES)}", value)
        elif name == "group" and not isinstance(value, str):
            raise BadRequest("group", "a text", value)
        else:
            fields[name] = value
    return fields


def tags_of(field: str, tags: object) -> tuple[str, ...]:
    """Tags to filter by. Raises BadRequest."""
    if isinstance(tags, str):
        raise BadRequest(field, "several texts; one tag is a list of one", tags)
    return tuple(texts_of(tags, field).to_pylist())


def check_peek(
    topic: str, limit: int, ids: object, keys: object, where: dict[str, Any]
) -> dict[str, Any]:
    """The ticket of a peek. Raises BadRequest."""
    fields = check_where(topic, where)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise BadRequest("limit", "a whole number, not negative", limit)
    if ids is not None and keys is not None:
        raise BadRequest("keys", "ids or keys, not both", None)
    if ids is not None:
        fields["ids"] = int64s_of(ids, "ids").tolist()
    if keys is not None:
        fields["keys"] = texts_of(keys, "keys").to_pylist()
    return {"op": "peek", **fields}


def check_get(topic: str, message_id: int | None, key: str | None) -> dict[str, Any]:
    """The ticket of a look at one message. Raises BadRequest."""
    if (message_id is None) == (key is None):
        raise BadRequest("id", "one of id and key", None if key is None else "both")
    if key is not None and not isinstance(key, str):
        raise BadRequest("key", "a text", key)
    ids = None if message_id is None else [message_id]
    return check_peek(topic, 1, ids, None if key is None else [key], {})


def check_histogram(
    topic: str, bucket: timedelta | float, where: dict[str, Any], *, exact: bool
) -> dict[str, Any]:
    """The body of a histogram. Raises BadRequest."""
    fields = check_where(topic, where)
    for name in ("due_from", "due_to"):
        if name not in fields:
            raise BadRequest(name, "a time: a histogram has a beginning and an end", None)
    return {**fields, "bucket_ms": delay_ms_of(bucket, "bucket"), "exact": exact}


def check_change(
    topic: str,
    due: datetime | int | None,
    by: timedelta | float | None,
    set_priority: int | None,
    set_group: str | None,
    where: dict[str, Any],
    window: tuple[datetime | int, datetime | int] | None = None,
) -> dict[str, Any]:
    """The body of a move by filter. Raises BadRequest."""
    fields = check_where(topic, where)
    if due is not None:
        fields["due"] = due_ms_of(due)
    if by is not None:
        fields["by_ms"] = shift_ms_of(by)
    if window is not None:
        fields["window_from"], fields["window_to"] = map(due_ms_of, window)
    changes = {"set_priority": set_priority, "set_group": set_group}
    return fields | {name: value for name, value in changes.items() if value is not None}


# --- calls, which block -----------------------------------------------------------------------


def peek(caller: Caller, ticket: dict[str, Any], limit: int) -> pa.Table:
    """Rows as they are, page by page."""
    tables: list[pa.Table] = []
    for part in _parts(ticket):
        after: Any = None
        while limit > 0:
            page = {**part, "limit": min(limit, limits.PEEK_ROWS_MAX), "after": after}
            table = caller.rows(page).result()
            following = (table.schema.metadata or {}).get(NEXT)
            tables.append(table.replace_schema_metadata(None))
            limit -= table.num_rows
            if following is None:
                break
            after = json.loads(following)
    # Brokers of two versions may have a column more or less.
    return (
        pa.concat_tables(tables, promote_options="default")
        if tables
        else messages.PEEK.empty_table()
    )


def _parts(ticket: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Tickets of as many ids or keys as one page can answer."""
    step = limits.PEEK_ROWS_MAX
    for field in ("ids", "keys"):
        values = ticket.get(field)
        if values is not None:
            for at in range(0, len(values), step):
                yield {**ticket, field: values[at : at + step]}
            return
    yield ticket


def counts(caller: Caller, topic: str, by: str, limit: int) -> dict[str, int]:
    """Names and counts, most first."""
    check_served_name(topic)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise BadRequest("limit", "a whole number from 1", limit)
    count_of: dict[str, int] = {}
    after: Any = None
    while len(count_of) < limit:
        rows_max = min(limit - len(count_of), limits.COUNTS_ROWS_MAX)
        body = {"topic": topic, "by": by, "limit": rows_max, "after": after}
        answer = caller.action("counts", body).result()
        count_of |= {row[by]: row["count"] for row in answer["rows"]}
        after = answer["next"]
        if after is None:
            break
    return count_of


def histogram(caller: Caller, body: dict[str, Any]) -> DueHistogram:
    """What is due when."""
    answer = caller.action("histogram", body).result()
    return DueHistogram(
        answer["due_from"],
        answer["bucket_ms"],
        np.array(answer["counts"], dtype=np.int64),
        answer["error_max"],
    )


def change(caller: Caller, name: str, body: dict[str, Any], *, dry_run: bool) -> int:
    """Move or cancel by filter until nothing is left to look at; how many it was."""
    count = 0
    after: Any = None
    while True:
        answer = caller.action(name, {**body, "after": after, "dry_run": dry_run}).result()
        count += int(answer["count"])
        after = answer["next"]
        if after is None:
            return count


class SeekResult(NamedTuple):
    """What a seek did.

    Attributes:
        replayed: messages that were done and came back.
        passed: messages that waited and are done now.
    """

    replayed: int
    passed: int


def check_seek(topic: str, subscription: str, to: object, where: dict[str, Any]) -> dict[str, Any]:
    """The body of a seek. Raises BadRequest."""
    fields = check_where(check_topic_name(topic), where)
    if "state" in fields:
        limit = "not said: a seek is about what is done and what waits"
        raise BadRequest("state", limit, where["state"])
    if subscription:
        check_subscription_name(subscription)
    if to not in ("beginning", "end"):
        if not isinstance(to, datetime | int) or isinstance(to, bool):
            raise BadRequest("to", "beginning, end, a datetime, or UTC milliseconds", to)
        to = due_ms_of(to)
    return fields | {"topic": subscription_name(topic, subscription), "to": to}


def begun_at(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a subscription, with its start as the wire has it. Raises BadRequest."""
    if isinstance(settings.get("start"), datetime):
        settings["start"] = due_ms_of(settings["start"])
    return settings


def ephemeral_name() -> str:
    """A name for a subscription that nobody else has."""
    return f"ephemeral-{secrets.token_hex(8)}"


def check_subscribe(topic: str, subscription: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The body that makes an ephemeral subscription. Raises BadRequest."""
    check_topic_name(topic)
    check_subscription_name(subscription)
    own = begun_at({"ephemeral_ms": EPHEMERAL_MS} | settings)
    if not own["ephemeral_ms"]:
        raise BadRequest("ephemeral_ms", "how long it outlives its consumers", 0)
    return {"name": topic, "subscriptions": {subscription: own}}


def subscribe(caller: Caller, body: dict[str, Any]) -> None:
    """Make a subscription."""
    caller.action("alter_topic", body).result()


def seek(caller: Caller, body: dict[str, Any]) -> SeekResult:
    """Seek until all partitions are there."""
    sought = SeekResult(0, 0)
    after: Any = None
    while True:
        answer = caller.action("seek", {**body, "after": after}).result()
        sought = SeekResult(sought.replayed + answer["replayed"], sought.passed + answer["passed"])
        after = answer["next"]
        if after is None:
            return sought
