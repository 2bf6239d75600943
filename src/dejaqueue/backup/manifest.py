"""The manifest of a backup: what of which partition is in which piece, as JSON with its checksum.

Room: backup; pure values.
Holds: `Manifest.decode(manifest.encode()) == manifest`; the stretches of a partition follow each
other without a gap, from its first position to where it was cut.
See: archive.py, where it is stored; pieces.py, what is in a piece of entries or rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from dejaqueue.errors import JournalDamaged, Refused
from dejaqueue.journal.sealed_text import open_text, seal_text

FORMAT: Final = 1
ENTRIES: Final = "entries"
"""A stretch that has its entries whole: state can be replayed from them."""
ROWS: Final = "rows"
"""A stretch that has the stored columns of messages alone, as a snapshot covers the rest."""


class Piece(NamedTuple):
    """A stored piece.

    Attributes:
        name: SHA-256 of what is stored, in hexadecimal digits.
        byte_count: of what is stored.
    """

    name: str
    byte_count: int


class Stretch(NamedTuple):
    """Some neighbouring positions of a partition, and what is kept of them.

    Attributes:
        kind: ENTRIES or ROWS.
        after, last: from the position behind `after` to this one.
        rows: that locators may name, in the piece.
        until_ms: time of its last entry; of ROWS 0.
        piece: where it is; None = nothing of it is needed.
    """

    kind: str
    after: int
    last: int
    rows: int
    until_ms: int
    piece: Piece | None

    @classmethod
    def from_values(cls, values: list[Any]) -> Stretch:
        """The stretch of its JSON values."""
        kind, after, last, rows, until_ms, piece = values
        found = None if piece is None else Piece(str(piece[0]), int(piece[1]))
        return cls(str(kind), int(after), int(last), int(rows), int(until_ms), found)


@dataclass(frozen=True, slots=True)
class SnapshotCopy:
    """A snapshot of a partition.

    Attributes:
        position: of the last entry that it covers.
        meta: as its writer gave it.
        files: pieces by the names of the snapshot's files.
    """

    position: int
    meta: str
    files: dict[str, Piece]


@dataclass(frozen=True, slots=True)
class PartitionCopy:
    """What a backup has of a partition.

    Attributes:
        topic: its name.
        topic_number: tells it from others of that name.
        journals: what the topic is called in the store of its journals.
        position: of the last entry; state is as it was behind it.
        snapshot: where replay begins; None = at the first entry.
        stretches: of positions, ascending.
    """

    topic: str
    topic_number: int
    journals: str
    partition: int
    position: int
    snapshot: SnapshotCopy | None
    stretches: tuple[Stretch, ...]

    @property
    def place(self) -> str:
        """For people and errors."""
        return f"{self.topic}/{self.partition}"

    @property
    def pieces(self) -> Iterator[Piece]:
        """All of it."""
        if self.snapshot is not None:
            yield from self.snapshot.files.values()
        yield from (one.piece for one in self.stretches if one.piece is not None)

    def to_values(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> PartitionCopy:
        """The copy of its JSON values."""
        snapshot = None
        if values["snapshot"] is not None:
            known = values["snapshot"]
            files = {name: Piece(str(of[0]), int(of[1])) for name, of in known["files"].items()}
            snapshot = SnapshotCopy(int(known["position"]), str(known["meta"]), files)
        return cls(
            str(values["topic"]),
            int(values["topic_number"]),
            str(values["journals"]),
            int(values["partition"]),
            int(values["position"]),
            snapshot,
            tuple(Stretch.from_values(one) for one in values["stretches"]),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup.

    Attributes:
        id: tells it from all others in its bucket; the later one comes behind in the alphabet.
        store: of which journals it is: drawn once for each store.
        parent: id of the backup before it, whose pieces it may name; "" = none.
        cut_ms: at this instant, UTC.
        done_ms: when the last of it was stored.
        version: of DejaQ that wrote it.
        catalogue: what there was, as the catalogue's snapshots have it.
        partitions: those in which anything was ever stored.
        documents: small texts that a store keeps beside topics, by name.
        data_keys: wrapped keys of what is encrypted, by their numbers in hexadecimal digits.
        new_bytes: of pieces that were stored for it.
        clocks: how many clocks gave its entries their times: those of the machines of a cluster.
        chain: the chain of log pieces (log_chain.py) that has what was done since; "" = none has.
        in_strands: the chain is one of strands, of several processes (strands.py).
        logs: the chain has the entries of each log from behind this position, by the log's name.
        chain_from: number of the first piece of the chain that is needed; those before it may be
            gone. 0 = it is not said.
        payload_ids: under which ids its large payloads are in their store, as in Payloads.ids.
    """

    id: str
    store: str
    parent: str
    cut_ms: int
    done_ms: int
    version: str
    catalogue: Piece
    partitions: tuple[PartitionCopy, ...] = ()
    documents: dict[str, str] = field(default_factory=dict)
    data_keys: dict[str, str] = field(default_factory=dict)
    new_bytes: int = 0
    clocks: int = 1
    chain: str = ""
    logs: dict[str, int] = field(default_factory=dict)
    in_strands: bool = False
    chain_from: int = 0
    payload_ids: tuple[str, ...] = ()

    @property
    def pieces(self) -> Iterator[Piece]:
        """All that it names, some of them more than once."""
        yield self.catalogue
        for partition in self.partitions:
            yield from partition.pieces

    @property
    def byte_count(self) -> int:
        """Bytes of all its pieces."""
        return sum(piece.byte_count for piece in set(self.pieces))

    def describe(self) -> dict[str, Any]:
        """For listings."""
        return {
            "id": self.id,
            "store": self.store,
            "parent": self.parent,
            "cut_ms": self.cut_ms,
            "done_ms": self.done_ms,
            "topics": len({one.topic for one in self.partitions}),
            "partitions": len(self.partitions),
            "bytes": self.byte_count,
            "new_bytes": self.new_bytes,
            "encrypted": bool(self.data_keys),
        }

    def encode(self) -> bytes:
        """As it is stored."""
        values = {"format": FORMAT, **asdict(self)}
        if self.clocks == 1:
            del values["clocks"]  # earlier versions do not know it
        if not self.chain:
            del values["chain"], values["logs"]
        if not self.in_strands:
            del values["in_strands"]
        if not self.chain_from:
            del values["chain_from"]
        if not self.payload_ids:
            del values["payload_ids"]
        return seal_text(json.dumps(values, separators=(",", ":"), ensure_ascii=False))

    @classmethod
    def decode(cls, name: str, content: bytes) -> Manifest:
        """The manifest of `encode`.

        Args:
            name: where it is, for errors.

        Raises:
            JournalDamaged: it is not what was written. Refused: a later version wrote it.
        """
        try:
            values: dict[str, Any] = json.loads(open_text(Path(name), content))
            if values.pop("format") != FORMAT:
                raise Refused(f"backup {name} has another format, this is {FORMAT}")
            catalogue = Piece(str(values["catalogue"][0]), int(values["catalogue"][1]))
            partitions = tuple(PartitionCopy.from_values(one) for one in values["partitions"])
            values |= {"catalogue": catalogue, "partitions": partitions}
            return cls(**values | {"payload_ids": tuple(values.get("payload_ids", ()))})
        except (ValueError, KeyError, TypeError, IndexError) as wrong:
            raise JournalDamaged(f"backup {name}: not what was written ({wrong!r})") from wrong
