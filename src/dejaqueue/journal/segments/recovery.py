"""Opening the segments of a partition: what a crash left half written, and what is damaged.

Every entry behind the snapshot is walked and verified, checksum and chain. An entry that is not
whole is
- **torn** if nothing proves that it was ever durable: it is cut off, it was never acknowledged;
- **damaged** otherwise: JournalDamaged names file and offset, and nothing is changed.
The proof is a later whole entry: each carries `after`, up to which all was durable when it was
written. Pages of one append may reach the disk in any order, so a whole entry of the *same* append
behind a torn one proves nothing.

Room: journal. Reads everything, writes only to cut a torn tail.
Holds: what recovery accepts is durable before anything is served; an entry is never skipped.
See: duty 5 of journal/interface.py; tests/crash/test_segment_journal.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.format import HEADER_BYTES, MAGIC
from dejaqueue.journal.segments.files import FileSystem, read_file
from dejaqueue.journal.segments.segment import (
    HEAD_BYTES,
    Memory,
    Segment,
    SegmentHead,
    SegmentTail,
    index_is_right,
)

SUFFIX = ".segment"


def segment_name(first: int) -> str:
    """File name of the segment whose first entry has this position."""
    return f"{first:020d}{SUFFIX}"


@dataclass
class Recovered:
    """What opening found.

    Attributes:
        segments: by position; the last one is open for writing. Empty for a new partition.
        cut_bytes: bytes of a torn append that were cut off.
    """

    segments: list[Segment]
    cut_bytes: int = 0


def recover(
    files: FileSystem, directory: Path, topic: int, partition: int, snapshot: int
) -> Recovered:
    """Open all segments.

    Args:
        topic: xxh3_64 of the topic's name; with `partition`, a file of another place is refused.
        snapshot: position of the snapshot that replay starts from, 0 if there is none.

    Raises:
        JournalDamaged: naming the file and the offset.

    Cost: entries behind the snapshot are read once; of older segments only header and index.
    """
    names = [name for name in files.names(directory) if name.endswith(SUFFIX)]
    found = [_open_head(files, directory / name, topic, partition) for name in names]
    recovered = Recovered(found)
    for place, segment in enumerate(found):
        following = found[place + 1] if place + 1 < len(found) else None
        if following is None:
            recovered.cut_bytes = _open_last(files, segment)
        else:
            _open_sealed(files, segment, following, snapshot)
            _check_joint(segment, following, snapshot)
    _check_reach(directory, found, snapshot)
    return recovered


def _open_head(files: FileSystem, path: Path, topic: int, partition: int) -> Segment:
    content = read_file(files, path)
    head = SegmentHead.decode(content)
    if head is None or path.name != segment_name(head.first):
        raise JournalDamaged(f"{path}, offset 0: the header of the segment is not what was written")
    if (head.topic, head.partition) != (topic, partition):
        raise JournalDamaged(f"{path}, offset 0: the segment belongs to another partition")
    segment = Segment(path, head.first, head.chain, len(content))
    tail = SegmentTail.decode(content)
    if tail is not None and index_is_right(content, tail):
        segment.adopt_tail(tail)
    return segment


def _open_sealed(files: FileSystem, segment: Segment, following: Segment, snapshot: int) -> None:
    """A segment with another behind it: whole, or damaged."""
    last = following.first - 1
    sealed = segment.count > 0
    if sealed and segment.last <= snapshot:
        return  # its entries are verified when one is read
    count = segment.count
    segment.count = segment.readable_rows = segment.readable_bytes = 0
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


def _open_last(files: FileSystem, segment: Segment) -> int:
    """The segment that was written last; return how many torn bytes were cut off."""
    if segment.count:
        path = segment.path.with_name(segment_name(segment.last + 1))
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")
    memory = _map(files, segment)
    end = walk(segment, memory, None)
    cut = _written_bytes(memory.view, end)
    if cut:
        _check_torn(segment, memory, end)
    _make_durable(segment, memory, end, cut)
    return cut


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
        segment.add(at, head.kind, head.rows, byte_count, checksum)
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


def _make_durable(segment: Segment, memory: Memory, end: int, cut: int) -> None:
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
    if end > start:
        file.write([bytes(memory.view[start:end])], start)
    for at in range(end, end + cut, 1 << 20):
        file.write([bytes(min(1 << 20, end + cut - at))], at)
    file.sync()


def _check_joint(segment: Segment, following: Segment, snapshot: int) -> None:
    """Two segments join, unless what is between them was given back behind the snapshot."""
    if following.first == segment.last + 1:
        if following.chain_before != segment.chain:
            raise JournalDamaged(f"{following.path}, offset 0: the chain is broken")
    elif following.first <= segment.last or following.first > snapshot + 1:
        path = segment.path.with_name(segment_name(segment.last + 1))
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")


def _check_reach(directory: Path, segments: list[Segment], snapshot: int) -> None:
    """Everything from the snapshot on is there."""
    first = segments[0].first if segments else 1
    last = segments[-1].last if segments else 0
    if first > snapshot + 1:
        path = directory / segment_name(1 if snapshot == 0 else snapshot + 1)
        raise JournalDamaged(f"{path}, offset 0: the segment is missing")
    if last < snapshot:
        raise JournalDamaged(
            f"{directory}: the journal ends at {last}, its snapshot is of {snapshot}"
        )
