"""PartitionViews: all that a partition is: what each view makes of the messages they share.

Room: engine; pure, like engine.py, whose engines it has one of for each view.
Holds: what comes in is in every view, under one sequence and one locator; a row's place in the
    journal is freed when the last view is done with it; a producer's change is for all views, or,
    while one of them has the message leased, for none (rule 20).
See: engine.py for what a view is; view_rows.py for how one begins; rules 19 and 20; ADR 0050.

The unnamed view is the queue that every topic is unless it is made without. While there is no other
one, a command goes straight to its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from dejaqueue.engine import apply, commands, view_rows
from dejaqueue.engine.arrays import Int64s, Mask, UInt8s, distinct
from dejaqueue.engine.commands import Command
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.retention import Retention
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.seeding import Seeding, may_finish
from dejaqueue.engine.state import Kept
from dejaqueue.engine.table import DEAD, DONE, LEASED, SCHEDULED, STAGED, STAGED_ACK, row_locators
from dejaqueue.engine.transitions import statuses_by_state
from dejaqueue.errors import InternalError
from dejaqueue.model import RowStatus

_NONE = np.zeros(0, dtype=np.int64)
_BEGIN_AND_END = (commands.OpenView, commands.SeedView, commands.DropView)
_OF_VIEWS = (*_BEGIN_AND_END, commands.InView, commands.Forget)
_OK, _NOT_FOUND = np.uint8(RowStatus.OK), np.uint8(RowStatus.NOT_FOUND)
_PRODUCER_STATUSES = statuses_by_state("cancel")
_RANKS = np.zeros(6, dtype=np.uint8)
"""By state: which of the states that views have a message in says what may be done with it."""
_RANKS[[int(DEAD), int(STAGED), int(SCHEDULED), int(STAGED_ACK), int(LEASED)]] = range(1, 6)
_HELD = _RANKS[int(STAGED_ACK)]
"""From this rank on somebody has it in hand."""


@dataclass(slots=True)
class NamedView:
    """One view with a name.

    Attributes:
        number: that commands name it by.
        name, born: of its subscription (commands.OpenView).
        by_arrival: its messages are due when they come in.
        engine: what it makes of them.
        seeding: what it begins with and does not have yet; None = it has all of it.
    """

    number: int
    name: str
    born: int
    by_arrival: bool
    engine: Engine
    seeding: Seeding | None = None

    def seen_by(self, command: commands.Enqueue) -> commands.Enqueue:
        """New messages as this view takes them: answers and firings are the unnamed one's."""
        dues_ms = command.dues_ms
        if self.by_arrival:
            dues_ms = np.full(dues_ms.size, command.now_ms, dtype=np.int64)
        return replace(command, dues_ms=dues_ms, sub_batches=(), firings=())


class PartitionViews:
    """The views of one partition.

    Args:
        unnamed: the engine of the unnamed view, which gives the sequences and remembers producers,
            transactions and cron entries; also where the topic has no such view.

    Attributes:
        named: the others, by number, in the order in which they began.
        next_number: that the next one gets.
        retained: what is kept when all of them are done with it; None = nothing is.
    """

    def __init__(self, unnamed: Engine) -> None:
        self.unnamed = unnamed
        self.named: dict[int, NamedView] = {}
        self.next_number = 1
        self.retained: Retention | None = None
        self._is_plain = True
        self.settle()

    def settle(self) -> None:
        """See whether there is more than the unnamed view. After each change of what there is."""
        kept = self.retained
        self._is_plain = not self.named and self.unnamed.rules.unnamed and kept is None
        by_arrival = {id(view.engine): view.by_arrival for view in self.named.values()}
        for engine in self.holders():
            state = engine.state
            state.finished = None if self._is_plain else []
            state.kept = None
            if kept is not None and engine is not kept.engine:
                is_log = by_arrival.get(id(engine), False)
                state.kept = Kept(kept.engine.state, kept.arrivals, is_log)

    def engines(self) -> Iterator[Engine]:
        """Those of all views, the unnamed one's first, those by arrival last."""
        yield self.unnamed
        for by_arrival in (False, True):
            for view in self.named.values():
                if view.by_arrival == by_arrival:
                    yield view.engine

    def holders(self) -> Iterator[Engine]:
        """The views' engines, and that of what is retained."""
        yield from self.engines()
        if self.retained is not None:
            yield self.retained.engine

    def find(self, name: str) -> NamedView | None:
        """The view of this name."""
        return next((view for view in self.named.values() if view.name == name), None)

    # --- the only writer

    def apply(self, command: Command) -> Effects:
        """Do what the command says, in the views that it is for. Raises as `Engine.apply`."""
        if not self._is_plain:
            effects = self._apply(command)
            if effects.leased is not None and self.retained is not None:
                self.retained.handed_out(effects.leased)
            return effects
        if isinstance(command, _OF_VIEWS):
            return self._apply(command)
        effects = self.unnamed.apply(command)
        if isinstance(command, commands.Configure):
            self.settle()
        return effects

    def _apply(self, command: Command) -> Effects:
        self._seed_first(command)
        match command:
            case commands.InView():
                return self._in_view(command)
            case commands.Enqueue():
                return self._enqueue(command)
            case commands.Move() | commands.Cancel():
                return self._change(command)
            case commands.Relocate():
                return self._relocate(command)
            case commands.Decide():
                return self._decide(command)
            case commands.OpenEpoch() | commands.SetTime() | commands.ForgetTexts():
                if self.retained is not None and isinstance(command, commands.SetTime):
                    self.retained.arrivals.set_time(command.now_ms)
                return self._everywhere(lambda _engine: command)
            case commands.Forget():
                return self._forget(command)
            case commands.OpenView():
                return self._open(command)
            case commands.SeedView():
                return self._seed_more(command)
            case commands.DropView():
                return self._drop(command)
            case _:
                return self._alone(command)

    def _alone(self, command: Command) -> Effects:
        """Apply to the unnamed view alone."""
        return self._everywhere(lambda engine: command if engine is self.unnamed else None)

    def _in_view(self, command: commands.InView) -> Effects:
        if not command.number:
            return self.apply(command.command) if self._is_plain else self._alone(command.command)
        view = self.named.get(command.number)
        if view is None:
            raise InternalError(f"a command for view {command.number}, which there is not")
        inner = command.command
        if isinstance(inner, commands.Configure):
            inner = replace(inner, rules=_ids_as(view.engine, inner.rules))
        if isinstance(inner, commands.Ack) and inner.stage is not None:
            # It is the unnamed view that the transaction's home is told of.
            self.unnamed.state.stage(inner.stage)
        effects = view.engine.apply(inner)
        effects.freed_locators = self._freed([_finished(view.engine, effects)])
        return effects

    def _everywhere(self, form: Callable[[Engine], Command | None]) -> Effects:
        """Apply to each view what is for it; the effects are the unnamed one's."""
        parts, first = [], Effects()
        for engine in self.holders():
            command = form(engine)
            if command is not None:
                effects = engine.apply(command)
                parts.append(_finished(engine, effects))
                first = effects if engine is self.unnamed else first
        first.freed_locators = self._freed(parts)
        return first

    def _enqueue(self, command: commands.Enqueue) -> Effects:
        if command.replaced is not None and command.stage is None:
            self._begin(command.now_ms)
            command = replace(command, replaced=self._not_held(command.replaced))
        effects = self.unnamed.apply(command)
        parts = [_finished(self.unnamed, effects)]
        parts += [
            _finished(view.engine, view.engine.apply(view.seen_by(command)))
            for view in self.named.values()
        ]
        first = effects.first_sequence
        if self.retained is not None:
            if command.dues_ms.size:
                self.retained.arrivals.note(command.now_ms, first)
            engine = self.retained.engine
            parts.append(_finished(engine, engine.apply(self.retained.seen_by(command))))
        if command.stage is None:
            sequences = np.arange(first, first + command.dues_ms.size, dtype=np.int64)
            parts += self._pass_over(sequences)
        effects.freed_locators = self._freed(parts)
        return effects

    def _pass_over(self, sequences: Int64s) -> list[tuple[Int64s, Int64s]]:
        """What came in is done at once in views that it is not for: in the unnamed one where there
        is no such view, in others where it has none of the tags that they take."""
        parts = []
        for engine in self.engines():
            if sequences.size and not (engine.rules.unnamed and engine.rules.takes is None):
                locators = view_rows.pass_over(engine.state, sequences)
                parts.append((_taken(engine.state.finished), locators))
        return parts

    def _change(self, command: commands.Move | commands.Cancel) -> Effects:
        self._begin(command.now_ms)
        sequences = command.sequences
        states, _ = self.look(sequences)
        command = replace(
            command, sequences=np.where(_RANKS[states] >= _HELD, np.int64(-1), sequences)
        )
        done: Mask = np.zeros(sequences.size, dtype=np.bool_)
        first, parts = Effects(), []
        for engine in self.engines():
            was_scheduled = engine.states(command.sequences) == SCHEDULED
            form = command if engine is self.unnamed else self._seen_move(engine, command)
            if form is None:
                done |= was_scheduled
                continue
            effects = engine.apply(form)
            done |= True if effects.statuses is None else effects.statuses == _OK
            parts.append(_finished(engine, effects))
            first = effects if engine is self.unnamed else first
        if self.retained is not None:
            # What all views are done with is nobody's to change.
            form = replace(command, sequences=np.where(done, command.sequences, np.int64(-1)))
            engine = self.retained.engine
            parts.append(_finished(engine, engine.apply(form)))
        before = _PRODUCER_STATUSES[states]
        statuses = np.where(done, _OK, np.where(before == _OK, _NOT_FOUND, before))
        first.statuses = None if done.all() else statuses
        first.freed_locators = self._freed(parts)
        return first

    def _seen_move(
        self, engine: Engine, command: commands.Move | commands.Cancel
    ) -> commands.Move | commands.Cancel | None:
        """A change as a named view takes it; None = it makes no difference there."""
        view = next(view for view in self.named.values() if view.engine is engine)
        if not view.by_arrival or isinstance(command, commands.Cancel):
            return command
        if command.priorities is None and command.groups is None:
            return None
        return replace(command, dues_ms=None)

    def _relocate(self, command: commands.Relocate) -> Effects:
        sequences = command.sequences
        old, copies = self.locators(sequences), row_locators(command.position, sequences.size)
        is_first = np.zeros(sequences.size, dtype=np.bool_)
        is_first[np.unique(sequences, return_index=True)[1]] = True
        moved = is_first & (old >= 0)
        effects = self._everywhere(lambda _engine: command)
        effects.freed_locators = np.concatenate([old[moved], copies[~moved]])
        return effects

    def _decide(self, command: commands.Decide) -> Effects:
        staged = self.unnamed.state.staged.get(command.transaction)
        came = _NONE if staged is None else np.concatenate([_NONE, *staged.enqueued])
        if command.commit and staged is not None and staged.replaced:
            self._begin(command.now_ms)
            replaced = self._not_held(np.concatenate(staged.replaced))
            for engine in self.holders():
                own = engine.state.staged.get(command.transaction)
                if own is not None:
                    own.replaced = [replaced]
        effects = self._everywhere(lambda _engine: command)
        if command.commit:
            freed = self._freed(self._pass_over(came))
            effects.freed_locators = np.concatenate([effects.freed_locators, freed])
        return effects

    # --- views begin and end

    def _open(self, command: commands.OpenView) -> Effects:
        if command.number != self.next_number:
            raise InternalError(f"view {command.number} where {self.next_number} comes next")
        self._begin(command.now_ms)
        engine = Engine(self.unnamed.partition, self.unnamed.state.layout)
        state, end = engine.state, self.unnamed.next_sequence
        first = min(source.live_from(0) for source in self.holders())
        view_rows.begin(state, first if command.from_start else end, end)
        state.now_ms, state.epoch = command.now_ms, self.unnamed.epoch
        state.configure(replace(Rules.from_text(command.rules), ids_from=end))
        arrived_ms = command.now_ms if command.by_arrival else None
        undecided = view_rows.undecided(self.unnamed.state)
        due_ms = command.held_due_ms
        sources = [self.unnamed.state]
        view_rows.seed(state, sources, undecided, held_due_ms=due_ms, arrived_ms=arrived_ms)
        view_rows.stage(state, self.unnamed.state)
        self.next_number += 1
        if not command.name:
            self.retained = Retention(command.number, engine)
            first = int(undecided[0]) if undecided.size else end
            self.retained.arrivals.note(command.now_ms, first)
            self.settle()
            return Effects()
        view = NamedView(command.number, command.name, command.born, command.by_arrival, engine)
        self.named[command.number] = view
        self.settle()
        if command.from_start and first < end:
            view.seeding = Seeding(first, end, command.kept_from_ms, due_ms, arrived_ms)
            view.seeding.see(undecided)
            if not command.in_pieces:
                self._seed(view, end, command.now_ms)
        return Effects()

    def _seed(self, view: NamedView, rows: int | Int64s, now_ms: int) -> None:
        """A view gets these messages of those that it begins with, or so many of the next ones."""
        seeding = view.seeding
        if seeding is None:
            raise InternalError(f"a piece of view {view.number}, which has all that it began with")
        sources = [engine for engine in self.engines() if engine is not view.engine]
        if self.retained is not None and seeding.from_ms is not None:
            # Before the views by arrival, which do not know when messages are due.
            logs = sum(one.by_arrival for one in self.named.values() if one is not view)
            sources.insert(len(sources) - logs, self.retained.engine)
        if isinstance(rows, int):
            sequences = seeding.turn(sources, rows)
        else:
            sequences = seeding.out_of_turn(rows)
        seeding.seed(view.engine.state, [one.state for one in sources], sequences, now_ms)
        if seeding.is_done:
            view.seeding = None

    def _seed_more(self, command: commands.SeedView) -> Effects:
        view = self.named.get(command.number)
        if view is None:
            raise InternalError(f"a piece of view {command.number}, which there is not")
        self._seed(view, command.span, command.now_ms)
        return Effects()

    def _seed_first(self, command: Command) -> None:
        """What a command may finish is in the views first that were opened before."""
        begun = [view for view in self.named.values() if view.seeding is not None]
        if not begun:
            return
        by_number = {view.number: view.engine for view in self.named.values()}
        kept = None if self.retained is None else self.retained.engine
        sequences = may_finish(command, by_number | {0: self.unnamed}, kept)
        for view in begun:
            if sequences.size:
                self._seed(view, sequences, command.now_ms)
            elif isinstance(command, commands.DropView) and command.number != view.number:
                self._seed(view, self.unnamed.next_sequence, command.now_ms)

    def _drop(self, command: commands.DropView) -> Effects:
        view: NamedView | Retention | None = self.named.pop(command.number, None)
        if self.retained is not None and self.retained.number == command.number:
            view, self.retained = self.retained, None
        if view is None:
            raise InternalError(f"the end of view {command.number}, which there is not")
        self.unnamed.state.now_ms = max(self.unnamed.now_ms, command.now_ms)
        parts = [
            (places + view.engine.state.table.base, view.engine.state.table.locators[places])
            for places in view.engine.state.table.live_places()
        ]
        freed = self._freed(parts)
        self.settle()
        return Effects(freed_locators=freed)

    def _forget(self, command: commands.Forget) -> Effects:
        if self.retained is None:
            raise InternalError("nothing is retained that could be forgotten")
        self.unnamed.state.now_ms = max(self.unnamed.now_ms, command.now_ms)
        sequences, locators = self.retained.forget(command)
        _taken(self.retained.engine.state.finished)
        return Effects(freed_locators=self._freed([(sequences, locators)]))

    # --- over all views

    def _begin(self, now_ms: int) -> None:
        """It is `now_ms` in all of them: what ended by now is over before it is judged."""
        for engine in self.engines():
            apply.begin(engine.state, now_ms)

    def _not_held(self, sequences: Int64s) -> Int64s:
        """Those of these messages that some view has, and nobody has in hand in any."""
        ranks = _RANKS[self.states(sequences)]
        free: Int64s = sequences[(ranks > 0) & (ranks < _HELD)]
        return free

    def _freed(self, parts: list[tuple[Int64s, Int64s]]) -> Int64s:
        """Of what views have finished, the locators of what no view has any more."""
        parts = [part for part in parts if part[0].size]
        if not parts:
            return _NONE
        sequences, locators = parts[0]
        if len(parts) > 1:
            sequences = np.concatenate([part[0] for part in parts])
            sequences, first = np.unique(sequences, return_index=True)
            locators = np.concatenate([part[1] for part in parts])[first]
        for engine in self.holders():  # as a rule one of the first still has them all
            is_gone = engine.states(sequences) == DONE
            sequences, locators = sequences[is_gone], locators[is_gone]
        return locators

    @property
    def now_ms(self) -> int:
        """Time of the last command that left a trace in any of them."""
        if self._is_plain:
            return self.unnamed.now_ms
        return max(engine.now_ms for engine in self.holders())

    def look(self, sequences: Int64s) -> tuple[UInt8s, Int64s]:
        """What may be done with each message: its state in the view that has most to say, and when
        it is due there, or its last lease ends."""
        states, dues_ms = self.unnamed.states(sequences), self.unnamed.dues(sequences)
        if self._is_plain:
            return states, dues_ms
        for engine in self.engines():
            theirs, their_dues_ms = engine.states(sequences), engine.dues(sequences)
            ranks, their_ranks = _RANKS[states], _RANKS[theirs]
            says_more = their_ranks > ranks
            says_more |= (their_ranks == ranks) & (theirs == LEASED) & (their_dues_ms > dues_ms)
            states = np.where(says_more, theirs, states).astype(np.uint8, copy=False)
            dues_ms = np.where(says_more, their_dues_ms, dues_ms)
        return states, dues_ms

    def states(self, sequences: Int64s) -> UInt8s:
        """As `look`, the states alone; DONE for what no view has."""
        return self.unnamed.states(sequences) if self._is_plain else self.look(sequences)[0]

    def locators(self, sequences: Int64s) -> Int64s:
        """Where the stored row of each is; -1 for what is done in all, and not retained."""
        locators = self.unnamed.locators(sequences)
        if not self._is_plain:
            for engine in self.holders():
                locators = np.maximum(locators, engine.locators(sequences))
        return locators

    def sent_by(self, sequences: Int64s, sender: str) -> Mask:
        """Which of these are messages that this sender sent, live in any view."""
        mask = self.unnamed.sent_by(sequences, sender)
        for view in self.named.values():
            mask |= view.engine.sent_by(sequences, sender)
        return mask

    def find_keys(self, key_hashes: Int64s) -> tuple[Int64s, Int64s]:
        """As `Engine.find_keys`, of what is live in any view."""
        rows, sequences = self.unnamed.find_keys(key_hashes)
        if not self.named:
            return rows, sequences
        found = [(rows, sequences)]
        found += [view.engine.find_keys(key_hashes) for view in self.named.values()]
        both = np.stack([np.concatenate([pair[at] for pair in found]) for at in (0, 1)])
        rows, sequences = np.unique(both, axis=1)
        return rows, sequences

    def has_key(self, wanted: Callable[[Int64s], Mask]) -> bool:
        """As `Engine.has_key`, of what is live in any view."""
        return any(engine.has_key(wanted) for engine in self.engines())

    def select(
        self, wanted: Selection, *, first: int, end: int, limit: int, rows_max: int
    ) -> tuple[Int64s, int | None]:
        """As `Engine.find`, over all views: a message is what the first view that has it says."""
        span, rows_max = {"first": first, "end": end, "limit": limit}, max(1, rows_max)
        if self._is_plain:
            return self.unnamed.find(wanted, **span, rows_max=rows_max)
        rows_max //= len(self.named) + 1
        engines: list[Engine] = []
        parts, stops = [], []
        for engine in self.engines():
            sequences, stop = engine.find(wanted, **span, rows_max=rows_max)
            for earlier in engines:
                sequences = sequences[earlier.states(sequences) == DONE]
            engines.append(engine)
            parts.append(sequences)
            stops += [] if stop is None else [stop]
        following = min(stops) if stops else None
        found = np.sort(np.concatenate(parts), kind="stable")
        if following is not None:
            found = found[found < following]  # the views have been looked through so far
        if found.size > limit:
            return found[:limit], int(found[limit])
        return found, following

    def dues(self, sequences: Int64s) -> Int64s:
        """When each is due, or its lease ends, in the first view that has it."""
        dues_ms = self.unnamed.dues(sequences)
        left: Mask = self.unnamed.states(sequences) == DONE
        for engine in self.engines():
            dues_ms = np.where(left, engine.dues(sequences), dues_ms)
            left &= engine.states(sequences) == DONE
        return dues_ms

    def backlog(self, mean_payload_bytes: int) -> tuple[int, int]:
        """As `Engine.backlog`, of the view that has most."""
        if self._is_plain:
            return self.unnamed.backlog(mean_payload_bytes)
        counts, byte_counts = zip(
            *(engine.backlog(mean_payload_bytes) for engine in self.engines()), strict=True
        )
        return max(counts), max(byte_counts)

    # --- for tests and replicas

    def state_hash(self) -> int:
        """64 bits, equal wherever the same commands were applied; without named views that of the
        unnamed one."""
        kept = self.retained
        if not self.named and kept is None:
            return self.unnamed.state_hash()
        whole = xxhash.xxh3_64(f"{self.next_number} {self.unnamed.state_hash()}".encode())
        for view in self.named.values():
            about = f"{view.number} {view.name!r} {view.born} {view.by_arrival}"
            about += "" if view.seeding is None else f" {view.seeding.to_values()}"
            whole.update(f";{about} {view.engine.state_hash()}".encode())
        if kept is not None:
            about = f"{kept.number} {kept.arrivals.to_values()}"
            whole.update(f";{about} {kept.engine.state_hash()}".encode())
        return whole.intdigest()

    def check(self) -> None:
        """Raise InternalError if an invariant is breached. Cost: O(live messages of all views)."""
        for engine in self.holders():
            engine.check()
            if engine.next_sequence != self.unnamed.next_sequence:
                raise InternalError("views give different sequences")
            for sequences in engine.live_sequences():
                if (engine.locators(sequences) != self.locators(sequences)).any():
                    raise InternalError("a message lies in two places")

    # --- for the journal

    def live_locators(self) -> Iterator[Int64s]:
        """As `Engine.live_locators`, each once, of what is live in any view, or retained."""
        if self._is_plain:
            yield from self.unnamed.live_locators()
            return
        parts = [part for engine in self.holders() for part in engine.live_locators()]
        if parts:
            yield distinct(np.concatenate(parts))

    def live_sequences(self) -> Iterator[Int64s]:
        """As `Engine.live_sequences`, each once, of what is live in any view, or retained."""
        if self._is_plain:
            yield from self.unnamed.live_sequences()
            return
        parts = [part for engine in self.holders() for part in engine.live_sequences()]
        if parts:
            yield distinct(np.concatenate(parts))

    def live_in(self, first_position: int, last_position: int, limit: int) -> Int64s:
        """As `Engine.live_in`, of what is live in any view, or retained."""
        if self._is_plain:
            return self.unnamed.live_in(first_position, last_position, limit)
        span = first_position, last_position, limit
        parts = [engine.live_in(*span) for engine in self.holders()]
        sequences = np.concatenate(parts)
        # Each once, in the order of the first view that has it.
        return sequences[np.sort(np.unique(sequences, return_index=True)[1], kind="stable")][:limit]


def _finished(engine: Engine, effects: Effects) -> tuple[Int64s, Int64s]:
    """What a command finished in a view: sequences, and the locators that it would free."""
    return _taken(engine.state.finished), effects.freed_locators


def _taken(finished: list[Int64s] | None) -> Int64s:
    assert finished is not None, "there are named views"
    sequences = np.concatenate([_NONE, *finished])
    finished.clear()
    return sequences


def _ids_as(engine: Engine, rules: str) -> str:
    """Rules of a topic for a view, whose first sequence is its own."""
    return replace(Rules.from_text(rules), ids_from=engine.rules.ids_from).to_text()
