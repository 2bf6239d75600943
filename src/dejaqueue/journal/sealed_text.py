"""Texts with their checksum: manifests, heads and indexes, in files and in object stores.

Room: journal; every backend stores these. Knows no files.
Holds: a text is what was sealed, or JournalDamaged.
"""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

from dejaqueue.errors import JournalDamaged


def seal_text(text: str) -> bytes:
    """A text with its checksum, as a JSON document."""
    checksum = xxhash.xxh3_64_hexdigest(text.encode())
    return json.dumps({"checksum": checksum, "text": text}, indent=1).encode()


def open_text(path: Path, content: bytes | memoryview) -> str:
    """The text that `seal_text` sealed.

    Raises:
        JournalDamaged: it is not what was written.
    """
    try:
        sealed = json.loads(bytes(content))
        text, checksum = str(sealed["text"]), str(sealed["checksum"])
    except (ValueError, KeyError, TypeError) as wrong:
        raise JournalDamaged(f"{path}, offset 0: not what was written") from wrong
    if xxhash.xxh3_64_hexdigest(text.encode()) != checksum:
        raise JournalDamaged(f"{path}, offset 0: the checksum is wrong")
    return text
