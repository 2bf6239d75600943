"""Erasing messages from history: files that tell of them are written again without them.

Room: broker. On the history's own thread, as all that writes files.
Holds: a file is replaced whole; what tells of other messages stays as it was, and up to which
position is recorded, too; a crash leaves a file as it was, or as it is to be.
See: files.py; calls/erasure.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.history.encode import ENCODED, open_parquet
from dejaqueue.broker.history.files import Files, HistoryFile
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.message_filter import DUE_END_MS, Selection
from dejaqueue.model import ChangeKind
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.dead_letters import ids_in_keys
from dejaqueue.schema.history import CHANGE_NAMES

_CAME = [CHANGE_NAMES[kind] for kind in (ChangeKind.ENQUEUED, ChangeKind.STAGED)]
_GAP = CHANGE_NAMES[ChangeKind.GAP]


class RecordedChoice(NamedTuple):
    """Of which messages of a partition nothing is to be told any more.

    Attributes:
        sequences: of these, ascending.
        spared: and of none of these, ascending, whatever is recorded of them.
        keys: of those that came with such a key; None = keys choose nothing.
        selection: of those that came so; its tags are not recorded: with tags it chooses nothing;
            None = it chooses nothing.
        origin: of these only dead letters of messages of this topic, as their keys say; "" = any.
        ids: of letters those whose messages had these ids; None = ids choose nothing.
    """

    sequences: Int64s
    spared: Int64s
    keys: tuple[str, ...] | None
    selection: Selection | None
    origin: str = ""
    ids: tuple[int, ...] | None = None

    @property
    def is_looked_for(self) -> bool:
        """Whether what is recorded says which messages are meant."""
        wanted = self.selection
        by_selection = wanted is not None and not wanted.tags
        return self.keys is not None or self.ids is not None or by_selection

    def fits(self, table: pa.Table) -> Any:
        """Which rows of `table` tell that one of them came; or was of the group, if that is all."""
        wanted = self.selection
        by_group = wanted is not None and wanted == Selection(wanted.states, group=wanted.group)
        if wanted is not None and by_group and wanted.group and not self.origin:
            return pc.equal(pc.fill_null(table["group"].cast(pa.utf8()), ""), wanted.group)
        mask = pc.is_in(table["change"].cast(pa.utf8()), value_set=pa.array(_CAME))
        if not self.is_looked_for:
            return pc.and_(mask, False)
        if self.origin:
            mask = pc.and_(mask, self._were(table["key"]))
        if self.keys is not None:
            mask = pc.and_(mask, pc.is_in(table["key"], value_set=pa.array(self.keys, pa.utf8())))
        if wanted is None:
            return mask
        if wanted.group is not None:
            groups = pc.fill_null(table["group"].cast(pa.utf8()), "")
            mask = pc.and_(mask, pc.equal(groups, wanted.group))
        if wanted.due_from_ms > 0 or wanted.due_to_ms < DUE_END_MS:
            dues_ms = pc.fill_null(table["due"], -1)
            mask = pc.and_(mask, pc.greater_equal(dues_ms, wanted.due_from_ms))
            mask = pc.and_(mask, pc.less(dues_ms, wanted.due_to_ms))
        mask = pc.and_(mask, pc.greater_equal(table["priority"], wanted.priority_from))
        return pc.and_(mask, pc.less_equal(table["priority"], wanted.priority_to))

    def _were(self, keys: pa.ChunkedArray) -> Any:
        """Which keys are those of letters that are meant."""
        ids = ids_in_keys(keys, self.origin)
        if self.ids is None:
            return pc.is_valid(ids)
        return pc.is_in(ids, value_set=pa.array(list(map(str, self.ids)), pa.utf8()))


class ErasedRows(NamedTuple):
    """What was erased: rows of files, and bytes of the files that were written again."""

    rows: int = 0
    byte_count: int = 0


def erase_recorded(files: Files, topic: str, number: int, choice: RecordedChoice) -> ErasedRows:
    """Write the files of a partition again that tell of these messages.

    Raises:
        OSError, pa.ArrowException: a file could not be read or written; those before it are done.

    Cost: each file of the partition is read once, in memory one after the other; twice where
    something is looked for in it.
    """
    return erase_told(files, topic, number, recorded_of(files, topic, number, choice))


def erase_told(files: Files, topic: str, number: int, gone: Int64s) -> ErasedRows:
    """Write the files again that tell of the messages with these sequences, ascending.

    Raises:
        OSError, pa.ArrowException: as `erase_recorded`.
    """
    if not gone.size:
        return ErasedRows()
    rows = byte_count = 0
    # The newest first: what says that a message came, and so which it is, is there to the last.
    for file in reversed(files.find(topic, 0, limits.INSTANT_MS_MAX, number)):
        erased = _rewrite(files, topic, file, gone)
        rows += erased.rows
        byte_count += erased.byte_count
    return ErasedRows(rows, byte_count)


def recorded_of(files: Files, topic: str, number: int, choice: RecordedChoice) -> Int64s:
    """Sequences of all messages that nothing is to be told of, ascending.

    Raises:
        OSError, pa.ArrowException: a file could not be read.
    """
    found = files.find(topic, 0, limits.INSTANT_MS_MAX, number)
    parts = [choice.sequences]
    if choice.is_looked_for:
        columns = ["change", "sequence", "due", "key", "group", "priority"]
        for file in found:
            table = _read(files, _path(files, topic, file), columns)
            if table is not None:
                came = table.filter(choice.fits(table))["sequence"].to_numpy()
                parts.append(came[~np.isin(came, choice.spared)])
    return np.unique(np.concatenate(parts))


def _path(files: Files, topic: str, file: HistoryFile) -> Path:
    path = files.path_of(topic, file.partition, file.name)
    assert path is not None
    return path


def _read(files: Files, path: Path, columns: list[str] | None = None) -> pa.Table | None:
    """The rows of a file; None = it was pruned meanwhile."""
    encryption = files.encryption
    try:
        return pq.read_table(
            path,
            columns=columns,
            partitioning=None,
            decryption_properties=None if encryption is None else encryption.reading(path),
        )
    except FileNotFoundError:
        return None


def _rewrite(files: Files, topic: str, file: HistoryFile, gone: Int64s) -> ErasedRows:
    path = _path(files, topic, file)
    table = _read(files, path)
    if table is None:
        return ErasedRows()
    told = np.isin(table["sequence"].to_numpy(), gone)
    told &= pc.not_equal(table["change"].cast(pa.utf8()), _GAP).to_numpy(zero_copy_only=False)
    rows = int(np.count_nonzero(told))
    if not rows:
        return ErasedRows()
    draft = files.open_path(topic, file.partition, file.first)
    encryption = files.encryption
    with pa.OSFile(str(draft), "wb") as sink:
        parquet = open_parquet(sink, None if encryption is None else encryption.writing())
        parquet.write_table(_encoded(table.filter(pa.array(~told))))
        parquet.close()
    files.replace(draft, path)
    return ErasedRows(rows, file.byte_count)


def _encoded(table: pa.Table) -> pa.Table:
    """Rows as they are written: texts that repeat as a dictionary of those that are there."""
    columns = []
    for column in ENCODED:
        values = table[column.name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            values = values.cast(pa.utf8()).dictionary_encode()
        columns.append(values.cast(column.type))
    return pa.Table.from_arrays(columns, schema=ENCODED)
