"""Opening the segments of a log: what a crash left half written, and what is damaged.

Every entry behind the floor is walked and verified, checksum and chain. An entry that is not
whole is **damaged** if anything proves that it was once written in full: JournalDamaged names file
and offset, and nothing is changed. The proofs are
- the mark of the tail, which names an entry up to which all was durable (proof.py);
- a later whole entry: each carries `after`, up to which all was durable when it was written. Pages
  of one append may reach the disk in any order, so a whole entry of the *same* append behind a torn
  one proves nothing;
- the end of its own append, with no sector left out before it: a crash leaves out, it does not
  alter.
Without a proof it is **torn**: it was not acknowledged, or less than 100 ms before the crash and
then damaged in a way that looks like a crash. It is cut off, and kept in a file beside.

Room: journal. Reads everything, writes only to cut a torn tail.
Holds: what recovery accepts is durable before anything is served; an entry is never skipped.
See: duty 5 of journal/interface.py; tests/crash/test_tail_damage.py, test_segment_journal.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.format import HEADER_BYTES, MAGIC
from dejaqueue.journal.segments.clear_text import ClearTexts
from dejaqueue.journal.segments.files import FileSystem, read_file, write_file
from dejaqueue.journal.segments.memory import Memory
from dejaqueue.journal.segments.proof import (
    END_BYTES,
    AppendEnd,
    TailMark,
    find_end,
    lacks_sectors,
    read_mark,
)
from dejaqueue.journal.segments.segment import (
    HEAD_BYTES,
    Segment,
    SegmentHead,
    SegmentTail,
    index_is_right,
)

SUFFIX = ".segment"
CUT_SUFFIX = ".cut"
_ZEROS_BYTES = 1 << 20
CUTS_KEPT = 8
"""Files with what was cut off that a log keeps; the oldest goes for another one."""


def segment_name(first: int) -> str:
    """File name of the segment whose first entry has this position."""
    return f"{first:020d}{SUFFIX}"


@dataclass
class Recovered:
    """What opening found.

    Attributes:
        segments: by position; the last one is open for writing. Empty for a new log.
        cut_bytes: bytes of a torn append that were cut off.
        mark: of the tail, None if there was none.
        notes: what was found amiss and mended, in words for the log.
    """

    segments: list[Segment]
    cut_bytes: int = 0
    mark: TailMark | None = None
    notes: list[str] = field(default_factory=list)


def recover(
    files: FileSystem,
    directory: Path,
    identity: int,
    shard: int,
    floor: int,
    clear_texts: ClearTexts | None = None,
) -> Recovered:
    """Open all segments. No key is needed for it: checksums are of what is stored.

    Args:
        identity: of the data directory; with `shard`, a file of another place is refused.
        floor: no partition needs an entry up to this position for its replay.
        clear_texts: how they are decrypted when they are read.

    Raises:
        JournalDamaged: naming the file and the offset.

    Cost: entries behind the floor are read once; of older segments only header and index.
    """
    names = [name for name in files.names(directory) if name.endswith(SUFFIX)]
    heads = [_open_head(files, directory / name, identity, shard, clear_texts) for name in names]
    mark, damaged = read_mark(files, directory, identity, shard)
    recovered = Recovered(heads, 0, mark, [damaged] if damaged else [])
    for place, segment in enumerate(heads):
        following = heads[place + 1] if place + 1 < len(heads) else None
        if following is None:
            _open_last(files, segment, recovered)
        else:
            _open_sealed(files, segment, following, floor)
            _check_joint(segment, following, floor)
    _check_reach(directory, heads, floor, mark)
    return recovered


def _open_head(
    files: FileSystem, path: Path, identity: int, shard: int, clear_texts: ClearTexts | None
) -> Segment:
    content = read_file(files, path)
    head = SegmentHead.decode(content)
    if head is None or path.name != segment_name(head.first):
        raise JournalDamaged(f"{path}, offset 0: the header of the segment is not what was written")
    if (head.directory, head.shard) != (identity, shard):
        raise JournalDamaged(f"{path}, offset 0: the segment belongs to another shard")
    segment = Segment(path, head.first, head.chain, len(content), clear_texts)
    tail = SegmentTail.decode(content)
    if tail is not None and index_is_right(content, tail):
        segment.adopt_tail(tail, content)
    return segment


def _open_sealed(files: FileSystem, segment: Segment, following: Segment, floor: int) -> None:
    """A segment with another behind it: whole, or damaged."""
    last = following.first - 1
    sealed = segment.count > 0
    if sealed and segment.last <= floor:
        return  # its entries are verified when one is read
    count = segment.count
    segment.restart()
    memory = _map(files, segment)
    end = walk(segment, memory, last)
    whole = segment.count == count if sealed else segment.last == last
    if not whole or (not sealed and segment.last > last):
        raise JournalDamaged(f"{segment.path}, offset {end}: an entry is not what was written")
    if sealed:
        segment.close()
    else:
        # The crash came between the new segment and the seal of this one.
        with suppress(OSError):
            segment.seal()
        segment.close()


def _open_last(files: FileSystem, segment: Segment, recovered: Recovered) -> None:
    """The segment that was written last; what is torn is moved aside and cut off."""
    if segment.count:
        path = segment.path.with_name(segment_name(segment.last + 1))
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")
    memory = _map(files, segment)
    end = walk(segment, memory, None)
    _check_mark(segment, end, recovered.mark)
    last = _last_append(segment, memory)
    behind = end + (END_BYTES if AppendEnd.decode(memory.view, end) == last else 0)
    cut = _written_bytes(memory.view, behind)
    if cut:
        _check_torn(segment, memory, end)
        _check_complete(segment, memory, end, last)
        kept = _move_aside(files, segment, memory.view[end : behind + cut])
        recovered.cut_bytes = cut
        recovered.notes.append(
            f"{cut} bytes of an append that was not finished were cut off, {kept}"
        )
    _make_durable(segment, memory, end, range(behind, behind + cut, _ZEROS_BYTES))


def _check_mark(segment: Segment, end: int, mark: TailMark | None) -> None:
    """Refuse to serve less than what the mark says was durable."""
    if mark is None or mark.position < segment.first:
        return
    if mark.position > segment.last:
        raise JournalDamaged(
            f"{segment.path}, offset {end}: entry {segment.last + 1} is not what was written, "
            f"but entries up to {mark.position} were durable"
        )
    if mark.position == segment.last and mark.chain != segment.chain:
        raise JournalDamaged(
            f"{segment.path}, offset {end}: entry {mark.position} is not the one that was durable"
        )


def _last_append(segment: Segment, memory: Memory) -> AppendEnd | None:
    """The end that belongs behind the last whole entry, None in a segment without entries."""
    if not segment.count:
        return None
    offsets = segment.offsets()
    last = int(offsets[segment.count - 1]) << 3
    head = entry_format.peek(memory.view, last)
    assert head is not None
    place = max(head.after + 1 - segment.first, 0)
    start = int(offsets[place]) << 3
    first = entry_format.peek(memory.view, start)
    assert first is not None
    return AppendEnd(head.after, segment.used - start, first.previous)


def _check_complete(segment: Segment, memory: Memory, end: int, last: AppendEnd | None) -> None:
    """Refuse to cut an append that was written in full: what is wrong in it is damage."""
    view = memory.view
    # It begins here, or with whole entries before.
    starts = [(end, segment.last, segment.chain)]
    if last is not None:
        starts.append((segment.used - last.byte_count, last.after, last.chain_before))
    for start, after, chain in starts:
        found = find_end(view, start, after, chain)
        if found is not None and found > end and not lacks_sectors(view, start, found):
            raise JournalDamaged(
                f"{segment.path}, offset {end}: entry {segment.last + 1} is not what was written, "
                f"but its append was written in full, up to offset {found}"
            )


def _move_aside(files: FileSystem, segment: Segment, content: memoryview) -> str:
    """Keep what is cut off in a file; say where."""
    directory = segment.path.parent
    kept = [name for name in files.names(directory) if name.endswith(CUT_SUFFIX)]
    numbers = [int(name.split(".")[0]) for name in kept]
    name = f"{max(numbers, default=0) + 1:05d}.{segment.last + 1:020d}{CUT_SUFFIX}"
    try:
        write_file(files, directory / name, content)
        files.sync_directory(directory)
        for old in kept[: max(0, len(kept) + 1 - CUTS_KEPT)]:
            files.unlink(directory / old)
    except OSError as failure:
        # It was never acknowledged: a full disk is no reason to refuse what was.
        return f"and could not be kept: {failure.strerror}"
    return f"and kept as {directory / name}"


def _written_bytes(view: memoryview, end: int) -> int:
    """How many bytes behind the entries are not the zeros of a new file."""
    odd = (len(view) - end) & 7
    if any(view[len(view) - odd :]):
        return len(view) - end
    written = np.flatnonzero(np.frombuffer(view, np.uint64, (len(view) - end) >> 3, end))
    return 8 * int(written[-1]) + 8 if len(written) else 0


def _map(files: FileSystem, segment: Segment) -> Memory:
    segment.used = HEAD_BYTES
    segment.chain = segment.chain_before
    return segment.attach(files.open(segment.path))


def walk(segment: Segment, memory: Memory, last: int | None) -> int:
    """Add entries as long as they are whole and chained; return the offset where that ends."""
    view, at, chain = memory.view, HEAD_BYTES, segment.chain_before
    position = segment.first
    while last is None or position <= last:
        head = entry_format.peek(view, at)
        if head is None or head.position != position or head.previous != chain:
            break
        checksum = entry_format.verify(view, at, head)
        if checksum is None:
            break
        byte_count = HEADER_BYTES + head.body_bytes
        owner = entry_format.owner_of(view, at)
        segment.add(at, head.kind, head.rows, byte_count, checksum, owner)
        chain, at, position = checksum, at + byte_count, position + 1
    return at


def _check_torn(segment: Segment, memory: Memory, end: int) -> None:
    """Refuse to cut if a later whole entry proves that this one was durable."""
    position = segment.last + 1
    words = np.frombuffer(memory.view, "<u4", (len(memory.view) - end) // 8 * 2, end)[::2]
    for place in np.flatnonzero(words == MAGIC).tolist():
        at = end + 8 * place
        head = entry_format.peek(memory.view, at)
        if head is None or head.after < position:
            continue
        if entry_format.verify(memory.view, at, head) is not None:
            raise JournalDamaged(
                f"{segment.path}, offset {end}: entry {position} is not what was written, "
                f"but entry {head.position} at offset {at} is whole"
            )


def _make_durable(segment: Segment, memory: Memory, end: int, cut: range) -> None:
    """Cut the torn rest, and write the last append again.

    After a sync that failed, the kernel may show pages that never reached the disk as clean. Only
    the last append can be in doubt (every earlier one is named durable by an `after`), so writing
    it again and syncing makes everything that is served durable.
    """
    file = segment.file
    assert file is not None
    start = end
    if segment.count:
        offsets = segment.offsets()
        after = entry_format.peek(memory.view, int(offsets[segment.count - 1]) << 3)
        assert after is not None
        first = max(after.after + 1 - segment.first, 0)
        start = int(offsets[first]) << 3
    for at in cut:
        file.write([bytes(min(cut.step, cut.stop - at))], at)
    if end > start:
        ended = _last_append(segment, memory)
        assert ended is not None
        file.write([bytes(memory.view[start:end]), ended.encode()], start)
    file.sync()


def _check_joint(segment: Segment, following: Segment, floor: int) -> None:
    """Two segments join, unless what is between them was given back up to the floor."""
    if following.first == segment.last + 1:
        if following.chain_before != segment.chain:
            raise JournalDamaged(f"{following.path}, offset 0: the chain is broken")
    elif following.first <= segment.last or following.first > floor + 1:
        path = segment.path.with_name(segment_name(segment.last + 1))
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")


def _check_reach(
    directory: Path, segments: list[Segment], floor: int, mark: TailMark | None
) -> None:
    """Everything from the floor on is there, up to what was durable."""
    first = segments[0].first if segments else 1
    last = segments[-1].last if segments else 0
    if first > floor + 1:
        path = directory / segment_name(1 if floor == 0 else floor + 1)
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")
    if last < floor:
        raise JournalDamaged(f"{directory}: the log ends at {last}, its floor is {floor}")
    if mark is not None and last < mark.position:
        path = directory / segment_name(last + 1)
        raise JournalDamaged(
            f"{path}, offset 0: the segment is missing: entries up to {mark.position} were durable"
        )
