"""Appending to several journals at once, as far as they share a log.

Room: journal. Any thread; whoever calls waits for the disk or the server.
Holds: what is wrong with one append is in that append, and keeps no other from being made.
See: interface.py, `Append`; broker/shard/committer.py, which calls this.
"""

from __future__ import annotations

from collections.abc import Sequence

from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.journal.interface import Append, Journal, Log


def append_together(appends: Sequence[Append]) -> None:
    """Append, for those that share a log together, and tell of each. Raises nothing of theirs."""
    shared: dict[Log | Journal, list[Append]] = {}
    for append in appends:
        shared.setdefault(append.journal.log or append.journal, []).append(append)
    for together in shared.values():
        log = together[0].journal.log
        if log is not None:
            log.append_all(together)
        for append in together:
            if log is None:
                append_alone(append)
            append.landed(append)


def append_alone(append: Append) -> None:
    """Append to one journal; sets the outcome and does not raise, nor call `landed`."""
    journal = append.journal
    if journal.log is not None:
        journal.log.append_all([append])
        return
    try:
        append.tail = journal.append(append.entries, append.after, append.epoch)
    except DejaQError as error:
        append.error = error
    except Exception as wrong:  # noqa: BLE001 - our bug: the partition is read again
        append.error = InternalError(f"append: {type(wrong).__name__}: {wrong}")
