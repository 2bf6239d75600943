"""Reading history over the network: which files there are, and one of them batch by batch.

Room: broker. On the caller's thread; the partitions are asked for nothing but to finish their
files.
Holds: what was durable in the journal when the files were listed is in them, or a gap says so; a
file that was pruned since is an error, not an empty answer.
See: docs/wire.md for the ticket; spark/ for who reads so.

With `here` a broker of a cluster is asked for what it recorded itself, whoever serves the topic
now. Then several brokers may have recorded the same, or one has what the others call a gap: what is
left out of a file is up to who asks, by positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of, whole
from dejaqueue.broker.history.files import Encryption, Files, HistoryFile
from dejaqueue.broker.history.history import WAIT_SECONDS_MAX, History
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.errors import BadRequest, DejaQError, Refused, Unavailable
from dejaqueue.model import ChangeKind
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.history import CHANGE_NAMES, HISTORY, STORED
from dejaqueue.schema.texts import mended_batch

BATCH_ROWS = 65_536
STRETCHES_MAX = 10_000
GAP = CHANGE_NAMES[ChangeKind.GAP]
_ALL_MS = limits.INSTANT_MS_MAX + 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """A checked request for a file.

    Attributes:
        columns: names of HISTORY, in its order.
        from_ms, to_ms: only what happened from the first time on, before the second.
        positions: only what happened in these stretches, first and last; None = everywhere.
        gaps: of rows that note a gap only those with these positions; None = all.
        encryption: how the file is read; None = it is not encrypted.
    """

    partition: int
    path: Path
    columns: tuple[str, ...]
    from_ms: int
    to_ms: int
    positions: tuple[tuple[int, int], ...] | None = None
    gaps: tuple[int, ...] | None = None
    encryption: Encryption | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        return pa.schema([HISTORY.field(name) for name in self.columns])


def wants_here(values: dict[str, Any]) -> bool:
    """Whether just this broker is asked, whoever serves the topic. Raises BadRequest."""
    here = values.get("here", False)
    if not isinstance(here, bool):
        raise BadRequest("here", "true or false", here)
    return here


def list_files(
    history: History, topic: ServedTopic | None, values: dict[str, Any]
) -> dict[str, Any]:
    """The files of a topic, and how much is in each, once they have all that is durable.

    Args:
        topic: None = it is served elsewhere, and here is what this broker recorded of it.
    """
    from_ms, to_ms = _times(values)
    if topic is not None:
        finish_files(topic, topic.partitions.numbers)
    if not wants_here(values):
        files_found = history.files.find(values["name"], from_ms, to_ms)
        return {"files": [asdict(file) for file in files_found]}
    return _mine(history, values["name"], from_ms, to_ms)


def finish_files(topic: ServedTopic, numbers: Iterable[int]) -> None:
    """Have the open files of these partitions finished."""

    def roll(listener: Listener, core: PartitionCore) -> Future[None] | None:
        core.commits.commit_all()
        return listener.roll()

    rolls: list[Future[None] | None] = []
    for number in numbers:
        try:
            look = partial(roll, topic.partitions[number].listener)
            rolls.append(answer_of(topic.look(number, look)))
        except DejaQError:
            continue  # it cannot be read now; what is recorded of it can
    for finished in rolls:
        if finished is not None:
            finished.result(WAIT_SECONDS_MAX)


def _mine(history: History, name: str, from_ms: int, to_ms: int) -> dict[str, Any]:
    """What this broker recorded of a topic, and of which positions it knows that it did not."""
    history.settle()  # a topic that went elsewhere a moment ago
    if not history.is_mine(name):
        return {"files": [], "recorded": {}}
    files = history.files
    found = [
        asdict(file) | {"gaps": gaps_in(files, name, file) if file.has_gaps else []}
        for file in files.find(name, from_ms, to_ms)
    ]
    return {"files": found, "recorded": files.all_recorded(name)}


def gaps_in(files: Files, topic: str, file: HistoryFile) -> list[tuple[int, int]]:
    """Positions of a file that are not recorded: first and last of each gap."""
    path = files.path_of(topic, file.partition, file.name)
    assert path is not None
    try:
        table = pq.read_table(
            path,
            columns=["change", "position"],
            partitioning=None,
            decryption_properties=decryption(files.encryption, path),
        )
    except FileNotFoundError:
        return []  # pruned meanwhile: who reads it is told
    except (OSError, pa.ArrowException) as wrong:
        raise Unavailable(f"history file {file.name} can't be read: {wrong}") from wrong
    positions = table["position"].to_numpy()
    rows = np.flatnonzero(pc.equal(table["change"], GAP).to_numpy(zero_copy_only=False))
    # What is not recorded lies between the row before and this one.
    before = np.where(rows > 0, positions[rows - 1], file.first - 1)
    return list(zip((before + 1).tolist(), positions[rows].tolist(), strict=True))


def parse(files: Files, topic: str, values: dict[str, Any]) -> Ticket:
    """The checked ticket; BadRequest names what is wrong."""
    number = whole(values, "partition", 0, limits.PARTITIONS_MAX - 1)
    name = values["file"]
    path = files.path_of(topic, number, name) if isinstance(name, str) else None
    if path is None:
        raise BadRequest("file", "the name of a file, as history_files lists it", name)
    known, columns = HISTORY.names, values.get("columns")
    if columns is None:
        columns = known
    if not isinstance(columns, list) or not all(one in known for one in columns):
        raise BadRequest("columns", f"a list of {', '.join(known)}", columns)
    chosen = tuple(one for one in known if one in columns)
    times, stretches = _times(values), _stretches(values.get("positions"))
    gaps = values.get("gaps")
    if gaps is not None and not _are_positions(gaps):
        raise BadRequest("gaps", f"a list of at most {STRETCHES_MAX} positions", gaps)
    chosen_gaps = None if gaps is None else tuple(gaps)
    columns = chosen or ("at_ms",)
    encryption = files.encryption
    return Ticket(number, path, columns, *times, stretches, chosen_gaps, encryption)


def decryption(encryption: Encryption | None, path: Path) -> Any:
    """How a file is read; None = it is not encrypted."""
    return None if encryption is None else encryption.reading(path)


def _are_positions(values: object) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= STRETCHES_MAX
        and all(type(one) is int and 0 <= one < 1 << 63 for one in values)
    )


def _stretches(values: object) -> tuple[tuple[int, int], ...] | None:
    if values is None:
        return None
    if (
        not isinstance(values, list)
        or len(values) > STRETCHES_MAX
        or not all(_are_positions(one) and len(one) == 2 for one in values)
    ):
        raise BadRequest("positions", f"a list of at most {STRETCHES_MAX} [first, last]", values)
    return tuple((first, last) for first, last in values)


def _times(values: dict[str, Any]) -> tuple[int, int]:
    from_ms = whole(values, "at_from", 0, limits.INSTANT_MS_MAX)
    return from_ms, whole(values, "at_to", _ALL_MS, _ALL_MS)


def read(topic: str, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    """A file, in batches of the ticket's schema.

    Raises:
        Refused: it was pruned since it was listed. Unavailable: it cannot be read.
    """
    stored = [name for name in ticket.columns if name in STORED.names]
    try:
        properties = decryption(ticket.encryption, ticket.path)
        with pq.ParquetFile(ticket.path, decryption_properties=properties) as file:
            # One column more, to know which rows there are.
            wanted = {*stored, "at_ms"}
            if ticket.positions is not None or ticket.gaps is not None:
                wanted |= {"position", "change"}
            for batch in file.iter_batches(BATCH_ROWS, columns=list(wanted)):
                batch = _chosen(ticket, batch)
                if batch.num_rows:
                    yield mended_batch(_shaped(topic, ticket, batch))
    except FileNotFoundError:
        raise Refused(f"history file {ticket.path.name} is gone: it was too old") from None
    except (OSError, pa.ArrowException) as wrong:
        raise Unavailable(f"history file {ticket.path.name} can't be read: {wrong}") from wrong


def _chosen(ticket: Ticket, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are wanted."""
    if ticket.from_ms or ticket.to_ms < _ALL_MS:
        at_ms = batch.column("at_ms")
        batch = batch.filter(
            pc.and_(pc.greater_equal(at_ms, ticket.from_ms), pc.less(at_ms, ticket.to_ms))
        )
    if (ticket.positions is None and ticket.gaps is None) or not batch.num_rows:
        return batch
    positions = batch.column("position").to_numpy()
    is_gap = pc.equal(batch.column("change"), GAP).to_numpy(zero_copy_only=False)
    wanted = np.ones(batch.num_rows, dtype=np.bool_)
    if ticket.positions is not None:
        firsts = np.array([first for first, _ in ticket.positions] or [1], dtype=np.int64)
        lasts = np.array([last for _, last in ticket.positions] or [0], dtype=np.int64)
        indices = np.searchsorted(firsts, positions, side="right") - 1
        wanted = (indices >= 0) & (positions <= lasts[indices])
    if ticket.gaps is not None:
        chosen = np.isin(positions, np.array(ticket.gaps, dtype=np.int64))
        wanted = np.where(is_gap, chosen, wanted)
    return batch.filter(pa.array(wanted))


def _shaped(topic: str, ticket: Ticket, batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = []
    for field in ticket.schema:
        if field.name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic), batch.num_rows))
        elif field.name == "partition":
            arrays.append(pa.repeat(pa.scalar(ticket.partition, pa.int32()), batch.num_rows))
        else:
            arrays.append(batch.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=ticket.schema)
