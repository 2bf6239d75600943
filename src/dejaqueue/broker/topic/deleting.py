"""The end of a topic: who serves it lets go, then its journals are dropped.

Room: broker. Any thread may call it.
Holds: journals are dropped only after the catalogue says that the topic is deleted, and it says so
until they are: whatever breaks off in between is finished later. What is closed counts as let go of
when nothing here reads its journals any more. What was decided in it of transactions is kept in
the catalogue until everybody who takes part was told.
See: lone_catalogue.py and cluster/catalogue.py, which keep the steps; docs/adr/0024, 0034, 0057.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType

from dejaqueue.broker.history.history import History
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.broker.topic.given_ids import PartitionReport, left_by
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.catalogue.state import TopicRow
from dejaqueue.errors import DejaQError, TopicUnknown, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic
from dejaqueue.topic_names import topic_of

log = logging.getLogger("dejaqueue.broker")

_NOTHING: Mapping[int, PartitionReport] = MappingProxyType({})
TELL_SECONDS = 10.0
"""So long does who deletes a topic wait for those who take part in its transactions."""

Tell = Callable[[TopicRow, Callable[[BaseException | None], None]], None]
"""Coordinator.tell_left."""


class Endings:
    """Topics of a broker that are gone, until it has let go of them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._ending: list[ServedTopic] = []

    def begin(self, topics: Sequence[ServedTopic]) -> None:
        """These are served no more; called before anybody can see that they are not."""
        with self._lock:
            self._ending += topics

    def close(self, topics: Sequence[ServedTopic]) -> None:
        """Close them, and tell whoever consumes them."""
        for topic in topics:
            topic.close(lambda partition: partition.close())
            self._history.drop(topic.topic.name)
            topic.end_consumers(TopicUnknown(topic.topic.name))

    def are_over(self, name: str) -> bool:
        """True if nothing here writes to the journals of a topic, or shard, of this name."""
        with self._lock:
            self._ending = [topic for topic in self._ending if not topic.is_gone]
            return all(topic.served_as != name for topic in self._ending)


def is_gone(
    runtime: ServedTopic, catalogue: Catalogue, served_names: Callable[[Topic], Sequence[str]]
) -> bool:
    """True if the topic was deleted, even if another one was made of its name since."""
    topic = catalogue.find(topic_of(runtime.served_as))
    if topic is None or runtime.served_as not in served_names(topic):
        return True
    try:
        is_other = runtime.number != catalogue.number(topic.name)
        return is_other or runtime.journals != catalogue.journals(topic.name)
    except TopicUnknown:  # it was deleted a moment ago
        return True


def tell_all(row: TopicRow, tell: Tell, threads: Threads) -> None:
    """Have everybody know what was decided in a topic that is gone. Raises Unavailable."""
    if not row.decided:
        return
    told: Future[BaseException | None] = threads.future()
    tell(row, told.set_result)
    try:
        error = told.result(TELL_SECONDS)
    except TimeoutError:
        error = Unavailable("they have not answered yet")
    if error is not None:
        text = f"topic {row.topic.name} is being deleted, and not everybody who takes part in its "
        raise Unavailable(text + f"transactions could be told yet ({error})", 1_000)


def finish(
    name: str,
    store: JournalStore,
    catalogue: LoneCatalogue,
    tell: Callable[[TopicRow], None],
    known: Mapping[int, PartitionReport] = _NOTHING,
) -> None:
    """Drop the journals of a topic that a broker, which is alone, has let go of.

    Args:
        tell: has everybody know what was decided in it; raises Unavailable.
        known: what its partitions have given that were read, by number.

    Raises:
        Unavailable: it stays as it is, and can be finished later.
    """
    row = catalogue.row_of(name)
    if row is None:
        return
    if row.is_used and not row.is_closed:
        left = left_by(store, row, name, known)
        catalogue.closed(name, left.ids_from, left.decided)
        row = catalogue.row_of(name) or row
    tell(row)
    store.drop(name)
    catalogue.buried(name)


def _tell_nobody(row: TopicRow) -> None:
    if row.decided:
        raise Unavailable("whoever takes part in its transactions is told first", 1_000)


def finish_all(
    store: JournalStore,
    catalogue: LoneCatalogue,
    tell: Callable[[TopicRow], None] = _tell_nobody,
    held: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Drop, at the start, what a crash left of topics that were deleted; or leave it for later.

    Args:
        tell: as for `finish`.
        held: the lock of a topic's name.
    """
    for name in catalogue.leaving():
        try:
            with held(name):
                finish(name, store, catalogue, tell)
        except DejaQError as error:
            log.warning("what is left of topic %s stays for now: %s", name, error)
