"""Where the rows of a producer's batch go, and who answers for them.

Room: broker. Runs on the thread of the stream; what comes back from a partition is routed anew on a
thread of the topic that may wait (ServedTopic.again).
Holds: exactly one reply per batch; a batch sent again, in whatever parts its rows were stored, gets
their first answers, and only rows that are nowhere are stored (rule 10).
See: growth.py, which knows where keys and batches of a topic are that grew; docs/guides/growing.md.

A topic that grew may hold parts of a batch where it would not be sent to today: keys
that were live in an older home, rows that came back and were routed anew. Each part notes which
rows it has (`strays`), and of one producer's batch one sending is under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from dejaqueue.broker.partition.duplicates import enqueue_reply
from dejaqueue.broker.partition.keys import find_in
from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entries import hash_column, hash_texts, text_column
from dejaqueue.broker.topic.growth import Known, Stored, find_old_homes, known_batches, rows_of
from dejaqueue.broker.topic.joined_reply import JoinedReply
from dejaqueue.broker.topic.route import PARTS_MAX, Route, part_name, split_rows
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.turns import Sending
from dejaqueue.engine.arrays import Int64s, Mask, Words
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import DejaQError, InternalError, Unavailable
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.keys import hash_key
from dejaqueue.schema.send_rows import SendRows
from dejaqueue.wire.frames import Reply

_NONE: tuple[int, ...] = ()

# So many large batches of a stream go to one partition before the next has its turn: those that are
# on their way at the same time share an append and its sync. Of 64 partitions with a batch each,
# every one would sync for itself. Small ones take turns one by one: there is little to share,
# and a few messages should not all be behind each other.
RUN_BATCHES = 16
RUN_ROWS_MIN = 256


@dataclass(slots=True)
class Batch:
    """A producer's batch, whole. Never changed, though not frozen, which takes five times as long
    to make: it is made for each message that is sent alone.

    Attributes:
        producer: "" = not idempotent.
        key_hashes: None = there are no keys, or the worker is to hash them, as those of a message
            that came alone.
        stage: the transaction it belongs to.
        senders, owner: as in EnqueueRequest.
    """

    number: int
    columns: SendColumns | SendRows
    producer: str
    key_hashes: Int64s | None
    stage: Stage | None
    acks: str
    senders: Words | None = None
    owner: str | None = None

    @property
    def is_remembered(self) -> bool:
        """It may be sent again, and is to be recognised then."""
        return bool(self.producer) and self.acks != "none"

    def part(self, rows: Int64s | None) -> SendColumns | SendRows:
        """These rows, None = all."""
        return self.columns if rows is None else self.columns.take(rows)

    def senders_of(self, rows: Int64s | None) -> Words | None:
        """Who sent these rows."""
        senders = self.senders
        return senders if senders is None or rows is None else senders.take(rows)


@dataclass(slots=True)
class _Part:
    """Rows of a batch for one partition; `rows` and `must_live` None = all of it, none. As Batch,
    never changed."""

    partition: int
    rows: Int64s | None
    name: str
    strays: tuple[int, ...] = ()
    must_live: Mask | None = None


class Router:
    """Sends the batches of one stream to the partitions of a topic.

    Args:
        first_partition: where the stream begins with what may go anywhere.
        put: leaves a request for a partition; raises ResourceExhausted.
    """

    def __init__(
        self,
        topic: ServedTopic,
        first_partition: int,
        put: Callable[[int, EnqueueRequest], None],
    ) -> None:
        self._topic = topic
        self._first_partition = first_partition
        self._put = put
        self._token = object()
        self._known_by: Route | None = None
        self._known: Known = {}

    def send(self, batch: Batch, reply: ReplyTo) -> None:
        """Send a batch. Raises DejaQError: it was not sent at all."""
        route = self._topic.route
        if route.has_grown:
            self._send_grown(batch, None, reply, anew=False)
            return
        parts = self._parts(batch, route.count)
        self._submit(batch, route, None, parts, reply, has_turn=False)

    # --- a topic that never grew --------------------------------------------------------------

    def _parts(self, batch: Batch, count: int) -> list[_Part]:
        columns = batch.columns
        by_group = self._topic.topic.groups_stay_together and _has_groups(columns)
        by_row = columns.partitions is not None or _has_keys(batch) or by_group
        if count == 1 or not by_row:
            return [_Part(self._in_turn(batch, count), None, batch.producer)]
        if is_one(columns):
            return [_Part(self._home_of_one(batch, columns, count), None, batch.producer)]
        split = split_rows(self._homes(batch, count))
        if len(split) == 1:
            return [_Part(split[0][0], None, batch.producer)]
        return [_Part(partition, rows, batch.producer) for partition, rows in split]

    def _home_of_one(self, batch: Batch, rows: SendRows, count: int) -> int:
        """As `_homes`, of a message that came alone: without arrays, which cost 60 µs for one."""
        fields = rows.fields
        assert fields is not None
        key = fields.keys[0] if fields.keys is not None else b""
        if not key and self._topic.topic.groups_stay_together and fields.groups is not None:
            key = fields.groups[0]
        if not key:
            return self._in_turn(batch, count)
        return self._topic.partitions.home(hash_key(key), count)

    def _homes(self, batch: Batch, count: int) -> Int64s:
        """Where each row goes: the producer's choice, else by key, else by group where that keeps
        an order, else the batch in turn."""
        columns = batch.columns
        if columns.partitions is not None:
            return columns.partitions.astype(np.int64)
        homes = np.full(columns.rows, self._in_turn(batch, count), dtype=np.int64)
        partitions = self._topic.partitions
        if self._topic.topic.groups_stay_together and _has_groups(columns):
            group_hashes = _group_hashes(columns)
            homes = np.where(group_hashes != 0, partitions.homes(group_hashes, count), homes)
        if batch.key_hashes is not None:
            hashes = batch.key_hashes
            homes = np.where(hashes != 0, partitions.homes(hashes, count), homes)
        return homes

    def _in_turn(self, batch: Batch, count: int) -> int:
        """Where a batch goes that may go anywhere, of the partitions that are here.

        It follows from the batch alone, so that one sent again goes where it went before.
        """
        numbers = self._topic.partitions.numbers_of(count)
        is_large = batch.columns.rows >= RUN_ROWS_MIN
        turn = batch.number // RUN_BATCHES if is_large else batch.number
        return numbers[(self._first_partition + turn) % len(numbers)]

    def _submit(
        self,
        batch: Batch,
        route: Route,
        wanted: Int64s | None,
        parts: list[_Part],
        reply: ReplyTo,
        *,
        has_turn: bool,
        joined: JoinedReply | None = None,
    ) -> None:
        """Leave the parts at their partitions.

        Args:
            wanted: the rows that are answered, None = all.
            joined: what makes one reply of the parts'; None = `reply` is of one part.
        """
        if joined is None and len(parts) > 1:
            rows = batch.columns.rows if wanted is None else wanted.size
            joined = JoinedReply(batch.number, rows, _indices(parts, wanted), reply)
        for index, part in enumerate(parts):
            hashes = batch.key_hashes
            request = EnqueueRequest(
                batch.part(part.rows),
                part.name,
                batch.number,
                batch.acks,
                reply if joined is None else joined.part(index),
                hashes if part.rows is None or hashes is None else hashes[part.rows],
                batch.stage,
                strays=part.strays,
                senders=batch.senders_of(part.rows),
                owner=batch.owner,
            )
            request.goes_back = self._stay_on(route, batch, part, has_turn=has_turn)
            if joined is None:
                self._put(part.partition, request)
                return
            try:
                self._put(part.partition, request)
            except DejaQError as error:  # the others are on their way: their answers are waited for
                request.reply(Reply(batch.number, request.columns.rows, error=error))

    def _stay_on(
        self, route: Route, batch: Batch, part: _Part, *, has_turn: bool
    ) -> Callable[[EnqueueRequest, PartitionCore], bool]:
        """Has a request come back if it is met after a raise, if a key that an older home had
        is gone, or if other rows of the batch are remembered by its name.

        It is told the request, instead of knowing it: so the batch goes with its last user, not
        when Python looks for cycles.
        """

        def stays(request: EnqueueRequest, core: PartitionCore) -> bool:
            if self._topic.route is not route:
                return False
            if part.must_live is not None:
                assert request.key_hashes is not None
                live = find_in(core, request.columns.keys, request.key_hashes)
                if live is None or not (live[part.must_live] >= 0).all():
                    return False
            if not route.has_grown or not part.name:
                return True
            known = core.engine.answer(part.name, batch.number)
            return known is None or (known.strays, known.rows) == (part.strays, request.rows)

        def goes_back(request: EnqueueRequest, core: PartitionCore) -> bool:
            if stays(request, core):
                return False
            try:
                self._topic.again(
                    lambda: self._guarded(
                        batch, part.rows, request.reply, anew=True, has_turn=has_turn
                    )
                )
            except Unavailable as closed:
                request.reply(Reply(batch.number, request.rows, error=closed))
            return True

        return goes_back

    # --- a topic that grew ----------------------------------------------------------------------

    def _guarded(
        self, batch: Batch, wanted: Int64s | None, reply: ReplyTo, *, anew: bool, has_turn: bool
    ) -> None:
        """Route rows again; whatever happens, they are answered."""
        rows = batch.columns.rows if wanted is None else wanted.size
        try:
            if has_turn or not batch.is_remembered:
                self._place(batch, wanted, reply, anew=anew, has_turn=has_turn)
            else:
                self._send_grown(batch, wanted, reply, anew=anew)
        except DejaQError as error:
            reply(Reply(batch.number, rows, error=error))
        except TimeoutError:
            silent = Unavailable("a partition does not answer; send it again", 1_000)
            reply(Reply(batch.number, rows, error=silent))
        except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits
            reply(Reply(batch.number, rows, error=InternalError(f"routing: {wrong!r}")))

    def _send_grown(
        self, batch: Batch, wanted: Int64s | None, reply: ReplyTo, *, anew: bool
    ) -> None:
        """Route rows once no other sending of the batch is under way."""
        if not batch.is_remembered:
            self._guarded(batch, wanted, reply, anew=anew, has_turn=True)
            return
        turns, name, number = self._topic.turns, batch.producer, batch.number

        def answered(answer: Reply) -> None:
            turns.end(name, number, self._token)
            reply(answer)

        def begin() -> None:
            self._guarded(batch, wanted, answered, anew=True, has_turn=True)

        def refuse(error: DejaQError) -> None:
            answered(Reply(number, batch.columns.rows, error=error))

        if turns.begin(name, number, Sending(begin, refuse)):
            same = turns.is_of(name, self._token)
            self._guarded(batch, wanted, answered, anew=anew or not same, has_turn=True)

    def _place(
        self, batch: Batch, wanted: Int64s | None, reply: ReplyTo, *, anew: bool, has_turn: bool
    ) -> None:
        """Answer what is stored, and send the other rows where they belong now."""
        route = self._topic.route
        batch = replace(batch, columns=_routable(batch.columns))
        if batch.key_hashes is None and batch.columns.keys is not None:
            batch = _hashed(batch)
        found = self._stored(batch, route, anew=anew)
        homes = self._homes(batch, route.count)
        rows = np.arange(homes.size) if wanted is None else wanted
        ids, statuses, stored_mask = self._answers(batch, found)
        left = rows[~stored_mask[rows]]
        if left.size < rows.size:
            self._topic.counting.repeated.add()
        placed = homes.copy()
        must_live = np.zeros(homes.size, dtype=np.bool_)
        keys, hashes = batch.columns.keys, batch.key_hashes
        if keys is not None and hashes is not None and batch.columns.partitions is None:
            asked = np.full(homes.size, -1, dtype=np.int64)
            asked[left] = homes[left]
            must_live = find_old_homes(self._topic, route, keys, hashes, asked)
            placed = np.where(must_live, asked, homes)
        parts = []
        for partition, picked in split_rows(placed[left]) if left.size else []:
            here = left[picked]
            must = must_live[here]
            name, strays = "", _NONE
            if batch.producer:
                name = _free_name(route, batch.producer, partition, found)
                strays = _strays(homes, partition, here)
            part = _Part(partition, here, name, strays, must if must.any() else None)
            parts.append(part)
        joined = JoinedReply(
            batch.number, rows.size, _indices(parts, rows), reply, ids[rows], statuses[rows]
        )
        if not parts:
            joined.finish()
        self._submit(batch, route, rows, parts, reply, has_turn=has_turn, joined=joined)

    def _stored(self, batch: Batch, route: Route, *, anew: bool) -> list[Stored]:
        """The parts of the batch that partitions have; asked once per stream and per increase of
        the partition count, and again after another sending of the batch was under way."""
        if not batch.producer:
            return []
        if anew or self._known_by is not route:
            self._known = known_batches(self._topic, route, batch.producer)
            self._known_by = route
        return self._known.get(batch.number, [])

    def _answers(
        self, batch: Batch, stored: list[Stored]
    ) -> tuple[Int64s, npt.NDArray[np.uint8], Mask]:
        """Ids and statuses of the rows that are stored, and which these are."""
        count = batch.columns.rows
        ids = np.full(count, -1, dtype=np.int64)
        statuses = np.zeros(count, dtype=np.uint8)
        stored_mask = np.zeros(count, dtype=np.bool_)
        homes: dict[int, Int64s] = {}
        for part in stored:
            if part.count not in homes:
                homes[part.count] = self._homes(batch, part.count)
            rows = rows_of(part, homes[part.count], batch.number)
            answer = part.answer
            reply = enqueue_reply(batch.number, answer, part.partition, answer.first_sequence)
            ids[rows], statuses[rows] = reply.all_ids(), reply.all_statuses()
            stored_mask[rows] = True
        return ids, statuses, stored_mask


def is_one(columns: SendColumns | SendRows) -> TypeGuard[SendRows]:
    """Whether it is one message that is no column: its key is hashed by whoever routes it, and
    again by the worker, with the keys of all that came with it."""
    return isinstance(columns, SendRows) and columns.rows == 1


def _has_keys(batch: Batch) -> bool:
    columns = batch.columns
    if isinstance(columns, SendRows):
        return columns.fields is not None and columns.fields.keys is not None
    return batch.key_hashes is not None


def _has_groups(columns: SendColumns | SendRows) -> bool:
    if isinstance(columns, SendRows):
        return columns.fields is not None and columns.fields.groups is not None
    return columns.groups is not None


def _group_hashes(columns: SendColumns | SendRows) -> Int64s:
    """The hash of each group, of which there are some."""
    if isinstance(columns, SendRows):
        assert columns.fields is not None
        assert columns.fields.groups is not None
        return hash_texts(columns.fields.groups)
    return hash_column(text_column(columns.groups))


def hashes_of_keys(columns: SendColumns | SendRows) -> Int64s | None:
    """The hash of each key; None = there are none."""
    if isinstance(columns, SendRows):
        keys = None if columns.fields is None else columns.fields.keys
        return None if keys is None else hash_texts(keys)
    return None if columns.keys is None else hash_column(text_column(columns.keys))


def _routable(columns: SendColumns | SendRows) -> SendColumns | SendRows:
    """The same, as columns if they have keys or groups, by which rows are looked for."""
    if isinstance(columns, SendRows) and columns.fields is not None:
        return columns.columns()
    return columns


def _hashed(batch: Batch) -> Batch:
    hashes = hash_column(text_column(batch.columns.keys))
    return replace(batch, key_hashes=hashes)


def _indices(parts: list[_Part], wanted: Int64s | None) -> list[Int64s]:
    """Where each part's rows are among those that are wanted, which are ascending."""
    indices = []
    for part in parts:
        assert part.rows is not None
        indices.append(part.rows if wanted is None else np.searchsorted(wanted, part.rows))
    return indices


def _free_name(route: Route, producer: str, partition: int, stored: list[Stored]) -> str:
    """The name by which a partition is to remember a part of a batch beside those it has."""
    taken = {part.name for part in stored if part.partition == partition}
    for turn in range(PARTS_MAX):
        name = part_name(route, producer, route.count, turn)
        if name not in taken:
            return name
    raise Unavailable(f"partition {partition} has {PARTS_MAX} parts of this batch", 1_000)


def _strays(homes: Int64s, partition: int, rows: Int64s) -> tuple[int, ...]:
    """Rows of a batch that are in a part though their home is elsewhere, or the reverse."""
    here_mask = np.zeros(homes.size, dtype=np.bool_)
    here_mask[rows] = True
    return tuple(np.flatnonzero((homes == partition) != here_mask).tolist())
