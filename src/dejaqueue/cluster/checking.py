"""What the coordinator and the store of journals say of one another: topics that one of them lacks.

Room: cluster. Asked when a broker joins, and by `dejaq cluster check`.
Holds: nothing is called missing that is only being made or deleted: it is looked at twice. What the
coordinator knows is changed only if that was asked for, and only where nobody else has changed it.
See: catalogue.py, which keeps what is known of a topic beside its journals; docs/adr/0027.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dejaqueue.cluster.catalogue import ClusterCatalogue, Kept, State
from dejaqueue.coordinator.interface import Fact
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import JournalStore


class Lack(StrEnum):
    """What is wrong with a topic."""

    FACT = "the coordinator does not know it"
    EDITION = "the coordinator knows it as it was before"
    NAME = "the coordinator has another topic of this name"
    JOURNALS = "it has no journals"
    TEXT = "nobody knows which topic these journals are of"


@dataclass(frozen=True, slots=True)
class Astray:
    """A topic that is not found, or not whole.

    Attributes:
        topic: its name; "" = not known.
        journals: what it is called in the store of journals.
        adopted: the coordinator knows it again.
    """

    topic: str
    journals: str
    lack: Lack
    adopted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As it goes to people."""
        return asdict(self) | {"lack": str(self.lack)}


def check(catalogue: ClusterCatalogue, store: JournalStore, *, adopt: bool) -> list[Astray]:
    """Topics that only the coordinator, or only the store of journals, knows as they are.

    Args:
        adopt: have the coordinator know again what it does not know.

    Raises:
        Unavailable.
    """
    catalogue.read()
    texts = store.made()
    words = catalogue.words()
    found = [
        one
        for journals, text in sorted(texts.items())
        if (one := _of_journals(catalogue, store, journals, text, adopt=adopt)) is not None
    ]
    missing = [name for name in sorted(words - texts.keys()) if _lives(catalogue, name)]
    if missing:
        made = store.made()  # later than that they live, since journals are made before
        missing = [name for name in missing if name not in made and _lives(catalogue, name)]
    return found + [Astray(name.rpartition(".")[0], name, Lack.JOURNALS) for name in missing]


def _of_journals(
    catalogue: ClusterCatalogue, store: JournalStore, journals: str, text: str, *, adopt: bool
) -> Astray | None:
    if catalogue.drop_again(journals.rpartition(".")[0], journals):
        return None
    try:
        kept = Kept.of(Fact("texts/" + journals, text.encode(), 0))
    except JournalDamaged:
        kept = None
    if kept is None or kept.journals != journals:
        is_known = journals in catalogue.words()
        return None if is_known else Astray("", journals, Lack.TEXT)
    name = kept.topic.name
    known = catalogue.look(name)
    if known is None:
        lack = Lack.FACT
    elif known.journals in kept.gone:
        lack = Lack.EDITION  # this one was made when that one was deleted
    elif known.journals != journals or known.state is State.DELETED:
        # Journals of a topic that was deleted are dropped before its name is free again.
        is_there = journals in store.made()
        return Astray(name, journals, Lack.NAME) if is_there else None
    elif known.state is State.LIVING and known.edition < kept.edition:
        lack = Lack.EDITION
    elif known.state is State.MAKING and (adopt or _lives_here(catalogue, known)):
        lack = Lack.EDITION  # it lived already, or its maker is about to say that it does
    else:
        if known.state is State.LIVING and known.edition > kept.edition:
            catalogue.note(known)
        return None
    return Astray(name, journals, lack, adopted=adopt and catalogue.adopt(kept, known))


def _lives_here(catalogue: ClusterCatalogue, known: Kept) -> bool:
    """Whether a topic lives as this broker has it."""
    here = catalogue.kept(known.topic.name)
    return here is not None and here.journals == known.journals and here.state is State.LIVING


def _lives(catalogue: ClusterCatalogue, journals: str) -> bool:
    """Whether a topic that has these journals lives, as the coordinator has it now."""
    known = catalogue.look(journals.rpartition(".")[0])
    return known is not None and known.journals == journals and known.state is State.LIVING
