"""Dead letters with the asynchronous client: look, send back, throw away.

Room: client. The source of _sync/letters.py (scripts/generate_sync_client.py): change this one.
See: client/letters.py for what does not wait; docs/guides/failures.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dejaqueue.client import letters
from dejaqueue.client._aio import waiting
from dejaqueue.client.core import ClientCore
from dejaqueue.client.looking import Looks
from dejaqueue.client.results import Redriven


class AsyncLetters:
    """The part of a client that has to do with dead letters (rule 18)."""

    _core: ClientCore

    async def dead_letters(
        self,
        topic: str,
        *,
        reason: str | None = None,
        group: str | None = None,
        limit: int = 100,
    ) -> pa.Table:
        """Dead letters as they are, without leasing them.

        Args:
            topic: the dead-letter topic.
            reason: only those that died of this.
            group: only those of this group.
            limit: rows at most.

        Returns:
            A table of schema PEEK; headers say how each died (schema/dead_letters.py).
        """
        choice = letters.check_choice(topic, reason, group)
        return await waiting.run(letters.find, Looks(self._core), choice, limit)

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
        choice = letters.check_choice(topic, reason, group) | {"to": to}
        return await waiting.run(letters.move, self._core.transport, choice, ids, count)

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
        choice = letters.check_choice(topic, reason, group) | {"drop": True}
        answer = await waiting.run(letters.move, self._core.transport, choice, ids, count)
        return answer.moved
