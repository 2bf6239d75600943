"""The log of facts in a bucket: objects with numbers, each stored on condition that there is none.

    facts/00000000000000000000      where to begin: the number of a base, 0 = at the first entry
    facts/00000000000000000001      an entry: changes
    facts/00000000000000000032      a base: an entry that has all facts after it as well

    DQF1 <id, 24 digits> <checksum of the rest, 16 digits>\\n
    {"changes": [["put", key, value, ttl], …], "facts": {key: [revision, ttl, value], …}}

Whoever stores the next entry has compared with all that is before it: if somebody was quicker, the
place is taken. So a number is the revision, the comparison and the order of what others hear.

Entries below a base are deleted, some time after it was stored, by whoever stored it: first where
to begin is stored, then bases are deleted, the oldest first, then the rest. A place that was
deleted is free again for somebody who slept meanwhile. So who has stored something looks whether
the base before it is the one that it knows: if it is, nothing behind it has been deleted.

Room: coordinator. Knows changes, a bucket and elapsed time; not what facts mean. One thread.
Holds: a change is stored behind what is known here, or not at all; that goes by no clock. What is
read, and renewals, are believed without that look for PROOF_S after the last one, since nothing is
deleted before KEPT_S. A listing is believed for what it has, and is needed only where a base has
just gone.
See: fact_table.py; docs/adr/0086-a-coordinator-in-the-bucket.md.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import xxhash

from dejaqueue.clock import Clock
from dejaqueue.connections.bucket import Bucket
from dejaqueue.coordinator.fact_table import DELETE, RENEW, Change, FactTable, revision_of
from dejaqueue.errors import DejaQError, JournalDamaged, Refused, Unavailable

PREFIX: Final = "facts/"
BASE_EVERY: Final = 32
"""Every so many entries one is a base: who comes reads no more than these one by one."""
KEPT_S, PROOF_S = 60, 5
READ_AT_ONCE: Final = 4
"""Once something has come there may be more: one after the other they would take longer to read
than to be stored."""
LOOKS_MAX: Final = 100
_DIGITS: Final = 20
_MAGIC: Final = b"DQF1"
_HEAD_BYTES: Final = len(_MAGIC) + 1 + 24 + 1 + 16 + 1

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """What came with an entry.

    Attributes:
        changed: keys of facts that are others now; None = anything may be.
        renewed: keys of facts whose ttl begins anew.
    """

    changed: set[str] | None
    renewed: set[str]


def encode(facts: dict[str, Any]) -> bytes:
    """An object with its head."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    named = secrets.token_hex(12).encode()
    return b"%s %s %s\n" % (_MAGIC, named, xxhash.xxh3_64_hexdigest(text).encode()) + text


def decode(name: str, content: bytes) -> dict[str, Any]:
    """What is in an object. Raises JournalDamaged: it is not what was written."""
    head, text = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
    if not head.startswith(_MAGIC) or head.split()[-1:] != [
        xxhash.xxh3_64_hexdigest(text).encode()
    ]:
        raise JournalDamaged(f"{name} is not what was written")
    facts: dict[str, Any] = json.loads(text)
    return facts


class FactLog:
    """What is known of the log, and its end.

    Args:
        bucket: which does not store a new object twice by itself.
        clock: elapsed time.

    Attributes:
        table: the facts after all that is known.
        requests: how many were sent, by the verb.
        pool: threads that ask for several things at once.
        has_failed: one got no answer, whether it was repeated or not; reset by who asks.

    Raises:
        Refused: the store does not honour the condition. Unavailable.
    """

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket, self._clock = bucket, clock
        self.table = FactTable()
        self.requests = {"put": 0, "get": 0, "list": 0, "delete": 0}
        self.has_failed = False
        self._next = 0
        """Number of the entry that comes next; 0 = nothing is known."""
        self._base, self._base_head = 0, b""
        self._proved_us = 0
        self._taken: dict[int, bytes] = {}
        """Heads of what was read last, by number."""
        self.pool = ThreadPoolExecutor(READ_AT_ONCE, "dejaq-facts-read")
        self._to_clean: list[tuple[int, int]] = []
        """(when, base): entries below this base are to be deleted."""
        self._check()

    def _check(self) -> None:
        """Begin a log if there is none, and see that nobody can begin it a second time."""
        if self._put_new(0, encode({"base": 0})) and self._put_new(0, encode({"base": 0})):
            raise Refused(
                f"{self._bucket.url} stores an object where there is one, though it was asked not "
                "to (If-None-Match): two brokers could both have made a change"
            )

    @staticmethod
    def name(number: int) -> str:
        """The name of an entry."""
        return f"{PREFIX}{number:0{_DIGITS}d}"

    def _put_new(self, number: int, content: bytes) -> bool:
        self.requests["put"] += 1
        return self._bucket.put_new(self.name(number), content)

    def _get(self, number: int) -> bytes | None:
        self.requests["get"] += 1
        try:
            return self._bucket.get(self.name(number))
        except Unavailable:  # a connection that had been idle, mostly
            self.has_failed = True
            self.requests["get"] += 1
            return self._bucket.get(self.name(number))

    # --- reading --------------------------------------------------------------------------------

    def read_on(self) -> list[Entry]:
        """What came since; afterwards all is known that was stored before this was called.

        Raises:
            JournalDamaged, Unavailable.

        Cost: a request, and where something came READ_AT_ONCE at a time; one more every PROOF_S.
        """
        return self._read_on(1)

    def _read_on(self, at_once: int) -> list[Entry]:
        came: list[Entry] = []
        for _ in range(LOOKS_MAX):
            if not self._next:
                self._taken.clear()
                came.append(self._begin())
            numbers = range(self._next, self._next + at_once)
            contents = list(
                self.pool.map(self._get, numbers) if at_once > 1 else map(self._get, numbers)
            )
            if not self._is_proved():
                self._next = 0
                continue
            if at_once == 1:
                self._taken.clear()
            for content in contents:
                if content is None:
                    return came
                came.append(self._take(content))
            at_once = READ_AT_ONCE
        return came  # so many come that there is no end to them: this far, for now

    def _is_proved(self) -> bool:
        """Whether what was just read behind the base is no place that had been deleted."""
        if self._clock.now_us() - self._proved_us <= PROOF_S * 1_000_000:
            return True
        return self._prove()

    def _prove(self) -> bool:
        """Whether the base before the next entry is the one that is known. Raises Unavailable."""
        began_us = self._clock.now_us()
        self.requests["get"] += 1
        if self._bucket.get_range(self.name(self._base), 0, _HEAD_BYTES) != self._base_head:
            return False
        self._proved_us = began_us
        return True

    def _begin(self) -> Entry:
        """Read all facts anew, as of a base."""
        number = -1
        for _ in range(LOOKS_MAX):
            began_us = self._clock.now_us()
            content = self._get(0)
            if content is None:
                raise Unavailable(f"{self._bucket.url}/{self.name(0)} is gone")
            number = max(number, int(decode(self.name(0), content)["base"]))
            if number:
                content = self._get(number)
            if content is not None:
                facts = decode(self.name(number), content)
                self.table = FactTable.of(facts.get("facts", {}))
                self._base, self._base_head = number, content[:_HEAD_BYTES]
                self._next, self._proved_us = number + 1, began_us
                return Entry(None, self.table.vanishing())
            # Deleted since, or somebody slept and said where to begin when that was long gone.
            self.requests["list"] += 1
            listed = [int(one.name.removeprefix(PREFIX)) for one in self._bucket.objects(PREFIX)]
            number = max([one for one in listed if one % BASE_EVERY == 0], default=0)
        raise Unavailable(f"{self._bucket.url}: its facts move on while they are read")

    def _take(self, content: bytes) -> Entry:
        """Take in the entry that comes next."""
        number = self._next
        facts = decode(self.name(number), content)
        changes = [Change.of(one) for one in facts["changes"]]
        changed = {
            change.key
            for index, change in enumerate(changes)
            if self.table.apply(change, revision_of(number, index))
        }
        self._next = number + 1
        self._taken[number] = content[:_HEAD_BYTES]
        if number % BASE_EVERY == 0:
            self._base, self._base_head = number, content[:_HEAD_BYTES]
        kept = {change.key for change in changes if change.kind != DELETE}
        return Entry(changed, kept)

    # --- storing --------------------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """Of the entry that comes next, as far as is known; 0 = nothing is."""
        return self._next

    def append(self, changes: Sequence[Change]) -> tuple[bool, list[Entry]]:
        """Store changes behind all that is known here.

        Returns:
            Whether they are stored, and what came: if they are not, all that others stored before
            this was called, and what took the place.

        Raises:
            ResourceExhausted: there is no room. JournalDamaged.
            Unavailable: whether they are stored is not known.

        Cost: two requests, one after the other; one for renewals alone.
        """
        number = self._next
        facts: dict[str, Any] = {"changes": [change.facts() for change in changes]}
        if number % BASE_EVERY == 0:
            after = self.table.copy()
            for index, change in enumerate(changes):
                after.apply(change, revision_of(number, index))
            facts["facts"] = after.facts()
        content = encode(facts)
        if not self._put_new(number, content):
            self._taken.clear()
            came = self._read_on(READ_AT_ONCE)
            # The store may have been asked twice.
            return self._taken.get(number) == content[:_HEAD_BYTES], came
        # A renewal that comes too late is noticed by its broker; what stays must be there for sure.
        is_lasting = any(change.kind != RENEW for change in changes)
        if not (self._prove() if is_lasting else self._is_proved()):
            self._next = 0
            self._delete([number])  # where there was something long ago: nobody reads it
            return False, self._read_on(READ_AT_ONCE)
        came = [self._take(content)]
        if number % BASE_EVERY == 0:
            self._to_clean.append((self._clock.now_us() + KEPT_S * 1_000_000, number))
        return True, came

    def close(self) -> None:
        """End the threads that read; twice is fine."""
        self.pool.shutdown(wait=True)

    # --- room -----------------------------------------------------------------------------------

    def clean(self) -> None:
        """Delete entries that nobody needs, if it is time. Raises Unavailable.

        What is left over then is deleted by who stores the next base.
        """
        now_us = self._clock.now_us()
        due = [base for at_us, base in self._to_clean if at_us <= now_us]
        if not due:
            return
        self._to_clean = [one for one in self._to_clean if one[1] > due[-1]]
        self.requests["put"] += 1
        self._bucket.put(self.name(0), encode({"base": due[-1]}))
        self.requests["list"] += 1
        listed = [int(one.name.removeprefix(PREFIX)) for one in self._bucket.objects(PREFIX)]
        old = sorted(number for number in listed if 0 < number < due[-1])
        for base in [number for number in old if number % BASE_EVERY == 0]:
            self._delete([base])
        self._delete([number for number in old if number % BASE_EVERY])

    def _delete(self, numbers: list[int]) -> None:
        if numbers:
            self.requests["delete"] += 1
            try:
                self._bucket.delete([self.name(number) for number in numbers])
            except DejaQError as failure:
                log.warning("entries that nobody needs stay for now: %s", failure)
                raise
