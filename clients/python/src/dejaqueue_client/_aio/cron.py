"""The entries of a cron topic, for asynchronous programs.

Room: client. The source of _sync/cron.py (scripts/generate_sync_client.py): change this one.
Holds: what has returned is durable; a put that is sent again changes nothing.
See: cron_entry.py for CronEntry; docs/guides/cron.md.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from dejaqueue_client._aio.connection import AsyncConnection
from dejaqueue_client.cron_entry import FIELDS, CronEntry
from dejaqueue_client.errors import BadRequest
from dejaqueue_client.filters import topic_path
from dejaqueue_client.inputs import due_ms_of, payload_in, payload_values

PAGE_ENTRIES = 1_000
CALL_ENTRIES = 2_000
"""Entries in one call: what a partition does in some hundredths of a second."""


class AsyncCron:
    """The entries of one cron topic; made by `AsyncClient.cron`. An entry whose name has a `/` can
    be put and listed only.

    Example:
        >>> async def main(client):                                    # doctest: +SKIP
        ...     await client.create_topic("reports", kind="cron")
        ...     cron = client.cron("reports")
        ...     await cron.put("daily", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    """

    def __init__(self, connection: AsyncConnection, topic: str) -> None:
        self._connection = connection
        self._path = f"{topic_path(topic)}/cron"

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
        given = [_given(entry.check()) for entry in entries]
        made: list[CronEntry] = []
        for at in range(0, len(given), CALL_ENTRIES):
            body = {"entries": given[at : at + CALL_ENTRIES]}
            answer = await self._connection.ask("POST", self._path, body)
            made += map(_told, answer["entries"])
        return made

    async def get(self, name: str) -> CronEntry:
        """The entry of this name. Raises BadRequest if there is none."""
        return _told(await self._connection.ask("GET", self._entry(name)))

    async def page(self, *, after: str = "", limit: int = PAGE_ENTRIES) -> list[CronEntry]:
        """Up to `limit` entries (10,000 at most) by name, those after the name `after`."""
        asked = {"limit": limit} | ({"after": after} if after else {})
        answer = await self._connection.ask("GET", self._path, parameters=asked)
        return list(map(_told, answer["entries"]))

    async def entries(self) -> AsyncIterator[CronEntry]:
        """Every entry by name, fetched page by page."""
        after = ""
        while page := await self.page(after=after):
            for entry in page:
                after = entry.name
                yield entry

    async def pause(self, *names: str) -> list[CronEntry]:
        """These entries do not fire until they are resumed. Raises BadRequest."""
        return await self._each("pause", names)

    async def resume(self, *names: str) -> list[CronEntry]:
        """These entries go on from now; what passed meanwhile was not missed. Raises BadRequest."""
        return await self._each("resume", names)

    async def _each(self, change: str, names: Iterable[str]) -> list[CronEntry]:
        changed: list[CronEntry] = []
        for name in names:
            changed.append(  # noqa: PERF401 - one after the other
                _told(await self._connection.ask("POST", f"{self._entry(name)}/{change}"))
            )
        return changed

    async def drop(self, *names: str) -> int:
        """Delete entries; how many there were. Messages that they made stay if they are due."""
        count = 0
        for name in names:
            try:
                await self._connection.ask("DELETE", self._entry(name), repeats=False)
            except BadRequest as wrong:
                if type(wrong) is not BadRequest or wrong.value != 404:
                    raise
                continue  # there is none of this name
            count += 1
        return count

    async def run(self, name: str) -> int:
        """Fire an entry now, beside its schedule; the id of the message. Raises BadRequest."""
        answer = await self._connection.ask("POST", f"{self._entry(name)}/run", repeats=False)
        return int(answer["id"])

    async def next_ms(
        self, name: str, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """The next firings of an entry, jitter included, UTC milliseconds.

        Args:
            name: of the entry.
            count: how many at most, up to 1,000.
            after: those after this instant; None = now.
        """
        path = f"{self._entry(name)}/firings"
        answer = await self._connection.ask("GET", path, parameters=_firings(count, after))
        return [int(firing_ms) for firing_ms in answer["firings"]]

    async def preview_ms(
        self, entry: CronEntry, count: int = 10, *, after: datetime | int | None = None
    ) -> list[int]:
        """As `next_ms`, of an entry that need not be there."""
        body = _given(entry.check()) | _firings(count, after)
        del body["name"]
        answer = await self._connection.ask("POST", "/v1/cron/preview", body)
        return [int(firing_ms) for firing_ms in answer["firings"]]

    def _entry(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


def _firings(count: int, after: datetime | int | None) -> dict[str, Any]:
    return {"count": count} | ({} if after is None else {"after_ms": due_ms_of(after, "after")})


def _given(entry: CronEntry) -> dict[str, Any]:
    """An entry as a request has it."""
    ours = ("payload", "next_ms", "last_id")
    values = {name: value for name, value in entry.to_dict().items() if name not in ours}
    for left_out in ("cron", "every_ms"):
        if not values[left_out]:
            del values[left_out]
    return values | payload_values(entry.payload)


def _told(values: dict[str, Any]) -> CronEntry:
    """The entry of an answer."""
    payload = base64.b64encode(payload_in(values) or b"").decode("ascii")
    last_id = values.get("last_id")
    more = {"payload": payload, "last_id": -1 if last_id is None else int(last_id)}
    return CronEntry.from_answer({**values, **more})
