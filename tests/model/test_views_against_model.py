"""Several views of a partition against one reference model for each, step by step.

What is leased, freed and answered is compared after each command; hashes of a replay and of what a
snapshot gives at the end. Not covered: the commands of one view by themselves
(test_engine_against_model.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.engine import commands
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.seeding import may_finish
from dejaqueue.engine.view_snapshots import plan_views_snapshot, restore_views
from dejaqueue.engine.views import PartitionViews
from dejaqueue.model import MessageState, RowStatus, TagFilter
from dejaqueue.testing.reference_model import Message, ReferenceModel

TINY = Layout(slab_bits=6)
OK, NOT_FOUND, LEASED = RowStatus.OK, RowStatus.NOT_FOUND, RowStatus.LEASED


def int64s(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


TAGS = ("", "red", "red\x1fblue")
FILTERS = (None, None, TagFilter(any_of=("red",)), TagFilter(none_of=("blue",)))


def has_tags(wanted: TagFilter | None, message: Message) -> bool:
    tags = set(message.tags.split("\x1f"))
    if wanted is None:
        return True
    return (not wanted.any_of or bool(tags & set(wanted.any_of))) and not (
        tags & set(wanted.none_of)
    )


def is_wanted(wanted: Selection | None, message: Message) -> bool:
    if wanted is None:
        return True
    is_due = wanted.due_from_ms <= message.due_ms < wanted.due_to_ms
    return is_due and has_tags(wanted.tags, message)


@dataclass
class Begun:
    """What a view begins with that was opened in pieces.

    Attributes:
        promised: what it was to have when it was opened, and nobody took back.
    """

    first: int
    end: int
    from_ms: int | None
    held_ms: int
    opened_ms: int
    seen: set[int] = field(default_factory=set)
    promised: set[int] = field(default_factory=set)


class Twins:
    """Views, and a model of each by its number; 0 is the unnamed one."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.views = PartitionViews(Engine(0, TINY))
        self.models = {0: ReferenceModel()}
        self.by_arrival: set[int] = set()
        self.now_ms, self.position = 1_000, 0
        self.journal: list[commands.Command] = []
        self.leases: list[tuple[int, int]] = []
        self.files: dict[str, bytes] = {}
        self.kept: dict[int, Message] | None = None
        self.kept_number = 0
        self.marks: list[tuple[int, int]] = []
        self.begun: dict[int, Begun] = {}

    # --- both sides ---------------------------------------------------------------------------

    def stored(self) -> dict[int, int]:
        """Where each message lies that any model has."""
        found: dict[int, int] = {}
        for live in [*(model.live for model in self.models.values()), self.kept or {}]:
            for sequence, message in live.items():
                assert found.setdefault(sequence, message.locator) == message.locator
        return found

    def apply(self, command: commands.Command, before: dict[int, int]) -> Any:
        """Apply to the views, after the models: only what no model has any more is freed."""
        effects = self.views.apply(command)
        after = self.stored()
        gone = sorted(locator for sequence, locator in before.items() if sequence not in after)
        if not isinstance(command, commands.Relocate):
            assert sorted(effects.freed_locators.tolist()) == gone, command
        if not effects.is_void:
            self.journal.append(command)
        for number, model in self.models.items():
            engine = self.views.named[number].engine if number else self.views.unnamed
            assert engine.counts.live == len(model.live)
        if self.kept is not None:
            assert self.views.retained is not None
            assert self.views.retained.count == len(self.kept)
        return effects

    def inside(self, number: int, command: Any) -> Any:
        """A command of one view; the effects, and what the model says."""
        wrapped = commands.InView(command.now_ms, number, command) if number else command
        before = self.stored()
        self.seed_first(wrapped)
        outcome = self.models[number].apply(command)
        return self.apply(wrapped, before), outcome

    def begin(self) -> None:
        for model in self.models.values():
            model.begin(self.now_ms)

    # --- steps --------------------------------------------------------------------------------

    def time(self) -> None:
        self.now_ms += self.random.choice([1, 3, 20])

    def send(self) -> None:
        self.position += 1
        count = self.random.randint(0, 6)
        dues = int64s([self.now_ms + self.random.randint(-5, 15) for _ in range(count)])
        lives = [self.random.choice([0, 0, 0, self.now_ms + 25]) for _ in range(count)]
        words = [self.random.randrange(len(TAGS)) for _ in range(count)]
        tags = Words(TAGS, np.array(words, dtype=np.int32))
        about = (self.now_ms, self.position, dues, ())
        command = commands.Enqueue(*about, expires_ms=int64s(lives), tags=tags)
        before = self.stored()
        for number, model in self.models.items():
            seen = command
            if number in self.by_arrival:
                seen = replace(command, dues_ms=np.full(count, self.now_ms, dtype=np.int64))
            first = model.next_sequence
            model.apply(seen)
            for sequence in range(first, first + count):
                if not self.takes(number, model.live[sequence]):
                    del model.live[sequence]
        if self.kept is not None and count:
            first = self.models[0].next_sequence - count
            if not self.marks or self.now_ms > self.marks[-1][0]:
                self.marks.append((self.now_ms, first))
            for row, (due_ms, life_ms) in enumerate(zip(dues.tolist(), lives, strict=True)):
                locator = (self.position << limits.ROW_BITS) + row
                message = Message(first + row, due_ms, locator, 0, expires_ms=life_ms)
                message.tags = TAGS[words[row]]
                self.kept[first + row] = message
        self.apply(command, before)

    def lease(self) -> None:
        self.position += 1
        number, count = self.random.choice(list(self.models)), self.random.randint(0, 5)
        end_ms = self.now_ms + self.random.randint(1, 30)
        command = commands.Lease(self.now_ms, self.position, self.now_ms, count, end_ms)
        effects, outcome = self.inside(number, command)
        leased = effects.leased
        assert (leased is None) == (outcome.leased is None)
        if leased is not None:
            columns = (leased.sequences, leased.attempts, leased.dues_ms, leased.locators)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            assert list(rows) == outcome.leased
            self.leases.append((number, self.position))
            for sequence, attempt, _, _ in outcome.leased:
                if self.kept is not None and sequence in self.kept:
                    kept = self.kept[sequence]
                    kept.attempts = max(kept.attempts, attempt)

    def settle(self) -> None:
        if not self.leases:
            return
        number, lease_id = self.random.choice(self.leases)
        if number not in self.models:
            return
        command: Any = commands.Ack(self.now_ms, lease_id)
        if self.random.random() < 0.3:
            command = commands.Nack(self.now_ms, self.now_ms + 2, lease_id)
        effects, outcome = self.inside(number, command)
        expected = outcome.statuses or []
        found = effects.statuses
        assert ([0] * len(expected) if found is None else found.tolist()) == expected

    def change(self) -> None:
        rows = self.random.randint(1, 5)
        last = self.views.unnamed.next_sequence
        sequences = [max(-1, last + 1 - self.random.randint(0, 15)) for _ in range(rows)]
        dues = int64s([self.now_ms + self.random.randint(0, 20) for _ in range(rows)])
        moves = self.random.random() < 0.5
        command: Any = commands.Cancel(self.now_ms, int64s(sequences))
        if moves:
            command = commands.Move(self.now_ms, int64s(sequences), dues)
        before = self.stored()
        self.begin()
        held = [LEASED in self.refusals(sequence) for sequence in sequences]
        free = int64s([-1 if no else s for no, s in zip(held, sequences, strict=True)])
        done = np.zeros(rows, dtype=np.bool_)
        for number, model in self.models.items():
            if moves and number in self.by_arrival:
                done |= [model.refusal(sequence) == OK for sequence in free.tolist()]
                continue
            outcome = model.apply(replace(command, sequences=free))
            done |= np.array(outcome.statuses) == OK
        expected = [LEASED if no else OK if yes else NOT_FOUND for no, yes in zip(held, done)]  # noqa: B905
        for sequence, due_ms, yes in zip(sequences, dues.tolist(), done, strict=True):
            if yes and self.kept is not None and sequence in self.kept:
                if moves:
                    self.kept[sequence].due_ms = due_ms
                else:
                    del self.kept[sequence]
        for begun in self.begun.values() if not moves else ():
            begun.promised -= {
                s for s, yes in zip(sequences, done, strict=True) if yes
            } - begun.seen
        effects = self.apply(command, before)
        found = [OK] * rows if effects.statuses is None else effects.statuses.tolist()
        assert found == expected, command

    def find_by_filter(self) -> None:
        """What is found is what the first view that has it says, whatever the pages are. That it is
        changed in all: `change`."""
        before = self.stored()
        self.begin()
        self.apply(commands.Cancel(self.now_ms, int64s([])), before)  # as late in the views
        low = self.now_ms + self.random.randint(-10, 10)
        wanted = Selection(due_from_ms=low, due_to_ms=low + self.random.randint(1, 20))
        known = sorted(self.models, key=lambda known: (known in self.by_arrival, known))
        first_of: dict[int, Message] = {}
        for number in known:
            for sequence, message in self.models[number].live.items():
                first_of.setdefault(sequence, message)
        expected = [
            sequence
            for sequence, message in sorted(first_of.items())
            if message.state is MessageState.SCHEDULED
            and wanted.due_from_ms <= message.due_ms < wanted.due_to_ms
        ]
        found: list[int] = []
        first: int | None = 0
        limit, end = self.random.choice([1, 3, 100]), self.views.unnamed.next_sequence
        while first is not None:
            rows_max = self.random.choice([1, 100])
            page, first = self.views.select(
                wanted, first=first, end=end, limit=limit, rows_max=rows_max
            )
            assert page.size <= limit
            found += page.tolist()
        assert found == expected
        dues = self.views.dues(int64s(found)).tolist()
        assert dues == [first_of[sequence].due_ms for sequence in found]

    def refusals(self, sequence: int) -> list[int]:
        return [model.refusal(sequence) for model in self.models.values()]

    def relocate(self) -> None:
        self.position += 1
        stored = self.stored()
        picked = self.random.sample(sorted(stored), min(3, len(stored)))
        sequences = [*picked, 0]
        command = commands.Relocate(self.now_ms, self.position, int64s(sequences))
        expected, seen = [], set[int]()
        self.begin()
        for row, sequence in enumerate(sequences):
            copy = (self.position << limits.ROW_BITS) + row
            is_moved = sequence in stored and sequence not in seen
            expected.append(stored[sequence] if is_moved else copy)
            seen.add(sequence)
        for model in self.models.values():
            model.apply(command)
        kept = self.kept or {}
        for sequence in seen & kept.keys():
            row = sequences.index(sequence)
            kept[sequence].locator = (self.position << limits.ROW_BITS) + row
        effects = self.apply(command, stored)
        assert sorted(effects.freed_locators.tolist()) == sorted(expected)

    def bury(self) -> None:
        number = self.random.choice(list(self.models))
        if self.models[number].dead:
            group = next(iter(self.models[number].dead))
            self.inside(number, commands.Bury(self.now_ms, group))

    def open(self) -> None:
        if len(self.models) > 3:
            return
        number = self.views.next_number
        live, by_arrival = self.random.random() < 0.5, self.random.random() < 0.4
        held_ms = self.now_ms + 4
        takes, in_pieces = self.random.choice(FILTERS), self.random.random() < 0.7
        rules = Rules(max_attempts=self.random.choice([0, 0, 2]), takes=takes)
        from_ms = self.random.choice([None, 0, self.now_ms - 20]) if live else None
        about = (number, f"v{number}", number, rules.to_text(), live, by_arrival, held_ms, from_ms)
        before = self.stored()
        self.begin()
        model = ReferenceModel()
        model.rules = rules
        model.now_ms, model.next_sequence = self.now_ms, self.models[0].next_sequence
        self.models[number] = model
        self.by_arrival |= {number} if by_arrival else set()
        if live:
            end = model.next_sequence
            begun = self.begun[number] = Begun(0, end, from_ms, held_ms, self.now_ms)
            begun.promised = {one.sequence for one in self.beginning(number, range(end))}
            if not in_pieces:
                self.seed_all(number)
        self.apply(commands.OpenView(self.now_ms, *about, in_pieces), before)
        if number in self.begun and self.views.named[number].seeding is None:
            self.seed_all(number)  # there is nothing that it could begin with
            assert not model.live

    def takes(self, number: int, message: Message) -> bool:
        return has_tags(self.models[number].rules.takes, message)

    def beginning(self, number: int, sequences: Iterable[int]) -> list[Message]:
        """Those of these messages that a view begins with, as it has them."""
        begun, found = self.begun[number], dict[int, Message]()
        # In the order in which a message is asked for: those by arrival last.
        others = [one for one in self.models if one != number]
        known = sorted(others, key=lambda known: (known in self.by_arrival, known))
        sources = [self.models[one].live for one in known]
        kept = None if begun.from_ms is None else self.kept
        if kept is not None:
            logs = sum(one in self.by_arrival for one in known)
            sources.insert(len(sources) - logs, kept)
        live_somewhere = {sequence for one in known for sequence in self.models[one].live}
        by_arrival = number in self.by_arrival
        for sequence in sequences:
            message = next((live[sequence] for live in sources if sequence in live), None)
            if message is None or sequence in begun.seen or not self.takes(number, message):
                continue
            is_scheduled = message.state is MessageState.SCHEDULED
            place_ms = message.due_ms if is_scheduled else begun.held_ms
            due_ms = begun.opened_ms if by_arrival else place_ms
            new = Message(sequence, due_ms, message.locator, message.key_hash)
            new.expires_ms, new.tags = message.expires_ms, message.tags
            if begun.from_ms is not None:
                if by_arrival and kept is not None and self.marks:
                    place_ms = self.came_ms(sequence)
                is_over = 0 < new.expires_ms <= self.now_ms and sequence not in live_somewhere
                if place_ms < begun.from_ms or is_over:
                    continue
            found[sequence] = new
        return list(found.values())

    def seed(self, number: int, sequences: Iterable[int]) -> None:
        """It is the turn of these messages, in a model."""
        begun, model = self.begun[number], self.models[number]
        sequences = [one for one in sequences if begun.first <= one < begun.end]
        for message in self.beginning(number, sequences):
            model.live[message.sequence] = message
            begun.promised.discard(message.sequence)
        model.live = dict(sorted(model.live.items()))
        begun.seen |= set(sequences)

    def seed_all(self, number: int) -> None:
        """The rest of what a view begins with, in its model."""
        self.seed(number, range(self.begun[number].first, self.begun[number].end))
        begun = self.begun.pop(number)
        if begun.from_ms is None:  # else places may have changed, and lives be over
            assert not begun.promised

    def seed_first(self, command: commands.Command) -> None:
        """What is done after this command elsewhere, is not lost to a view that begins."""
        engines = {one: self.views.named[one].engine for one in self.models if one}
        kept = self.views.retained
        engines |= {0: self.views.unnamed}
        found = may_finish(command, engines, None if kept is None else kept.engine)
        for number in list(self.begun):
            self.seed(number, sorted(set(found.tolist())))
            if isinstance(command, commands.DropView) and command.number != number:
                self.seed_all(number)

    def seed_some(self) -> None:
        if not self.begun:
            return
        number = self.random.choice(list(self.begun))
        begun, span = self.begun[number], self.random.choice([1, 4, 30, 100])
        others = [self.views.named[one].engine for one in self.models if one not in (0, number)]
        if self.views.retained is not None and begun.from_ms is not None:
            others.append(self.views.retained.engine)
        first = min(engine.live_from(begun.first) for engine in [self.views.unnamed, *others])
        before = self.stored()
        if first + span >= begun.end:
            self.seed_all(number)
        else:
            self.seed(number, range(first, first + span))
            begun.first = first + span
        self.apply(commands.SeedView(self.now_ms, number, span), before)
        assert (self.views.named[number].seeding is None) == (number not in self.begun)

    def came_ms(self, sequence: int) -> int:
        """When it came in, as marks tell, of which each time has one here."""
        at = max(0, sum(first <= sequence for _, first in self.marks) - 1)
        return self.marks[at][0]

    def retain(self) -> None:
        before, before_next = self.stored(), self.models[0].next_sequence
        if self.kept is None:
            self.begin()
            self.kept, self.kept_number, self.marks = {}, self.views.next_number, []
            self.marks = [(self.now_ms, before_next)]
            rules = Rules(keeps=True).to_text()
            about = (self.kept_number, "", 0, rules, False, False, self.now_ms)
            self.apply(commands.OpenView(self.now_ms, *about), before)
        elif self.random.random() < 0.2:
            dropped = commands.DropView(self.now_ms, self.kept_number)
            self.seed_first(dropped)
            self.kept = None
            self.apply(dropped, before)

    def forget(self) -> None:
        if self.kept is None:
            return
        before = self.stored()
        first = max(0, self.views.unnamed.next_sequence - self.random.choice([0, 5, 20, 60]))
        named = {self.random.randrange(first + 70) for _ in range(self.random.choice([0, 3]))}
        sequences = int64s(sorted(named)) if named else None
        command = commands.Forget(self.now_ms, first, sequences)
        self.seed_first(command)
        kept = self.kept.items()
        self.kept = {sequence: one for sequence, one in kept if sequence >= first}
        self.kept = {sequence: one for sequence, one in self.kept.items() if sequence not in named}
        while len(self.marks) > 1 and self.marks[1][1] <= first:
            del self.marks[0]
        self.apply(command, before)

    def seek(self) -> None:
        number = self.random.choice(list(self.models))
        model, by_arrival = self.models[number], number in self.by_arrival
        last = self.views.unnamed.next_sequence
        first = max(0, last - self.random.choice([5, 40, 100_000]))
        end = self.random.choice([last, last, first + 10])
        from_ms = self.random.choice([0, self.now_ms + 1, self.now_ms - self.random.randint(0, 40)])
        wanted = self.random.choice([None, self.some_filter(), self.some_filter()])
        before = self.stored()
        command = commands.InView(
            self.now_ms, number, commands.Seek(self.now_ms, first, end, from_ms, wanted)
        )
        self.seed_first(command)
        model.begin(self.now_ms)
        model.now_ms = self.now_ms
        has_marks = by_arrival and self.kept is not None and self.marks
        for sequence in range(first, min(end, last)):
            message = model.live.get(sequence)
            kept = None if self.kept is None else self.kept.get(sequence)
            if message is not None and message.state is MessageState.SCHEDULED:
                place_ms = self.came_ms(sequence) if has_marks else message.due_ms
                if place_ms < from_ms and is_wanted(wanted, kept or message):
                    del model.live[sequence]
                elif has_marks and not message.attempts:
                    message.due_ms = min(message.due_ms, self.came_ms(sequence))
            elif kept is None or message is not None or not is_wanted(wanted, kept):
                continue
            elif self.takes(number, kept):
                place_ms = self.came_ms(sequence) if by_arrival else kept.due_ms
                if place_ms >= from_ms and not 0 < kept.expires_ms <= self.now_ms:
                    new = replace(kept)
                    new.due_ms = self.came_ms(sequence) if by_arrival else kept.due_ms
                    new.forgiven = min(new.attempts, 127)
                    model.live[sequence] = new
        model.live = dict(sorted(model.live.items()))
        self.apply(command, before)
        if end == last and not by_arrival:  # once more changes nothing
            before, hashed = self.stored(), self.views.state_hash()
            self.apply(command, before)
            assert self.views.state_hash() == hashed

    def some_filter(self) -> Selection:
        low_ms = self.now_ms + self.random.randint(-15, 10)
        return Selection(
            due_from_ms=self.random.choice([0, low_ms]),
            due_to_ms=low_ms + 10,
            tags=self.random.choice(FILTERS),
        )

    def drop(self) -> None:
        named = [number for number in self.models if number]
        if named and self.random.random() < 0.3:
            before = self.stored()
            number = self.random.choice(named)
            dropped = commands.DropView(self.now_ms, number)
            self.begun.pop(number, None)
            self.seed_first(dropped)
            del self.models[number]
            self.apply(dropped, before)

    def snapshot(self) -> None:
        """Go on with what a snapshot gives."""
        meta, files = plan_views_snapshot(self.views)
        self.files |= {name: bytes(content) for name, content in files if content is not None}
        restored = restore_views(meta, lambda name: memoryview(self.files[name]), TINY)
        assert restored.state_hash() == self.views.state_hash()
        self.views = restored

    def replayed(self) -> PartitionViews:
        views = PartitionViews(Engine(0, TINY))
        for command in self.journal:
            views.apply(command)
        return views


STEPS = (
    "time",
    "find_by_filter",
    "send",
    "send",
    "lease",
    "lease",
    "settle",
    "settle",
    "change",
    "change",
    "open",
    "seed_some",
    "seed_some",
    "seek",
    "seek",
)
RARE = ("retain", "retain", "forget", "relocate", "bury", "drop", "snapshot")


@pytest.mark.parametrize("seed", range(30))
def test_views_do_what_their_models_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dejaqueue.engine.arrivals._GRAIN_MS", 1)
    twins = Twins(Random(seed))
    for _ in range(150):
        getattr(twins, twins.random.choice((*STEPS, *STEPS, *RARE)))()
        twins.views.check()
    assert twins.replayed().state_hash() == twins.views.state_hash()
