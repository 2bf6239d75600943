"""The whole broker against an obvious model, on a virtual clock, restarted in the middle.

Covered: sends with keys, moves, shifts, cancels, both on conditions, deliveries in order, acks,
nacks, extends, lease ends and graceful restarts, over workers, group commit, dispatch and journal
(rules 1 to 7, 9, 11, 13).
Not covered: the engine alone, in depth (test_engine_against_model.py); kills (tests/crash).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dejaqueue.access.senders import NOBODY, Requester, Sender
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import SettleOp
from tests.rules.broker_fixture import TOPIC, BrokerFixture, RecordingConsumer

EXAMPLES = int(os.environ.get("DEJAQ_BROKER_MODEL_EXAMPLES", "150"))
LEASE_MS = 1_000

dues = st.integers(-5, 60)
senders_st = st.sampled_from([NOBODY, Sender("x"), Sender("x", own=True), Sender("y", own=True)])
picks = st.lists(st.integers(0, 30), min_size=1, max_size=5, unique=True)
offs = st.lists(st.sampled_from([None, 0, 0, 1]), min_size=5, max_size=5)


@dataclass
class Live:
    """One message that is not done. `due_ms` is when it is due, or when its lease ends."""

    sequence: int
    payload: bytes
    due_ms: int
    key: str
    leased: bool = False
    attempt: int = 0
    sender: str = ""


class BrokerMachine(RuleBasedStateMachine):
    @initialize(on_files=st.booleans())
    def start(self, on_files: bool) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="dejaq-model-"))
        self.on_files = on_files
        path = self.directory / "journal" if on_files else None
        self.broker = BrokerFixture(path, lease_ms=LEASE_MS)
        self.live: dict[int, Live] = {}
        self.on_duplicate = "reject"
        self.next_sequence = 0
        self.connect()

    def connect(self) -> None:
        self.consumer: RecordingConsumer = self.broker.consumer(credit=1_000_000, holds=False)

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.stop()
            shutil.rmtree(self.directory)

    # --- what the model says --------------------------------------------------------------

    def end_leases(self) -> None:
        for message in self.live.values():
            if message.leased and message.due_ms <= self.broker.now_ms:
                message.leased = False

    def expect_deliveries(self) -> None:
        """Everything that is due now is delivered, once, in order."""
        self.end_leases()
        now_ms = self.broker.now_ms
        due = [m for m in self.live.values() if not m.leased and m.due_ms <= now_ms]
        due.sort(key=lambda message: (message.due_ms, message.sequence))
        expected = []
        for message in due:
            message.attempt += 1
            expected.append((message.sequence, message.attempt, message.due_ms, message.payload))
            message.leased, message.due_ms = True, now_ms + LEASE_MS
        got = []
        for delivered in self.consumer.take_all():
            batch = delivered.batch
            columns = (batch.column(name).to_pylist() for name in ("id", "attempts", "due"))
            rows = list(zip(*columns, delivered.payloads, strict=True))
            assert rows == sorted(rows, key=lambda row: (row[2], row[0]))
            got += rows
        assert sorted(got) == sorted(expected)

    def chosen(self, places: list[int]) -> list[int]:
        """Sequences: live ones and others."""
        return [place % max(1, self.next_sequence + 2) for place in places]

    def producer_status(self, sequence: int, sender: Sender) -> RowStatus:
        message = self.live.get(sequence)
        if message is None or sender.owner not in (None, message.sender):
            return RowStatus.NOT_FOUND
        return RowStatus.LEASED if message.leased else RowStatus.OK

    # --- steps ----------------------------------------------------------------------------

    @rule(
        rows=st.lists(st.tuples(dues, st.sampled_from(["", "", "a", "b", "c"])), max_size=6),
        sender=senders_st,
    )
    def send(self, rows: list[tuple[int, str]], sender: Sender) -> None:
        if not rows:
            return
        self.end_leases()
        now_ms = self.broker.now_ms
        expected = [RowStatus.OK] * len(rows)
        payloads = [b"%d-%d" % (self.next_sequence, n) * (n + 1) for n in range(len(rows))]
        for place, (delay_ms, key) in enumerate(rows):
            later = any(key == other for _, other in rows[place + 1 :])
            expected[place] = self.resolve(key, sender, key_again=later)
            if expected[place] is RowStatus.OK:
                sequence = self.next_sequence
                self.next_sequence += 1
                message = Live(sequence, payloads[place], now_ms + delay_ms, key)
                message.sender = sender.name
                self.live[sequence] = message
        reply = self.broker.send(
            payloads,
            [now_ms + delay_ms for delay_ms, _ in rows],
            [key for _, key in rows],
            sender=sender,
        )
        assert reply.error is None
        assert reply.all_statuses().tolist() == expected
        self.expect_deliveries()

    def resolve(self, key: str, sender: Sender, *, key_again: bool) -> RowStatus:
        """The status of a row with that key; takes away what it replaces."""
        holder = next((m for m in self.live.values() if key and m.key == key), None)
        if holder is not None and sender.owner not in (None, holder.sender):
            return RowStatus.DUPLICATE
        if self.on_duplicate == "replace":
            if holder is not None and holder.leased:
                return RowStatus.DUPLICATE
            if key and key_again:
                return RowStatus.KEPT
            if holder is not None:
                del self.live[holder.sequence]
            return RowStatus.OK
        if holder is None:
            return RowStatus.OK
        return RowStatus.KEPT if self.on_duplicate == "keep" else RowStatus.DUPLICATE

    @rule(on_duplicate=st.sampled_from(["reject", "keep", "replace"]))
    def alter(self, on_duplicate: str) -> None:
        self.on_duplicate = on_duplicate
        self.broker.broker.alter_topic(TOPIC, {"on_duplicate": on_duplicate})

    @rule(places=picks, delay_ms=dues, sender=senders_st)
    def move(self, places: list[int], delay_ms: int, sender: Sender) -> None:
        self.end_leases()
        sequences = self.chosen(places)
        sequences = list(dict.fromkeys(sequences))
        expected = [self.producer_status(sequence, sender) for sequence in sequences]
        due_ms = self.broker.now_ms + delay_ms
        for sequence, status in zip(sequences, expected, strict=True):
            if status is RowStatus.OK:
                self.live[sequence].due_ms = due_ms
        columns = {"id": pa.array(sequences), "due": pa.array([due_ms] * len(sequences))}
        reply = self.broker.write("move", columns, sender=sender)
        assert reply.all_statuses().tolist() == expected
        self.expect_deliveries()

    def conditions(self, sequences: list[int], offs_ms: list[int | None]) -> list[int | None]:
        """When each has to be due: so much off what it is; None = whenever."""
        found = [self.live.get(sequence) for sequence in sequences]
        return [
            None if off is None else (0 if message is None else message.due_ms) + off
            for message, off in zip(found, offs_ms, strict=False)
        ]

    def conditional_status(self, sequence: int, sender: Sender, if_due: int | None) -> RowStatus:
        status = self.producer_status(sequence, sender)
        if status is not RowStatus.OK or if_due in (None, self.live[sequence].due_ms):
            return status
        return RowStatus.CHANGED

    @rule(places=picks, by_ms=st.integers(-3_000, 3_000), offs_ms=offs, sender=senders_st)
    def shift(
        self, places: list[int], by_ms: int, offs_ms: list[int | None], sender: Sender
    ) -> None:
        self.end_leases()
        sequences = list(dict.fromkeys(self.chosen(places)))
        if_dues = self.conditions(sequences, offs_ms)
        asked = list(zip(sequences, if_dues, strict=True))
        expected = [self.conditional_status(one, sender, if_due) for one, if_due in asked]
        for sequence, status in zip(sequences, expected, strict=True):
            if status is RowStatus.OK:
                message = self.live[sequence]
                message.due_ms = max(0, message.due_ms + by_ms)
        columns = {
            "id": pa.array(sequences),
            "by_ms": pa.array([by_ms] * len(sequences)),
            "if_due": pa.array(if_dues, pa.int64()),
        }
        reply = self.broker.write("move", columns, sender=sender)
        assert reply.all_statuses().tolist() == expected
        self.expect_deliveries()

    @rule(places=picks, offs_ms=offs, sender=senders_st)
    def cancel_if_due(self, places: list[int], offs_ms: list[int | None], sender: Sender) -> None:
        self.end_leases()
        sequences = list(dict.fromkeys(self.chosen(places)))
        if_dues = self.conditions(sequences, offs_ms)
        asked = list(zip(sequences, if_dues, strict=True))
        expected = [self.conditional_status(one, sender, if_due) for one, if_due in asked]
        for sequence, status in zip(sequences, expected, strict=True):
            if status is RowStatus.OK:
                del self.live[sequence]
        columns = {"id": pa.array(sequences), "if_due": pa.array(if_dues, pa.int64())}
        reply = self.broker.write("cancel", columns, sender=sender)
        assert reply.all_statuses().tolist() == expected

    @rule(key=st.sampled_from(["a", "b", "c"]), sender=senders_st)
    def cancel_by_key(self, key: str, sender: Sender) -> None:
        self.end_leases()
        found = [message for message in self.live.values() if message.key == key]
        expected = RowStatus.NOT_FOUND
        if found:
            expected = self.producer_status(found[0].sequence, sender)
        if expected is RowStatus.OK:
            del self.live[found[0].sequence]
        reply = self.broker.write("cancel", {"key": pa.array([key])}, sender=sender)
        assert reply.all_statuses().tolist() == [expected]

    @rule(places=picks, sender=senders_st)
    def cancel(self, places: list[int], sender: Sender) -> None:
        self.end_leases()
        sequences = list(dict.fromkeys(self.chosen(places)))
        expected = [self.producer_status(sequence, sender) for sequence in sequences]
        for sequence, status in zip(sequences, expected, strict=True):
            if status is RowStatus.OK:
                del self.live[sequence]
        reply = self.broker.write("cancel", {"id": pa.array(sequences)}, sender=sender)
        assert reply.all_statuses().tolist() == expected

    @rule(sender=senders_st, cancels=st.booleans())
    def change_by_filter(self, sender: Sender, cancels: bool) -> None:
        self.end_leases()
        chosen = [
            message
            for message in self.live.values()
            if not message.leased and sender.owner in (None, message.sender)
        ]
        if cancels:
            found = self.broker.broker.call("cancel_where", {"topic": TOPIC}, Requester(sender))
            for message in chosen:
                del self.live[message.sequence]
        else:
            due_ms = self.broker.now_ms + 40
            found = self.broker.broker.call(
                "move_where", {"topic": TOPIC, "due": due_ms}, Requester(sender)
            )
            for message in chosen:
                message.due_ms = due_ms
        assert found["count"] == len(chosen)
        self.expect_deliveries()

    @precondition(lambda self: any(message.leased for message in self.live.values()))
    @rule(
        places=picks,
        op=st.sampled_from(list(SettleOp)),
        stale=st.booleans(),
        argument_ms=st.integers(20, 2_000),
    )
    def settle(self, places: list[int], op: SettleOp, stale: bool, argument_ms: int) -> None:
        self.end_leases()
        leased = [message for message in self.live.values() if message.leased]
        if not leased:
            return
        rows = list({leased[place % len(leased)].sequence for place in places})
        attempts = [self.live[row].attempt - int(stale) for row in rows]
        expected = [RowStatus.LEASE_LOST if stale else RowStatus.OK] * len(rows)
        if not stale:
            for row in rows:
                self.settle_one(row, op, argument_ms)
        reply = self.consumer.settle(
            op,
            ids=np.array(rows),
            attempts=np.array(attempts, dtype=np.uint16),
            argument_ms=argument_ms,
        )
        assert reply.all_statuses().tolist() == expected
        self.expect_deliveries()

    def settle_one(self, row: int, op: SettleOp, argument_ms: int) -> None:
        message = self.live[row]
        match op:
            case SettleOp.ACK:
                del self.live[row]
            case SettleOp.NACK:
                message.leased, message.due_ms = False, self.broker.now_ms + argument_ms
            case SettleOp.EXTEND:
                message.due_ms = self.broker.now_ms + argument_ms

    @rule(ms=st.sampled_from([1, 7, 30, 500, 1_001]))
    def advance(self, ms: int) -> None:
        self.broker.clock.advance(ms=ms)
        self.expect_deliveries()

    @precondition(lambda self: self.on_files)
    @rule()
    def restart(self) -> None:
        hashes = self.broker.state_hashes()
        self.consumer.session.close(release=False)
        self.broker.restart()
        # One command more than before: the new epoch.
        assert self.broker.state_hashes() != hashes
        self.connect()
        self.expect_deliveries()


def test_the_broker_does_what_the_model_says() -> None:
    run_state_machine_as_test(
        BrokerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
