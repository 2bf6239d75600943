"""Which turn it is, for the logs of all processes that divide a data directory; and where they end.

    word 0     the number of the turn, raised by who takes a cut
    word 1     the chain to which all that is archived goes; 0 = none is known
    word 8 on  eight words for each shard: where its log ends, the last turn in which something was
               published and where the log ended before, up to where it is archived, in which chain

The file is memory that the processes share, and no more: who starts them makes it anew.

Room: journal. Any thread and process. A word is stored and read at once; of one shard only who has
its log open writes the first three, and of who archives it any.
Holds: as in log_turn.py: what was published before the number was raised is within what `ends`
says, and nothing that was caused by what is behind. A log notes where it ended before the turn
prior to saying that it ends later, so who reads in between sees the one or the other.
See: log_turn.py, of one process; ../processes.py; broker/backup/strand_archiver.py, who raises it;
docs/adr/0094-each-process-archives-its-logs.md.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.segments.log_turn import FollowedLog, LogTurn

_NUMBER: Final = 0
_CHAIN: Final = 1
_FIRST: Final = 8
_WORDS: Final = 8
"""A line of the processor's cache for each shard, so that who appends to one waits for no other."""
_TAIL, _SEEN, _BEFORE, _ARCHIVED, _ARCHIVED_IN = range(5)


def make_turns(path: Path, shards: int) -> None:
    """Begin anew, before the processes run: one of before that still ends has another file. Raises
    Unavailable."""
    # One line more than shards: the catalogue has it.
    content = b"\x01" + bytes((_FIRST + (shards + 1) * _WORDS) * 8 - 1)
    try:
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        with path.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
    except OSError as failure:
        raise Unavailable(f"{path} cannot be made: {failure}") from failure


class SharedTurn(LogTurn):
    """As LogTurn, for all processes.

    Args:
        path: a file of `make_turns`.

    Raises:
        JournalDamaged: it is none. Unavailable: there is none.
    """

    __slots__ = ("_is_followed", "_memory", "_shards", "_words")

    def __init__(self, path: Path) -> None:
        try:
            with path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), 0)
        except OSError as failure:
            raise Unavailable(f"{path} cannot be opened: {failure}") from failure
        self._words = memoryview(self._memory).cast("Q")
        self._shards = (len(self._words) - _FIRST) // _WORDS - 1
        if self._shards < 1 or not self._words[_NUMBER]:
            raise JournalDamaged(f"{path}: is not what it was made as")
        self._is_followed = False
        super().__init__()

    # --- who appends --------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """See LogTurn."""
        return self._words[_NUMBER]

    @number.setter
    def number(self, number: int) -> None:
        # Whoever begins to follow sets it to one, and it is some number already.
        self._is_followed = self._is_followed or number > 0

    def opened(self, name: str, log: FollowedLog) -> None:
        """See LogTurn."""
        if self._is_followed:
            self.logs[name] = log
        if not name.isdecimal():
            return
        shard, tail = int(name), log.tail
        known = self._words[self._at(shard) + _TAIL]
        if known:
            # What a process had made durable and did not live to say is like an append of now.
            self.published(shard, self.number, known - 1, max(tail, known - 1))
        else:
            self._words[self._at(shard) + _TAIL] = tail + 1

    def published(self, shard: int, number: int, before: int, tail: int) -> None:
        """See LogTurn."""
        words, at = self._words, _FIRST + shard * _WORDS
        if words[at + _SEEN] != number:
            words[at + _BEFORE] = before
            words[at + _SEEN] = number
        words[at + _TAIL] = tail + 1

    # --- who takes a cut ----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a turn. One process at a time may."""
        self._words[_NUMBER] += 1

    def ends(self) -> dict[str, int]:
        """Where the logs ended when the turn began that it is, as far as they were opened since the
        processes run, by name."""
        words, found, number = self._words, {}, self.number
        for name, at in self._lines():
            # The tail first: if the turn was noted meanwhile, that counts.
            tail = words[at + _TAIL]
            if tail:
                is_seen = words[at + _SEEN] == number
                found[name] = words[at + _BEFORE] if is_seen else tail - 1
        return found

    def tails(self) -> dict[str, int]:
        """Where the logs end now, as of `ends`."""
        words = self._words
        return {name: words[at + _TAIL] - 1 for name, at in self._lines() if words[at + _TAIL]}

    # --- who archives -------------------------------------------------------------------------

    @property
    def chain(self) -> int:
        """The chain that the newest backup begins or goes on with."""
        return self._words[_CHAIN]

    @chain.setter
    def chain(self, chain: int) -> None:
        self._words[_CHAIN] = chain

    def archived(self, name: str, chain: int) -> int:
        """Up to where a log is in a chain, as far as it was said since the processes run."""
        words, at = self._words, self._at(self._line(name))
        position = words[at + _ARCHIVED]
        return position if words[at + _ARCHIVED_IN] == chain else 0

    def is_archived(self, name: str, chain: int, position: int) -> None:
        """A chain has a log up to this position."""
        words, at = self._words, self._at(self._line(name))
        if words[at + _ARCHIVED_IN] != chain:
            words[at + _ARCHIVED_IN] = 0
            words[at + _ARCHIVED] = position
            words[at + _ARCHIVED_IN] = chain
        elif words[at + _ARCHIVED] < position:
            words[at + _ARCHIVED] = position

    def _lines(self) -> Iterator[tuple[str, int]]:
        for shard in range(self._shards):
            yield str(shard), self._at(shard)

    def _line(self, name: str) -> int:
        return int(name) if name.isdecimal() else self._shards

    def _at(self, line: int) -> int:
        return _FIRST + line * _WORDS
