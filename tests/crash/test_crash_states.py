"""A crash at every call of the segment journal, with all that a disk may keep: some of the states.

More: `make crash-states`. That the judge sees anything is shown by planted bugs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dejaqueue.journal.format import Piece
from dejaqueue.journal.segments import snapshots
from dejaqueue.journal.segments.files import FileSystem, OpenFile
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.journal.segments.proof import TailMark, write_mark
from dejaqueue.journal.segments.room import LogRoom
from dejaqueue.journal.segments.segment import Segment
from tests.crash.crash_disk import RecordedFile, RecordingFiles
from tests.crash.crash_states import Tally, run
from tests.crash.failing_calls import KINDS, run_point

STATES = 1_500
POINTS = 12


def test_no_state_that_a_crash_leaves_loses_or_invents_anything() -> None:
    tally, seed = Tally(STATES), 0
    while not tally.is_over:
        seed += 1
        run(seed, tally)
    assert tally.faults == []
    assert {"allocate", "create", "rename", "sync", "sync_directory", "write"} <= set(tally.calls)


Patch = Callable[[pytest.MonkeyPatch], None]


def _no_sync_of_segments(patch: pytest.MonkeyPatch) -> None:
    sync = RecordedFile.sync

    def maybe(self: RecordedFile) -> None:
        if self.path.suffix != ".spare":
            return
        sync(self)

    patch.setattr(RecordedFile, "sync", maybe)


def _no_sync_of_parts(patch: pytest.MonkeyPatch) -> None:
    def write_file(files: FileSystem, path: Path, content: Piece) -> None:
        file = files.open(path, create=True)
        file.allocate(len(content))
        file.write([content], 0)

    patch.setattr(snapshots, "write_file", write_file)


def _no_sync_of_directories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "sync_directory", lambda *_: None)


def _given_back_before_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    inner = LogRoom._dead

    def dead(self: LogRoom) -> list[Segment]:
        self.floor = max((one.last for one in self.listed.segments), default=0)
        return inner(self)

    patch.setattr(LogRoom, "_dead", dead)


def _published_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def write(self: ShardLog, segment: Segment, pieces: list[Piece]) -> None:
        file = segment.file
        assert file is not None
        file.write(pieces, segment.used)

    patch.setattr(ShardLog, "_write", write)


def _marked_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def write(self: ShardLog, segment: Segment, pieces: list[Piece]) -> None:
        file = segment.file
        assert file is not None
        file.write(pieces, segment.used)
        mark = TailMark(self._shard, self._identity, self.tail + 1, 0)
        write_mark(self.files, self.directory, mark)
        file.sync()

    patch.setattr(ShardLog, "_write", write)


def _in_place(patch: pytest.MonkeyPatch) -> None:
    def replace(files: FileSystem, path: Path, content: Piece, *, private: bool = False) -> None:
        file: OpenFile = files.open(path, create=True)
        file.allocate(len(content))
        file.write([content], 0)
        file.sync()
        files.sync_directory(path.parent)

    patch.setattr("dejaqueue.journal.segments.store.replace_file", replace)


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (_no_sync_of_segments, 1),
        (_no_sync_of_parts, 2),
        (_no_sync_of_directories, 1),
        (_given_back_before_the_snapshot, 2),
        (_published_before_the_sync, 1),
        (_marked_before_the_sync, 1),
        (_in_place, 3),
    ],
)
def test_a_planted_bug_is_found(plant: Patch, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    tally = Tally(STATES)
    run(seed, tally)
    assert tally.faults


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_call_that_fails_loses_nothing(kind: str) -> None:
    """More: `python -m tests.crash.failing_calls`."""
    tally = Tally()
    for number in range(1, POINTS + 1):
        run_point(kind, number, tally)
    assert tally.faults == []
    assert tally.states > 3 * POINTS


def test_a_sync_that_is_tried_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = RecordedFile.sync

    def stubborn(self: RecordedFile) -> None:
        try:
            sync(self)
        except OSError:
            sync(self)  # the system has forgotten what was to be written, and says it is done

    monkeypatch.setattr(RecordedFile, "sync", stubborn)
    faults = []
    for number in range(1, POINTS + 1):
        tally = Tally()
        run_point("EIO", number, tally)
        faults += tally.faults
    assert sum("lost" in fault for fault in faults) > POINTS // 2
