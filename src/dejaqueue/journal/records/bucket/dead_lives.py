"""Lives that nobody needs any more: their logs are deleted.

A life whose broker has ended leaves its log behind, for whoever took its partitions over. Once no
partition has records in it, nothing refers to it: then it is ended for all, in case its broker only
sleeps, and deleted but for the containers that take something: that broker meets them in the next
place, wherever it stopped.

Room: journal.
Holds: a log is deleted only when, after its end stands in it, still no partition refers to it; what
refers to a log is stored before anything in it, so nothing that counts can come later.
See: life_log.py; ownership_log.py, which refers to lives; lives.py, which asks for this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dejaqueue.connections.bucket import Bucket
from dejaqueue.journal.records.bucket.container import ALL
from dejaqueue.journal.records.bucket.life_log import LifeLog
from dejaqueue.journal.records.bucket.ownership import Ownership

log = logging.getLogger(__name__)


def bury(bucket: Bucket, own: str, log_of: Callable[[str], LifeLog]) -> int:
    """Delete the logs of lives that no partition refers to.

    Cost: listings of all that is in the bucket, and a request for each ownership.

    Args:
        own: the life of this broker, which stays.
        log_of: a log of which nothing is known yet.

    Returns:
        How many were deleted.

    Raises:
        JournalDamaged: what refers to lives cannot be read, so none is deleted. Unavailable.
    """
    logs: dict[str, list[str]] = {}
    for one in bucket.objects("lives/"):
        logs.setdefault(one.name.split("/")[1], []).append(one.name)
    logs.pop(own, None)
    needless = logs.keys() - _referred(bucket) if logs else set()
    gone: dict[LifeLog, list[str]] = {}
    for life in sorted(needless):
        ended = log_of(life)
        ended.take([ALL], own)
        names = [name for name in logs[life] if not ended.keeps(name)]
        if names:  # else it is deleted already
            gone[ended] = names
    needed = _referred(bucket) if gone else set()
    count = 0
    for ended, names in gone.items():
        if ended.life not in needed:
            ended.records.clear()
            ended.store_index()  # so that its end is found, where nothing is before it
            bucket.delete(names)
            log.info("the log of a broker that has ended is deleted: lives/%s", ended.life)
            count += 1
    return count


def _referred(bucket: Bucket) -> set[str]:
    """The lives that partitions refer to."""
    lives = set()
    for one in list(bucket.objects("owners/")):
        number = one.name.rpartition("/")[2]
        content = bucket.get(one.name) if number.isdigit() else None
        if content is not None:
            lives.add(Ownership.decode(int(number), one.name, content).life)
    return lives
