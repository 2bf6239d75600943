"""What the messages of a backup have in the payload store, and what of that is not there any more.

A backup has references. This reads all of them, as a restore would, and compares them with a
listing of the store; payloads themselves are not read.

Room: broker. Nobody's journals; an archive, and a payload store.
Holds: whatever a restore of the backup would deliver, and that is missing here or has another
length, is named; each once.
See: archived_partition.py; cli/backed_payloads.py; docs/guides/large-payloads.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.archived_partition import ArchivedPartition
from dejaqueue.broker.shard import entries
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.payloads.streamed_store import SEAL_BYTES, part_name
from dejaqueue.schema.payload_parts import LIST_INDEX, part_count
from dejaqueue.schema.references import Reference, decode, marked_rows


@dataclass(slots=True)
class BackedPayloads:
    """What was found.

    Attributes:
        payloads: how many the backup's messages have in the store.
        bytes: of all of them.
        missing: objects that are not there, or have another length.
    """

    backup: str
    payloads: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def references_of(
    archive: Archive, manifest: Manifest, cipher: Cipher | None
) -> Iterator[Reference]:
    """Yield what each live message of a backup refers to. Raises JournalDamaged,
    EncryptionKeyMissing, Unavailable."""
    for copy in manifest.partitions:
        archived = ArchivedPartition(archive, manifest.store, copy, cipher)
        for _, texts in archived.rows(archived.views()):
            column = entries.arrow_column(texts["payload"], pa.binary())
            for row in marked_rows(column).tolist():
                found = decode(column[row].as_py())
                if isinstance(found, Reference):
                    yield found


def check_payloads(
    archive: Archive, manifest: Manifest, cipher: Cipher | None, store: PayloadStore
) -> BackedPayloads:
    """Compare what a backup needs with what a store has. Raises as `references_of`."""
    found = BackedPayloads(manifest.id)
    needed: dict[str, dict[str, Reference]] = defaultdict(dict)
    for one in references_of(archive, manifest, cipher):
        owner = "/".join(one.name.split("/")[:2])
        needed[owner][one.name] = one
    for owner, references in sorted(needed.items()):
        stored = {one.name: one.byte_count for one in store.objects(f"{owner}/")}
        for name in sorted(references):
            found.payloads += 1
            found.bytes += references[name].byte_count
            found.missing += missing_objects(references[name], stored)
    return found


def missing_objects(reference: Reference, stored: dict[str, int]) -> Iterator[str]:
    """Objects of a payload that are not there as they should be."""
    more = SEAL_BYTES if reference.key else 0
    if not reference.is_streamed:
        if stored.get(reference.name) != reference.whole.byte_count + more:
            yield reference.name
        return
    left = reference.byte_count
    for index in range(part_count(reference.byte_count)):
        size = min(limits.PART_BYTES, left)
        left -= size
        if stored.get(part_name(reference.name, index)) != size + more:
            yield part_name(reference.name, index)
    if part_name(reference.name, LIST_INDEX) not in stored:
        yield part_name(reference.name, LIST_INDEX)
