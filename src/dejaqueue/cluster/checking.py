"""What the catalogue and the store of journals say of one another: what one of them lacks.

Room: cluster. Asked when a broker joins, and by `dejaq cluster check`.
Holds: nothing is called missing that is only being made or deleted: it is looked at twice. What is
dropped has a number that was given, and whose topic is gone: it is never given again.
See: catalogue.py; docs/adr/0034.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.journal.interface import JournalStore

log = logging.getLogger("dejaqueue.cluster")


class Lack(StrEnum):
    """What is wrong with a topic."""

    JOURNALS = "it has no journals"
    TOPIC = "the catalogue knows no topic of these journals"


@dataclass(frozen=True, slots=True)
class Astray:
    """A topic that is not found, or not whole.

    Attributes:
        topic: its name; "" = not known.
        journals: what it is called in the store of journals.
    """

    topic: str
    journals: str
    lack: Lack

    def to_dict(self) -> dict[str, Any]:
        """As it goes to people."""
        return asdict(self) | {"lack": str(self.lack)}


def check(catalogue: ClusterCatalogue, store: JournalStore) -> list[Astray]:
    """Topics that only the catalogue, or only the store of journals, knows.

    Journals that came back after their topic was deleted are dropped again: a broker that slept
    while it let them be made, or whose call was late, marks them as made.

    Raises:
        Unavailable, JournalDamaged.
    """
    catalogue.read()
    needed = _needed(catalogue)
    made = set(store.made())
    missing = needed - made
    if missing:  # marked before the catalogue says that they are there
        catalogue.read()
        missing = (missing & _needed(catalogue)).difference(store.made())
    found = [Astray(name.rpartition(".")[0], name, Lack.JOURNALS) for name in sorted(missing)]
    unknown = made - catalogue.words()
    if unknown:
        catalogue.read()  # later than they were seen: who marks them has a number for them
        unknown -= catalogue.words()
    for journals in sorted(unknown):
        number = journals.rpartition(".")[2]
        if number.isdecimal() and 0 < int(number) <= catalogue.version:
            text = "journals %s came back after their topic was deleted: dropped again"
            log.warning(text, journals)
            store.drop(journals)
        else:
            found.append(Astray("", journals, Lack.TOPIC))
    return found


def _needed(catalogue: ClusterCatalogue) -> set[str]:
    """What topics that are there, and were used, are called in the store of journals."""
    return {catalogue.journals_of(row) for row in catalogue.rows() if row.is_used}
