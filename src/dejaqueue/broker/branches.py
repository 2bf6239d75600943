"""Branches: a transaction in many hands, of which only the hands that won count.

Room: broker. Names and records; transactions.py decides with them, staging.py tells.
Holds: of all branches of a family those that the decision names are committed, the others aborted,
in every partition, a bounded number of rows at a time; an epoch of a sink is committed once,
however often it is asked for.
See: docs/wire.md; docs/guides/spark.md for who writes so; docs/adr/0008.

A transaction is staged by one client, or in branches: by many, each under a name of its own, so
that whoever failed, or did what another one did already, can be left out of the commit.

    orders/0/1790000000000-3600000-<family>                  a transaction
    orders/0/1790000000000-3600000-<family>~17.93.5f0c2a1b   a branch: its task 17, done once of
                                                             several times

Branches of one task are the same work done again: they do not take each other's keys away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dejaqueue import limits
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Decide, Stage
from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

_BRANCH = re.compile(r"[0-9A-Za-z]{1,20}(\.[0-9A-Za-z]{1,20}){0,3}")
_QUERY_BYTES_MAX = 256
EPOCH_MARK = ";;"
"""How a record begins of which only an epoch is kept."""
DECIDE_ROWS_MAX = 200_000
"""Rows of branches that are decided in one step of a partition: some 30 milliseconds."""
_NONE = np.zeros(0, dtype=np.int64)

Place = tuple[str, int]
"""A topic and the number of a partition of it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a home keeps of a decision, beside whether it is a commit.

    Attributes:
        places: who has to be told still.
        family: of the branches; "" = there are none.
        epoch: of a sink; -1 = it is none.
        branches: those that count.
    """

    places: tuple[Place, ...] = ()
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

    def told(self) -> Record:
        """When everybody knows it: only that an epoch was committed is kept."""
        return Record(epoch=self.epoch)


def check_branches(branches: object) -> tuple[str, ...]:
    """Names of branches. Raises BadRequest."""
    most = limits.TRANSACTION_BRANCHES_MAX
    if not isinstance(branches, list) or len(branches) > most:
        raise BadRequest("branches", f"a list of at most {most} branches", branches)
    for branch in branches:
        check_branch(branch)
    return tuple(dict.fromkeys(branches))


def check_branch(branch: object) -> str:
    """The name of a branch: words of letters and digits, with dots between them."""
    if not isinstance(branch, str) or not _BRANCH.fullmatch(branch):
        raise BadRequest("branch", "1 to 4 words of letters and digits, with dots between", branch)
    return branch


def check_epoch(query: object, epoch: object) -> tuple[str, int]:
    """A sink and one of its epochs. Raises BadRequest."""
    if not isinstance(query, str) or not 1 <= len(query.encode()) <= _QUERY_BYTES_MAX:
        raise BadRequest("query", f"a text of 1 to {_QUERY_BYTES_MAX} bytes", query)
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 62:
        raise BadRequest("epoch", "a whole number from 0", epoch)
    return query, epoch


# --- on the worker of the home ------------------------------------------------------------------


def is_committed(home: Partition, text: str, epoch: int) -> bool:
    """Whether an epoch, or a later one, was committed under the name of its query."""
    known = home.engine.decisions.get(text)
    return known is not None and Record.parse(known[1]).epoch >= epoch


# --- on the worker of a participant -------------------------------------------------------------


def decide_family(place: Partition, record: Record, *, commit: bool) -> bool:
    """Commit those branches of the family that are staged here and count, abort its others.

    Returns:
        True if there are more: so many are decided in one step that others can go on.
    """
    mark, wanted = f"-{record.family}~", set(record.branches)
    rows = 0
    for name, (_, messages, _) in place.engine.staged().items():
        if mark not in name:
            continue
        if rows >= DECIDE_ROWS_MAX:
            return True
        counts = commit and name.rpartition("~")[2] in wanted
        place.apply(Decide(place.now_ms(), name, counts))
        rows += messages
    return False


def sibling_sequences(place: Partition, stage: Stage | None) -> Int64s:
    """Messages that other branches of the same task staged in this partition, ascending."""
    if stage is None or "~" not in stage.transaction:
        return _NONE
    base, _, branch = stage.transaction.partition("~")
    family = f"{base[base.rindex('-') :]}~{branch.partition('.')[0]}."
    siblings = [
        name for name in place.engine.staged_ends() if family in name and name != stage.transaction
    ]
    if not siblings:
        return _NONE
    return place.engine.staged_sequences(siblings)
