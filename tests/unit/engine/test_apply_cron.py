"""Commands about cron entries, in the engine and through a snapshot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.broker.shard import entries
from dejaqueue.engine.commands import Command, DropEntries, Enqueue, Firing, PutEntries
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.model import RowStatus

STORY: list[Command] = [
    PutEntries(1, (("a", '{"cron":"x"}', 5, 4), ("b", "{}", 9, 9), ("ü", "{}", -1, -1))),
    Enqueue(4, 2, np.array([5, 5]), (), firings=(Firing("a", 15, 14, 1), Firing("b", 19, 19, -1))),
    PutEntries(6, (("b", "{}", 25, 25),)),
    DropEntries(7, ("ü", "none")),
]


def test_a_firing_and_its_message_are_one_step() -> None:
    engine = Engine(0)
    for command in STORY:
        effects = engine.apply(command)
        engine.check()
    assert effects.statuses is not None
    assert effects.statuses.tolist() == [RowStatus.OK, RowStatus.NOT_FOUND]
    assert engine.schedule.to_values() == [
        ["a", '{"cron":"x"}', 15, 14, 1],
        ["b", "{}", 25, 25, -1],
    ]
    assert engine.counts.scheduled == 2


def test_a_snapshot_and_a_replay_have_the_entries() -> None:
    engine, replayed = Engine(0), Engine(0)
    for position, command in enumerate(STORY, 1):
        engine.apply(command)
        if isinstance(command, Enqueue):
            texts = {"payload": entries.text_column(pa.array([b"x", b"y"], pa.binary()))}
            entry = entries.enqueue_entry(command, texts)
        else:
            entry = entries.to_entry(command)
        replayed.apply(entries.to_command(entry, position))
    assert replayed.state_hash() == engine.state_hash()
    meta, files = plan_snapshot(engine)
    contents = {name: memoryview(content or b"") for name, content in files}
    again = restore(meta, contents.__getitem__)
    again.check()
    assert again.state_hash() == engine.state_hash()
    assert again.schedule.to_values() == engine.schedule.to_values()


def test_entries_count_for_the_hash() -> None:
    one, other = Engine(0), Engine(0)
    one.apply(PutEntries(1, (("a", "{}", 5, 5),)))
    other.apply(PutEntries(1, (("a", "{}", 5, 6),)))
    assert one.state_hash() != other.state_hash()
