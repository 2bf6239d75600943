"""Erase: messages go, and with them every byte of theirs in the files of this broker.

Room: broker. On the caller's thread; the workers are asked for what is live, and end it.
Holds: `next` is null only when no segment, snapshot, history file or payload that this broker keeps
has a byte of what was found; whatever breaks off, the same call again goes on with what is left.
See: shard/stored_erasure.py, what is found; journal/interface.py, duty 13; history/erasure.py;
rule 23; docs/adr/0079-erasure-gives-segments-back.md.

A call does a piece: of one partition after the other it finds and ends the messages; then it waits
for what the journals let go of, of all of them at once. How to go on is in `next`, not in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from dejaqueue import limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.backup_id import id_facts
from dejaqueue.broker.backup.lineage import Lineage
from dejaqueue.broker.calls.browse import answer_of, parse_selection
from dejaqueue.broker.calls.history import finish_files
from dejaqueue.broker.calls.peek import parse_names
from dejaqueue.broker.calls.port import BrokerPort
from dejaqueue.broker.calls.recorded_erasure import (
    OtherBrokers,
    erase_copies,
    erase_everywhere,
    unknown_letters,
)
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.stored_erasure import ErasureChoice, ErasureRows
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import Wake
from dejaqueue.engine.arrays import Int64s, distinct
from dejaqueue.engine.commands import Ack, Cancel, Forget, ForgetTexts, InView
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.table import DEAD, DONE, LEASED, STAGED, STAGED_ACK
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.journal.interface import Erasure, Journal
from dejaqueue.model import MessageState
from dejaqueue.topic_names import check_served_name, topic_of
from dejaqueue.wire.descriptors import check_fields
from dejaqueue.wire.selection import SEEK_FIELDS

WAIT_US: Final = 5_000_000
"""A call waits so long for journals, and then answers how to go on."""
LOOK_US: Final = 200_000
CALL_BACK_US: Final = 20_000_000
"""Objects of some MiB are read from the payload store, and written, in that time."""
HELD_LOOKS: Final = 15
"""So often it is looked whether what is on its way to a dead-letter topic has arrived there."""
_NONE: Final = np.zeros(0, dtype=np.int64)
_EVERY_STATE: Final = tuple(MessageState(int(one)) for one in (1, 2, 3, 4, 5))
_POSITION_MAX: Final = (1 << (63 - limits.ROW_BITS)) - 2
_ASKED: Final = ("keys", "ids", "origin", *SEEK_FIELDS)
"""Which messages are meant, as other brokers are told it."""
SUMS: Final = ("found", "ended", "held", "segments", "bytes", "payloads", "changes")


@dataclass(slots=True)
class _Cursor:
    """How far an erasure came.

    Attributes:
        partition: the next one to look through; -1 = all were.
        waits: what journals have to let go of yet, by partition.
        sums: what was done so far, by the names of SUMS.
        began_ms: when the first call was.
        silent: other brokers that did not answer.
    """

    partition: int
    began_ms: int
    waits: dict[int, Erasure] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))
    silent: list[str] = field(default_factory=list)

    def to_values(self) -> dict[str, Any]:
        waits = {str(number): [*one[1:], *one.units] for number, one in self.waits.items()}
        more = {"waits": waits, "sums": self.sums, "began_ms": self.began_ms}
        more |= {"silent": self.silent}
        return {"partition": self.partition, **more}


def _parse_cursor(values: object, topic: ServedTopic, now_ms: int) -> _Cursor:
    if values is None:
        return _Cursor(topic.partitions.numbers[0], now_ms)
    try:
        assert isinstance(values, dict)
        required = ("partition", "waits", "sums", "began_ms", "silent")
        check_fields(values, list(required), required=required)
        waits = {
            int(number): Erasure(tuple(map(int, units)), int(until), int(byte_count))
            for number, (until, byte_count, *units) in values["waits"].items()
        }
        sums = {name: int(values["sums"][name]) for name in SUMS}
        partition = int(values["partition"])
        if partition >= 0:
            topic.partitions.check("partition", partition)
        for number in waits:
            topic.partitions.check("partition", number)
        silent = [str(node) for node in values["silent"]]
        return _Cursor(partition, int(values["began_ms"]), waits, sums, silent)
    except (AssertionError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise BadRequest("after", "the `next` of the answer before", values) from None


def parse_choice(values: dict[str, Any]) -> ErasureChoice:
    """The checked choice; BadRequest names what is wrong."""
    origin = values.get("origin")
    if origin is not None:
        origin = check_served_name(origin)
    if isinstance(values.get("keys"), str):  # its letters would be keys
        raise BadRequest("keys", "a list of texts", values["keys"])
    ids, keys = parse_names(values.get("ids"), values.get("keys"))
    selects = any(values.get(name) not in (None, []) for name in SEEK_FIELDS)
    if [ids is not None, keys is not None, selects].count(True) != 1:
        raise BadRequest("keys", "keys, ids, or a filter, one of them", values.get("keys"))
    if ids is not None:
        if not ids.size or (ids < 0).any():
            raise BadRequest("ids", "one or more, none of them negative", values["ids"])
        return ErasureChoice(origin=origin or "", ids=tuple(ids.tolist()))
    if keys is None:
        selection = parse_selection(values, 0, _EVERY_STATE)
        return ErasureChoice(None, selection, origin or "")
    named = tuple(keys.to_pylist())
    if not named or "" in named:
        raise BadRequest("keys", "one or more, none of them empty", values["keys"])
    return ErasureChoice(named, None, origin or "")


def erase(broker: BrokerPort, topic: ServedTopic, values: dict[str, Any]) -> dict[str, Any]:
    """Do a piece of an erasure.

    Returns:
        `found`: rows that were stored, copies counted; `ended`: messages that lived until then;
        `held`: messages that are left, as they are in a transaction that is not decided or did not
        reach their dead-letter topic yet; `segments` and `bytes` that are written again;
        `payloads` of the payload store; `changes`: rows of history. All since the first call.
        `next`: `after` of the next call, None = that was all. Then also `letters`, where its dead
        letters are; `silent`, other brokers that did not answer, and may have history of it or a
        copy of the journal; `left`, what was not found and may be there yet, in words; `backups`,
        which have it still, each with `id`, `url`, `cut_ms`, and `until_ms` if it is deleted by
        itself; `unread`, why backups could not be listed; `took_ms`.

    Raises:
        BadRequest. Refused: the journals are where that cannot be done. Unavailable: ask again.
    """
    choice, now_ms = parse_choice(values), broker.clock.utc_ms()
    cursor = _parse_cursor(values.get("after"), topic, now_ms)
    others = OtherBrokers(broker, topic.topic.name, set(cursor.silent))
    if cursor.partition >= 0:
        asked = {name: values[name] for name in _ASKED if name in values}
        _erase_in(others, topic, choice, asked, cursor)
    else:
        _wait(others, topic, cursor)
    cursor.silent = sorted(others.silent)
    if cursor.partition >= 0 or cursor.waits:
        return cursor.sums | {"next": cursor.to_values()}
    took_ms = max(broker.clock.utc_ms() - cursor.began_ms, 0)
    return cursor.sums | {
        "next": None,
        "took_ms": took_ms,
        "letters": _letter_topics(topic),
        "silent": cursor.silent,
        "left": unknown_letters(broker, topic.topic, choice),
        **_backups(broker),
    }


# --- of one partition ---------------------------------------------------------------------------


def _erase_in(
    others: OtherBrokers,
    topic: ServedTopic,
    choice: ErasureChoice,
    asked: dict[str, Any],
    cursor: _Cursor,
) -> None:
    """Find what is meant in the cursor's partition, end it, and begin to have it go."""
    number = cursor.partition
    if topic.has_journal(number):
        piece = _Piece(others, topic, choice, asked, number)
        cursor.waits[number] = piece.erase()
        for name in SUMS:
            cursor.sums[name] += piece.sums[name]
    left = topic.partitions.numbers[topic.partitions.at(number) + 1 :]
    cursor.partition = left[0] if left else -1


class _Piece:
    """The erasure of one partition, up to where its journal has to be waited for."""

    def __init__(
        self,
        others: OtherBrokers,
        topic: ServedTopic,
        choice: ErasureChoice,
        asked: dict[str, Any],
        number: int,
    ) -> None:
        self._broker, self._topic = others.broker, topic
        self._others, self._asked = others, asked
        self._choice, self._number = replace(choice, partition=number), number
        self.sums = dict.fromkeys(SUMS, 0)

    def erase(self) -> Erasure:
        """What the journal has to let go of."""
        rows = ErasureRows(self._choice)
        journal, tail = self._look(_where)
        live = self._selected() if self._choice.is_by_now else self._named()
        rows.look(journal.stored(0, tail), self._locators(live), live)
        live, spared = self._sort_out(live, rows.found)
        spared_locators = self._locators(spared)
        self._end(live)
        answer_of(self._topic.change(self._number, _forget_texts))
        journal, end = self._look(_where)
        rows.look(journal.stored(tail, end), named=live)  # what was copied meanwhile
        found = np.setdiff1d(rows.found, spared_locators)
        self.sums["found"] = int(found.size)
        self._erase_payloads(rows, found)
        self._erase_history(rows, live, spared)
        positions = np.union1d(found >> limits.ROW_BITS, np.array(rows.moves, dtype=np.int64))
        # Also where nothing was found: snapshots of before may have names of groups and tags.
        planned: Erasure = journal.plan_erasure(positions, end)
        self.sums["segments"], self.sums["bytes"] = len(planned.units), planned.byte_count
        journal.press(planned)
        return planned

    def _look(self, function: Any) -> Any:
        return answer_of(self._topic.look(self._number, function))

    def _locators(self, sequences: Int64s) -> Int64s:
        """Where messages are stored, ascending."""
        if not sequences.size:
            return _NONE
        locators: Int64s = self._look(lambda core: core.views.locators(sequences))
        return np.sort(locators[locators >= 0])

    def _selected(self) -> Int64s:
        """What is live and selected, by what it is now."""
        parts: list[Int64s] = [_NONE]
        first: int | None = 0
        selection = self._choice.selection
        assert selection is not None
        while first is not None:
            some, first = self._look(partial(_select_some, selection, first))
            parts.append(some)
        return np.concatenate(parts)

    def _named(self) -> Int64s:
        """What is live, or retained, of what is named by ids."""
        sequences = self._choice.sequences
        return self._look(partial(_stored_of, sequences)) if sequences.size else _NONE

    def _sort_out(self, live: Int64s, found: Int64s) -> tuple[Int64s, Int64s]:
        """What is to be ended; and what is live, and is not what is stored of it any more."""
        if not found.size:
            return live, _NONE
        hits, is_live = self._look(partial(_hits, np.sort(found)))
        if not self._choice.is_by_now:
            return hits, _NONE
        spared = np.setdiff1d(hits[is_live], live)
        return np.union1d(live, hits[~is_live]), spared

    def _end(self, sequences: Int64s) -> None:
        """They are no more, in any view, as far as nobody holds them."""
        if not sequences.size:
            return
        wake = Wake()
        for _ in range(HELD_LOOKS):
            ended = held = 0
            for start in range(0, sequences.size, limits.CHANGE_ROWS_MAX):
                some = sequences[start : start + limits.CHANGE_ROWS_MAX]
                was, left = answer_of(self._topic.change(self._number, partial(_end_some, some)))
                ended, held = ended + was - left, held + left
            self.sums["ended"] += ended
            self.sums["held"] = held
            if not held:
                return
            self._broker.clock.wait_until(self._broker.clock.now_us() + LOOK_US, wake)

    def _erase_payloads(self, rows: ErasureRows, found: Int64s) -> None:
        names = [rows.names[one] for one in found.tolist() if one in rows.names]
        ids, own = self._broker.payloads.ids, _topic_in(self._topic.payload_owner)
        parts = {name: name.split("/", 2) for name in names}
        gone = sorted(n for n, (by, of, *_) in parts.items() if by in ids and _topic_in(of) == own)
        if gone:
            self._call_back(rows.shared.intersection(gone))
            self._broker.erase_payloads(gone)
            self.sums["payloads"] = len(gone)

    def _call_back(self, names: set[str]) -> None:
        """Have the payloads of other messages, which share these objects, back in the journal.

        Raises:
            Unavailable: that takes longer; ask again.
        """
        until_us, wake = self._broker.clock.now_us() + CALL_BACK_US, Wake()
        while names and not answer_of(self._topic.change(self._number, partial(_are_back, names))):
            now_us = self._broker.clock.now_us()
            if now_us >= until_us:
                raise Unavailable("cold payloads of other messages are not back yet", 1_000)
            self._broker.clock.wait_until(min(now_us + LOOK_US, until_us), wake)

    def _erase_history(self, rows: ErasureRows, live: Int64s, spared: Int64s) -> None:
        if self._broker.history.directory is not None:
            finish_files(self._topic, [self._number])
        known = distinct(np.concatenate([live, *rows.sequences]))
        erased = erase_everywhere(
            self._others, self._choice, self._asked, known=known, spared=spared
        )
        self.sums["changes"] = erased.rows
        self.sums["bytes"] += erased.byte_count


# --- on the partition's worker ------------------------------------------------------------------


def _where(core: PartitionCore) -> tuple[Journal, int]:
    """The journal, and its last entry."""
    return core.journal, core.position


def _select_some(
    selection: Selection, first: int, core: PartitionCore
) -> tuple[Int64s, int | None]:
    return core.views.select(
        selection,
        first=first,
        end=core.engine.next_sequence,
        limit=limits.SLAB_ROWS,
        rows_max=limits.BROWSE_ROWS_MAX,
    )


def _stored_of(sequences: Int64s, core: PartitionCore) -> Int64s:
    """Those of these messages that have a row that somebody needs."""
    sequences = sequences[sequences < core.engine.next_sequence]
    return sequences[core.views.locators(sequences) >= 0]


def _hits(found: Int64s, core: PartitionCore) -> tuple[Int64s, Any]:
    """Messages that are stored in these places, retained ones, too; and which are in some view."""
    first, last = int(found[0]) >> limits.ROW_BITS, int(found[-1]) >> limits.ROW_BITS
    sequences = np.sort(core.views.live_in(first, min(last, _POSITION_MAX), 1 << 62))
    hits = sequences[np.isin(core.views.locators(sequences), found)]
    return hits, core.views.states(hits) != DONE


def _end_some(sequences: Int64s, core: PartitionCore) -> tuple[int, int]:
    """End messages; how many of them were live, and how many are."""
    views, now_ms = core.views, core.now_ms()
    was = int(np.count_nonzero(views.locators(sequences) >= 0))
    numbered = [(0, views.unnamed), *((one.number, one.engine) for one in views.named.values())]
    for number, engine in numbered:
        leased = sequences[engine.states(sequences) == LEASED]
        if leased.size:  # whoever has it in hand has its bytes; the lease is over (rule 4)
            ack = Ack(now_ms, sequences=leased, attempts=engine.attempts(leased))
            core.apply(InView(now_ms, number, ack) if number else ack)
    core.apply(Cancel(now_ms, sequences))
    kept = views.retained
    if kept is not None:
        retained = sequences[kept.has(sequences)]
        if retained.size:
            core.apply(Forget(now_ms, 0, retained))
    states = views.states(sequences)
    held = (states == DEAD) | (states == STAGED) | (states == STAGED_ACK)
    return was, int(np.count_nonzero(held))


def _are_back(names: set[str], core: PartitionCore) -> bool:
    """Whether no message has its payload in one of these objects; if not, they come back soon."""
    index = core.cold
    if index.is_complete and names.isdisjoint(index.objects):
        return True
    index.is_wanted = True
    index.called |= names
    core.ring()
    return False


def _forget_texts(core: PartitionCore) -> None:
    core.apply(ForgetTexts(core.now_ms()))


# --- what is waited for, and what is told -------------------------------------------------------


def _wait(others: OtherBrokers, topic: ServedTopic, cursor: _Cursor) -> None:
    """Have journals let go, for a while; those that did are waited for no more."""
    broker = others.broker
    until_us, wake = broker.clock.now_us() + WAIT_US, Wake()
    while cursor.waits:
        for number, planned in list(cursor.waits.items()):
            journal, _ = answer_of(topic.look(number, _where))
            if journal.press(planned):
                erase_copies(others, number)
                del cursor.waits[number]
        if not cursor.waits or broker.clock.now_us() >= until_us:
            return
        broker.clock.wait_until(broker.clock.now_us() + LOOK_US, wake)


def _letter_topics(topic: ServedTopic) -> list[str]:
    """Where dead letters of the topic, and of its subscriptions, go."""
    served = [topic.topic, *(one.topic for one in topic.subscriptions.values())]
    return sorted({one.dead_letter_name for one in served} - {topic.topic.name})


def _backups(broker: BrokerPort) -> dict[str, Any]:
    """Which backups there are: each has what was stored when it was taken."""
    settings = broker.settings.backup
    told: list[dict[str, Any]] = []
    unread: list[str] = []
    lineage = Lineage(broker.store)
    for url in lineage.urls():
        try:
            archive = Archive.open(url)
            for backup in archive.ids():
                facts = id_facts(backup)
                if facts is None or facts.store != lineage.store:
                    continue
                told.append({"id": backup, "url": url, "cut_ms": facts.cut_ms})
                if url == settings.url and settings.keep_ms:
                    told[-1]["until_ms"] = facts.cut_ms + settings.keep_ms
        except DejaQError as failure:
            unread.append(f"{url}: {failure}")
    return {"backups": told, "unread": unread}


def _topic_in(owner: str) -> tuple[str, str]:
    """Number and name of the topic of a ServedTopic.payload_owner, which may be a shard: of those
    of a cluster, one broker serves the whole topic that took its place."""
    number, _, name = owner.partition("-")
    return number, topic_of(name)
