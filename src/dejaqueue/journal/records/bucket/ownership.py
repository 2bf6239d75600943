"""An ownership: a partition's records from one owner, as it is in the bucket.

Room: journal. Knows bytes, no bucket.
See: ownership_log.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from dejaqueue.journal.sealed_text import open_text, seal_text


class Ownership(NamedTuple):
    """A partition's records from one owner.

    Attributes:
        number: among the partition's ownerships, from 1.
        id: drawn when it began.
        life: in whose log the records are.
        first: number of the first record.
    """

    number: int
    id: str
    life: str
    first: int

    def encode(self) -> bytes:
        """Its content in the bucket."""
        facts = {"id": self.id, "life": self.life, "first": self.first}
        return seal_text(json.dumps(facts))

    @staticmethod
    def decode(number: int, name: str, content: bytes) -> Ownership:
        """Of its content. Raises JournalDamaged."""
        facts = json.loads(open_text(Path(name), content))
        return Ownership(number, facts["id"], facts["life"], facts["first"])
