"""Objects with numbers: one behind the other, each stored on condition that there is none.

    <prefix>/00000000000000000017       what was stored as 17
    <prefix>/floor                      the number below which objects may be gone

Room: journal. Knows numbers and bytes.
Holds: an object is stored behind the last one or not at all, also by somebody who slept while
others went on and deleted what lay between: after it has stored, it looks whether what it stored
behind is there still. Objects are deleted from below, and the last one never, so that if it is
there, the place behind it was free. A listing is believed for what it has, not for what it lacks:
the next numbers are looked for.
See: store.py; docs/adr/0080-a-journal-in-a-bucket.md.
"""

from __future__ import annotations

import logging
from typing import Final

from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import DejaQError, Fenced, Unavailable

log = logging.getLogger(__name__)

DIGITS: Final = 20
LOOKS_MAX: Final = 1_000
"""Times the end is looked for, while others append and drop."""


class NumberedObjects:
    """The objects of one prefix. Any thread may read; one stores at a time.

    Args:
        prefix: within the bucket, without a slash at its end.
        place: what it is, for errors.
    """

    def __init__(self, bucket: Bucket, prefix: str, place: str) -> None:
        self._bucket, self._prefix, self._place = bucket, prefix, place
        self._known = 0
        """One that was there when it was looked for, or stored here; 0 = none is known."""

    def name(self, number: int) -> str:
        """The name of an object."""
        return f"{self._prefix}/{number:0{DIGITS}d}"

    def get(self, number: int) -> bytes | None:
        """What was stored as this number; None if it is not there. Raises Unavailable."""
        return self._bucket.get(self.name(number))

    # --- the end --------------------------------------------------------------------------------

    def last(self) -> int:
        """The last number, 0 if there never was one.

        Cost: two requests, where one is known that is the last or nearly; else a listing, too.

        Raises:
            Unavailable.
        """
        known = self._known
        for _ in range(LOOKS_MAX):
            if not known:
                known = max([self.floor(), *self.listed()])
            if self._bucket.has(self.name(known + 1)):
                # Many may have come: a listing says so at once, and if it is late the next look
                # finds one more.
                known = max([known + 1, *self.listed()])
            elif not known or self._bucket.has(self.name(known)):
                self._known = known
                return known
            else:
                known = 0  # dropped since: so may be what came behind it
        raise Unavailable(f"{self._place}: its end moved on while it was looked for")

    def listed(self) -> dict[int, int]:
        """Bytes of each object by its number, as a listing has them. Raises Unavailable."""
        found = {}
        for one in self._bucket.objects(f"{self._prefix}/"):
            text = one.name.rpartition("/")[2]
            if len(text) == DIGITS and text.isdigit():
                found[int(text)] = one.byte_count
        return found

    def floor(self) -> int:
        """The number below which objects may be gone; 0 = none was deleted. Raises Unavailable."""
        return int(self._bucket.get(self._floor_name) or 0)

    @property
    def _floor_name(self) -> str:
        return f"{self._prefix}/floor"

    # --- storing --------------------------------------------------------------------------------

    def append(self, after: int, contents: list[bytes]) -> None:
        """Store contents behind the object `after`.

        Raises:
            Fenced: `after` is not the last number; nothing was stored.
            Unavailable: the outcome is unknown, or a part is there.
        """
        if after != self._known and not self._stands(after):
            raise self._fenced(after)
        for place, content in enumerate(contents, 1):
            if self._put(after + place, content):
                continue
            if place > 1:
                raise Unavailable(f"{self._place}: another owner appended behind a part of this")
            raise self._fenced(after)
        if not self._stands(after):
            self._take_back(after, len(contents))
            raise self._fenced(after)
        self._known = after + len(contents)

    def _fenced(self, after: int) -> Fenced:
        return Fenced(f"{self._place}: the last record is not {after}")

    def _stands(self, after: int) -> bool:
        """Whether nothing behind this number can have been deleted."""
        if self.floor() > after:
            return False
        return after == 0 or self._bucket.has(self.name(after))

    def _put(self, number: int, content: bytes) -> bool:
        """True if this content has the number now."""
        if self._bucket.put_new(self.name(number), content):
            return True
        found = self.get(number)
        if found is None:  # refused for one that was on its way, and did not come
            raise Unavailable(f"{self._place}: record {number} was refused, and is not there")
        return found == content  # the store may have been asked twice

    def _take_back(self, after: int, count: int) -> None:
        """Delete what was stored where others had deleted: nobody reads it, it takes room alone."""
        try:
            self._bucket.delete([self.name(after + place) for place in range(1, count + 1)])
        except DejaQError as failure:
            log.warning("%s: a record that nobody reads stays: %s", self._place, failure)

    # --- room -----------------------------------------------------------------------------------

    def drop_before(self, number: int) -> None:
        """Delete what is below a number; the last one stays. Raises Unavailable."""
        last = self._known or self.last()
        end = min(number, last)
        floor = self.floor()
        if end <= max(floor, 1):
            return
        # Said before it is done: who finds nothing below it does not take that for the end.
        self._bucket.put(self._floor_name, b"%d" % end)
        gone = range(floor, end) if floor else sorted(one for one in self.listed() if one < end)
        self._bucket.delete([self.name(one) for one in gone])

    def byte_count(self) -> int:
        """Bytes of all that is there. Raises Unavailable."""
        return sum(self.listed().values())
