"""Reading what is stored of rows, for whoever is outside: as texts, and past what is damaged.

Room: broker. On the threads that send or answer, not on the workers.
Holds: whatever bytes are stored, the texts that leave are UTF-8 (rule 15); who is told of damage is
told the topic, the partition and the entry, and the log the file.
See: gathering.py, calls/scan.py, letters/parcel.py, which read so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.clock import SteadyClock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, EncryptionKeyMissing, JournalDamaged
from dejaqueue.journal.interface import TEXT_COLUMNS
from dejaqueue.log_rate import LogRate
from dejaqueue.schema import texts

Part = TypeVar("Part")

DAMAGE: Final = (JournalDamaged, EncryptionKeyMissing)
"""What is wrong with some rows, and not with those beside them."""

log = logging.getLogger("dejaqueue.broker")

_damaged, _clock = LogRate(1, 60), SteadyClock()
"""What is damaged is read again and again; its file is named once a minute."""


class RowReader(Protocol):
    """A journal, or what its worker reads by.

    Attributes:
        place: topic and partition, for people.
    """

    @property
    def place(self) -> str: ...  # noqa: D102

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        ...


def read_stored(
    journal: RowReader, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS
) -> pa.RecordBatch:
    """Stored columns of these rows, for whoever is outside.

    A version before this let texts in that are not UTF-8. They have U+FFFD where they are no text:
    as they are, everybody who reads the rows beside them would fail on them, for ever.

    Raises:
        JournalDamaged: who called is to hear which entries it is, and the log of the file.
    """
    try:
        stored = journal.read(locators, columns)
    except JournalDamaged as damage:
        _locate(damage, journal.place, locators)
        raise
    clean = all(
        name == "payload" or texts.is_clean(column)
        for name, column in zip(columns, stored.columns, strict=True)
    )
    return stored if clean else texts.mended_batch(stored)


def _locate(damage: JournalDamaged, place: str, locators: Int64s) -> None:
    first, last = (int(end) >> limits.ROW_BITS for end in (locators.min(), locators.max()))
    entries = f"entry {first}" if first == last else f"one of the entries {first} to {last}"
    if place:
        damage.found_at(f"{place}, {entries}")
    if first == last and _damaged.admit(str(damage), _clock.now_us() / 1e6) is not None:
        log.error("%s, %s: %s", place, entries, damage)


def read_in_parts(
    entries: Int64s,
    read: Callable[[slice], Part],
    lost: Callable[[slice, DejaQError], Part],
) -> list[Part]:
    """Rows as a whole or, where some are damaged, in parts, in their order: damaged rows must not
    hold up those beside them.

    Args:
        entries: in which entry each row lies. What is damaged is an entry as a whole, so one is
            not divided: for each of its rows all of it would be checked again.
        read: these rows; where it fails because of damage, it is tried with halves of them.
        lost: what stands for rows of a damaged entry, and why; it may raise.

    Raises:
        DejaQError: what `read` raised, but for damage.
    """

    def parts(first: int, end: int) -> list[Part]:
        try:
            return [read(slice(first, end))]
        except DAMAGE as error:
            damage: DejaQError = error
        there = entries[first:end]
        if (there == there[:1]).all():
            return [lost(slice(first, end), damage)]
        middle = (first + end) // 2
        return [*parts(first, middle), *parts(middle, end)]

    return parts(0, len(entries))


class NoRows:
    """Reads nothing of any row."""

    place = ""

    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """See Journal.read."""
        kinds = [pa.binary() if name == "payload" else pa.utf8() for name in columns]
        arrays = [pa.nulls(len(locators), kind) for kind in kinds]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))
