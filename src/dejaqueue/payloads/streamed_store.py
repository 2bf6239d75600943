"""The payload store as it keeps payloads that are streamed: in parts, each an object.

    <name>/list       the list of parts (schema/payload_parts.py), stored last
    <name>/00000 …    the parts
    <name>/taken      an upload for one message has become that message's

With a key each object is sealed by AES-256-GCM with a nonce that follows from its place, so that no
part can stand for another; the list says how many there are.

Room: payloads. Any thread; every call may take as long as the bucket does.
Holds: an upload that has a list is whole, and durable with it; a part that is read is the one
that was stored there, or an error that names it; nothing here holds more than a part.
See: payload_store.py, payloads that are stored whole; docs/adr/0076.
"""

from __future__ import annotations

from typing import Final

from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.journal.encryption.master_keys import new_aead
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList, decode_part_list
from dejaqueue.schema.references import Reference

SEAL_BYTES: Final = 16
"""So much longer is a part that is encrypted."""
_ABOUT: Final = b"part"
_TAKEN: Final = "taken"


def part_name(name: str, index: int) -> str:
    """The object of a part.

    Args:
        name: of the payload, with its slash.
        index: LIST_INDEX = the list.
    """
    return f"{name}list" if index == LIST_INDEX else f"{name}{index:05d}"


def _nonce(index: int) -> bytes:
    return (index - LIST_INDEX).to_bytes(12, "little")


def put_part(
    store: PayloadStore, name: str, index: int, content: bytes | memoryview, key: bytes
) -> None:
    """Store a part, in the place of one that was sent before; it is durable when the list is.
    Raises as PayloadStore.put.

    Args:
        key: as for PayloadStore.put; of one payload, and of all its parts.
    """
    if key:
        content = new_aead(key).encrypt(_nonce(index), content, _ABOUT)
    put = store.put_object if index == LIST_INDEX else store.put_ahead
    put(part_name(name, index), content)


def get_part(store: PayloadStore, reference: Reference, index: int) -> bytes:
    """A part, or with LIST_INDEX the list.

    Raises:
        JournalDamaged: it is missing, or, where it is encrypted, another one. Unavailable.
    """
    name = part_name(reference.name, index)
    content = store.get_object(name)
    if content is None:
        raise JournalDamaged(f"payload {name} is missing from the payload store")
    if not reference.key:
        return content
    try:
        return bytes(new_aead(reference.key).decrypt(_nonce(index), content, _ABOUT))
    except Exception as wrong:
        # The library has an error of its own, which is known where it is loaded alone.
        raise JournalDamaged(f"payload {name} is not what was stored") from wrong


def get_list(store: PayloadStore, reference: Reference) -> PartList:
    """The list of a payload's parts. Raises as `get_part`."""
    return decode_part_list(get_part(store, reference, LIST_INDEX), reference.digest)


def end_parts(store: PayloadStore, name: str, parts: PartList, key: bytes) -> Reference:
    """Store the list of parts that are all there.

    Raises:
        BadRequest: a part is missing, or has another length. Unavailable, ResourceExhausted.
    """
    stored = {one.name: one.byte_count for one in store.objects(name)}
    more = SEAL_BYTES if key else 0
    for index in range(parts.count):
        found = stored.get(part_name(name, index))
        if found != parts.size_of(index) + more:
            limit = f"stored with {parts.size_of(index)} bytes"
            raise BadRequest(f"part {index}", limit, None if found is None else found - more)
    put_part(store, name, LIST_INDEX, parts.encode(), key)
    return Reference(name, parts.byte_count, parts.digest, key)


def keep_parts(store: PayloadStore, reference: Reference) -> bool:
    """Have an upload become a message's own as it is: True for the first message that asks, and
    for no other. False also where the store could not tell who is first.

    Raises:
        JournalDamaged: it is not there any more. Unavailable.
    """
    if not store.claim(f"{reference.name}{_TAKEN}"):
        return False
    get_list(store, reference)
    return True


def copy_parts(store: PayloadStore, reference: Reference, new_name: str) -> Reference:
    """The same payload under another name as well, sealed as it is.

    Done again it makes the same, also where the first one is gone meanwhile.

    Raises:
        JournalDamaged: it is not there as a whole. Unavailable, ResourceExhausted.
    """
    copy = reference._replace(name=new_name)
    try:
        parts = get_list(store, reference)
    except JournalDamaged:
        parts = get_list(store, copy)
    # First, and stored anew: what is copied may be as old as what it is copied from, and whoever
    # looks for old payloads that no message has is not to take this for one.
    put_part(store, new_name, LIST_INDEX, parts.encode(), reference.key)
    missing = store.copy(
        (part_name(reference.name, index), part_name(new_name, index))
        for index in range(parts.count)
    )
    if missing:
        raise JournalDamaged(f"payload {missing[0]} is missing from the payload store")
    return copy
