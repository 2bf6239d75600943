"""The records of a partition, which lie in the logs of those lives that owned it, one by one.

    owners/<topic>/<partition>/<number>   JSON: id of the ownership, the life, its first record

Whoever appends and is not the owner takes the partition over: it puts into the owner's log that its
ownership has ended, reads what counts up to there, and is the next owner when the next number here
is its own. An append needs nothing of this: it is one container in the log of its life.

Room: journal.
Holds: an ownership begins behind the last record of the one before, which has ended for good by
then; ownerships are kept as long as a record of theirs is.
See: lives.py, life_log.py; numbered_objects.py, which keeps the owners apart; ADR 0080.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence

from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.bucket.life_log import LifeLog, ReadSeveral
from dejaqueue.journal.records.bucket.lives import Lives, Waiting
from dejaqueue.journal.records.bucket.numbered_objects import NumberedObjects
from dejaqueue.journal.records.bucket.ownership import Ownership
from dejaqueue.journal.records.interface import Bytes, RecordLog


class OwnershipLog(RecordLog):
    """The records of one partition. Made by its store."""

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        name: str,
        lives: Lives,
        read_several: ReadSeveral,
    ) -> None:
        self._bucket, self._name, self._lives = bucket, name, lives
        self._read_several = read_several
        self._numbers = NumberedObjects(bucket, prefix, name)
        self._guard = threading.Lock()
        self._known: dict[int, Ownership] = {}
        self._own: Ownership | None = None
        self._closed = False

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._name}: the log is closed")

    # --- owners ---------------------------------------------------------------------------------

    def _ownership(self, number: int) -> Ownership | None:
        content = self._numbers.get(number)
        if content is None:
            return None
        return Ownership.decode(number, self._numbers.name(number), content)

    def _newest(self) -> Ownership | None:
        """The newest ownership; what is known of those before is brought up to it."""
        number = self._numbers.last()
        found = self._ownership(number) if number else None
        with self._guard:
            known = self._known.get(number)
            if found is None or (known is not None and known.id != found.id):
                self._known.clear()  # dropped, and made again
            if found is not None:
                self._known[number] = found
            return found

    def _log_of(self, ownership: Ownership) -> LifeLog:
        return self._lives.log_of(ownership.life)

    def _last_of(self, ownership: Ownership) -> int:
        """The last record of an ownership that is the newest."""
        life = self._log_of(ownership)
        if life is self._lives.own:
            self._lives.ask_again()
        else:
            life.refresh()
        return life.last_of(ownership.id, ownership.first)

    def last(self) -> int:
        """See RecordLog.last."""
        self._check_usable()
        newest = self._newest()
        return 0 if newest is None else self._last_of(newest)

    # --- appending ------------------------------------------------------------------------------

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """See RecordLog.append. All of them go into one container."""
        self._check_usable()
        own = self._own
        if own is not None and own.life != self._lives.life:
            own = None  # somebody ended that life, and this is another one
        if own is None or self._lives.own.last_of(own.id, own.first) != after:
            own = self._own = self._taken_over(after)
        contents = [b"".join(pieces) for pieces in records]
        try:
            self._lives.append(Waiting(self._name, own, after, contents))
        except Fenced:
            self._own = None
            raise

    def _taken_over(self, after: int) -> Ownership:
        """The ownership of this life, behind the record `after`.

        Raises:
            Fenced: that is not the last record, or another one was quicker. Unavailable.
        """
        newest = self._newest()
        last = 0 if newest is None else self._last_of(newest)
        if last != after:
            raise Fenced(f"{self._name}: the last record is not {after}")
        if newest is not None:
            is_own = newest.life == self._lives.life
            if is_own and not self._lives.own.is_taken(newest.id):
                return newest
            if not is_own:
                last = self._end(newest)
                if last != after:
                    raise Fenced(f"{self._name}: the last record is not {after}")
        number = 0 if newest is None else newest.number
        own = Ownership(number + 1, secrets.token_hex(12), self._lives.life, after + 1)
        self._numbers.append(number, [own.encode()])
        with self._guard:
            self._known[own.number] = own
        self._lives.begun(own.id, lambda: self._is_kept(own))
        return own

    def _end(self, ownership: Ownership) -> int:
        """Have no record count any more that its owner appends from now on; the last that does."""
        life = self._log_of(ownership)
        life.take([ownership.id], self._lives.life)
        return life.last_of(ownership.id, ownership.first)

    def _is_kept(self, ownership: Ownership) -> bool:
        return self._ownership(ownership.number) == ownership

    def end(self) -> None:
        """Have nobody append to this any more who has it open. Raises Unavailable."""
        newest = self._newest()
        if newest is not None:
            self._end(newest)

    # --- reading --------------------------------------------------------------------------------

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read. Several are asked for at once."""
        self._check_usable()
        owners = self._owners(max(first, 1), end)
        for place, one in enumerate(owners):
            stop = min(end, owners[place + 1].first if place + 1 < len(owners) else end)
            yield from self._read_of(one, max(first, one.first), stop)

    def _owners(self, first: int, end: int) -> list[Ownership]:
        """The ownerships that have records of this range, the oldest first."""
        one = self._known_until(end)
        if one is None:
            one = self._newest()
            if one is None:
                return []
            self._last_of(one)  # what it has by now is known then
        found = [one]
        while found[-1].first > first and found[-1].number > 1:
            number = found[-1].number - 1
            before = self._known.get(number) or self._ownership(number)
            if before is None:  # its records are not needed any more
                break
            with self._guard:
                self._known[number] = before
            self._know(before, found[-1].first)
            found.append(before)
        return found[::-1]

    def _know(self, ownership: Ownership, end: int) -> None:
        """Have where its records are, up to the one where the next ownership begins."""
        life = self._log_of(ownership)
        if life.last_of(ownership.id, ownership.first) < end - 1:
            life.refresh()

    def _known_until(self, end: int) -> Ownership | None:
        """The newest ownership that is known, if all records before `end` are known to be in it,
        or in those before."""
        with self._guard:
            newest = self._known[max(self._known)] if self._known else None
        if newest is None:
            return None
        last = self._log_of(newest).last_of(newest.id, newest.first)
        return newest if end <= last + 1 else None

    def _read_of(self, ownership: Ownership, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        life = self._log_of(ownership)
        kept = life.records.get(ownership.id)
        if kept is None:
            return
        first, end = max(first, kept.first), min(end, kept.end)

        def get(number: int) -> bytes | None:
            where = life.where(ownership.id, number)
            if where is None:
                return None
            if where.byte_count == 0:
                return b""
            name = life.name(where.container)
            return self._bucket.get_range(name, where.offset, where.byte_count)

        yield from self._read_several(get, range(first, end))

    # --- room -----------------------------------------------------------------------------------

    def drop_before(self, number: int) -> None:
        """See RecordLog.drop_before: containers are deleted when nothing in them is needed."""
        self._check_usable()
        own = self._own or self._newest()
        if own is None or own.life != self._lives.life:
            return  # whoever is the owner drops
        last = self._lives.own.last_of(own.id, own.first)
        number = min(number, last + 1)
        self._lives.own.drop_before(own.id, number)
        if number >= own.first and own.number > 1:
            self._numbers.drop_before(own.number)

    def byte_count(self) -> int:
        """See RecordLog.byte_count."""
        self._check_usable()
        newest = self._newest()
        if newest is None:
            return 0
        last = self._last_of(newest)
        total = 0
        for one in self._owners(1, last + 1):
            records = self._log_of(one).records.get(one.id)
            total += sum(records.byte_counts) if records is not None else 0
        return total

    def close(self) -> None:
        """See RecordLog.close; the bucket is the store's."""
        self._closed = True
