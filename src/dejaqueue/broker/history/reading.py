"""Reading history over the network: which files there are, and one of them batch by batch.

Room: broker. On the caller's thread; the partitions are asked for nothing but to finish their
files.
Holds: what was durable in the journal when the files were listed is in them, or a gap says so; a
file that was pruned since is an error, not an empty answer.
See: docs/wire.md for the ticket; spark/ for who reads so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.browse import answer_of, whole
from dejaqueue.broker.history.files import Files
from dejaqueue.broker.history.recorder import WAIT_SECONDS_MAX
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.runtime import TopicRuntime
from dejaqueue.errors import BadRequest, DejaQError, Refused, Unavailable
from dejaqueue.schema.history import HISTORY, STORED
from dejaqueue.wire.descriptors import check_fields

FIELDS = ["topic", "partition", "file", "columns", "at_from", "at_to"]
BATCH_ROWS = 65_536
_ALL_MS = limits.INSTANT_MS_MAX + 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """A checked request for a file.

    Attributes:
        columns: names of HISTORY, in its order.
        from_ms, to_ms: only what happened from the first time on, before the second.
    """

    partition: int
    path: Path
    columns: tuple[str, ...]
    from_ms: int
    to_ms: int

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        return pa.schema([HISTORY.field(name) for name in self.columns])


def list_files(files: Files, topic: TopicRuntime, values: dict[str, Any]) -> dict[str, Any]:
    """The files of a topic, and how much is in each, once they have all that is durable."""
    check_fields(values, ["name", "at_from", "at_to"])
    from_ms, to_ms = _times(values)

    def roll(place: Partition) -> None:
        place.commits.commit_all()
        rolls.append(place.recorder.roll() if place.recorder is not None else None)

    rolls: list[Any] = []
    for number in topic.partitions.numbers:
        try:
            answer_of(topic.look(number, roll))
        except DejaQError:
            continue  # it cannot be read now; what is recorded of it can
    for finished in rolls:
        if finished is not None:
            finished.result(WAIT_SECONDS_MAX)
    return {"files": [asdict(file) for file in files.find(topic.topic.name, from_ms, to_ms)]}


def parse(files: Files, topic: str, values: dict[str, Any]) -> Ticket:
    """The checked ticket; BadRequest names what is wrong."""
    check_fields(values, FIELDS, required=("partition", "file"))
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
    return Ticket(number, path, chosen or ("at_ms",), *_times(values))


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
        with pq.ParquetFile(ticket.path) as file:
            # One column more, to know which rows there are.
            for batch in file.iter_batches(BATCH_ROWS, columns=list({*stored, "at_ms"})):
                at_ms = batch.column("at_ms")
                if ticket.from_ms or ticket.to_ms < _ALL_MS:
                    mask = pc.and_(
                        pc.greater_equal(at_ms, ticket.from_ms), pc.less(at_ms, ticket.to_ms)
                    )
                    batch = batch.filter(mask)
                if batch.num_rows:
                    yield _shaped(topic, ticket, batch)
    except FileNotFoundError:
        raise Refused(f"history file {ticket.path.name} is gone: it was too old") from None
    except (OSError, pa.ArrowException) as wrong:
        raise Unavailable(f"history file {ticket.path.name} can't be read: {wrong}") from wrong


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
