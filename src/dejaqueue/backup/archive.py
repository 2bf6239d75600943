"""The archive: all backups in a bucket.

    dejaq.json                  the format of the archive
    backups/<id>.json           a backup: its manifest, stored last
    pieces/<2 digits>/<name>    content, by its SHA-256; backups share pieces
    taking/<name>               one of a cluster is being taken: its brokers look for it
    chains/<chain>/<number>     what was done since the newest backup (log_chain.py, strands.py)
    payloads/…                  copies of large payloads (payload_copies.py)

Room: backup. Any thread.
Holds: a backup names pieces that were stored before it; a piece that is there is only ever replaced
by what its name says; one that is read is what its name says, or it is refused by that name.
See: connections/bucket.py, manifest.py, backup_id.py; broker/backup/copying.py, which fills it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Final

from dejaqueue.backup.backup_id import IdFacts, id_facts
from dejaqueue.backup.log_chain import (
    LogChain,
    chain_names,
    chain_of,
    following,
    is_reached,
)
from dejaqueue.backup.log_pieces import check_slice
from dejaqueue.backup.manifest import Manifest, Piece
from dejaqueue.backup.payload_copies import PayloadCopies
from dejaqueue.backup.strands import StrandIndex, last_instant, pieces_of, strands_of
from dejaqueue.connections.bucket import Bucket
from dejaqueue.connections.bucket_urls import open_bucket
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from dejaqueue.journal.encryption.cipher import Cipher, open_object

FORMAT: Final = 1
HEAD: Final = "dejaq.json"
_BACKUPS: Final = "backups/"
_PIECES: Final = "pieces/"
_TAKING: Final = "taking/"
_SUFFIX: Final = ".json"
ORPHAN_MS: Final = 86_400_000
"""A piece that no backup names is deleted when it is so old: a backup that is being taken may be
about to name it."""


def _path(name: str) -> str:
    return f"{_PIECES}{name[:2]}/{name}"


class Archive:
    """The backups of a bucket.

    Raises:
        Refused: there is something else in the bucket, or a later version's. Unavailable.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    @classmethod
    def open(cls, url: str, *, make: bool = False) -> Archive:
        """The archive of a URL.

        Args:
            make: begin one if there is none.

        Raises:
            BadRequest: the URL is none; there is no archive. Refused, Unavailable.
        """
        archive = cls(open_bucket(url))
        head = archive.bucket.get(HEAD)
        if head is None and make:
            archive.bucket.put_new(HEAD, json.dumps({"format": FORMAT}).encode())
            head = archive.bucket.get(HEAD)
        if head is None:
            raise BadRequest("url", "a place with backups", archive.bucket.url)
        try:
            found = json.loads(head)["format"]
        except (ValueError, KeyError, TypeError) as wrong:
            raise Refused(f"{archive.bucket.url}/{HEAD} is not of backups: {wrong!r}") from wrong
        if found != FORMAT:
            raise Refused(f"backups at {archive.bucket.url} have format {found}, this is {FORMAT}")
        return archive

    # --- pieces -------------------------------------------------------------------------------

    def put(self, stored: bytes | memoryview, *, replaces: bool = False) -> Piece:
        """Store a piece, encrypted already if it is to be.

        One that is there is stored again: it may be damaged, or old and named by nobody, so that it
        would be deleted before a backup names it.

        Args:
            replaces: it is likely there: do not ask first.
        """
        piece = Piece(hashlib.sha256(stored).hexdigest(), len(stored))
        if replaces or not self.bucket.put_new(_path(piece.name), stored):
            self.bucket.put(_path(piece.name), stored)
        return piece

    def stored(self, piece: Piece, what: str) -> bytes:
        """The stored bytes of a piece, compared with its name.

        Raises:
            JournalDamaged: it is missing, or is not what was stored. Unavailable.
        """
        content = self.bucket.get(_path(piece.name))
        if content is None:
            raise JournalDamaged(f"{what}: {_path(piece.name)} is missing")
        if hashlib.sha256(content).hexdigest() != piece.name:
            raise JournalDamaged(f"{what}: {_path(piece.name)} is not what was stored")
        return content

    def get(self, piece: Piece, what: str, cipher: Cipher | None) -> memoryview:
        """The content of a piece, sealed for the name `what` if it is encrypted. Raises as
        `stored`; EncryptionKeyMissing."""
        return memoryview(open_object(cipher, self.stored(piece, what), what))

    # --- backups ------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The ids of all backups, the oldest first."""
        return [
            one.name.removeprefix(_BACKUPS).removesuffix(_SUFFIX)
            for one in self.bucket.objects(_BACKUPS)
            if one.name.endswith(_SUFFIX)
        ]

    def manifest(self, backup: str) -> Manifest:
        """A backup by its id.

        Raises:
            BadRequest: there is none. JournalDamaged: it is not what was written. Unavailable.
        """
        name = f"{_BACKUPS}{backup}{_SUFFIX}"
        content = self.bucket.get(name)
        if content is None:
            raise BadRequest("backup", f"one of those at {self.bucket.url}", backup)
        return Manifest.decode(name, content)

    def newest(self, store: str = "") -> Manifest | None:
        """The newest backup; None if there is none. Raises JournalDamaged.

        Args:
            store: of these journals; "" = of any.
        """
        for backup in reversed(self.ids()):
            known = id_facts(backup)
            if store and known is not None and known.store != store:
                continue
            manifest = self.manifest(backup)
            if not store or manifest.store == store:
                return manifest
        return None

    def _facts(self, backup: str) -> IdFacts:
        known = id_facts(backup)
        if known is not None:
            return known
        manifest = self.manifest(backup)
        return IdFacts(manifest.store, manifest.cut_ms)

    def put_manifest(self, manifest: Manifest) -> None:
        """Make a backup visible, whose pieces are all stored.

        Raises:
            Refused: there is another one of its id.
        """
        name, content = f"{_BACKUPS}{manifest.id}{_SUFFIX}", manifest.encode()
        # After a lost answer the library has asked again, and found what it stored itself.
        if not self.bucket.put_new(name, content) and self.bucket.get(name) != content:
            raise Refused(f"another backup {manifest.id} is at {self.bucket.url} already")

    def take(self, name: str) -> None:
        """Note that a backup is being taken here, so that others see that it is the same place."""
        self.bucket.put(f"{_TAKING}{name}", b"")

    def is_being_taken(self, name: str) -> bool:
        """Whether that was noted."""
        return self.bucket.get(f"{_TAKING}{name}") is not None

    def taken(self, name: str) -> None:
        """Forget it: the backup is there, or was given up."""
        self.bucket.delete([f"{_TAKING}{name}"])

    def damage(self, manifest: Manifest, checked: set[str] | None = None) -> Iterator[str]:
        """What of a backup is missing or not what was stored, in words; needs no keys.

        Args:
            checked: names of pieces that were found whole; they are not read again, and those of
                this backup are added.
        """
        whole = set() if checked is None else checked
        named = [(manifest.catalogue, "the catalogue")]
        named += [(piece, one.place) for one in manifest.partitions for piece in one.pieces]
        for piece, what in named:
            if piece.name in whole:
                continue
            try:
                self.stored(piece, f"backup {manifest.id}, {what}")
                whole.add(piece.name)
            except JournalDamaged as damage:
                yield str(damage)

    def chain_damage(self, manifest: Manifest) -> tuple[list[str], int]:
        """What of the pieces behind a backup is missing, or is not what was stored, in words; and
        how many there are. Needs no keys. Raises Unavailable."""
        chain, damage, count = chain_of(self.bucket, manifest), list[str](), 0
        if chain is None:
            return damage, count
        index = StrandIndex(manifest)
        pieces = pieces_of(strands_of(self.bucket, manifest.chain), damage.append)
        if not manifest.in_strands:
            pieces = ((chain, piece) for piece in following(chain, manifest, damage.append))
        for strand, piece in pieces:
            count += 1
            index.add(piece)
            try:
                for one in piece.slices:
                    check_slice(one, strand.path(piece.number))
            except JournalDamaged as wrong:
                damage.append(str(wrong))
        if manifest.in_strands:
            index.covered(damage.append)
        return damage, count

    def reach_ms(self, manifest: Manifest) -> int:
        """Up to which instant a backup and what is behind it can be restored, UTC milliseconds.

        Cost: a listing, and two pieces are read. Raises JournalDamaged, Unavailable.
        """
        chain = chain_of(self.bucket, manifest)
        if manifest.in_strands:
            return max(manifest.cut_ms, last_instant(self.bucket, manifest))
        if chain is None or not is_reached(chain, manifest):
            return manifest.cut_ms
        return max(manifest.cut_ms, chain.last_instant(chain.numbers()))

    def outlived(self, store: str, now_ms: int, *, count: int, age_ms: int) -> list[str]:
        """Ids of backups that need not be kept; the newest of each store stays always.

        Cost: a listing; besides a request for each backup of an earlier version.

        Args:
            store: whose backups; "" = of all stores.
            count: so many of each store are kept; 0 = any number.
            age_ms: those that are older are not kept; 0 = however old.
        """
        of_stores: dict[str, list[tuple[str, int]]] = {}
        for backup in self.ids():
            facts = self._facts(backup)
            if not store or facts.store == store:
                of_stores.setdefault(facts.store, []).append((backup, facts.cut_ms))
        gone = []
        for backups in of_stores.values():
            last = len(backups) - 1
            for at, (backup, cut_ms) in enumerate(backups):
                too_many = count and at + count <= last
                too_old = age_ms and cut_ms < now_ms - age_ms
                if at < last and (too_many or too_old):
                    gone.append(backup)
        return gone

    # --- the end of backups -------------------------------------------------------------------

    def forget(self, gone: list[str]) -> None:
        """Delete backups; their pieces stay until `sweep`."""
        self.bucket.delete([f"{_BACKUPS}{backup}{_SUFFIX}" for backup in gone])

    def sweep(self, now_ms: int) -> int:
        """Delete pieces that no backup names, and that are older than ORPHAN_MS.

        A backup that is taken meanwhile loses none: it stores anew what it finds here unnamed, so
        that it is young, and its manifest, if it came after the first look, is in the second one.

        Returns:
            How many were deleted.

        Raises:
            JournalDamaged: a backup cannot be read: what it names is not known, so no piece is
                deleted.
        """
        known = set(self.ids())
        orphans = self._orphans(known, now_ms)
        if orphans:
            came = set(self.ids()) - known
            orphans &= self._orphans(came, now_ms)
        self.bucket.delete(sorted(orphans))
        old_ms = now_ms - ORPHAN_MS
        left = [one.name for one in self.bucket.objects(_TAKING) if one.stored_ms < old_ms]
        self.bucket.delete(left)
        self._sweep_chains()
        PayloadCopies(self.bucket).sweep(set(self.ids()), now_ms)
        return len(orphans)

    def _sweep_chains(self) -> None:
        """Delete chains that follow no backup any more."""
        names = chain_names(self.bucket)  # whose backups are there, as those are stored first
        if not names:
            return
        newest: dict[str, Manifest] = {}
        for backup in self.ids():
            manifest = self.manifest(backup)
            newest[manifest.chain] = manifest
        for name in sorted(names):
            chain, manifest_of = LogChain(self.bucket, name), newest.get(name)
            is_strand = manifest_of is not None and manifest_of.in_strands
            if manifest_of is None or not (is_strand or is_reached(chain, manifest_of)):
                chain.delete_all()

    def _orphans(self, backups: set[str], now_ms: int) -> set[str]:
        """Pieces that are old, and that none of these backups names, as objects of the bucket."""
        kept = {_path(piece.name) for one in backups for piece in self.manifest(one).pieces}
        return {
            one.name
            for one in self.bucket.objects(_PIECES)
            if one.name not in kept and one.stored_ms < now_ms - ORPHAN_MS
        }
