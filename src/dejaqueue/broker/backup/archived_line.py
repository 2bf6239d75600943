"""Whether these journals are those that were archived: or an older copy of them, or another.

A copy that was made behind the last backup knows that backup, so its name tells nothing
(lineage.py); the pieces that were archived behind the backup do.

Room: broker. Reads the archive and the logs of this broker.
Holds: only what is durable is archived, so journals that lack it are not those that it is of.
See: backups.py, archiver.py, which both ask.
"""

from __future__ import annotations

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain
from dejaqueue.backup.log_pieces import LogPiece
from dejaqueue.backup.manifest import Manifest
from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.segments.log_turn import read_slice
from dejaqueue.journal.segments.store import SegmentStore


def strangeness(piece: LogPiece, store: SegmentStore) -> str:
    """What tells that a piece is not of these journals, in words; "" = nothing does."""
    logs = store.turn.logs
    for name, position in piece.reached.items():
        if name in logs and logs[name].tail < position:
            return f"these journals are older than piece {piece.number} of it"
    for one in piece.slices:
        if one.log not in logs or not one.content:
            continue  # all that is in it was dropped
        try:
            found = read_slice(one.log, logs[one.log], one.after, one.last, len(one.content))
        except JournalDamaged:
            continue  # they were given back
        if found != one:
            return f"piece {piece.number} of it is of another copy of these journals"
    return ""


def check_line(archive: Archive, newest: Manifest | None, store: SegmentStore) -> None:
    """Refuse to go on from a backup behind which more was archived than these journals have.

    Args:
        newest: the newest backup of this store in the archive.
        store: its logs that were ever used are open.

    Raises:
        Refused: they are an older copy, or another one. JournalDamaged: the piece is not what was
            stored. Unavailable.
    """
    if newest is None or not newest.chain:
        return
    chain = LogChain(archive.bucket, newest.chain)
    numbers = chain.numbers()
    if not numbers:
        return
    last = numbers[-1]
    strange = strangeness(chain.decode(last, chain.stored(last)), store)
    if strange:
        raise Refused(
            f"{strange}, of what was archived behind backup {newest.id} at {archive.bucket.url}: "
            "an old copy was put in place; restore that backup, or begin anew with a full one"
        )
