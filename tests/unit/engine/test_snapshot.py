"""Snapshots: what is written, what is named again, what is refused. Equality of all states is the
model machine's."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dejaqueue.engine.commands import Ack, Enqueue, Lease, Move, OpenEpoch, SubBatch
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.snapshot import (
    abandon_snapshot,
    epoch_of,
    next_sequence_of,
    plan_snapshot,
    restore,
)
from dejaqueue.errors import JournalDamaged

LAYOUT = Layout(slab_bits=6, seal_rows=100, draw_rows=32, key_bucket_bits=2)


def filled() -> Engine:
    engine = Engine(4, LAYOUT)
    engine.apply(OpenEpoch(0, 2))
    rng = np.random.default_rng(8)
    for position in range(1, 41):
        batch = SubBatch("p", position, 20, (3,), (9,), (4,))
        dues_ms, hashes = rng.integers(0, 1_000, 20), rng.integers(1, 1 << 60, 20)
        engine.apply(Enqueue(0, position, dues_ms, (batch,), hashes))
    engine.apply(Lease(100, 41, 100, 30, 5_000))
    return engine


class Shelf:
    """Keeps the files of the newest snapshot, as a journal does."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | memoryview] = {}
        self.meta = ""

    def put(self, engine: Engine) -> list[str]:
        """Take a snapshot; return the names of the files that were written for it."""
        self.meta, files = plan_snapshot(engine)
        names = [name for name, _ in files]
        assert len(set(names)) == len(names)
        self.files = {
            name: self.files[name] if content is None else content for name, content in files
        }
        return [name for name, content in files if content is not None]

    def restore(self) -> Engine:
        return restore(self.meta, lambda name: memoryview(self.files[name]), LAYOUT)


def kinds(names: list[str]) -> set[str]:
    return {name.split("-")[0] for name in names}


def test_what_is_restored_is_what_was_planned() -> None:
    engine, shelf = filled(), Shelf()
    shelf.put(engine)
    found = shelf.restore()
    found.check()
    assert found.state_hash() == engine.state_hash()
    assert (found.partition, found.epoch, found.now_ms) == (4, 2, 100)
    assert found.answer("p", 7) == engine.answer("p", 7)
    assert found.next_expiry_ms() == 5_000


def test_a_second_snapshot_names_again_what_did_not_change() -> None:
    engine, shelf = filled(), Shelf()
    assert kinds(shelf.put(engine)) >= {"slab", "run"}
    assert kinds(shelf.put(engine)) == {"order", "leases", "small", "producers"}
    engine.apply(Move(200, np.array([70]), np.array([900])))
    written = [name for name in shelf.put(engine) if name.startswith("slab")]
    assert [name.rsplit("-", 1)[0] for name in written] == ["slab-1"]
    assert shelf.restore().state_hash() == engine.state_hash()


def test_a_restored_engine_goes_on_with_its_files() -> None:
    engine, shelf = filled(), Shelf()
    shelf.put(engine)
    restored = shelf.restore()
    written = kinds(shelf.put(restored))
    assert written >= {"order", "leases", "producers"}
    assert not written & {"slab", "run"}
    again = shelf.restore()
    for now_ms in range(200, 1_200, 100):
        for one in (engine, again):
            one.apply(Lease(now_ms, now_ms, now_ms, 200, 9_000))
            one.apply(Ack(now_ms, now_ms))
        shelf.put(again)
        again = shelf.restore()
        assert again.state_hash() == engine.state_hash()
    assert not [name for name in shelf.files if name.startswith("run")]
    assert engine.counts.scheduled == 0


def test_planned_files_do_not_change_when_the_engine_goes_on() -> None:
    engine = filled()
    state_hash = engine.state_hash()
    meta, files = plan_snapshot(engine)
    for now_ms in range(200, 1_200, 50):
        engine.apply(Lease(now_ms, now_ms, now_ms, 40, 9_000))
        engine.apply(Ack(now_ms, now_ms))
    contents = {name: memoryview(content or b"") for name, content in files}
    assert restore(meta, contents.__getitem__, LAYOUT).state_hash() == state_hash


def test_after_a_snapshot_that_failed_everything_is_written_anew() -> None:
    engine, shelf = filled(), Shelf()
    first = {name for name, _ in plan_snapshot(engine)[1]}
    abandon_snapshot(engine)
    written = set(shelf.put(engine))
    assert written == set(shelf.files)
    assert not written & first
    assert shelf.restore().state_hash() == engine.state_hash()


def test_names_are_not_used_again_by_a_later_owner() -> None:
    engine, shelf = filled(), Shelf()
    shelf.put(engine)
    lost = {name for name, _ in plan_snapshot(engine)[1]} - set(shelf.files)
    owner = shelf.restore()
    owner.apply(OpenEpoch(300, 3))
    assert not set(shelf.put(owner)) & lost


def test_done_messages_take_no_room() -> None:
    engine, shelf = filled(), Shelf()
    engine.apply(Lease(2_000, 60, 2_000, 10_000, 9_000))
    engine.apply(Ack(2_000, 60))
    engine.apply(Ack(2_000, 41))
    shelf.put(engine)
    assert not [name for name in shelf.files if name.startswith(("slab", "run"))]
    restored = shelf.restore()
    assert restored.next_sequence == 800
    assert restored.state_hash() == engine.state_hash()
    effects = restored.apply(Enqueue(2_000, 70, np.array([5]), ()))
    assert effects.first_sequence == 800


@pytest.mark.parametrize("kind", ["slab", "run", "order", "leases"])
def test_a_file_of_another_length_is_refused_by_name(kind: str) -> None:
    shelf = Shelf()
    shelf.put(filled())
    name = next(name for name in shelf.files if name.startswith(f"{kind}-"))
    shelf.files[name] = bytes(shelf.files[name])[:-1]
    with pytest.raises(JournalDamaged, match=name):
        shelf.restore()


def test_a_state_that_does_not_exist_is_refused() -> None:
    shelf = Shelf()
    shelf.put(filled())
    name = next(name for name in shelf.files if name.startswith("slab-"))
    content = bytearray(shelf.files[name])
    content[64 * 19 - 1] = 9  # the last of the 64 states
    shelf.files[name] = bytes(content)
    with pytest.raises(JournalDamaged, match="state that does not exist"):
        shelf.restore()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2),
        ("slab_bits", 16),
        ("next_sequence", 3),
        ("next_sequence", "many"),
        ("counts", {"scheduled": 1}),
        ("counts", {"unknown": 1}),
        ("slabs", [[5, "slab-x"], [1, "slab-y"]]),
        ("slabs", [["x"]]),
        ("runs", [["run-x", 5, 9]]),
        ("order", []),
    ],
)
def test_a_text_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    shelf = Shelf()
    shelf.put(filled())
    shelf.meta = json.dumps(json.loads(shelf.meta) | {name: value})
    with pytest.raises(JournalDamaged, match="snapshot"):
        shelf.restore()


@pytest.mark.parametrize("meta", ["", "[]", "{}", "{", "null"])
def test_a_text_that_is_no_plan_is_refused(meta: str) -> None:
    with pytest.raises(JournalDamaged, match="snapshot"):
        restore(meta, lambda _: memoryview(b""), LAYOUT)


def test_what_a_plan_says_of_ids_and_epochs_is_what_is_restored() -> None:
    engine, shelf = filled(), Shelf()
    engine.apply(OpenEpoch(700, 9))
    shelf.put(engine)
    found = shelf.restore()
    assert epoch_of(shelf.meta) == (found.now_ms, found.epoch) == (700, 9)
    assert next_sequence_of(shelf.meta) == found.next_sequence == 800


@pytest.mark.parametrize("meta", ["", "[]", "{}", "{", "null", '{"now_ms": 1, "epoch": "x"}'])
def test_what_a_text_that_is_no_plan_says_is_refused(meta: str) -> None:
    for ask in (epoch_of, next_sequence_of):
        with pytest.raises(JournalDamaged, match="snapshot"):
            ask(meta)
