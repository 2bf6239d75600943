"""Changing messages by name with the asynchronous client: move and cancel, by id or by key.

Room: client. The source of _sync/changes.py (scripts/generate_sync_client.py): change this one.
See: inputs.py for the rows; browse.py for changes by filter; rule 9.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, overload

from dejaqueue_client._aio.connection import AsyncConnection
from dejaqueue_client.errors import BadRequest, Unavailable
from dejaqueue_client.filters import topic_path
from dejaqueue_client.inputs import (
    changed_rows,
    condition_column,
    ids_of,
    nack_values,
    named_rows,
    pieces,
)
from dejaqueue_client.model import RowStatus
from dejaqueue_client.results import Settled, statuses_in


class AsyncChanges:
    """The part of a client that changes messages which it names."""

    _connection: AsyncConnection

    @overload
    async def move(
        self,
        topic: str,
        *,
        id: int | None = None,
        key: str | None = None,
        due: object = None,
        delay: object = None,
        by: object = None,
        priority: object = None,
        group: object = None,
        if_due: object = None,
    ) -> RowStatus: ...

    @overload
    async def move(
        self,
        topic: str,
        *,
        ids: object = None,
        keys: object = None,
        due: object = None,
        delay: object = None,
        by: object = None,
        priority: object = None,
        group: object = None,
        if_due: object = None,
    ) -> Settled: ...

    async def move(
        self,
        topic: str,
        *,
        id: int | None = None,  # noqa: A002 - the field's name
        ids: object = None,
        key: str | None = None,
        keys: object = None,
        due: object = None,
        delay: object = None,
        by: object = None,
        priority: object = None,
        group: object = None,
        if_due: object = None,
    ) -> RowStatus | Settled:
        """Give messages that are not leased yet another due time, priority or group, one or a
        million (rule 9).

        What changes is one value for all messages, or one for each row; None = as it is.

        Args:
            topic: whose messages.
            id, ids, key, keys: exactly one of them: an id or key, or several of them.
            due: the new due time: a datetime with a time zone, or UTC milliseconds.
            delay: instead of `due`: from now, a timedelta or seconds.
            by: instead of `due`: so much later than each is due, a timedelta or seconds; negative =
                earlier. What would leave the years 1970 to 9999 stays at their end.
            priority: 0 is most urgent.
            group: "" = none.
            if_due: only if the message is due then, as whoever decided this has seen it (`get`,
                `peek`); a message that somebody moved meanwhile is CHANGED, and stays.

        Returns:
            Of one message its status: OK, NOT_FOUND, LEASED (too late), or CHANGED; of `ids` or
            `keys` a status per row.

        Raises:
            Unavailable: no broker in time; or the connection broke in the middle and the call,
                sent again, found rows gone: whether it was this call is unknown. A move by `by`
                without `if_due` is never sent again, as that could shift twice: if the connection
                breaks in the middle, its outcome is unknown.
        """
        rows = changed_rows(
            named_rows(id=id, ids=ids, key=key, keys=keys),
            due=due,
            delay=delay,
            by=by,
            priority=priority,
            group=group,
            if_due=if_due,
        )
        repeats = by is None or if_due is not None
        settled = await self._settled(topic, "move", rows, {}, repeats=repeats)
        return settled if ids is not None or keys is not None else settled.only()

    @overload
    async def cancel(
        self,
        topic: str,
        *,
        id: int | None = None,
        key: str | None = None,
        if_due: object = None,
    ) -> RowStatus: ...

    @overload
    async def cancel(
        self,
        topic: str,
        *,
        ids: object = None,
        keys: object = None,
        if_due: object = None,
    ) -> Settled: ...

    async def cancel(
        self,
        topic: str,
        *,
        id: int | None = None,  # noqa: A002 - the field's name
        ids: object = None,
        key: str | None = None,
        keys: object = None,
        if_due: object = None,
    ) -> RowStatus | Settled:
        """Cancel messages that are not leased yet, one or a million (rule 9).

        Args:
            topic: whose messages.
            id, ids, key, keys: exactly one of them, as for `move`.
            if_due: only if the message is due then, as for `move`.

        Returns:
            Of one message its status: OK, NOT_FOUND, LEASED (too late), or CHANGED; of `ids` or
            `keys` a status per row.

        Raises:
            Unavailable: as for `move`.
        """
        rows = named_rows(id=id, ids=ids, key=key, keys=keys)
        conditions = condition_column(len(rows), if_due)
        rows = [row | {n: column[at] for n, column in conditions.items()}
                for at, row in enumerate(rows)]  # fmt: skip
        settled = await self._settled(topic, "cancel", rows, {})
        return settled if ids is not None or keys is not None else settled.only()

    async def nack(
        self,
        topic: str,
        *,
        ids: object,
        attempts: object,
        delay: timedelta | float | None = None,
        reason: str = "",
        dead: bool = False,
    ) -> Settled:
        """Give back messages that another consumer holds, and that is known to be gone: who looks
        after it need not wait until its leases end.

        Args:
            topic: whose messages.
            ids, attempts: of each message: which deliveries are meant.
            delay, reason, dead: as for `AsyncMessage.nack`.

        Returns:
            A status per row: OK, or LEASE_LOST: that delivery was settled, or its lease is over.

        Raises:
            Unavailable: as for `move`.
        """
        named, counted = ids_of(ids), ids_of(attempts, "attempts")
        if len(named) != len(counted):
            raise BadRequest("attempts", f"one for each of the {len(named)} ids", len(counted))
        rows = [
            {"id": str(message_id), "attempt": attempt}
            for message_id, attempt in zip(named, counted, strict=True)
        ]
        return await self._settled(topic, "nack", rows, nack_values(delay, reason, dead))

    async def _settled(
        self,
        topic: str,
        op: str,
        rows: list[dict[str, Any]],
        more: dict[str, Any],
        *,
        repeats: bool = True,
    ) -> Settled:
        statuses: list[RowStatus] = []
        path = f"{topic_path(topic)}/{op}"
        for part in pieces(rows):
            body = {"messages": part, **more}
            answer, was_sent = await self._connection.ask_again("POST", path, body, repeats=repeats)
            found = statuses_in(answer["messages"])
            gone = {RowStatus.NOT_FOUND, RowStatus.LEASE_LOST}.intersection(found)
            if was_sent and gone:
                text = f"the connection broke, and the {op}, sent again, found rows gone"
                raise Unavailable(f"{text}: whether it was this call is unknown")
            statuses += found
        return Settled(statuses)
