"""Decisions of transactions that homes had made at the moment that is restored, and not told yet.

A commit is durable in the home first; the others are told afterwards. A moment in between, in which
a backup or a turn of the archive may lie, has what was sent staged in some partitions though it
counts. Whoever starts a broker on such journals would see a part of it until the home has told the
rest, and never the rest where the home is not restored, or has another name.

Room: broker. Reads partitions of the archive; changes states that are about to be written.
Holds: what a home had decided at the moment is done in every partition that is restored, and nobody
has to be told any more; what was not decided is aborted where no home that is restored could decide
it; the rest is as it was, and is asked for when its time is over.
See: restoring.py; transactions/home.py, what a decision says; rule 12.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from dejaqueue.broker.transactions import home
from dejaqueue.broker.transactions.names import Participant, TransactionName
from dejaqueue.broker.transactions.record import Record
from dejaqueue.engine.commands import Decide, Remember
from dejaqueue.engine.views import PartitionViews

Decisions = Mapping[str, tuple[bool, str]]
"""As an engine has them: by transaction, whether it is a commit, and its record."""


class ArchivedDecisions:
    """What was decided at the moment.

    Args:
        read: the decisions of a home at the moment; empty = there is no such partition.
        homes: topics that are restored under their names, with all that they had decided.
    """

    def __init__(self, read: Callable[[str, int], Decisions], homes: Collection[str]) -> None:
        self._read, self._homes = read, homes
        self._known: dict[Participant, Decisions] = {}

    def settle(self, views: PartitionViews) -> int:
        """Do in a partition what was decided, and have its own decisions told; how many
        transactions that were staged in it ended.

        Args:
            views: its state at the moment. Changed.

        Raises:
            JournalDamaged: a home cannot be read; others as `read`.
        """
        engine, count = views.unnamed, 0
        for text in engine.staged():
            name = TransactionName.parse(text)
            commit = home.said(self._of(name), name)
            if commit is None and name.topic not in self._homes:
                commit = False
            if commit is not None:
                views.apply(Decide(views.now_ms, text, commit))
                count += 1
        for text, (commit, written) in list(engine.decisions.items()):
            record = Record.parse(written)
            if record.places:
                told = record.when_all_know().to_text()
                views.apply(Remember(views.now_ms, text, commit, told))
        return count

    def _of(self, name: TransactionName) -> Decisions:
        place = name.topic, name.partition
        if place not in self._known:
            self._known[place] = self._read(*place)
        return self._known[place]
