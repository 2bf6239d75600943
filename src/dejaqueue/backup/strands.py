"""Strands: the log pieces of several processes that follow one backup, a chain of pieces for each.

    chains/<chain>/<process>/<number>     a piece of what one process archived

A log goes from one process to another, and its entries from one strand to another; some may be in
two. What they are together is told by positions: of each log, the entries from the backup on follow
each other. Some pieces say a cut: an instant, and where each log ended then.

Room: backup. Any thread.
Holds: a cut counts if the strands have all entries of each log up to where it says that it ended;
an entry that is missing in front of others is told with the log's name.
See: log_chain.py, a chain of one process; log_pieces.py, `ends`; broker/backup/strand_archiver.py,
who stores them; docs/adr/0094-each-process-archives-its-logs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dejaqueue.backup.log_chain import PREFIX, LogChain
from dejaqueue.backup.log_pieces import LogPiece
from dejaqueue.backup.manifest import Manifest
from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.segments.store import OWN_NAME

_CUTS_BACK: Final = 64
"""Pieces of a strand that are read for its last cut: who takes cuts says one in almost each."""


class LogCut(NamedTuple):
    """One moment of all logs.

    Attributes:
        at_ms: what was acknowledged by then, UTC, is in it.
        ends: where each log ended.
        clocks: how many clocks gave the entries their times, as in manifests.
    """

    at_ms: int
    ends: dict[str, int]
    clocks: int = 1


def cut_of(piece: LogPiece) -> LogCut | None:
    """The cut that a piece says; None = it says none. In the one chain of a broker that is alone a
    piece that says an instant is a cut of all that the chain has."""
    if piece.ends:
        return LogCut(piece.at_ms, piece.ends, piece.clocks)
    return LogCut(piece.at_ms, piece.reached) if piece.at_ms else None


def cut_order(cut: LogCut) -> tuple[int, int]:
    """By which cuts are sorted."""
    return cut.ends.get(OWN_NAME, 0), sum(cut.ends.values())


def stretch_of(bounds: Sequence[tuple[int, int]], at: int) -> tuple[int, int | None]:
    """How far entries of a log follow each other.

    Args:
        bounds: of slices: from behind which position, up to which; sorted.
        at: they are there up to here.

    Returns:
        Up to where they are there; and behind which position there are others, before which some
        are missing; None = nothing is missing.
    """
    for after, last in bounds:
        if after > at:
            return at, after
        at = max(at, last)
    return at, None


def strand_name(chain: str, node: str) -> str:
    """What the strand of a process is called among chains.

    Args:
        node: the name of the process in its cluster.
    """
    return f"{chain}/{node}"


def strands_of(bucket: Bucket, chain: str) -> list[LogChain]:
    """The strands of a chain, by name. Raises Unavailable."""
    found = (one.name.split("/") for one in bucket.objects(f"{PREFIX}{chain}/"))
    nodes = {words[2] for words in found if len(words) == 4}
    return [LogChain(bucket, strand_name(chain, one)) for one in sorted(nodes)]


def last_pieces(strands: list[LogChain]) -> Iterator[tuple[LogChain, LogPiece]]:
    """The last piece of each strand that has one. Raises JournalDamaged, Unavailable."""
    for strand in strands:
        for number in strand.numbers()[-1:]:
            yield strand, strand.decode(number, strand.stored(number))


def pieces_of(
    strands: list[LogChain], damaged: Callable[[str], None] | None = None
) -> Iterator[tuple[LogChain, LogPiece]]:
    """All pieces, strand by strand.

    Args:
        damaged: told what is damaged, and nothing behind that is given of the strand; None = it is
            raised.

    Raises:
        JournalDamaged, Unavailable.
    """
    for strand in strands:
        try:
            for piece in strand.pieces(strand.numbers()):
                yield strand, piece
        except JournalDamaged as damage:
            if damaged is None:
                raise
            damaged(str(damage))


class StrandIndex:
    """What strands have behind a backup, and the cuts that they say.

    Args:
        manifest: the backup.

    Attributes:
        reached: up to where strands say that they have each log.
        clocks: how many clocks gave entries their times, as far as cuts say.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._from = manifest.logs
        self._bounds: dict[str, list[tuple[int, int]]] = {}
        self.reached: dict[str, int] = dict(manifest.logs)
        self._cuts: list[LogCut] = []
        self.clocks = 1

    def add(self, piece: LogPiece) -> None:
        """Know of a piece."""
        for one in piece.slices:
            self._bounds.setdefault(one.log, []).append((one.after, one.last))
        self.add_last(piece)
        cut = cut_of(piece)
        if cut is not None:
            self._cuts.append(cut)
            self.clocks = max(self.clocks, cut.clocks)

    def add_last(self, piece: LogPiece) -> None:
        """Know how far a strand goes, of its last piece."""
        for name, position in piece.reached.items():
            self.reached[name] = max(position, self.reached.get(name, 0))

    def covered(self, damaged: Callable[[str], None] | None = None) -> dict[str, int]:
        """Up to where there are all entries of each log.

        Args:
            damaged: told where one is missing in front of others, of a log that was there to the
                end; None = it is raised.

        Raises:
            JournalDamaged.
        """
        found, newest = dict(self._from), max(self._cuts, key=cut_order, default=None)
        for name, bounds in self._bounds.items():
            bounds.sort()
            # Of a log that came into use since the backup, entries say whether all are there.
            at, behind = stretch_of(bounds, self._from.get(name, bounds[0][0]))
            found[name] = at
            if behind is not None and (newest is None or name in newest.ends):
                gap = f"the archive: entries {at + 1} to {behind} of log {name} are missing"
                if damaged is None:
                    raise JournalDamaged(gap)
                damaged(gap)
        return found

    @property
    def is_from_beginning(self) -> bool:
        """Whether logs that came into use since the backup are there from their first entry on."""
        return all(
            min(bounds)[0] == 0 for name, bounds in self._bounds.items() if name not in self._from
        )

    def last_cut(
        self, covered: dict[str, int], until_ms: int | None = None, last_ms: int | None = None
    ) -> LogCut | None:
        """The cut to restore; None = there is none.

        Args:
            covered: up to where there are all entries.
            until_ms: the first that is not before this instant, or else the last; None = the last.
            last_ms: none that is later than this one.
        """
        found = None
        # Each cut is within the next: clocks may have been put right meanwhile, positions not. Of a
        # topic that is gone by the next one, which the catalogue says, entries may be missing.
        for cut in sorted(self._cuts, key=cut_order):
            if last_ms is not None and cut.at_ms > last_ms:
                break
            if not self._is_whole(cut, covered):
                continue
            found = cut
            if until_ms is not None and cut.at_ms >= until_ms:
                break
        return found

    def _is_whole(self, cut: LogCut, covered: dict[str, int]) -> bool:
        return all(
            end <= max(covered.get(name, 0), self._from.get(name, 0))
            for name, end in cut.ends.items()
        )


def last_instant(bucket: Bucket, manifest: Manifest) -> int:
    """The instant of the last cut that the strands have, UTC milliseconds; 0 = none.

    Cost: a listing for each strand, and as a rule one piece or two of each are read.

    Raises:
        JournalDamaged, Unavailable.
    """
    index, strands = StrandIndex(manifest), strands_of(bucket, manifest.chain)
    for _, piece in last_pieces(strands):
        index.add_last(piece)
    found = 0
    for strand in strands:
        for number in reversed(strand.numbers()[-_CUTS_BACK:]):
            piece = strand.decode(number, strand.stored(number))
            one = StrandIndex(manifest)
            one.add(piece)
            cut = one.last_cut(index.reached)
            if cut is not None:
                found = max(found, cut.at_ms)
                break
    return found
