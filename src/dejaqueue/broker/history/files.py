"""The directory of history: where each file lies, and what its name says.

    topic=<topic>/partition=<n>/date=<yyyy-mm-dd>/hour=<hh>/<first>-<last>.parquet
    …/<first>-<last>.gap.parquet                     a file in which a gap is noted, too
    topic=<topic>/partition=<n>/_recorded-<last>     recorded up to there, though no file says so
    topic=<topic>/_of-<journals>                     in a cluster: which topic of that name it is
    .open/                                           files that are being written

Room: broker. Knows names, sizes and times of files, not what is in them.
Holds: a file that can be seen is whole and durable; the positions of the journal that a partition's
files cover never overlap; a partition's last recorded position outlives its files.
See: recorder.py, which writes them; docs/guides/history.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from dejaqueue.broker.history.pieces import HOUR_MS
from dejaqueue.directories import make_directory

_OPEN = ".open"
_NAME = re.compile(r"(\d{19})-(\d{19})(\.gap)?\.parquet")
_PATH = re.compile(r"date=\d{4}-\d\d-\d\d/hour=\d\d/\d{19}-\d{19}(\.gap)?\.parquet")
_RECORDED = "_recorded-"
_OF = "_of-"


class Encryption(Protocol):
    """Parquet's properties of files; encryption.py."""

    def writing(self) -> Any:
        """Of a new file."""
        ...

    def reading(self, path: Path) -> Any:
        """Of a file that is there; None if it is not encrypted. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A finished file.

    Attributes:
        name: its path below the directory of its partition.
        hour_ms: begin of the hour in which everything in it happened, UTC milliseconds.
        first, last: positions of the journal that it covers.
        has_gaps: True: it says, too, of some of them that what happened is not recorded.
    """

    partition: int
    name: str
    hour_ms: int
    first: int
    last: int
    byte_count: int
    has_gaps: bool = False


class Files:
    """The history of one broker on its disk.

    Args:
        root: made when it is first written to.

    Attributes:
        encryption: how files are written and read; None = they are not encrypted.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.encryption: Encryption | None = None

    def begin(self) -> None:
        """Drop what a broker that ended suddenly was writing."""
        shutil.rmtree(self.root / _OPEN, ignore_errors=True)

    def topic(self, topic: str) -> Path:
        """Where the history of a topic lies."""
        return self.root / f"topic={topic}"

    def partition(self, topic: str, number: int) -> Path:
        """Where the history of a partition lies."""
        return self.topic(topic) / f"partition={number}"

    def drop(self, topic: str) -> None:
        """Forget the history of a topic."""
        shutil.rmtree(self.topic(topic), ignore_errors=True)

    # --- writing ------------------------------------------------------------------------------

    def open_path(self, topic: str, number: int, first: int) -> Path:
        """Where a file is written until it is whole."""
        directory = self.root / _OPEN
        _make(directory, self.root)
        return directory / f"{topic}-{number}-{first}"

    def finish(
        self,
        path: Path,
        topic: str,
        number: int,
        hour_ms: int,
        first: int,
        last: int,
        *,
        has_gaps: bool = False,
    ) -> None:
        """Make a written file durable, then visible. Raises OSError."""
        when = datetime.fromtimestamp(hour_ms / 1_000, UTC)
        directory = self.partition(topic, number) / f"{when:date=%Y-%m-%d}" / f"{when:hour=%H}"
        _sync(path)
        _make(directory, self.root)
        ending = ".gap.parquet" if has_gaps else ".parquet"
        path.rename(directory / f"{first:019d}-{last:019d}{ending}")
        _sync(directory)

    def replace(self, draft: Path, path: Path) -> None:
        """Put a written file durably in the place of one that can be seen. Raises OSError."""
        _sync(draft)
        draft.rename(path)
        _sync(path.parent)

    def mark(self, topic: str, number: int, last: int) -> None:
        """Remember that all up to this position is recorded, without a file. Raises OSError."""
        directory = self.partition(topic, number)
        _make(directory, self.root)
        _mark(directory, last)

    def adopt(self, topic: str, journals: str) -> None:
        """What is recorded from now on is of this topic; forget what was of an earlier one of the
        same name. Raises OSError.

        Args:
            journals: what the topic is called in the store of its journals, once and never again.
        """
        directory = self.topic(topic)
        if self.is_of(topic, journals):
            return
        if any(directory.glob(f"{_OF}*")):
            shutil.rmtree(directory, ignore_errors=True)
        _make(directory, self.root)
        (directory / f"{_OF}{journals}").touch()
        _sync(directory)

    # --- looking ------------------------------------------------------------------------------

    def is_of(self, topic: str, journals: str) -> bool:
        """True if what lies here is of this topic, and not of an earlier one of the same name."""
        return (self.topic(topic) / f"{_OF}{journals}").exists()

    def recorded(self, topic: str, number: int) -> int:
        """The last position of a partition's journal that is recorded; 0 = none is."""
        directory = self.partition(topic, number)
        marks = [int(path.name.removeprefix(_RECORDED)) for path in directory.glob(f"{_RECORDED}*")]
        newest = next(self._newest_first(directory, number), None)
        return max([*marks, 0 if newest is None else newest.last])

    def all_recorded(self, topic: str) -> dict[str, int]:
        """The last position that is recorded, of each partition of which there is one."""
        numbers = [
            int(directory.name.removeprefix("partition="))
            for directory in sorted(self.topic(topic).glob("partition=*"))
        ]
        return {str(number): self.recorded(topic, number) for number in numbers}

    def _newest_first(self, directory: Path, number: int) -> Iterator[HistoryFile]:
        for hour_ms, hour in sorted(_hours(directory), reverse=True):
            files = [_file(path, number, hour_ms) for path in hour.iterdir()]
            yield from sorted(
                (file for file in files if file is not None), key=lambda f: f.first, reverse=True
            )

    def find(
        self, topic: str, from_ms: int, to_ms: int, partition: int | None = None
    ) -> list[HistoryFile]:
        """The files of a topic with what happened from `from_ms` on, before `to_ms`, or more.

        Args:
            partition: of this one; None = of all.
        """
        found: list[HistoryFile] = []
        which = "*" if partition is None else partition
        for directory in sorted(self.topic(topic).glob(f"partition={which}")):
            number = int(directory.name.removeprefix("partition="))
            for hour_ms, hour in sorted(_hours(directory)):
                if hour_ms < to_ms and hour_ms + HOUR_MS > from_ms:
                    files = [_file(path, number, hour_ms) for path in sorted(hour.iterdir())]
                    found += [file for file in files if file is not None]
        return sorted(found, key=lambda file: (file.partition, file.first))

    def path_of(self, topic: str, number: int, name: str) -> Path | None:
        """Where a file of `find` lies; None if its name is none."""
        return self.partition(topic, number) / name if _PATH.fullmatch(name) else None

    # --- pruning ------------------------------------------------------------------------------

    def prune(self, before_ms: int) -> int:
        """Delete the hours that ended before; returns how many files those had."""
        count = 0
        for directory in self.root.glob("topic=*/partition=*"):
            number = int(directory.name.removeprefix("partition="))
            old = [hour for hour in sorted(_hours(directory)) if hour[0] + HOUR_MS <= before_ms]
            for hour_ms, hour in old:
                files = [_file(path, number, hour_ms) for path in hour.iterdir()]
                last = max((file.last for file in files if file is not None), default=0)
                _mark(directory, last)
                count += sum(file is not None for file in files)
                shutil.rmtree(hour, ignore_errors=True)
                with contextlib.suppress(OSError):  # there are other hours of that day
                    hour.parent.rmdir()
        return count


def _mark(directory: Path, last: int) -> None:
    """Remember what was recorded when its files are gone."""
    marks = list(directory.glob(f"{_RECORDED}*"))
    (directory / f"{_RECORDED}{last}").touch()
    _sync(directory)
    for mark in marks:
        if int(mark.name.removeprefix(_RECORDED)) < last:
            mark.unlink(missing_ok=True)


def _hours(directory: Path) -> Iterator[tuple[int, Path]]:
    """Each hour that has files, and when it began."""
    for path in directory.glob("date=*/hour=*"):
        text = f"{path.parent.name.removeprefix('date=')} {path.name.removeprefix('hour=')}"
        try:
            began = datetime.strptime(text, "%Y-%m-%d %H").replace(tzinfo=UTC)
        except ValueError:
            continue  # not ours
        yield int(began.timestamp()) * 1_000, path


def _file(path: Path, number: int, hour_ms: int) -> HistoryFile | None:
    named = _NAME.fullmatch(path.name)
    if named is None:
        return None
    try:
        byte_count = path.stat().st_size
    except OSError:
        return None  # pruned meanwhile
    name = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
    first, last, has_gaps = int(named[1]), int(named[2]), named[3] is not None
    return HistoryFile(number, name, hour_ms, first, last, byte_count, has_gaps)


def _make(directory: Path, root: Path) -> None:
    """Make a directory and those above it that are missing, durably.

    Who may enter them is who may enter the root: programs of others read history, if that is meant.
    """
    if directory.is_dir():
        return
    if directory == root:
        make_directory(root)
    else:
        _make(directory.parent, root)
        directory.mkdir(mode=stat.S_IMODE(root.stat().st_mode), exist_ok=True)
    _sync(directory.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
