"""Files that the pages load: scripts and styles, from the package, packed once.

Room: console.
Holds: an address has the digest of all files in it, so that a browser may keep what it has and asks
again after an upgrade; nothing outside the two folders is served.
See: vendor/README.md for what is not ours.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FOLDERS = ("vendor", "static")


@dataclass(frozen=True, slots=True)
class File:
    """One file.

    Attributes:
        kind: its media type.
        plain, packed: its bytes, and the same with gzip.
    """

    kind: str
    plain: bytes
    packed: bytes


@cache
def files() -> dict[str, File]:
    """Every file, by name."""
    found: dict[str, File] = {}
    for folder in FOLDERS:
        for entry in resources.files("dejaqueue.console").joinpath(folder).iterdir():
            ending = entry.name[entry.name.rfind(".") :]
            if ending in KINDS:
                plain = entry.read_bytes()
                packed = gzip.compress(plain, 9, mtime=0)
                found[entry.name] = File(f"{KINDS[ending]}; charset=utf-8", plain, packed)
    return found


@cache
def digest() -> str:
    """Of all files together."""
    hashed = hashlib.sha256()
    for name, file in sorted(files().items()):
        hashed.update(name.encode() + b"\0" + file.plain)
    return hashed.hexdigest()[:16]


def address(name: str) -> str:
    """Where a page loads a file from."""
    return f"/console/files/{digest()}/{name}"
