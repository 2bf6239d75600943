"""ReferenceModel: the engine's contract once more, slow and obvious, message by message.

Room: testing; pure. Dictionaries and lists only, nothing shared with the engine but its commands
    and rules.
Holds: the same commands give the same effects as the engine's, and the same answers to questions.
See: tests/model/test_engine_against_model.py; docs/reference/semantics.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dejaqueue import limits
from dejaqueue.engine import commands
from dejaqueue.engine.commands import Command
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.table import FORGIVEN_MAX
from dejaqueue.model import GroupOrder, MessageState, RowStatus, TagFilter, TopicKind
from dejaqueue.testing.reference_turns import Turns

OK, LOST = int(RowStatus.OK), int(RowStatus.LEASE_LOST)


@dataclass
class Message:
    """One live message. `due_ms`: when it is due, or its lease ends; `expires_ms`: 0 = never."""

    sequence: int
    due_ms: int
    locator: int
    key_hash: int
    state: MessageState = MessageState.SCHEDULED
    attempts: int = 0
    priority: int = limits.PRIORITY_DEFAULT
    group: str = ""
    tags: str = ""
    expires_ms: int = 0
    sender: str = ""
    came_back: bool = False
    forgiven: int = 0


@dataclass
class Outcome:
    """What a command did; as `effects.Effects`, in plain lists. `freed` is sorted."""

    statuses: list[int] | None = None
    first_sequence: int = -1
    freed: list[int] | None = None
    leased: list[tuple[int, int, int, int]] | None = None
    """(sequence, attempt, due_ms, locator) of each row."""
    is_void: bool = False


@dataclass
class Transaction:
    """What was staged, in the order it came."""

    until_ms: int = 0
    enqueued: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)


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
        self.rules = Rules()
        self.dead: dict[int, tuple[str, list[int]]] = {}
        self.dead_number = 0
        self.staged: dict[str, Transaction] = {}
        self.decided: dict[str, bool] = {}
        self.ready_until = -1, limits.SEQUENCE_MAX
        """Due time and sequence of the last message that is ready, if it is still there."""
        self.turns: dict[int, Turns] = {}
        """By priority where that comes first, else all under 0."""
        self.names: list[str] = []
        self.entries: dict[str, tuple[str, int, int, int]] = {}
        """Cron entries by name: what it is, when it fires next, when to look, its last message."""

    def apply(self, command: Command) -> Outcome:
        """Do what the command says."""
        outcome = self.do(command)
        self.relist()
        return outcome

    def relist(self, opened: frozenset[str] = frozenset()) -> None:
        """Groups that have something to give now, or nothing any more, begin or end to take part
        in the turns."""
        if self.rules.kind is TopicKind.FAIR:
            gives = self.gives(opened)
            for level in gives:
                self.turns_of(level)
            for level, turns in self.turns.items():
                turns.relist(gives.get(level, {}))

    def turns_of(self, level: int) -> Turns:
        """Whose turn it is among the groups of this level."""
        if level not in self.turns:
            self.turns[level] = Turns()
            self.turns[level].weights = self.rules.weights
            for name in self.names:
                self.turns[level].name(name)
        return self.turns[level]

    def name(self, group: str) -> None:
        """A group that may be new."""
        self.names.append(group)
        for turns in self.turns.values():
            turns.name(group)

    def level(self, message: Message) -> int:
        """Among which messages this one's group has its turns: 0 if there is one level."""
        is_first = self.rules.group_order is GroupOrder.PRIORITY_FIRST
        return message.priority if is_first else 0

    def is_ready(self, message: Message) -> bool:
        """Whether it takes part in an order other than by time."""
        is_scheduled = message.state is MessageState.SCHEDULED
        return is_scheduled and (message.due_ms, message.sequence) <= self.ready_until

    def gives(self, opened: frozenset[str] = frozenset()) -> dict[int, dict[str, int]]:
        """How many messages each group can give now, by level.

        Args:
            opened: groups that the lease in hand has taken from already; by runs others wait until
                none of theirs is leased.
        """
        readies = Counter((self.level(m), m.group) for m in self.live.values() if self.is_ready(m))
        leased = Counter(m.group for m in self.in_state(MessageState.LEASED))
        cap = self.rules.group_in_flight_max or 1 << 40
        gives: dict[int, dict[str, int]] = {}
        for (level, group), count in readies.items():
            waits = self.rules.group_runs and leased[group] and group not in opened
            if not waits and (give := min(count, cap - leased[group])) > 0:
                gives.setdefault(level, {})[group] = give
        return gives

    def do(self, command: Command) -> Outcome:
        """As `apply`."""
        if isinstance(command, commands.Lease):
            return self.lease(command)
        if isinstance(command, commands.SetTime):
            return self.set_time(command)
        self.begin(command.now_ms)
        match command:
            case commands.Enqueue():
                return self.enqueue(command)
            case commands.Move():
                return self.move(command)
            case commands.Cancel():
                return self.cancel(command)
            case commands.Depart():
                return self.depart(command)
            case commands.Relocate():
                return self.relocate(command)
            case commands.Ack() | commands.Nack() | commands.Extend():
                return self.settle(command)
            case commands.Decide():
                return self.decide(command)
            case commands.Bury():
                _, sequences = self.dead.pop(command.group, ("", []))
                return Outcome(freed=sorted(self.live.pop(s).locator for s in sequences))
            case commands.Configure():
                self.rules = Rules.from_text(command.rules)
                for turns in self.turns.values():
                    turns.weights = self.rules.weights
                self.next_sequence = max(self.next_sequence, self.rules.ids_from)
            case commands.Remember():
                self.decided.pop(command.transaction, None)
                if command.commit is not None:
                    self.decided[command.transaction] = command.commit
            case commands.OpenEpoch():
                self.epoch = command.epoch
            case commands.ForgetTexts():
                pass  # nobody sees it
            case commands.PutEntries():
                for name, spec, next_ms, wake_ms in command.entries:
                    last = self.entries[name][3] if name in self.entries else -1
                    self.entries[name] = (spec, next_ms, wake_ms, last)
            case commands.DropEntries():
                found = [self.entries.pop(name, None) for name in command.names]
                missing = int(RowStatus.NOT_FOUND)
                return Outcome(statuses=[missing if gone is None else OK for gone in found])
            case _:
                raise TypeError(command)
        return Outcome()

    def set_time(self, command: commands.SetTime) -> Outcome:
        """The time is another one: what the owner gave keeps what is left of it."""
        for message in self.live.values():
            if message.state is MessageState.LEASED:
                message.due_ms -= command.by_ms
            elif message.state is MessageState.SCHEDULED and message.came_back:
                message.due_ms = max(0, message.due_ms - command.by_ms)
        for transaction in self.staged.values():
            transaction.until_ms = max(0, transaction.until_ms - command.by_ms)
        for name, heard_ms in self.heard_ms.items():
            if command.by_ms < 0 or heard_ms > command.now_ms:
                self.heard_ms[name] = heard_ms - command.by_ms
        self.now_ms = command.now_ms
        self.ready_until = min(self.ready_until, (command.now_ms, limits.SEQUENCE_MAX))
        return Outcome()

    def begin(self, now_ms: int) -> bool:
        """Leases that ended by now are over, and so are lives; True if there was one."""
        self.now_ms = now_ms
        ended = [m for m in self.in_state(MessageState.LEASED) if m.due_ms <= now_ms]
        for message in ended:
            message.state = MessageState.SCHEDULED
        self.come_back(ended, "lease ended")
        self.relist()
        old = [m for m in self.in_state(MessageState.SCHEDULED) if 0 < m.expires_ms <= now_ms]
        self.die(old, "expired")
        self.relist()
        return bool(ended or old)

    def come_back(
        self,
        messages: list[Message],
        reason: str,
        *,
        waits: bool = True,
        wears_out: bool = True,
        is_counted: bool = True,
    ) -> None:
        """Messages that were leased are scheduled for their `due_ms`, or dead."""
        limit = self.rules.max_attempts if wears_out else 0
        worn_out = [m for m in messages if limit and m.attempts - m.forgiven >= limit]
        self.die(worn_out, reason)
        others = [m for m in messages if m not in worn_out]
        old = [m for m in others if 0 < m.expires_ms <= self.now_ms]
        self.die(old, "expired")
        for message in others:
            if message in old:
                continue
            message.state = MessageState.SCHEDULED
            message.came_back = True
            if waits:
                sequences = np.array([message.sequence], dtype=np.int64)
                attempts = np.array([message.attempts - message.forgiven], dtype=np.uint16)
                wait_ms = self.rules.waits_ms(sequences, attempts)
                message.due_ms += 0 if wait_ms is None else int(wait_ms[0])
            if not is_counted:
                message.forgiven = min(message.forgiven + 1, FORGIVEN_MAX)

    def die(self, messages: list[Message], reason: str) -> None:
        """These messages are dead, together."""
        if messages:
            for message in messages:
                message.state = MessageState.DEAD
            sequences = sorted(message.sequence for message in messages)
            self.dead[self.dead_number] = (reason, sequences)
            self.dead_number += 1

    def enqueue(self, command: commands.Enqueue) -> Outcome:
        """Messages come in and get the next sequences."""
        first = self.next_sequence
        freed = []
        staged = None if command.stage is None else self.stage(command.stage)
        replaced = [] if command.replaced is None else command.replaced.tolist()
        if staged is None:
            freed = self.replace(replaced)
        else:
            staged.replaced += replaced
        self.relist()
        for name in () if command.groups is None else command.groups.names:
            self.name(name)
        for row, due_ms in enumerate(command.dues_ms.tolist()):
            sequence = self.next_sequence
            message = Message(
                sequence,
                due_ms,
                (command.position << limits.ROW_BITS) + row,
                0 if command.key_hashes is None else int(command.key_hashes[row]),
            )
            if command.priorities is not None:
                message.priority = int(command.priorities[row])
            if command.groups is not None:
                message.group = command.groups.names[command.groups.indices[row]]
            if command.tags is not None:
                message.tags = command.tags.names[command.tags.indices[row]]
            if command.expires_ms is not None:
                message.expires_ms = int(command.expires_ms[row])
            if command.senders is not None:
                message.sender = command.senders.names[command.senders.indices[row]]
            if staged is not None:
                message.state = MessageState.STAGED
                staged.enqueued.append(sequence)
            self.live[sequence] = message
            self.next_sequence += 1
        for name, next_ms, wake_ms, row in command.firings:
            if name in self.entries:
                spec, *_, last = self.entries[name]
                self.entries[name] = (spec, next_ms, wake_ms, last if row < 0 else first + row)
        sequence = first
        for batch in command.sub_batches:
            if batch.producer:
                self.remember(batch.producer, batch.number, (sequence, batch.count))
            sequence += batch.count
        return Outcome(first_sequence=first, freed=freed)

    def stage(self, stage: commands.Stage) -> Transaction:
        """The transaction, which may be new."""
        staged = self.staged.setdefault(stage.transaction, Transaction())
        staged.until_ms = max(staged.until_ms, stage.until_ms)
        return staged

    def replace(self, sequences: list[int]) -> list[int]:
        """Those that are scheduled are gone; returns their locators."""
        gone = {s for s in sequences if self.refusal(s) == OK}
        return sorted(self.live.pop(sequence).locator for sequence in gone)

    def decide(self, command: commands.Decide) -> Outcome:
        """A transaction is committed or aborted."""
        staged = self.staged.pop(command.transaction, None)
        if staged is None:
            return Outcome()
        acked = [self.live[sequence] for sequence in staged.acked]
        if command.commit:
            freed = [self.live.pop(message.sequence).locator for message in acked]
            freed += self.replace(staged.replaced)
            self.relist()
            for sequence in staged.enqueued:
                self.live[sequence].state = MessageState.SCHEDULED
        else:
            freed = [self.live.pop(sequence).locator for sequence in staged.enqueued]
            for message in acked:
                message.due_ms = self.now_ms
            self.come_back(acked, "refused", waits=False, wears_out=False)
        return Outcome(freed=sorted(freed))

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

    def key(self, message: Message) -> tuple[int, int]:
        """Where a ready message stands in the order."""
        if self.rules.kind is TopicKind.PRIORITY:
            ageing_ms = self.rules.ageing_ms
            urgency = message.priority * (ageing_ms or 1) + (message.due_ms if ageing_ms else 0)
            return urgency, message.sequence
        if self.rules.kind is TopicKind.FAIR:  # within its group
            by_arrival = self.rules.group_order is GroupOrder.ARRIVAL
            return 0 if by_arrival else message.priority, message.sequence
        return message.due_ms, message.sequence

    def takes(self, command: commands.Lease, message: Message) -> bool:
        """Whether a consumer with the command's filter takes it."""
        tags = message.tags.split("\x1f")
        wanted = command.filter or TagFilter()
        return (
            (not wanted.any_of or any(tag in tags for tag in wanted.any_of))
            and all(tag in tags for tag in wanted.all_of)
            and not any(tag in tags for tag in wanted.none_of)
        )

    def lease(self, command: commands.Lease) -> Outcome:
        """Hand out what is due, in order; nothing changes if nothing is."""
        then_ms = self.now_ms
        is_void = not self.begin(command.now_ms)
        by_time = self.rules.kind in (TopicKind.TIMELINE, TopicKind.CRON)
        bound = self.ready_until
        in_pieces = self.rules.take_over_rows_max or bound[1] < limits.SEQUENCE_MAX
        if not by_time and (command.count > 0 or in_pieces):
            is_void &= not self.take_over(command.now_ms)
            self.relist()
        due = [
            message
            for message in self.in_state(MessageState.SCHEDULED)
            if (message.due_ms <= command.until_ms if by_time else self.is_ready(message))
            and self.takes(command, message)
        ]
        rows = []
        due.sort(key=self.key)
        is_fair = self.rules.kind is TopicKind.FAIR
        for message in self.choose(due, command.count) if is_fair else due[: command.count]:
            message.state = MessageState.LEASED
            message.attempts = min(message.attempts + 1, limits.ATTEMPTS_MAX)
            rows.append((message.sequence, message.attempts, message.due_ms, message.locator))
            message.due_ms = command.lease_end_ms
        if not rows:
            if is_void:
                self.now_ms, self.ready_until = then_ms, bound
            return Outcome(is_void=is_void)
        self.leases[command.lease_id] = [(row[0], row[1]) for row in rows]
        return Outcome(leased=rows)

    def take_over(self, now_ms: int) -> bool:
        """More of what is due is ready now, all or a piece; True if that made a difference."""
        was_begun = self.ready_until[1] < limits.SEQUENCE_MAX
        waiting = [
            message
            for message in self.in_state(MessageState.SCHEDULED)
            if message.due_ms <= now_ms and not self.is_ready(message)
        ]
        piece = self.rules.take_over_rows_max
        if piece and len(waiting) >= piece:
            last = waiting[piece - 1]
            self.ready_until = last.due_ms, last.sequence
        else:
            self.ready_until = now_ms, limits.SEQUENCE_MAX
        return bool(waiting) or was_begun

    def choose(self, due: list[Message], count: int) -> list[Message]:
        """The next messages of a fair topic, one turn after the other. `due` is sorted."""
        waiting: dict[int, dict[str, list[Message]]] = {}
        for message in due:
            waiting.setdefault(self.level(message), {}).setdefault(message.group, []).append(
                message
            )
        chosen: list[Message] = []
        opened: frozenset[str] = frozenset()
        while len(chosen) < count:
            gives = self.gives(opened)
            open_turns = {
                level: {g for g, messages in of_level.items() if messages and gives[level].get(g)}
                for level, of_level in waiting.items()
                if level in gives
            }
            first = min((level for level, groups in open_turns.items() if groups), default=None)
            if first is None:
                break
            group = self.turns_of(first).next(open_turns[first])
            run_count = 1
            if self.rules.group_runs:
                run_count = min(gives[first][group], len(waiting[first][group]))
                run_count = min(run_count, count - len(chosen))
                self.turns_of(first).go_on(group, run_count - 1)
                opened |= {group}
            for _ in range(run_count):
                message = waiting[first][group].pop(0)
                message.state = MessageState.LEASED
                chosen.append(message)
            self.relist(opened)
        return chosen

    def settle(self, command: commands.Ack | commands.Nack | commands.Extend) -> Outcome:
        """Ack, nack or extend the rows that are held as the command says."""
        if command.lease_id >= 0:
            rows = self.leases.get(command.lease_id, [])
        else:
            assert command.sequences is not None
            assert command.attempts is not None
            pairs = zip(command.sequences.tolist(), command.attempts.tolist(), strict=True)
            rows = list(pairs)
        statuses, freed, nacked = [], [], []
        for sequence, attempt in rows:
            message = self.held(sequence, attempt)
            if message is None:
                statuses.append(LOST)
                continue
            statuses.append(OK)
            if isinstance(command, commands.Extend):
                message.due_ms = command.lease_end_ms
            elif isinstance(command, commands.Nack):
                message.state = MessageState.SCHEDULED
                message.due_ms = command.now_ms if command.due_ms < 0 else command.due_ms
                nacked.append(message)
            elif command.stage is not None:
                message.state = MessageState.STAGED_ACK
                self.stage(command.stage).acked.append(sequence)
            else:
                freed.append(message.locator)
                del self.live[sequence]
        if isinstance(command, commands.Nack):
            reason = command.reason or "refused"
            if command.bury:
                self.die(nacked, reason)
            else:
                waits, counts = command.due_ms < 0, not command.release
                self.come_back(nacked, reason, waits=waits, wears_out=counts, is_counted=counts)
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
        message = self.live.get(sequence)
        if message is None or message.state not in (MessageState.SCHEDULED, MessageState.LEASED):
            return int(RowStatus.NOT_FOUND)
        leased = message.state is MessageState.LEASED
        return int(RowStatus.LEASED if leased else RowStatus.OK)

    def move(self, command: commands.Move) -> Outcome:
        """Give scheduled messages other times, priorities or groups."""
        statuses = [self.refusal(sequence) for sequence in command.sequences.tolist()]
        if command.dues_ms is not None and command.groups is None and command.priorities is None:
            last = dict(zip(command.sequences.tolist(), command.dues_ms.tolist(), strict=True))
            moved = [s for s, due in last.items() if s in self.live and self.live[s].due_ms != due]
        else:
            moved = command.sequences.tolist()
        away = {s for s in moved if self.refusal(s) == OK}
        for sequence in away:  # they lose their turn
            self.live[sequence].state = MessageState.STAGED
        self.relist()
        for name in () if command.groups is None or not away else command.groups.names:
            self.name(name)
        for sequence in away:
            self.live[sequence].state = MessageState.SCHEDULED
        for row, sequence in enumerate(command.sequences.tolist()):
            if statuses[row] != OK:
                continue
            message = self.live[sequence]
            if command.dues_ms is not None:
                message.due_ms = int(command.dues_ms[row])
                message.came_back = False
            if command.priorities is not None:
                message.priority = int(command.priorities[row])
            if command.groups is not None:
                message.group = command.groups.names[command.groups.indices[row]]
        return Outcome(statuses=statuses)

    def cancel(self, command: commands.Cancel) -> Outcome:
        """Take scheduled messages away."""
        statuses, freed = [], []
        for sequence in command.sequences.tolist():
            statuses.append(self.refusal(sequence))
            if statuses[-1] == OK:
                freed.append(self.live.pop(sequence).locator)
        return Outcome(statuses=statuses, freed=sorted(freed))

    def depart(self, command: commands.Depart) -> Outcome:
        """Scheduled messages leave for another topic."""
        statuses, gone = [], []
        for sequence in command.sequences.tolist():
            statuses.append(self.refusal(sequence))
            if statuses[-1] == OK:
                self.live[sequence].state = MessageState.DEAD
                gone.append(self.live[sequence])
        self.die(gone, "")
        return Outcome(statuses=statuses)

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

    def next_ready_ms(self) -> int | None:
        """As `next_due_ms`, where groups at their cap have nothing to give."""
        is_capped = self.rules.group_in_flight_max or self.rules.group_runs
        if self.rules.kind is not TopicKind.FAIR or not is_capped:
            return self.next_due_ms()
        if self.gives():
            return self.ready_until[0]
        later = [m.due_ms for m in self.in_state(MessageState.SCHEDULED) if not self.is_ready(m)]
        return min(later, default=None)

    def next_expiry_ms(self) -> int | None:
        """When the next lease or life ends."""
        ends = [message.due_ms for message in self.in_state(MessageState.LEASED)]
        scheduled = self.in_state(MessageState.SCHEDULED)
        ends += [message.expires_ms for message in scheduled if message.expires_ms]
        return min(ends, default=None)

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
