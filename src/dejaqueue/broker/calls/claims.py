"""Claims: leases for readers that come back to them, in batches of any size.

Room: broker. Asks each partition's worker; gathers what is stored on the caller's thread.
Holds: a claim is one lease: the same rows in the same order for as long as it is held, across
restarts too; it ends by an ack of the whole, or when nobody extended it in time (rule 5).
See: docs/adr/0009; docs/wire.md; spark/stream_reader.py for who reads so.

A consumer's stream pushes batches and forgets; a reader of claims asks for rows, notes the claim's
number where it keeps its progress, and reads the rows again if it died before it was done. The
number is that of the lease, the position of its journal entry: it says nothing but which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.calls.browse import answer_of, whole
from dejaqueue.broker.calls.scan import Ticket as ScanTicket
from dejaqueue.broker.calls.scan import columns_of, in_batches, rows_of
from dejaqueue.broker.partition.leasing import take_over
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.digits import number_of
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Ack, Extend, Lease
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.model import Assignment, TopicKind
from dejaqueue.wire.descriptors import check_lease

CLAIMS_MAX = 10_000
"""Claims in one call."""
_CLAIMS_KEPT = 16
"""With more of them, dues of claims that are over are looked for."""
_MEAN_BYTES = 1_024
"""Bytes of a payload, for a limit in bytes, where nothing was sent since the start."""


def claim(topic: ServedView, body: dict[str, Any]) -> dict[str, Any]:
    """Lease what is due in a partition, up to so many rows.

    Args:
        body: `topic`, `partition`, `rows`, `bytes` (any), `lease_ms` (the topic's).

    Returns:
        `claim`: its number, None if nothing is due; `rows`; `ready`: how many more are due,
        in a large partition at most.

    Raises:
        BadRequest.
    """
    if topic.topic.assignment is Assignment.EXCLUSIVE:
        raise BadRequest("topic", "one whose assignment is shared", topic.topic.name)
    number = _partition(topic, body)
    rows = whole(body, "rows", 0, limits.CLAIM_ROWS_MAX, low=1)
    byte_count = whole(body, "bytes", 0, 1 << 62)
    lease_ms = check_lease(body.get("lease_ms", topic.topic.lease_ms))

    def lease(core: PartitionCore) -> tuple[int, int, int]:
        if topic.topic.paused:
            return -1, 0, _ready(core, core.now_ms())
        count = rows
        if byte_count:
            mean = core.mean_payload_bytes or _MEAN_BYTES
            count = max(1, min(rows, byte_count // mean))
        take_over(core, count)
        now_ms, lease_id = core.now_ms(), core.next_position()
        leased = core.apply_lease(Lease(now_ms, lease_id, now_ms, count, now_ms + lease_ms))
        left = _ready(core, now_ms)
        if leased is None:
            return -1, 0, left
        _keep_dues(core, topic.claimed_dues[core.number], lease_id, leased.dues_ms)
        return lease_id, len(leased.sequences), left

    lease_id, count, left = answer_of(topic.change(number, lease))
    return {"claim": None if lease_id < 0 else lease_id, "rows": count, "ready": left}


def settle(topic: ServedView, body: dict[str, Any], *, ack: bool) -> dict[str, Any]:
    """Ack claims, or extend them from now.

    Args:
        body: `topic`, `claims` (an object of lists of numbers, by partition), and to extend them
            `lease_ms` (the topic's).

    Returns:
        `lost`: those that were not held any more, in the shape of `claims`.

    Raises:
        BadRequest.
    """
    asked = _claims(topic, body.get("claims"))
    lease_ms = check_lease(body.get("lease_ms", topic.topic.lease_ms))

    def change(core: PartitionCore, numbers: list[int]) -> list[int]:
        lost = []
        for number in numbers:
            if core.engine.leased_rows(number) is None:
                lost.append(number)
                continue
            if ack:
                topic.claimed_dues[core.number].pop(number, None)
            now_ms = core.now_ms()
            command = Ack(now_ms, number) if ack else Extend(now_ms, now_ms + lease_ms, number)
            core.apply(command)
        return lost

    futures = {
        partition: topic.change(partition, lambda core, numbers=numbers: change(core, numbers))  # type: ignore[misc]
        for partition, numbers in asked.items()
    }
    lost = {str(partition): answer_of(future) for partition, future in futures.items()}
    return {"lost": {partition: numbers for partition, numbers in lost.items() if numbers}}


def read(topic: ServedView, values: dict[str, Any]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows of a claim in their order, from `first` to before `end`, as batches of SCAN.

    Raises:
        BadRequest. Refused: the claim is over.
    """
    partition = _partition(topic, values)
    number = whole(values, "claim", -1, limits.POSITION_MAX)
    most = limits.CLAIM_ROWS_MAX
    first, end = whole(values, "first", 0, most), whole(values, "end", most, most)
    columns = columns_of(values.get("columns"))
    ticket = ScanTicket(Selection(), partition, first, end, columns, None, None)

    def batches() -> Iterator[pa.RecordBatch]:
        sequences, dues_ms = answer_of(
            topic.look(partition, lambda core: _held(topic, core, number))
        )
        sequences = sequences[first:end]
        dues_ms = dues_ms[first:end]
        for at in range(0, sequences.size, limits.SLAB_ROWS):
            part = sequences[at : at + limits.SLAB_ROWS]
            rows = answer_of(topic.look(partition, lambda core, part=part: rows_of(core, part)))  # type: ignore[misc]
            # In the table a leased row is due when its lease ends.
            were_ms = dues_ms[at : at + limits.SLAB_ROWS]
            yield from in_batches(topic, replace(rows, dues_ms=were_ms), ticket)

    return ticket.schema, batches()


def _ready(core: PartitionCore, now_ms: int) -> int:
    """How many messages are due; of a large partition at most so many: no look at each."""
    engine = core.engine
    if engine.next_sequence - engine.first_sequence <= limits.BROWSE_ROWS_MAX:
        return engine.due_count(now_ms)
    if core.topic().kind in (TopicKind.PRIORITY, TopicKind.FAIR):
        return engine.counts.scheduled
    counts, _ = engine.tally_index(0, now_ms + 1, now_ms + 1, 1)
    return min(int(counts[0]), engine.counts.scheduled)


def _keep_dues(core: PartitionCore, kept: dict[int, Int64s], number: int, dues_ms: Int64s) -> None:
    """Remember when the rows of a claim became due, until it is over or the broker ends."""
    if len(kept) >= _CLAIMS_KEPT:
        for old in [old for old in kept if core.engine.leased_rows(old) is None]:
            del kept[old]
    kept[number] = dues_ms


def _held(topic: ServedView, core: PartitionCore, number: int) -> tuple[Int64s, Int64s]:
    """The rows of a claim, and when they became due; -1 = was forgotten at a restart."""
    rows = core.engine.leased_rows(number)
    if rows is None:
        raise Refused(
            f"claim {number} of partition {core.number} of topic {core.topic().name} is over: "
            "it was acked, or nobody extended it in time"
        )
    sequences = np.asarray(rows[0])
    dues_ms = topic.claimed_dues[core.number].get(number)
    return sequences, np.full(sequences.size, -1) if dues_ms is None else dues_ms


def _partition(topic: ServedView, values: dict[str, Any]) -> int:
    if values["partition"] is None:
        raise BadRequest("partition", "a number", None)
    number = whole(values, "partition", 0, limits.PARTITIONS_MAX)
    return topic.partitions.check("partition", number)


def _claims(topic: ServedView, given: object) -> dict[int, list[int]]:
    limit = "an object of lists of claims, by partition"
    if not isinstance(given, dict):
        raise BadRequest("claims", limit, given)
    claims_of: dict[int, list[int]] = {}
    for name, numbers in given.items():
        partition = number_of(name)
        if partition is None or partition not in topic.partitions or not isinstance(numbers, list):
            raise BadRequest("claims", limit, {name: numbers})
        for number in numbers:
            if type(number) is not int or not 0 <= number <= limits.POSITION_MAX:
                raise BadRequest("claims", f"numbers from 0 to {limits.POSITION_MAX}", number)
        claims_of[partition] = list(dict.fromkeys(numbers))
    if sum(map(len, claims_of.values())) > CLAIMS_MAX:
        raise BadRequest("claims", f"at most {CLAIMS_MAX}", sum(map(len, claims_of.values())))
    return claims_of
