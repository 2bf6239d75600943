"""What a broker does when a standby has taken its place: it lets go of all topics, for good.

Room: broker. On the thread that has met the fence.
Holds: it is noted in the data directory, so that a start is refused also where the archive cannot
be read; whoever sends or consumes is told by name.
See: site.py; backup/archiver.py, which meets the fence; docs/guides/standby.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dejaqueue.backup.fence import Fence
from dejaqueue.broker.site import Site
from dejaqueue.broker.standby.record import StandbyRecord, StandbyState
from dejaqueue.broker.topic import handing_over
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import JournalStore

log = logging.getLogger("dejaqueue.standby")


def take_out(store: JournalStore, fence: Fence, topics: Sequence[ServedTopic], site: Site) -> None:
    """Let go of topics that another broker serves now.

    Args:
        site: says that it was replaced, by now.
    """
    refusal = site.refusal()
    assert refusal is not None
    log.error("%s", refusal)
    for topic in topics:
        topic.begin_close(handing_over.drop)
    for topic in topics:
        topic.end_consumers(refusal)
    record = StandbyRecord("", StandbyState.REPLACED, fence.store, fence=fence.to_text())
    try:
        record.save(store)
    except DejaQError as failure:
        log.error("it is not noted here, only in the archive: %s", failure)
    for topic in topics:
        topic.wait_closed()
