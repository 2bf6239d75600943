"""What is left of topics that are deleted: it is let go of, and their journals are dropped.

Room: cluster. Asked in each round of a node; what waits for journals runs beside the rounds.
Holds: journals of a topic are dropped when all its shards are closed by their owners;
one thing is done with the journals of a topic at a time.
See: node.py; catalogue.py, whose changes these are; docs/adr/0024.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.clock import Clock
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.placement import dealt
from dejaqueue.errors import DejaQError

TIDY_US = 10_000_000
"""What is kept here of topics that are gone is looked for so far apart at least: each look goes
over all topics."""
RETRY_US = 1_000_000
"""Who could not be told of a transaction is told again after this."""

log = logging.getLogger("dejaqueue.cluster")


class Leftovers:
    """As one broker of the cluster sees to them.

    Args:
        node: its name.
        slot_of: the slot of a topic, or of a shard of one.
        see_topics: called when the catalogue may have changed.
        clock: elapsed time.
    """

    def __init__(
        self,
        node: str,
        threads: Threads,
        slot_of: Callable[[str], int],
        see_topics: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._node, self._threads, self._clock = node, threads, clock
        self._slot_of, self._see_topics = slot_of, see_topics
        self._busy: set[str] = set()
        """Topics whose journals are looked at or dropped just now."""
        self._later_us: dict[str, int] = {}
        """When those who take part in a topic's transactions are told again."""
        self._journals: dict[str, str] = {}
        """What topics were called in the store of journals, by name, at `_known_version`."""
        self._known_version = -1
        self._is_tidy = True
        self._tidy_us = 0

    def let_go(self, broker: Broker, catalogue: ClusterCatalogue, mine: set[int]) -> bool:
        """Say of topics that are being deleted that they are let go of; False: one is not yet.

        Whoever owns the slot says so. A broker that believes so still, and sleeps, is kept out by
        an epoch before.

        Args:
            mine: slots that this broker owns.
        """
        all_left = True
        for topic in catalogue.leaving():
            row = catalogue.row_of(topic)
            shards = () if row is None else row.waits
            here = [name for name in shards if self._slot_of(name) in mine]
            if row is None or not here:
                continue
            if all(broker.has_let_go(name) for name in here):
                self._apart(topic, partial(catalogue.let_go, row, here))
            else:
                all_left = False
        return all_left

    def bury(
        self, broker: Broker, catalogue: ClusterCatalogue, staying: Iterable[str], slots: int
    ) -> None:
        """Drop the journals of topics that everybody has let go of: one broker does, any may."""
        buriers = dealt(staying, slots)
        for topic in catalogue.leaving():
            row = catalogue.row_of(topic)
            if row is None or row.waits:
                continue
            if self._clock.now_us() < self._later_us.get(topic, 0):
                continue
            if buriers and buriers[self._slot_of(topic)] == self._node:
                self._apart(topic, partial(self._bury, broker, catalogue, row))
        self._follow(catalogue)
        if not self._is_tidy and self._clock.now_us() >= self._tidy_us:
            self._is_tidy, self._tidy_us = True, self._clock.now_us() + TIDY_US
            broker.store.tidy(catalogue.words())

    def _follow(self, catalogue: ClusterCatalogue) -> None:
        """See whether the journals of a topic that was known are gone."""
        version = catalogue.version
        if version == self._known_version:
            return
        changed = catalogue.changed_since(self._known_version)
        placed, before = catalogue.placed(), self._journals
        if changed is None or self._known_version < 0:
            changed, self._journals = {*before, *placed}, {}
        for name in changed:
            row, known = placed.get(name), before.get(name)
            journals = None if row is None else catalogue.journals_of(row)
            self._is_tidy &= known is None or known == journals
            if journals is not None:
                self._journals[name] = journals
            else:
                self._journals.pop(name, None)
        self._known_version = version

    def _bury(self, broker: Broker, catalogue: ClusterCatalogue, row: TopicRow) -> None:
        """Have everybody know what was decided in it, then drop its journals."""
        if row.decided:
            self._later_us[row.topic.name] = self._clock.now_us() + RETRY_US
            broker.tell_all(row)
            del self._later_us[row.topic.name]
        catalogue.bury(row)

    def _apart(self, topic: str, call: Callable[[], None]) -> None:
        """Do one thing at a time with journals of a topic, beside the rounds: it may hang."""
        if topic in self._busy:
            return
        self._busy.add(topic)

        def run() -> None:
            try:
                call()
            except DejaQError as error:
                log.warning("what is left of topic %s stays for now: %s", topic, error)
            finally:
                self._busy.discard(topic)
                self._see_topics()

        self._threads.start("dejaq-bury", run)
