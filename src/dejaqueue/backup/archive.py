"""The archive: all backups in a bucket.

    dejaq.json                  the format of the archive
    backups/<id>.json           a backup: its manifest, stored last
    pieces/<2 digits>/<name>    content, by its SHA-256; backups share pieces

Room: backup. Any thread.
Holds: a backup names pieces that were stored before it; nothing that is there is changed; a piece
that is read is what its name says, or it is refused by that name.
See: bucket.py, manifest.py; broker/backup/copying.py, which fills it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dejaqueue.backup.bucket import Bucket, DirectoryBucket
from dejaqueue.backup.manifest import Manifest, Piece
from dejaqueue.backup.object_bucket import ObjectBucket
from dejaqueue.errors import BadRequest, JournalDamaged, Refused
from dejaqueue.journal.encryption.cipher import Cipher, open_object

URL_WORDS: Final = "a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container"
OBJECT_SCHEMES: Final = ("s3", "gs", "az")
FORMAT: Final = 1
HEAD: Final = "dejaq.json"
_BACKUPS: Final = "backups/"
_PIECES: Final = "pieces/"
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

    def put(self, stored: bytes | memoryview) -> Piece:
        """Store a piece, encrypted already if it is to be."""
        piece = Piece(hashlib.sha256(stored).hexdigest(), len(stored))
        self.bucket.put_new(_path(piece.name), stored)
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

    def newest(self, is_wanted: Callable[[Manifest], bool] = lambda _: True) -> Manifest | None:
        """The newest backup that is wanted; None if there is none. Raises JournalDamaged."""
        for backup in reversed(self.ids()):
            manifest = self.manifest(backup)
            if is_wanted(manifest):
                return manifest
        return None

    def put_manifest(self, manifest: Manifest) -> None:
        """Make a backup visible, whose pieces are all stored.

        Raises:
            Refused: there is another one of its id.
        """
        name, content = f"{_BACKUPS}{manifest.id}{_SUFFIX}", manifest.encode()
        # After a lost answer the library has asked again, and found what it stored itself.
        if not self.bucket.put_new(name, content) and self.bucket.get(name) != content:
            raise Refused(f"another backup {manifest.id} is at {self.bucket.url} already")

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

    def outlived(self, store: str, now_ms: int, *, count: int, age_ms: int) -> list[str]:
        """Ids of backups that need not be kept; the newest of each store stays always.

        Args:
            store: whose backups; "" = of all stores.
            count: so many of each store are kept; 0 = any number.
            age_ms: those that are older are not kept; 0 = however old.
        """
        of_stores: dict[str, list[Manifest]] = {}
        for backup in self.ids():
            manifest = self.manifest(backup)
            if not store or manifest.store == store:
                of_stores.setdefault(manifest.store, []).append(manifest)
        gone = []
        for manifests in of_stores.values():
            last = len(manifests) - 1
            for place, manifest in enumerate(manifests):
                too_many = count and place + count <= last
                too_old = age_ms and manifest.cut_ms < now_ms - age_ms
                if place < last and (too_many or too_old):
                    gone.append(manifest.id)
        return gone

    # --- the end of backups -------------------------------------------------------------------

    def forget(self, gone: list[str], now_ms: int) -> int:
        """Delete backups, and pieces that no other backup names.

        Args:
            gone: ids.
            now_ms: pieces that nobody names and that are younger than ORPHAN_MS stay.

        Returns:
            How many pieces were deleted.

        Raises:
            JournalDamaged: a backup that stays cannot be read: what it names is not known, so no
                piece is deleted.
        """
        self.bucket.delete([f"{_BACKUPS}{backup}{_SUFFIX}" for backup in gone])
        kept = {piece.name for backup in self.ids() for piece in self.manifest(backup).pieces}
        orphans = [
            one.name
            for one in self.bucket.objects(_PIECES)
            if one.name.rpartition("/")[2] not in kept and one.stored_ms < now_ms - ORPHAN_MS
        ]
        self.bucket.delete(orphans)
        return len(orphans)


def open_bucket(url: str) -> Bucket:
    """The bucket of a URL. Raises BadRequest: it has another form, or its extra is missing."""
    scheme, colon, rest = url.partition("://")
    if colon and scheme in OBJECT_SCHEMES:
        return ObjectBucket(url)
    is_typo = not colon and ":" in url.partition("/")[0]  # `s3:/bucket`, `backups:`
    if not url or is_typo or (colon and (scheme != "file" or not rest.startswith("/"))):
        raise BadRequest("backup.url", URL_WORDS, url.partition("?")[0])
    return DirectoryBucket(Path(rest if colon else url).expanduser().absolute())
