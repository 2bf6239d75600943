"""What became of the rows of a write: counts by status, for the program that wrote them.

    from dejaqueue.spark import save
    counts = save(table, topic="reminders")     # Counter({'OK': 50, 'DUPLICATE': 100})

Room: spark. On the user's side, of a local Spark, a cluster or Spark Connect: it asks the broker.
Holds: Spark gives a sink no way to answer who uses it, and commits in a process of its own. So the
driver's side notes counts at the broker, which keeps the last of each topic in memory.
See: broker/calls/reports.py for the other end; refusals.py for the rows themselves.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dejaqueue.client.core import ClientCore
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.spark.options import KNOWN, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("dejaqueue.spark")


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write.

    Attributes:
        label: the option `label`; of a streaming query without one, its id.
        epoch: of a streaming query; -1 = it was a batch.
        is_committed: False: the whole job failed, because rows were refused.
        at_ms: when, by the broker's clock, UTC milliseconds.
        counts: rows by status: OK, DUPLICATE and the other names of RowStatus.
    """

    label: str
    epoch: int
    is_committed: bool
    at_ms: int
    counts: Counter[str]


def writes(**options: object) -> list[Written]:
    """What became of the last writes into a topic, the oldest first.

    The broker remembers 64 writes of each topic, batches and epochs of queries that came from this
    data source, until it is restarted or another broker takes the topic over.

    Args:
        options: those of the data source, with `_` for the dot: topic, url, api_key, tls_ca …; with
            `label` only writes that had it.

    Raises:
        BadRequest: an option is none, or has a value that it cannot have.
        TopicUnknown: there is no such topic.
        Unavailable: the broker does not answer.
    """
    checked = Options.of(_named(options))
    core = checked.client("spark-writes")
    try:
        body = {"topic": checked.topic, "label": checked.label}
        notes = core.call("writes", body)["writes"]
    finally:
        core.close()
    return [
        Written(
            note["label"], note["epoch"], note["committed"], note["at_ms"], Counter(note["counts"])
        )
        for note in notes
    ]


def save(table: DataFrame, **options: object) -> Counter[str]:
    """Write a table into a topic, all or nothing, and return how many rows had which status.

    The same as `table.write.format("dejaq").options(…).mode("append").save()`, with an answer.

    Args:
        options: those of the data source, with `_` for the dot: topic, url, refusals_path …

    Raises:
        BadRequest: an option is wrong. Unavailable: everything was written, but the broker was
            restarted just then, and the counts are lost. What the job failed for is Spark's error.
    """
    named = {"label": f"save-{uuid.uuid4().hex}"} | _named(options)
    Options.of(named)
    table.write.format("dejaq").options(**named).mode("append").save()
    found = writes(**named)
    if not found:
        raise Unavailable("the table was written, but its counts were lost with a broker's restart")
    return found[-1].counts


def _named(options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark has them."""
    spelled = {name.replace(".", "_"): name for name in KNOWN}
    return {
        spelled.get(name.replace(".", "_"), name): _text(value)
        for name, value in options.items()
        if value is not None
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def note(core: ClientCore, options: Options, counts: Mapping[str, int], **more: Any) -> None:
    """Have the broker remember what became of a write; a failure is only logged.

    Args:
        more: `label` where the options have none, `epoch`, `committed`.
    """
    named = {"label": options.label} if options.label else {}
    body = {"topic": options.topic, "counts": dict(counts)} | more | named
    try:
        core.call("note_write", body)
    except DejaQError as wrong:  # the rows are there
        log.warning("topic %s: counts of a write are not remembered: %s", options.topic, wrong)
