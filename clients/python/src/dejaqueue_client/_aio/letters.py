"""Dead letters with the asynchronous client: look, send back, throw away.

Room: client. The source of _sync/letters.py (scripts/generate_sync_client.py): change this one.
See: docs/guides/failures.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dejaqueue_client import limits
from dejaqueue_client._aio.connection import AsyncConnection
from dejaqueue_client.errors import BadRequest
from dejaqueue_client.filters import topic_path, view_in
from dejaqueue_client.inputs import check_whole, ids_of, payload_in, pieces
from dejaqueue_client.message_view import MessageView
from dejaqueue_client.results import Redriven
from dejaqueue_client.topic_names import check_topic_name

PREFIX = "dejaq-dead-"
"""The prefix of all headers that tell of a death."""
PAGE_IDS = 2_000
"""Ids named in one call."""


class AsyncLetters:
    """The part of a client that has to do with dead letters (rule 18)."""

    _connection: AsyncConnection

    async def dead_letters(
        self,
        topic: str,
        *,
        reason: str | None = None,
        group: str | None = None,
        limit: int = 100,
    ) -> list[MessageView]:
        """Dead letters as they are, without leasing them.

        Args:
            topic: the dead-letter topic.
            reason: only those that died of this.
            group: only those of this group.
            limit: letters at most.

        Returns:
            Letters; headers that begin with `dejaq-dead-` say how each died.
        """
        path, choice = _path_of(topic), _choice(reason, group)
        check_whole("limit", limit, 0, limits.SEQUENCE_MAX)
        found: list[MessageView] = []
        after: str | None = None
        while len(found) < limit:
            rows_max = min(limit - len(found), limits.PEEK_ROWS_MAX)
            asked = choice | {"limit": rows_max} | ({} if after is None else {"after": after})
            page = await self._connection.ask("GET", path, parameters=asked)
            for row in page["messages"]:
                death = {f"{PREFIX}{name}": told for name, told in row.pop("death").items()}
                row["headers"] = row.get("headers", {}) | death
                found.append(view_in(row, payload_in(row)))
            after = page["next"]
            if after is None:
                break
        return found

    async def redrive(
        self,
        topic: str,
        *,
        to: str | None = None,
        reason: str | None = None,
        group: str | None = None,
        ids: Sequence[int] | None = None,
        count: int | None = None,
    ) -> Redriven:
        """Send dead letters back to where they came from, or elsewhere (rule 18).

        They are what they were before they died, due now, their attempts counted anew. Letters that
        are on their way stay so through a crash; none is lost, none arrives twice.

        Args:
            topic: the dead-letter topic.
            to: where to; None = each to the topic it came from.
            reason: only those that died of this.
            group: only those of this group.
            ids: only these letters.
            count: how many at most.

        Returns:
            How many are on their way, and how many were meant but stay.

        Raises:
            TopicUnknown: the dead-letter topic, or one that letters go to, does not exist.
        """
        choice = _choice(reason, group) | ({} if to is None else {"to": to})
        return await self._moved(f"{_path_of(topic)}/redrive", choice, ids, count)

    async def purge_letters(
        self,
        topic: str,
        *,
        reason: str | None = None,
        group: str | None = None,
        ids: Sequence[int] | None = None,
        count: int | None = None,
    ) -> int:
        """Delete dead letters; return how many there were.

        Arguments are those of `redrive`. Letters that a consumer has stay.
        """
        choice = _choice(reason, group)
        moved = await self._moved(f"{_path_of(topic)}/purge", choice, ids, count)
        return moved.moved

    async def _moved(
        self, path: str, choice: dict[str, Any], ids: Sequence[int] | None, count: int | None
    ) -> Redriven:
        if count is not None:
            check_whole("count", count, 0, limits.SEQUENCE_MAX)
        parts = [choice]
        if ids is not None:
            named = [str(one) for one in ids_of(ids)]
            parts = [choice | {"ids": part} for part in pieces(named, PAGE_IDS)]
        moved = left = 0
        for part in parts:
            after: str | None = None
            while count is None or moved < count:
                body = dict(part)
                if count is not None:
                    body["limit"] = count - moved
                if after is not None:
                    body["after"] = after
                # Sent once: of a second one the count would leave out what the first one did.
                answer = await self._connection.ask("POST", path, body, repeats=False)
                moved, left = moved + int(answer["moved"]), left + int(answer["left"])
                after = answer["next"]
                if after is None:
                    break
        return Redriven(moved, left)


def _path_of(topic: str) -> str:
    return f"{topic_path(check_topic_name(topic))}/dead-letters"


def _choice(reason: str | None, group: str | None) -> dict[str, Any]:
    """The fields of a request about these letters. Raises BadRequest."""
    choice = {"reason": reason, "group": group}
    for name, value in choice.items():
        if value is not None and not isinstance(value, str):
            raise BadRequest(name, "a text", value)
    return {name: value for name, value in choice.items() if value is not None}
