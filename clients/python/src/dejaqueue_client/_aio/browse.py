"""Browsing with the asynchronous client: peek, counts, histogram; move and cancel by filter.

Room: client. The source of _sync/browse.py (scripts/generate_sync_client.py): change this one.
See: filters.py for what does not wait; docs/guides/browsing.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

from dejaqueue_client import limits
from dejaqueue_client._aio.connection import AsyncConnection
from dejaqueue_client.errors import BadRequest
from dejaqueue_client.filters import Where, named_parts, selected, topic_path, view_in
from dejaqueue_client.inputs import (
    check_whole,
    delay_ms_of,
    due_ms_of,
    ids_of,
    payload_in,
    shift_ms_of,
    texts_of,
)
from dejaqueue_client.message_history import (
    HistoryGap,
    MessageChange,
    MessageHistory,
    change_of,
    gap_of,
)
from dejaqueue_client.message_view import MessageView
from dejaqueue_client.results import DueHistogram, SeekResult
from dejaqueue_client.subscriptions import check_subscription_name
from dejaqueue_client.topic_names import check_topic_name, subscription_name


class AsyncBrowsing:
    """The part of a client that looks at many messages at once, and changes them."""

    _connection: AsyncConnection

    async def peek(
        self,
        topic: str,
        *,
        limit: int = 100,
        ids: Sequence[int] | None = None,
        keys: Sequence[str] | None = None,
        **where: Unpack[Where],
    ) -> list[MessageView]:
        """Messages as they are, without leasing them.

        By due time in timelines; by id in priority and fair topics, and for states that do not
        wait for a time. A page costs the same wherever it lies; others may come and go meanwhile.

        Args:
            topic: whose messages.
            limit: messages at most; more than 10,000 are fetched page by page.
            ids, keys: only these.
            where: which ones: `due_from`, `due_to`, `state`, `group`, `tags_any`, `tags_all`,
                `tags_none`, `priority_from`, `priority_to` (Where). Without a `state`, those that
                wait or are leased.
        """
        fields, path = selected({**where}), f"{topic_path(topic)}/messages"
        check_whole("limit", limit, 0, limits.SEQUENCE_MAX)
        if ids is not None and keys is not None:
            raise BadRequest("keys", "ids or keys, not both", None)
        parts: list[dict[str, Any]] = [{}]
        if ids is not None:
            parts = [{"id": part} for part in named_parts("id", ids_of(ids))]
        elif keys is not None:
            parts = [{"key": part} for part in named_parts("key", texts_of(keys, "keys"))]
        found: list[MessageView] = []
        for part in parts:
            after: str | None = None
            while len(found) < limit:
                rows_max = min(limit - len(found), limits.PEEK_ROWS_MAX)
                asked = fields | part | {"limit": rows_max} | _following(after)
                page = await self._connection.ask("GET", path, parameters=asked)
                found += [view_in(row, payload_in(row)) for row in page["messages"]]
                after = page["next"]
                if after is None:
                    break
        return found

    async def get(
        self,
        topic: str,
        *,
        id: int | None = None,  # noqa: A002 - the field's name
        key: str | None = None,
    ) -> MessageView | None:
        """One message as it is, without leasing it.

        Args:
            topic: whose message.
            id, key: one of the two.

        Returns:
            Its state, due time, attempts, payload and the rest; None = there is no live message
            of this id or key: it never was, or it is done, cancelled or dead.

        Raises:
            TopicUnknown: there is no such topic.
        """
        if (id is None) == (key is None):
            raise BadRequest("id", "one of id and key", None if key is None else "both")
        if key is not None and not isinstance(key, str):
            raise BadRequest("key", "a text", key)
        ids, keys = None if id is None else [id], None if key is None else [key]
        found = await self.peek(topic, limit=1, ids=ids, keys=keys)
        return found[0] if found else None

    async def history(self, topic: str, id: int) -> MessageHistory:  # noqa: A002 - the field's name
        """What happened to a message, and when; of one that is done, too.

        It is recorded where the topic's setting `history` is on; where it is off nothing is known
        of the message, which is no error.

        Args:
            topic: whose message.
            id: of the message.

        Raises:
            TopicUnknown: there is no such topic.
        """
        path = f"{topic_path(check_topic_name(topic))}/messages/{ids_of([id], 'id')[0]}/history"
        changes: list[MessageChange] = []
        gaps: dict[tuple[int, int], HistoryGap] = {}
        silent: set[str] = set()
        after: int | None = None
        while True:
            answer = await self._connection.ask("GET", path, parameters=_following(after))
            changes += [change_of(row) for row in answer["changes"]]
            gaps |= {(row["first"], row["last"]): gap_of(row) for row in answer["gaps"]}
            silent |= set(answer["silent"])
            after = answer["next"]
            if after is None:
                missing = tuple(gaps[stretch] for stretch in sorted(gaps))
                told = (tuple(changes), missing, tuple(sorted(silent)))
                return MessageHistory(answer["history"], *told)

    async def counts(self, topic: str, *, by: str = "state", limit: int = 100) -> dict[str, int]:
        """How many live messages there are of each state, group or tag, most first.

        Args:
            topic: whose messages.
            by: `state`, `group` or `tag`. A message with two tags counts for both; messages
                without a group or tag are left out.
            limit: groups or tags at most.
        """
        path = f"{topic_path(topic)}/counts"
        check_whole("limit", limit, 1, limits.SEQUENCE_MAX)
        count_of: dict[str, int] = {}
        after: str | None = None
        while len(count_of) < limit:
            rows_max = min(limit - len(count_of), limits.COUNTS_ROWS_MAX)
            asked = {"by": by, "limit": rows_max} | _following(after)
            answer = await self._connection.ask("GET", path, parameters=asked)
            count_of |= {row[by]: row["count"] for row in answer["rows"]}
            after = answer["next"]
            if after is None:
                break
        return count_of

    async def histogram(
        self,
        topic: str,
        *,
        bucket: timedelta | float,
        exact: bool = True,
        **where: Unpack[Where],
    ) -> DueHistogram:
        """How many messages are due in each stretch of time: what load is to come.

        Args:
            topic: whose messages.
            bucket: how long a stretch is, seconds or a timedelta; 10,000 of them at most.
            exact: False = from the order index alone, in no time; says how far it may be off.
            where: `due_from` and `due_to` (both needed), and more as for `peek`.
        """
        fields = selected({**where})
        for name in ("due_from", "due_to"):
            if name not in fields:
                raise BadRequest(name, "a time: a histogram has a beginning and an end", None)
        asked = fields | {"bucket_ms": delay_ms_of(bucket, "bucket"), "exact": bool(exact)}
        path = f"{topic_path(topic)}/histogram"
        answer = await self._connection.ask("GET", path, parameters=asked)
        bounds = (answer["due_from"], answer["bucket_ms"])
        return DueHistogram(*bounds, list(answer["counts"]), answer["error_max"])

    async def move_where(
        self,
        topic: str,
        *,
        due: datetime | int | None = None,
        by: timedelta | float | None = None,
        window: tuple[datetime | int, datetime | int] | None = None,
        set_priority: int | None = None,
        set_group: str | None = None,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> int:
        """Move all messages that a filter selects and that are not leased (rule 9).

        Each is moved once. Messages that are sent meanwhile may be left alone.

        Args:
            topic: whose messages.
            due: their new due time.
            by: instead of `due`: how much later, seconds or a timedelta; negative = earlier.
            window: instead of `due`: evenly from the first time on and before the second one, about
                in the order that they have.
            set_priority, set_group: their new priority and group.
            dry_run: change nothing, count only.
            where: which ones, as for `peek`.

        Returns:
            How many it were.

        Raises:
            Unavailable: the connection broke in the middle: some are moved, some are not. A move
                to a fixed time, or into a window, may be asked for again; one by a shift would move
                some twice.
        """
        body: dict[str, Any] = {"where": selected({**where}), "dry_run": bool(dry_run)}
        if due is not None:
            body["due"] = due_ms_of(due)
        if by is not None:
            body["by_ms"] = shift_ms_of(by)
        if window is not None:
            body["window_from"], body["window_to"] = map(due_ms_of, window)
        changes = {"set_priority": set_priority, "set_group": set_group}
        body |= {name: value for name, value in changes.items() if value is not None}
        return await self._change(f"{topic_path(topic)}/move", body, dry_run=dry_run)

    async def cancel_where(
        self, topic: str, *, dry_run: bool = False, **where: Unpack[Where]
    ) -> int:
        """Cancel all messages that a filter selects and that are not leased (rule 9).

        Args:
            topic: whose messages.
            dry_run: cancel nothing, count only.
            where: which ones, as for `peek`; none = everything.

        Returns:
            How many it were.

        Raises:
            Unavailable: the connection broke in the middle; ask again.
        """
        body = {"where": selected({**where}), "dry_run": bool(dry_run)}
        return await self._change(f"{topic_path(topic)}/cancel", body, dry_run=dry_run)

    async def _change(self, path: str, body: dict[str, Any], *, dry_run: bool) -> int:
        count = 0
        after: str | None = None
        while True:
            # Sent once: of a second one the count would leave out what the first one did.
            asked = body | _following(after)
            answer = await self._connection.ask("POST", path, asked, repeats=bool(dry_run))
            count += int(answer["count"])
            after = answer["next"]
            if after is None:
                return count

    async def purge(self, topic: str) -> int:
        """Cancel everything that is not leased; return how many. The topic stays."""
        return await self.cancel_where(topic)

    async def seek(
        self,
        topic: str,
        subscription: str = "",
        *,
        to: Literal["beginning", "end"] | datetime | int,
        **where: Unpack[Where],
    ) -> SeekResult:
        """Have a subscription get messages again, or pass over what waits (rule 21).

        What is in its order from that place on, is retained, and is done there, comes back, with
        the same ids; what waits for before that place is done. What is leased stays so. With a
        filter this is about the messages that it selects; all others stay as they are.

        Args:
            topic: whose messages; with `retention_ms`, or nothing comes back.
            subscription: which one; "" = the unnamed one.
            to: `beginning`, `end`, or a time: a datetime with a time zone, or UTC milliseconds. In
                order of `arrival` it is when messages came in, else when they are due.
            where: about which messages, as for `peek`, but without `state`; none = all.

        Returns:
            How many came back, and how many were passed over.

        Raises:
            Unavailable: the connection broke in the middle; ask again.
        """
        check_topic_name(topic)
        if subscription:
            check_subscription_name(subscription)
        place: str | int = to if isinstance(to, str) else due_ms_of(to, "to")
        if isinstance(place, str) and place not in ("beginning", "end"):
            raise BadRequest("to", "beginning, end, a datetime, or UTC milliseconds", to)
        path = f"{topic_path(subscription_name(topic, subscription))}/seek"
        body: dict[str, Any] = {"to": place}
        if where:
            body["where"] = selected({**where})
        sought = SeekResult(0, 0)
        while True:
            answer = await self._connection.ask("POST", path, body, repeats=False)
            replayed = sought.replayed + answer["replayed"]
            sought = SeekResult(replayed, sought.passed + answer["passed"])
            if answer["is_finished"]:
                return sought


def _following(after: str | int | None) -> dict[str, Any]:
    return {} if after is None else {"after": after}
