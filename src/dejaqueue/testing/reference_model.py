"""ReferenceModel: the engine's contract once more, slow and obvious, message by message.

Room: testing; pure. Dictionaries and lists only, nothing shared with the engine but its commands.
Holds: the same commands give the same effects as the engine's, and the same answers to questions.
See: tests/model/test_engine_against_model.py; docs/reference/semantics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dejaqueue import limits
from dejaqueue.engine import commands
from dejaqueue.engine.commands import Command
from dejaqueue.model import MessageState, RowStatus

OK, LOST = int(RowStatus.OK), int(RowStatus.LEASE_LOST)


@dataclass
class Message:
    """One live message. `due_ms` is when it is due, or when its lease ends."""

    sequence: int
    due_ms: int
    locator: int
    key_hash: int
    state: MessageState = MessageState.SCHEDULED
    attempts: int = 0


@dataclass
class Outcome:
    """What a command did; as `commands.Effects`, in plain lists. `freed` is sorted."""

    statuses: list[int] | None = None
    first_sequence: int = -1
    freed: list[int] | None = None
    leased: list[tuple[int, int, int, int]] | None = None
    """(sequence, attempt, due_ms, locator) of each row."""


class ReferenceModel:
    """A partition, told obviously.

    Attributes:
        live: messages that are not done, by sequence.
        leases: (sequence, attempt) of the rows of each lease, by its id.
        answers: per producer, silent longest first: (number, answer), oldest first.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.epoch = 0
        self.next_sequence = 0
        self.live: dict[int, Message] = {}
        self.leases: dict[int, list[tuple[int, int]]] = {}
        self.answers: dict[str, list[tuple[int, tuple[int, int]]]] = {}
        self.heard_ms: dict[str, int] = {}

    def apply(self, command: Command) -> Outcome:
        """Do what the command says."""
        if isinstance(command, commands.Lease):
            return self.lease(command)
        self.begin(command.now_ms)
        if isinstance(command, commands.Enqueue):
            return self.enqueue(command)
        if isinstance(command, commands.Move):
            return self.move(command)
        if isinstance(command, commands.Cancel):
            return self.cancel(command)
        if isinstance(command, commands.Relocate):
            return self.relocate(command)
        if isinstance(command, commands.OpenEpoch):
            self.epoch = command.epoch
            return Outcome()
        return self.settle(command)

    def begin(self, now_ms: int) -> None:
        """Leases that ended by now are over; their messages are due since then."""
        self.now_ms = now_ms
        for message in self.live.values():
            if message.state is MessageState.LEASED and message.due_ms <= now_ms:
                message.state = MessageState.SCHEDULED

    def enqueue(self, command: commands.Enqueue) -> Outcome:
        """Messages come in and get the next sequences; those that they replace go."""
        replaced = set() if command.replaced is None else set(command.replaced.tolist())
        gone = [old for old in sorted(replaced) if self.refusal(old) == OK]
        freed = [self.live.pop(old).locator for old in gone]
        first = self.next_sequence
        for row, due_ms in enumerate(command.dues_ms.tolist()):
            key_hash = 0 if command.key_hashes is None else int(command.key_hashes[row])
            locator = (command.position << limits.ROW_BITS) + row
            sequence = self.next_sequence
            self.live[sequence] = Message(sequence, due_ms, locator, key_hash)
            self.next_sequence += 1
        sequence = first
        for batch in command.sub_batches:
            if batch.producer:
                self.remember(batch.producer, batch.number, (sequence, batch.count))
            sequence += batch.count
        return Outcome(first_sequence=first, freed=sorted(freed))

    def remember(self, name: str, number: int, answer: tuple[int, int]) -> None:
        """Keep an answer; forget old answers, silent producers, too many producers."""
        answers = self.answers.pop(name, [])
        answers = [pair for pair in answers if pair[0] != number] + [(number, answer)]
        self.answers[name] = answers[-limits.PRODUCER_WINDOW_BATCHES :]
        self.heard_ms[name] = self.now_ms
        for other in list(self.answers):
            silent_ms = self.now_ms - self.heard_ms[other]
            too_many = len(self.answers) > limits.PRODUCERS_MAX
            if too_many or silent_ms >= limits.PRODUCER_IDLE_MS_MAX:
                del self.answers[other]

    def answer(self, name: str, number: int) -> tuple[int, int] | None:
        """First sequence and count that a batch was answered."""
        return dict(self.answers.get(name, [])).get(number)

    def lease(self, command: commands.Lease) -> Outcome:
        """Hand out what is due, in order; nothing changes if nothing is."""
        due = sorted(
            (message.due_ms, message.sequence)
            for message in self.live.values()
            if message.due_ms <= command.until_ms
            and (message.state is MessageState.SCHEDULED or message.due_ms <= command.now_ms)
        )[: command.count]
        if not due:
            return Outcome()
        self.begin(command.now_ms)
        rows = []
        for due_ms, sequence in due:
            message = self.live[sequence]
            message.state = MessageState.LEASED
            message.attempts = min(message.attempts + 1, limits.ATTEMPTS_MAX)
            message.due_ms = command.lease_end_ms
            rows.append((sequence, message.attempts, due_ms, message.locator))
        self.leases[command.lease_id] = [(row[0], row[1]) for row in rows]
        return Outcome(leased=rows)

    def settle(self, command: commands.Ack | commands.Nack | commands.Extend) -> Outcome:
        """Ack, nack or extend the rows that are held as the command says."""
        if command.lease_id >= 0:
            rows = self.leases.get(command.lease_id, [])
        else:
            assert command.sequences is not None
            assert command.attempts is not None
            pairs = zip(command.sequences.tolist(), command.attempts.tolist(), strict=True)
            rows = list(pairs)
        statuses, freed = [], []
        for sequence, attempt in rows:
            message = self.held(sequence, attempt)
            if message is None:
                statuses.append(LOST)
                continue
            statuses.append(OK)
            if isinstance(command, commands.Ack):
                freed.append(message.locator)
                del self.live[sequence]
            elif isinstance(command, commands.Nack):
                message.state = MessageState.SCHEDULED
                message.due_ms = command.due_ms
            else:
                message.due_ms = command.lease_end_ms
        if command.lease_id >= 0 and OK not in statuses:
            statuses = [LOST]
        return Outcome(statuses=statuses, freed=sorted(freed))

    def held(self, sequence: int, attempt: int) -> Message | None:
        """The message, if it is leased with this attempt."""
        message = self.live.get(sequence)
        if message is None or message.state is not MessageState.LEASED:
            return None
        return message if message.attempts == attempt else None

    def refusal(self, sequence: int) -> int:
        """Why a producer may not change this message; OK if it may."""
        if sequence not in self.live:
            return int(RowStatus.NOT_FOUND)
        leased = self.live[sequence].state is MessageState.LEASED
        return int(RowStatus.LEASED if leased else RowStatus.OK)

    def move(self, command: commands.Move) -> Outcome:
        """Give scheduled messages other times."""
        statuses = []
        pairs = zip(command.sequences.tolist(), command.dues_ms.tolist(), strict=True)
        for sequence, due_ms in pairs:
            statuses.append(self.refusal(sequence))
            if statuses[-1] == OK:
                self.live[sequence].due_ms = due_ms
        return Outcome(statuses=statuses)

    def cancel(self, command: commands.Cancel) -> Outcome:
        """Take scheduled messages away."""
        statuses, freed = [], []
        for sequence in command.sequences.tolist():
            statuses.append(self.refusal(sequence))
            if statuses[-1] == OK:
                freed.append(self.live.pop(sequence).locator)
        return Outcome(statuses=statuses, freed=sorted(freed))

    def relocate(self, command: commands.Relocate) -> Outcome:
        """The rows of messages are elsewhere; what is not needed any more is free."""
        freed = []
        moved: set[int] = set()
        for row, sequence in enumerate(command.sequences.tolist()):
            copy = (command.position << limits.ROW_BITS) + row
            if sequence in self.live and sequence not in moved:
                moved.add(sequence)
                freed.append(self.live[sequence].locator)
                self.live[sequence].locator = copy
            else:
                freed.append(copy)
        return Outcome(freed=sorted(freed))

    def next_due_ms(self) -> int | None:
        """When the next scheduled message is due."""
        scheduled = self.in_state(MessageState.SCHEDULED)
        return min((message.due_ms for message in scheduled), default=None)

    def next_expiry_ms(self) -> int | None:
        """When the next lease ends."""
        leased = self.in_state(MessageState.LEASED)
        return min((message.due_ms for message in leased), default=None)

    def in_state(self, state: MessageState) -> list[Message]:
        """Messages in that state, by (due, sequence)."""
        found = [message for message in self.live.values() if message.state is state]
        return sorted(found, key=lambda message: (message.due_ms, message.sequence))

    def with_key(self, key_hash: int) -> list[int]:
        """Sequences of live messages with that hash, ascending."""
        return sorted(
            message.sequence
            for message in self.live.values()
            if key_hash and message.key_hash == key_hash
        )
