"""The entries of a cron topic, for asynchronous programs.

Room: client. The source of _sync/cron.py (scripts/generate_sync_client.py): change this one.
Holds: what has returned is durable; all but `run` and `drop` do twice what they do once, and are
asked again while no broker answers.
See: schema/cron.py for CronEntry; docs/guides/cron.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

from dejaqueue.client._aio import waiting
from dejaqueue.client.core import ClientCore
from dejaqueue.client.sending.inputs import due_ms_of
from dejaqueue.errors import BadRequest
from dejaqueue.schema.cron import FIELDS, CronEntry

PAGE_ENTRIES = 1_000
CALL_ENTRIES = 2_000
"""Entries in one call: what a partition does in some hundredths of a second."""


class AsyncCron:
    """The entries of one cron topic; made by `AsyncClient.cron`.

    Example:
        >>> async def main(client):                                    # doctest: +SKIP
        ...     await client.create_topic("reports", kind="cron")
        ...     cron = client.cron("reports")
        ...     await cron.put("daily", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    """

    def __init__(self, core: ClientCore, topic: str) -> None:
        self._core = core
        self._topic = topic

    async def put(self, name: str, **fields: Any) -> CronEntry:
        """Make an entry, or change it to be so; it is put anew as a whole.

        Args:
            name: of the entry, 1 to 256 bytes.
            fields: of `CronEntry`, as `cron="0 9 * * *"`, `zone="Europe/Berlin"`, `payload=b"…"`;
                `start` and `end` may be given as datetime in place of `start_ms` and `end_ms`.

        Returns:
            The entry, with the time it fires next.

        Raises:
            BadRequest: a value is wrong, or the topic is not of kind cron.
        """
        for end in ("start", "end"):
            if end in fields:
                fields[f"{end}_ms"] = due_ms_of(fields.pop(end), end)
        for field in fields:
            if field not in FIELDS:
                raise BadRequest(f"entry.{field}", f"one of {', '.join(FIELDS)}", fields[field])
        [made] = await self.put_all([CronEntry(name, **fields)])
        return made

    async def put_all(self, entries: Iterable[CronEntry]) -> list[CronEntry]:
        """As `put`, of many. They travel by the two thousand, and each partition puts its part of
        those at once; after an error some may be made: put them again."""
        given = [entry.check().to_dict() for entry in entries]
        made: list[CronEntry] = []
        for at in range(0, len(given), CALL_ENTRIES):
            made += await self._entries("cron_put", entries=given[at : at + CALL_ENTRIES])
        return made

    async def get(self, name: str) -> CronEntry:
        """The entry of this name. Raises BadRequest if there is none."""
        [found] = await self._entries("cron_get", name=name)
        return found

    async def page(self, *, after: str = "", limit: int = PAGE_ENTRIES) -> list[CronEntry]:
        """Up to `limit` entries (10,000 at most) by name, those after the name `after`."""
        return await self._entries("cron_list", after=after, limit=limit)

    async def entries(self) -> AsyncIterator[CronEntry]:
        """Every entry by name, fetched page by page."""
        after = ""
        while page := await self.page(after=after):
            for entry in page:
                after = entry.name
                yield entry

    async def pause(self, *names: str) -> list[CronEntry]:
        """These entries do not fire until they are resumed. Raises BadRequest."""
        return await self._entries("cron_pause", names=list(names), paused=True)

    async def resume(self, *names: str) -> list[CronEntry]:
        """These entries go on from now; what passed meanwhile was not missed. Raises BadRequest."""
        return await self._entries("cron_pause", names=list(names), paused=False)

    async def drop(self, *names: str) -> int:
        """Delete entries; how many there were. Messages that they made stay if they are due.

        Raises:
            Unavailable: no broker, or the connection broke; it is asked once, as the second answer
                would not count what the first call deleted.
        """
        return int((await self._once("cron_drop", names=list(names)))["dropped"])

    async def run(self, name: str) -> int:
        """Fire an entry now, beside its schedule; the id of the message. Raises BadRequest;
        Unavailable, at once: asked again, it could fire twice."""
        return int((await self._once("cron_run", name=name))["id"])

    async def next_ms(
        self, name: str, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """The next firings of an entry, jitter included, UTC milliseconds.

        Args:
            name: of the entry.
            count: how many at most, up to 1,000.
            after: those after this instant; None = now.
        """
        after_ms = None if after is None else due_ms_of(after, "after")
        answer = await self._call("cron_next", name=name, count=count, after_ms=after_ms)
        return [int(firing_ms) for firing_ms in answer["firings"]]

    async def preview_ms(
        self, entry: CronEntry, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """As `next_ms`, of an entry that need not be there."""
        after_ms = None if after is None else due_ms_of(after, "after")
        body = {"entry": entry.check().to_dict(), "count": count, "after_ms": after_ms}
        answer = await waiting.repeat(self._core, "cron_next", body)
        return [int(firing_ms) for firing_ms in answer["firings"]]

    async def _entries(self, action: str, **body: Any) -> list[CronEntry]:
        answer = await self._call(action, **body)
        return [CronEntry.from_answer(values) for values in answer["entries"]]

    async def _call(self, action: str, **body: Any) -> dict[str, Any]:
        """A call that does twice what it does once."""
        return await waiting.repeat(self._core, action, {"topic": self._topic, **body})

    async def _once(self, action: str, **body: Any) -> dict[str, Any]:
        body["topic"] = self._topic
        return await waiting.result(self._core.transport.action(action, body))
