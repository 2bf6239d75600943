"""The record of a decision: what a home keeps of it beside whether it is a commit.

Room: broker. Pure values; `to_text` is what the journal has.
Holds: parse(to_text(record)) is the record.
See: home.py, which writes records; docs/reference/journal-format.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dejaqueue.broker.transactions.names import Participant

EPOCH_MARK = ";;"
"""How a record begins of which only an epoch is kept."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a home keeps of a decision, beside whether it is a commit.

    Attributes:
        places: who has to be told still.
        family: of the branches; "" = there are none.
        epoch: of a sink; -1 = it is none.
        branches: those that count.
    """

    places: tuple[Participant, ...] = ()
    family: str = ""
    epoch: int = -1
    branches: tuple[str, ...] = ()

    def to_text(self) -> str:
        """As it is journalled; of a transaction without branches just its places.

        >>> Record((("orders", 1),), "f00d", 7, ("0.1", "1.4")).to_text()
        'orders/1;f00d;7;0.1|1.4'
        """
        places = ",".join(f"{topic}/{partition}" for topic, partition in self.places)
        if not self.family and self.epoch < 0:
            return places
        return f"{places};{self.family};{self.epoch};{'|'.join(self.branches)}"

    @classmethod
    def parse(cls, text: str) -> Record:
        """What `to_text` wrote."""
        joined, *rest = text.split(";")
        split = [part.rpartition("/") for part in joined.split(",") if part]
        places = tuple((topic, int(partition)) for topic, _, partition in split)
        if not rest:
            return cls(places)
        family, epoch, branches = rest
        return cls(places, family, int(epoch), tuple(branches.split("|")) if branches else ())

    def when_all_know(self) -> Record:
        """What is kept of it once everybody knows it: only that an epoch was committed."""
        return Record(epoch=self.epoch)
