"""News of the broker for its log: what an operator wants to know, each at its level.

Room: broker. Called where it happens; decides how loud it is and which facts go with it.
Holds: nothing here is called for single messages; the facts are those of `logs.FIELDS`.
See: docs/guides/logs.md.
"""

from __future__ import annotations

import logging

from dejaqueue.clock import Jump
from dejaqueue.errors import DejaQError, Fenced, InternalError, ResourceExhausted
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic

log = logging.getLogger("dejaqueue.broker")

LONG_RECOVERY_MS = 100
"""A partition that was read again in less is news only for debugging: there may be thousands."""
SLOW_SYNC_MS = 1_000
"""An append that takes longer holds up everything that its partition does."""


FAULTS_MAX = 256
"""Faults that the log has already; the oldest is forgotten, and logged again."""
_faults: dict[str, None] = {}


def told(error: InternalError) -> None:
    """A caller is told the id of a fault: the log has it, once, with its story."""
    if error.fault in _faults:
        return
    while len(_faults) >= FAULTS_MAX:
        _faults.pop(next(iter(_faults)), None)
    _faults[error.fault] = None
    cause = error if error.__cause__ is None else error.__cause__
    log.error("internal error %s: %s", error.fault, error, exc_info=cause)


def started(topic_count: int, duration_ms: int) -> None:
    """The broker serves; partitions are read when they are first used."""
    log.info(
        "started with %d topics in %d ms",
        topic_count,
        duration_ms,
        extra={"duration_ms": duration_ms},
    )


def stopped(duration_ms: int) -> None:
    """Everything is durable and closed."""
    log.info("stopped in %d ms", duration_ms, extra={"duration_ms": duration_ms})


def clock_jumped(jump: Jump) -> None:
    """The machine's wall clock is somewhere else than elapsed time says."""
    by_s = jump.by_us / 1e6
    if jump.state == "seen":
        log.error("the clock of this machine jumped by %+.3f s: it is not believed yet", by_s)
    elif jump.state == "over":
        log.warning("the clock of this machine, which had jumped by %+.3f s, is right again", by_s)
    else:
        log.error("the clock of this machine is off by %+.3f s for long: it is believed now", by_s)


def clock_apart(node: str, apart_us: int, *, lets_go: bool) -> None:
    """This broker's clock differs from those of most others, or does not any more."""
    if not apart_us:
        log.warning("the clock of node %s agrees with the others' again", node)
        return
    does = "lets go of all topics" if lets_go else "takes no more topics"
    text = "the clock of node %s is %+.3f s off, by those of the other brokers: it %s"
    log.error(text, node, apart_us / 1e6, does)


def time_set(topic: str, partition: int, by_ms: int) -> None:
    """The clock was put right, or the journal was far ahead of it."""
    log.warning(
        "topic %s, partition %d: its time was off by %+.3f s and is that of the clock again; what "
        "is left of leases and delays stays",
        topic,
        partition,
        by_ms / 1_000,
        extra={"topic": topic, "partition": partition},
    )


def advised(topic: Topic) -> None:
    """A topic was made or altered: what its settings have about them that is seldom meant."""
    for warning in topic.warnings():
        log.warning("topic %s: %s", topic.name, warning, extra={"topic": topic.name})


def recovered(
    topic: str, partition: int, entry_count: int, duration_ms: int, ahead_count: int = 0
) -> None:
    """A partition was read: a snapshot, if there was one, and so many entries after it, some of
    them while another broker served it."""
    log.log(
        logging.INFO if duration_ms >= LONG_RECOVERY_MS else logging.DEBUG,
        "topic %s, partition %d: read in %d ms, with %d entries after the snapshot, "
        "%d of them ahead",
        topic,
        partition,
        duration_ms,
        entry_count,
        ahead_count,
        extra=_place(topic, partition)
        | {"entry_count": entry_count, "duration_ms": duration_ms, "ahead_count": ahead_count},
    )


def mended(topic: str, partition: int, journal: Journal) -> None:
    """What of a partition was damaged or torn when it was read, and is served without.

    An error if something was cut off: after a power cut that is nobody's loss, and else somebody
    should look at what was kept of it.
    """
    for repair in journal.repairs:
        text = "topic %s, partition %d: %s; it is served without"
        level = logging.ERROR if journal.cut_bytes else logging.WARNING
        log.log(level, text, topic, partition, repair, extra=_place(topic, partition))


def failed(topic: str, partition: int, error: DejaQError, *, final: bool) -> None:
    """A partition could not be read, or a step of it broke off."""
    expected = isinstance(error, ResourceExhausted | Fenced)
    log.log(
        logging.WARNING if expected else logging.ERROR,
        "topic %s, partition %d: %s; %s",
        topic,
        partition,
        error,
        "it is served again after a new start" if final else "it is read again",
        extra=_place(topic, partition),
    )


def broke_off(topic: str, partition: int) -> None:
    """A step raised what it must not, called where that is caught: a bug, with its traceback."""
    text = "topic %s, partition %d: a step broke off"
    log.exception(text, topic, partition, extra=_place(topic, partition))


def still_closing(topic: str) -> None:
    """A topic is not served any more, but some of its journals hang."""
    log.warning("topic %s: a journal hangs, and is closed later", topic, extra={"topic": topic})


def left_unread(topic: str, partition: int, count: int) -> None:
    """A partition is closed, and not everything that is on its way to consumers could be kept."""
    log.warning(
        "topic %s, partition %d: %d deliveries are lost on their way as it is closed: their leases "
        "run out",
        topic,
        partition,
        count,
        extra={"topic": topic, "partition": partition},
    )


def synced(topic: str, partition: int, entry_count: int, duration_us: int) -> None:
    """A group of entries is durable; said only if the disk was slow."""
    duration_ms = duration_us // 1_000
    if duration_ms >= SLOW_SYNC_MS:
        log.warning(
            "topic %s, partition %d: the disk took %d ms for %d entries",
            topic,
            partition,
            duration_ms,
            entry_count,
            extra=_place(topic, partition)
            | {"entry_count": entry_count, "duration_ms": duration_ms},
        )


def snapshot_taken(topic: str, partition: int, position: int) -> None:
    """The state up to this entry is durable as a snapshot; older segments are given back."""
    log.debug(
        "topic %s, partition %d: snapshot at entry %d",
        topic,
        partition,
        position,
        extra=_place(topic, partition),
    )


def archive_gap(topic: str, partition: int, reason: str) -> None:
    """Entries are given back that no backup has: instants between two backups may be lost."""
    log.warning(
        "topic %s, partition %d: entries that no backup has are given back, as %s",
        topic,
        partition,
        reason,
        extra=_place(topic, partition),
    )


def snapshot_failed(topic: str, partition: int, error: DejaQError) -> None:
    """It is tried again; until then the journal grows."""
    log.warning(
        "topic %s, partition %d: no snapshot: %s",
        topic,
        partition,
        error,
        extra=_place(topic, partition),
    )


def not_copied(topic: str, partition: int, error: DejaQError) -> None:
    """Rows cannot be read: what they lie in is not given back."""
    log.error(
        "topic %s, partition %d: rows stay where they are, and keep what lies beside them: %s",
        topic,
        partition,
        error,
        extra=_place(topic, partition),
    )


def history_missed(topic: str, partition: int, row_count: int, reason: str) -> None:
    """Changes are not in the history; said when a gap begins."""
    log.warning(
        "topic %s, partition %d: a gap in the history: %s",
        topic,
        partition,
        reason,
        extra=_place(topic, partition) | {"row_count": row_count},
    )


def history_failed(topic: str, partition: int, error: Exception) -> None:
    """A file of history could not be written; said once until one could."""
    log.error(
        "topic %s, partition %d: the history can't be written: %s",
        topic,
        partition,
        error,
        extra=_place(topic, partition),
    )


def _place(topic: str, partition: int) -> dict[str, object]:
    return {"topic": topic, "partition": partition}
