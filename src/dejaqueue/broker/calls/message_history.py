"""The history of one message: what happened to it, and when, of all that brokers recorded.

Room: broker. On the caller's thread; looks through files of history, a while at most.
Holds: each change comes once, in the order in which things happened, though several brokers
recorded it; what nobody recorded while the message may have been there is told as a gap, and who
did not answer is named; where the answer stops early, it says where to go on.
See: history.py for the files; docs/guides/history.md; docs/adr/0058-the-history-of-a-message.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.calls.history import GAP, decryption, finish_files
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.history.files import Files, HistoryFile
from dejaqueue.broker.history.history import History
from dejaqueue.broker.topic.peers import HISTORY
from dejaqueue.clock import Clock
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.stretches import Stretch, without
from dejaqueue.schema.texts import mended_batch
from dejaqueue.topic_names import parse_subscription, topic_of

SEARCH_US = 1_000_000
"""So long an answer looks through files; then it says where to go on."""
PEER_SECONDS_MAX = 6.0
"""Longer than a call of another broker may take (flight/peers.py)."""
_COLUMNS = (
    "at_ms", "change", "position", "due", "key", "group", "priority", "attempt", "lateness_ms",
    "consumer", "reason",
)  # fmt: skip
"""What is told of a change; null where it has none, and then left out."""
_BEGINS = ("enqueued", "staged")
_ENDS = ("acked", "cancelled", "expired", "departed", "aborted")


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request.

    Attributes:
        name: of the topic, or a shard of one.
        after: position of its journal behind which to look.
    """

    name: str
    message_id: int
    after: int

    @property
    def topic(self) -> str:
        """Under which name its changes are recorded: that of the topic, whichever shard has it."""
        return topic_of(self.name)

    @property
    def partition(self) -> int:
        """Where the message lies."""
        return self.message_id >> limits.SEQUENCE_BITS


def parse(name: str, body: dict[str, Any]) -> Request:
    """The checked request. Raises BadRequest."""
    message_id, after = body.get("id"), body.get("after")
    if type(message_id) is not int or not 0 <= message_id < 1 << 63:
        raise BadRequest("id", "the id of a message", message_id)
    if after is not None and (type(after) is not int or not 0 <= after < 1 << 63):
        raise BadRequest("after", "the `next` of the answer before", after)
    if parse_subscription(name)[1]:
        raise BadRequest("topic", "a topic, as subscriptions have no history of their own", name)
    return Request(name, message_id, after or 0)


def message_history(broker: BrokerPort, asked: Request) -> dict[str, Any]:
    """What happened to a message, as all brokers recorded it.

    Returns:
        `history`: whether it is recorded now; `changes`, oldest first; `gaps`, positions of which
        nobody recorded what happened; `silent`, brokers that did not answer; `next`: what to give
        as `after` for what happened later, None = that is all.

    Raises:
        TopicUnknown, Elsewhere, BadRequest.
    """
    topic = broker.runtime(asked.name)
    others = _ask_others(broker, asked)
    answers = {"": recorded(broker.history, asked, broker.clock, lambda: finish_files(
        topic, [asked.partition] if asked.partition in topic.partitions.numbers else []
    ))}  # fmt: skip
    silent = []
    for node, answer in others.items():
        try:
            answers[node] = answer.result(PEER_SECONDS_MAX)
        except (DejaQError, TimeoutError):
            silent.append(node)
    joined = join(list(answers.values()))
    return {"history": topic.topic.history, **joined, "silent": sorted(silent)}


def _ask_others(broker: BrokerPort, asked: Request) -> dict[str, Future[dict[str, Any]]]:
    """What the other brokers of the cluster recorded, by node."""
    if broker.peers is None:
        return {}
    cluster = broker.cluster(asked.topic)
    body = {"topic": asked.name, "id": asked.message_id, "after": asked.after}
    return {
        node["node"]: broker.peers.ask(node["url"], HISTORY, body)
        for node in cluster["nodes"]
        if node["node"] != cluster["node"]
    }


def recorded(
    history: History, asked: Request, clock: Clock, finish: Any = lambda: None
) -> dict[str, Any]:
    """What this broker recorded of a message.

    Args:
        finish: has the open files finished.

    Returns:
        `changes`; `gaps`, of the whole partition; `recorded`: up to which position this broker
        knows what happened; `reached`: where it stopped looking, None = nowhere.
    """
    if history.directory is None:
        return {"changes": [], "gaps": [], "recorded": 0, "reached": None}
    finish()
    history.settle()  # a topic that went elsewhere a moment ago
    if not history.is_mine(asked.topic):
        return {"changes": [], "gaps": [], "recorded": 0, "reached": None}
    files = history.files
    until_us = clock.now_us() + SEARCH_US
    changes: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    reached = None
    for file in files.find(asked.topic, 0, limits.INSTANT_MS_MAX, asked.partition):
        if file.last <= asked.after:
            continue
        if clock.now_us() > until_us:
            reached = file.first - 1
            break
        found, missing = _in_file(files, asked, file)
        changes += found
        gaps += missing
    last = files.recorded(asked.topic, asked.partition)
    return {"changes": changes, "gaps": gaps, "recorded": last, "reached": reached}


def _in_file(
    files: Files, asked: Request, file: HistoryFile
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a file has of the message, and of what it says that it is missing."""
    path = files.path_of(asked.topic, file.partition, file.name)
    assert path is not None
    changes: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    before = file.first - 1
    try:
        for table in _pieces(files, path, asked.message_id, all_rows=file.has_gaps):
            if file.has_gaps:
                gaps += _gaps(table, before)
                before = table["position"][-1].as_py()
            changes += _changes(table, asked)
    except FileNotFoundError:
        return [], []  # pruned meanwhile
    except (OSError, pa.ArrowException) as wrong:
        raise Unavailable(f"history file {file.name} can't be read: {wrong}") from wrong
    return changes, gaps


def _pieces(files: Files, path: Path, message_id: int, *, all_rows: bool) -> Iterator[pa.Table]:
    """The parts of a file in which the message may be; `all_rows`: every part."""
    with pq.ParquetFile(path, decryption_properties=decryption(files.encryption, path)) as parquet:
        place = parquet.schema_arrow.get_field_index("id")
        for number in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(number).column(place).statistics
            has_it = known is None or not known.has_min_max
            if all_rows or has_it or known.min <= message_id <= known.max:
                table = parquet.read_row_group(number)
                if table.num_rows:
                    yield table


def _changes(table: pa.Table, asked: Request) -> list[dict[str, Any]]:
    rows = table.filter(pc.equal(table["id"], asked.message_id)).select(_COLUMNS)
    if not rows.num_rows:
        return []
    [batch] = rows.combine_chunks().to_batches()
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in mended_batch(batch).to_pylist()
        if row["position"] > asked.after
    ]


def _gaps(table: pa.Table, before: int) -> list[dict[str, Any]]:
    """What is not recorded lies between the row before and the one that says so."""
    positions = table["position"].to_numpy()
    is_gap = pc.equal(table["change"], GAP).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(is_gap)
    told = table.take(pa.array(rows)).select(["at_ms", "reason", "missed"]).to_pylist()
    return [
        {"first": int(positions[row - 1] if row else before) + 1, "last": int(positions[row])}
        | more
        for row, more in zip(rows.tolist(), told, strict=True)
    ]


# --- put together -------------------------------------------------------------------------------


def join(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several brokers recorded of a message: each change once, and what none of them has."""
    reached = min((one["reached"] for one in answers if one["reached"] is not None), default=None)
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for answer in answers:
        for change in answer["changes"]:
            name = (change["position"], change["change"])
            # Who read it again from the journal does not know its consumer.
            if "consumer" in change or name not in found:
                found[name] = change
    changes = sorted(found.values(), key=lambda change: int(change["position"]))
    if reached is not None:
        changes = [change for change in changes if change["position"] <= reached]
    first, last = 0, limits.INSTANT_MS_MAX
    if changes and changes[0]["change"] in _BEGINS:
        first = changes[0]["position"]
    if changes and changes[-1]["change"] in _ENDS:
        last = changes[-1]["position"]
    gaps = [gap for gap in _missing(answers) if first <= gap["last"] and gap["first"] <= last]
    return {"changes": changes, "gaps": gaps, "next": reached}


def _missing(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gaps of which no other broker has what happened, each once."""
    known: list[Stretch] = []
    for answer in answers:
        gaps = [(gap["first"], gap["last"]) for gap in answer["gaps"]]
        known += without([(1, answer["recorded"])], gaps)
    missing = []
    every = [gap for answer in answers for gap in answer["gaps"]]
    for gap in sorted(every, key=lambda gap: int(gap["last"])):
        stretch = (gap["first"], gap["last"])
        if without([stretch], known):
            missing.append(gap)
            known.append(stretch)
    return missing
