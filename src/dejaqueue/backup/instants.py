"""Any instant between backups: what one has, and the entries that later ones have behind it.

Room: backup. Reads manifests; a piece is read where it is restored.
Holds: what is put together has each position once; an instant is covered if for every partition
there are entries, whole, from the backup before it to the one behind it. A partition's entries are
in the order of their times, and what caused an entry is of no later one, since one broker's clock
gave them: so an instant is a cut like a backup's.
See: manifest.py; broker/backup/restoring.py, which replays up to the instant.
"""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import ENTRIES, Manifest, PartitionCopy
from dejaqueue.backup.strands import StrandIndex, pieces_of, strands_of
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from dejaqueue.times import show_instant


def chosen(
    archive: Archive, backup: str = "", instant_ms: int | None = None
) -> tuple[Manifest, bool]:
    """What to restore from.

    Args:
        backup: this one, as it is; "" = the newest, and what is behind it.
        instant_ms: as of then; None = as late as can be.

    Returns:
        The backup, and whether with the log pieces behind it. Of several brokers these give the
        last cut that is not later than the instant.

    Raises:
        BadRequest: there is no such backup; others as `manifest_at`.
    """
    if backup:
        return archive.manifest(backup), False
    newest = archive.newest()
    if newest is None:
        raise BadRequest("url", "a place with backups", archive.bucket.url)
    if instant_ms is None or (newest.chain and instant_ms > newest.cut_ms):
        return newest, bool(newest.chain)
    base, following = _around(archive, newest, instant_ms)
    is_between = base.cut_ms != instant_ms
    if is_between and _clocks(base, following) > 1 and _has_cuts(archive, base, instant_ms):
        return base, True
    return _between(base, following, instant_ms), False


def _clocks(base: Manifest, following: Manifest) -> int:
    """How many machines' clocks gave the entries between two backups their times."""
    return max(base.clocks, following.clocks)


def _around(archive: Archive, newest: Manifest, instant_ms: int) -> tuple[Manifest, Manifest]:
    """The backups before and behind an instant, of the newest one's store; one of that very instant
    is both."""
    known = [archive.manifest(one) for one in archive.ids()]
    line = sorted((one for one in known if one.store == newest.store), key=lambda one: one.cut_ms)
    before = [one for one in line if one.cut_ms <= instant_ms]
    behind = [one for one in line if one.cut_ms >= instant_ms]
    if not before or not behind:
        reach = f"from {show_instant(line[0].cut_ms)} to {show_instant(line[-1].cut_ms)}"
        raise BadRequest("to", reach, show_instant(instant_ms))
    return before[-1], behind[0]


def _has_cuts(archive: Archive, base: Manifest, instant_ms: int) -> bool:
    """Whether what was archived behind a backup of several brokers is all there still, up to a cut
    that is not before the instant. Pieces go when two later backups have what is in them."""
    if not base.in_strands:
        return False
    index = StrandIndex(base)
    try:
        for _, piece in pieces_of(strands_of(archive.bucket, base.chain)):
            index.add(piece)
        last = index.last_cut(index.covered())
    except JournalDamaged:
        return False
    return last is not None and last.at_ms >= instant_ms and index.is_from_beginning


def manifest_at(archive: Archive, instant_ms: int, store: str = "") -> Manifest:
    """What an instant is restored from: a backup, and the entries that the next one has.

    Args:
        instant_ms: UTC milliseconds.
        store: of which store of journals; "" = that of the newest backup.

    Returns:
        A manifest that is not in the archive; replayed up to the instant it gives the state of
        then. It has the topics that were there at the later backup.

    Raises:
        BadRequest: it is before the first backup or behind the last. Refused: of some partition
            entries are missing in between; names it; or they are of a cluster of several machines.
            JournalDamaged, Unavailable.
    """
    newest = archive.newest(store)
    if newest is None:
        raise BadRequest("url", "a place with backups", archive.bucket.url)
    return _between(*_around(archive, newest, instant_ms), instant_ms)


def _between(base: Manifest, following: Manifest, instant_ms: int) -> Manifest:
    """As `manifest_at`, of the backups before and behind the instant."""
    if base.cut_ms == instant_ms:
        return base
    if _clocks(base, following) > 1:
        raise Refused(
            f"backups {base.id} and {following.id} are of a cluster: clocks of several machines "
            "gave its entries their times, so no instant between them is one moment, and nothing "
            "is archived that says one; restore one of the two, as of "
            f"{show_instant(base.cut_ms)} or {show_instant(following.cut_ms)}"
        )
    copies = {(one.topic, one.topic_number, one.partition): one for one in base.partitions}
    for copy in following.partitions:
        place = copy.topic, copy.topic_number, copy.partition
        copies[place] = _joined(copies.get(place), copy, base, following)
    return replace(
        following,
        id=f"{base.id}..{following.id}",
        partitions=tuple(copies.values()),
        data_keys=base.data_keys | following.data_keys,
    )


def _joined(
    before: PartitionCopy | None, copy: PartitionCopy, base: Manifest, following: Manifest
) -> PartitionCopy:
    """A partition at one backup, and its entries up to the next."""
    position = 0 if before is None else before.position
    entries = [one for one in copy.stretches if one.last > position]
    at = position
    for one in entries:
        if one.kind != ENTRIES or one.after != at:
            raise Refused(
                f"{copy.place} has no entries between backups {base.id} and {following.id}: the "
                "journal had given them back; restore one of the two"
            )
        at = one.last
    if before is None:
        return replace(copy, snapshot=None, stretches=tuple(entries))
    return replace(before, position=copy.position, stretches=(*before.stretches, *entries))
