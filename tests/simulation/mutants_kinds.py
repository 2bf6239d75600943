"""More planted bugs: transactions, dead letters, cron, keys, shares, growth, clocks, recovery.

See mutants.py, which registers them and says what they are for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dejaqueue.broker.cron import fire, firings
from dejaqueue.broker.letters import carrier, parcel
from dejaqueue.broker.letters.carrier import Carrier
from dejaqueue.broker.partition import duplicates, enqueueing
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic import growth, routing, writer
from dejaqueue.broker.transactions import home, staging
from dejaqueue.broker.transactions.record import Record
from dejaqueue.engine import apply, commands, engine, snapshot
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.fair import FairReady
from dejaqueue.engine.leases import Leases
from dejaqueue.engine.level_shares import LevelShares
from dejaqueue.engine.priority_first_ready import PriorityFirstReady
from dejaqueue.engine.ready import PriorityReady
from dejaqueue.engine.schedule import Schedule
from dejaqueue.engine.shares import FlatShares, NestedShares
from dejaqueue.engine.table import LEASED
from dejaqueue.journal.segments import snapshots
from dejaqueue.journal.segments.files import read_file
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.wire.descriptors import WriteStream
from tests.simulation.mutants import mutant

# --- transactions ---------------------------------------------------------------------------------


@mutant
def staged_messages_are_there_at_once(patch: pytest.MonkeyPatch) -> None:
    inner = enqueueing._bring_in_together

    def bring_in(core: PartitionCore, inbox: Any, admission: Any, requests: list[Any]) -> None:
        for request in requests:
            request.stage = None
        inner(core, inbox, admission, requests)

    patch.setattr(enqueueing, "_bring_in_together", bring_in)


@mutant
def an_abort_commits(patch: pytest.MonkeyPatch) -> None:
    inner = home.do_decide

    def decide(core: PartitionCore, text: str, commit: bool, record: Record) -> bool:
        return inner(core, text, True, record)

    patch.setattr(home, "do_decide", decide)


@mutant
def a_decision_is_told_to_one_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    inner = home._write_down

    def write_down(core: PartitionCore, text: str, record: Record, commit: bool) -> Any:
        return inner(core, text, replace(record, places=record.places[:1]), commit)

    patch.setattr(home, "_write_down", write_down)
    patch.setitem(engine._STEPS, commands.Remember, lambda state, command: Effects())


@mutant
def a_home_says_no_to_who_asks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(home, "recall", lambda core, name: False)


@mutant
def a_participant_decides_for_itself_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    inner = staging.StagedWatch.loaded

    def loaded(self: staging.StagedWatch, core: PartitionCore) -> None:
        inner(self, core)
        self._forgets = True  # type: ignore[attr-defined]

    step = staging.StagedWatch.step

    def steps(self: staging.StagedWatch, core: PartitionCore) -> None:
        if getattr(self, "_forgets", False):
            self._forgets = False  # type: ignore[attr-defined]
            for name in list(core.engine.staged_ends()):
                core.apply(commands.Decide(core.now_ms(), name, commit=False))
        step(self, core)

    patch.setattr(staging.StagedWatch, "loaded", loaded)
    patch.setattr(staging.StagedWatch, "step", steps)


@mutant
def snapshots_lose_what_is_staged(patch: pytest.MonkeyPatch) -> None:
    _loses(patch, 7)


@mutant
def snapshots_lose_the_dead(patch: pytest.MonkeyPatch) -> None:
    _loses(patch, 6)


def _loses(patch: pytest.MonkeyPatch, place: int) -> None:
    """A snapshot comes back without one of its small parts."""
    inner = snapshot._restore_small

    def restore(state: Any, small: list[Any]) -> Any:
        return inner(state, [[] if n == place else part for n, part in enumerate(small)])

    patch.setattr(snapshot, "_restore_small", restore)


# --- dead letters and lives -----------------------------------------------------------------------


@mutant
def loses_letters(patch: pytest.MonkeyPatch) -> None:
    def carry(self: Carrier, parcel: Any, journal: Any, arrived: Any) -> None:
        arrived(len(parcel.sequences), None)

    patch.setattr(Carrier, "carry", carry)


@mutant
def sends_letters_again_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Neither the name of the parcel's producer nor the letter's key gives it away."""
    inner = parcel.letter_columns

    def letter_columns(parcel: Any, stored: Any, now_ms: int) -> Any:
        columns = inner(parcel, stored, now_ms)
        columns.keys = None
        return columns

    patch.setattr(carrier, "letter_columns", letter_columns)
    patch.setattr(carrier, "WriteStream", lambda name, producer: WriteStream(name))


@mutant
def delivers_once_too_often(patch: pytest.MonkeyPatch) -> None:
    inner = apply.come_back

    def come_back(state: Any, *rest: Any, **more: Any) -> None:
        rules = state.rules
        state.rules = replace(rules, max_attempts=rules.max_attempts and rules.max_attempts + 1)
        inner(state, *rest, **more)
        state.rules = rules

    patch.setattr(apply, "come_back", come_back)


@mutant
def buries_one_attempt_early(patch: pytest.MonkeyPatch) -> None:
    inner = apply.come_back

    def come_back(state: Any, *rest: Any, **more: Any) -> None:
        rules = state.rules
        state.rules = replace(rules, max_attempts=max(rules.max_attempts - 1, 0))
        inner(state, *rest, **more)
        state.rules = rules

    patch.setattr(apply, "come_back", come_back)


@mutant
def nobody_dies_of_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply, "_die_of_age", lambda state, now_ms: None)


@mutant
def lives_end_early(patch: pytest.MonkeyPatch) -> None:
    inner = apply._die_of_age
    patch.setattr(apply, "_die_of_age", lambda state, now_ms: inner(state, now_ms + 400))


# --- cron -----------------------------------------------------------------------------------------


@mutant
def snapshots_lose_what_fires_next(patch: pytest.MonkeyPatch) -> None:
    """Entries come back as they were put first: they fire again for what they fired for."""
    inner = Schedule.put
    firsts: dict[str, tuple[int, int]] = {}

    def put(self: Schedule, name: str, spec: str, next_ms: int, wake_ms: int) -> None:
        first = firsts.setdefault(spec, (next_ms, wake_ms))
        inner(self, name, spec, *(first if name not in self.by_name else (next_ms, wake_ms)))

    patch.setattr(Schedule, "put", put)


@mutant
def cron_skips_every_fifth_firing(patch: pytest.MonkeyPatch) -> None:
    inner = firings.next_firing

    def next_firing(entry: Any, after_ms: int) -> int:
        found = inner(entry, after_ms)
        return inner(entry, found) if found > 0 and found // entry.every_ms % 5 == 0 else found

    patch.setattr(firings, "next_firing", next_firing)


@mutant
def cron_forgets_that_it_fired(patch: pytest.MonkeyPatch) -> None:
    """The entry moves on in another command than the one that makes the message."""
    inner = fire.Firings.apply

    def fires(self: Any, core: PartitionCore) -> int:
        before = core.commits.group
        if core.engine.now_ms % 4:
            return inner(self, core)
        fired, self.fired = self.fired, []
        answer = inner(self, core)
        self.fired = fired
        assert before is core.commits.group
        return answer

    patch.setattr(fire.Firings, "apply", fires)


# --- keys and growth ------------------------------------------------------------------------------


@mutant
def a_replaced_message_stays(patch: pytest.MonkeyPatch) -> None:
    inner = duplicates.resolve

    def resolve(*rest: Any) -> Any:
        found = inner(*rest)
        return found and replace(found, replaced=found.replaced[:0])

    patch.setattr(duplicates, "resolve", resolve)


@mutant
def replaces_what_is_leased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        duplicates, "too_late", lambda engine, live, now_ms: np.zeros(live.size, np.bool_)
    )
    inner = apply.replace

    def replaces(state: Any, sequences: Any) -> Any:
        places = state.table.places(sequences)
        leased = places[state.table.states[places] == LEASED]
        freed = inner(state, sequences)
        if leased.size:
            state.counts.leased -= leased.size
            state.unlease(leased)
            state.counts.cancelled += leased.size
            state.finish(leased)
        return freed

    patch.setattr(apply, "replace", replaces)


@mutant
def does_not_ask_older_homes(patch: pytest.MonkeyPatch) -> None:
    def find(topic: Any, route: Any, keys: Any, key_hashes: Any, homes: Any) -> Any:
        return np.zeros(homes.size, np.bool_)

    patch.setattr(growth, "find_old_homes", find)
    patch.setattr(routing, "find_old_homes", find)
    patch.setattr(writer, "find_old_homes", find)


# --- turns ----------------------------------------------------------------------------------------


@mutant
def knows_no_cap(patch: pytest.MonkeyPatch) -> None:
    inner = FairReady.configure

    def configure(
        self: FairReady, weights: dict[str, int], in_flight_max: int, *, by_runs: bool = False
    ) -> None:
        inner(self, weights, in_flight_max and in_flight_max + 1, by_runs=by_runs)

    patch.setattr(FairReady, "configure", configure)


@mutant
def turns_come_before_priority(patch: pytest.MonkeyPatch) -> None:
    def priorities(self: PriorityFirstReady, places: Any) -> Any:
        return np.zeros(places.size, dtype=np.int64)

    patch.setattr(PriorityFirstReady, "_priorities", priorities)


@mutant
def the_first_group_gets_all(patch: pytest.MonkeyPatch) -> None:
    inner = FlatShares.share

    def share(self: FlatShares, count: int, gives: Any, *, by_runs: bool = False) -> Any:
        turns = inner(self, count, gives, by_runs=by_runs)
        first = turns[0] if turns.size else 0
        same = np.full_like(turns, first)
        return same if turns.size and gives[first] >= turns.size else turns

    patch.setattr(FlatShares, "share", share)
    nested, level = NestedShares.share, LevelShares.share

    def share_nested(self: NestedShares, count: int, gives: Any, *, by_runs: bool = False) -> Any:
        turns = nested(self, count, gives, by_runs=by_runs)
        first = turns[0] if turns.size else 0
        same = np.full_like(turns, first)
        return same if turns.size and gives[first] >= turns.size else turns

    def share_level(self: LevelShares, count: int, gives: Any, *, by_runs: bool = False) -> Any:
        turns = level(self, count, gives, by_runs=by_runs)
        first = turns[0] if turns.size else 0
        same = np.full_like(turns, first)
        return same if turns.size and gives[first] >= turns.size else turns

    patch.setattr(NestedShares, "share", share_nested)
    patch.setattr(LevelShares, "share", share_level)


@mutant
def takes_the_least_urgent_first(patch: pytest.MonkeyPatch) -> None:
    inner = PriorityReady.keys
    patch.setattr(PriorityReady, "keys", lambda self, places: 65_535 - inner(self, places))


# --- leases ---------------------------------------------------------------------------------------


@mutant
def leases_end_by_another_clock(patch: pytest.MonkeyPatch) -> None:
    """Extensions are forgotten at a restart."""
    inner = Leases.restore

    def restore(self: Leases, lease_id: int, sequences: Any, attempts: Any, table: Any) -> None:
        table.dues_ms[table.places(sequences)] -= 300
        inner(self, lease_id, sequences, attempts, table)

    patch.setattr(Leases, "restore", restore)


# --- the disk -------------------------------------------------------------------------------------


@mutant
def does_not_sync_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FaultyFileSystem, "sync_directory", lambda self, directory: None)


@mutant
def believes_every_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Manifests are written before what they name, and nobody looks whether it is there."""

    def write_file(files: Any, path: Any, content: Any) -> None:
        file = files.open(path, create=True)
        file.allocate(len(content))
        file.write([content], 0)
        file.close()

    patch.setattr(snapshots, "write_file", write_file)
    patch.setattr(
        snapshots.SnapshotFiles,
        "_verified",
        lambda self, name, part: read_file(self._files, self._parts / name),
    )
