"""What is left of topics that nobody goes on making, and that are deleted: it is cleared away.

Room: cluster. Asked in each round of a node; what waits for journals runs beside the rounds.
Holds: journals of a topic are dropped when everybody who served it has said that it is let go of;
one thing is done with the journals of a topic at a time.
See: node.py; catalogue.py, whose facts these are; docs/adr/0024.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.cluster.catalogue import ClusterCatalogue
from dejaqueue.cluster.placement import dealt
from dejaqueue.errors import DejaQError

log = logging.getLogger("dejaqueue.cluster")


class Leftovers:
    """As one broker of the cluster sees to them.

    Args:
        node: its name.
        slot_of: the slot of a topic, or of a shard of one.
        see_topics: called when the catalogue may have changed.
    """

    def __init__(
        self,
        node: str,
        threads: Threads,
        slot_of: Callable[[str], int],
        see_topics: Callable[[], None],
    ) -> None:
        self._node, self._threads = node, threads
        self._slot_of, self._see_topics = slot_of, see_topics
        self._busy: set[str] = set()
        """Topics whose journals are looked at or dropped just now."""
        self._tidied: set[str] = set()

    def finish(self, catalogue: ClusterCatalogue, sessions: list[str]) -> None:
        """Have topics live, or be deleted, whose makers are none of these lives."""
        for topic in catalogue.abandoned(sessions):
            self._apart(topic, partial(catalogue.finish, topic, sessions))

    def let_go(self, broker: Broker, catalogue: ClusterCatalogue, mine: set[int]) -> bool:
        """Say of topics that are being deleted that they are let go of; False: one is not yet.

        Whoever owns the slot says so: no other broker serves it, or its membership is over.

        Args:
            mine: slots that this broker owns.
        """
        all_left = True
        for topic in catalogue.leaving():
            kept = catalogue.kept(topic)
            for name in () if kept is None else kept.waits:
                if self._slot_of(name) not in mine:
                    continue
                if broker.has_let_go(name):
                    catalogue.let_go(topic, name)
                else:
                    all_left = False
        return all_left

    def bury(
        self, broker: Broker, catalogue: ClusterCatalogue, staying: Iterable[str], slots: int
    ) -> None:
        """Drop the journals of topics that everybody has let go of: one broker does, any may."""
        buriers = dealt(staying, slots)
        for topic in catalogue.leaving():
            kept = catalogue.kept(topic)
            if kept is None or kept.waits:
                continue
            if buriers and buriers[self._slot_of(topic)] == self._node:
                self._apart(topic, partial(catalogue.bury, kept))
        words = catalogue.words()
        if self._tidied - words:
            broker.store.tidy(words)
        self._tidied = words

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
