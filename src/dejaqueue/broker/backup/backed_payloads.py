"""What the messages of a backup have in the payload store: what is not there any more, and copies.

A backup has references. This reads all of them, as a restore would, and compares them with a
listing of the store, or copies what they refer to beside the backup, and back.

Room: broker. Nobody's journals; an archive, and a payload store.
Holds: whatever a restore of the backup would deliver, and that is missing here or has another
length, is named; each once. What is copied was compared with its reference, and what is put back
with what was copied.
See: backup/payload_copies.py; archived_partition.py; cli/backed_payloads.py;
docs/guides/large-payloads.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest
from dejaqueue.backup.payload_copies import CopiedObject, PayloadCopies
from dejaqueue.broker.backup.archived_partition import ArchivedPartition
from dejaqueue.broker.shard import entries
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.payloads.streamed_store import SEAL_BYTES, get_list, get_part, part_name
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList, check_part, part_count
from dejaqueue.schema.references import Reference, decode, marked_rows

COPY_THREADS: Final = 8
LIST_NAME: Final = "list"


@dataclass(slots=True)
class BackedPayloads:
    """What was found.

    Attributes:
        payloads: how many the backup's messages have in the store.
        bytes: of all of them.
        missing: objects that are not there, or have another length.
        copies: objects that were copied beside the backup; None = they were not.
    """

    backup: str
    payloads: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)
    copies: int | None = None

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
    copied = PayloadCopies(archive.bucket).needed(manifest.id)
    found = BackedPayloads(manifest.id, copies=None if copied is None else len(copied))
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


@dataclass(slots=True)
class CopyCounts:
    """What copying came to.

    Attributes:
        objects, bytes: of the payload store, which the backup needs.
        new_objects, new_bytes: of these, that were copied now.
        missing: payloads that are not there, or are not what was stored, in words: there is no
            copy of them.
    """

    objects: int = 0
    bytes: int = 0
    new_objects: int = 0
    new_bytes: int = 0
    missing: list[str] = field(default_factory=list)


def copy_payloads(
    archive: Archive, manifest: Manifest, cipher: Cipher | None, store: PayloadStore
) -> CopyCounts:
    """Copy what a backup needs of a store beside the backup; what is there already is not read.

    Raises:
        As `references_of`; ResourceExhausted.

    Cost: COPY_THREADS objects are in memory, of some MiB, or a large payload each.
    """
    copies = PayloadCopies(archive.bucket)
    known, there = copies.known(), copies.sizes()
    listed: dict[str, CopiedObject] = {}
    wanted: dict[str, Reference] = {}
    for one in references_of(archive, manifest, cipher):
        wanted[one.name] = one.whole

    def copied(reference: Reference) -> dict[str, CopiedObject]:
        found, names = {}, list(_objects_of(reference))
        parts: PartList | None = None
        for name in names:
            before = known.get(name)
            if before is not None and there.get(name) == before.byte_count:
                found[name] = before
                continue
            if reference.is_streamed:
                parts = parts or get_list(store, reference)
                content = _checked_part(store, reference, parts, name)
            else:
                content = store.get_checked(reference)
            found[name] = copies.put(name, content)
        return found

    def outcome(reference: Reference) -> dict[str, CopiedObject] | JournalDamaged:
        try:
            return copied(reference)
        except JournalDamaged as damage:
            return damage

    missing: list[str] = []
    with ThreadPoolExecutor(COPY_THREADS, "dejaq-copying") as pool:
        for found in pool.map(outcome, wanted.values()):
            if isinstance(found, JournalDamaged):
                missing.append(str(found))
            else:
                listed |= found
    copies.put_list(manifest.id, listed)
    new = [one for name, one in listed.items() if known.get(name) is None or name not in there]
    return CopyCounts(
        len(listed),
        sum(one.byte_count for one in listed.values()),
        len(new),
        sum(one.byte_count for one in new),
        missing,
    )


def put_back(archive: Archive, backup: str, store: PayloadStore) -> CopyCounts:
    """Store again, under their names, the copies of a backup that a payload store does not have.

    Raises:
        JournalDamaged: a copy is missing or damaged; those before it are stored. ResourceExhausted,
            Unavailable.
    """
    copies = PayloadCopies(archive.bucket)
    listed = copies.needed(backup) or {}
    there: dict[str, int] = {}
    for owner in {"/".join(name.split("/")[:2]) for name in listed}:
        there |= {one.name: one.byte_count for one in store.objects(f"{owner}/")}
    # The list of a streamed payload goes last: one that has it is whole.
    missing = [name for name, one in listed.items() if there.get(name) != one.byte_count]
    missing.sort(key=lambda name: name.endswith(f"/{LIST_NAME}"))
    for name in missing:
        store.put_object(name, copies.get(name, listed[name]))
    return CopyCounts(
        len(listed),
        sum(one.byte_count for one in listed.values()),
        len(missing),
        sum(listed[name].byte_count for name in missing),
    )


def _objects_of(reference: Reference) -> Iterator[str]:
    """The objects that a payload is kept in, the list of parts last."""
    if not reference.is_streamed:
        yield reference.name
        return
    for index in range(part_count(reference.byte_count)):
        yield part_name(reference.name, index)
    yield part_name(reference.name, LIST_INDEX)


def _checked_part(store: PayloadStore, reference: Reference, parts: PartList, name: str) -> bytes:
    """An object of a streamed payload as it is stored, which is what its list says."""
    last = name.removeprefix(reference.name)
    if last != LIST_NAME:
        index = int(last)
        check_part(parts, index, get_part(store, reference, index))
    content = store.get_object(name)
    if content is None:
        raise JournalDamaged(f"payload {name} is missing from the payload store")
    return content


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
