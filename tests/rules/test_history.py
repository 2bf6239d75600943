"""History has each change of a message once, in time and in place, or says that it has a gap.

Not covered here: Spark (tests/spark/test_history.py), brokers that are killed
(tests/crash/test_history_kill.py), columns of single changes (tests/unit/broker/history).
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from dejaqueue.broker.history.encode import tables_of
from dejaqueue.broker.history.files import Files
from dejaqueue.broker.history.pieces import Piece
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.engine import Engine
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.model import Topic
from dejaqueue.schema.history import HISTORY, STORED
from dejaqueue.wire.frames import SettleOp
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker
from tests.rules.test_rule_13_replay import work

HOUR_MS = 3_600_000


def history(broker: BrokerFixture, topic: str = TOPIC, **ticket: Any) -> pa.Table:
    """All that was recorded of a topic, file by file."""
    batches = []
    for file in broker.broker.call("history_files", {"name": topic})["files"]:
        named = {"topic": topic, "partition": file["partition"], "file": file["name"]}
        batches += list(broker.broker.read("history", named | ticket)[1])
    return pa.Table.from_batches(batches) if batches else HISTORY.empty_table()


def rows(broker: BrokerFixture, *columns: str, topic: str = TOPIC) -> list[tuple[Any, ...]]:
    table = history(broker, topic).select(list(columns))
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.one_broker("counts ids from 0")
def test_the_life_of_a_message_is_in_the_order_of_what_happened(on_files: MakeBroker) -> None:
    broker = on_files(history=True, lease_ms=5_000)
    began_ms = broker.now_ms
    dues_ms = [began_ms + 1_000, began_ms + 2_000, began_ms + 3_000]
    broker.send([b"a", b"b", b"c"], dues_ms, ["one", "two", "three"])
    broker.move([0], [began_ms + 1_500])
    broker.cancel([2])
    consumer = broker.consumer(consumer="worker")
    broker.advance(1_510)
    (got,) = consumer.take_all()
    consumer.settle(
        SettleOp.NACK, partition=0, lease_id=got.lease_id, argument_ms=100, reason="busy"
    )
    broker.advance(110)
    (again,) = consumer.take_all()
    consumer.ack(again)
    broker.advance(500)
    consumer.take_all()
    broker.advance(5_100)  # the lease of the second one ends

    first, *_ = rows(broker, "topic", "partition", "change", "at_ms", "id", "due", "key", "attempt")
    assert first == (TOPIC, 0, "enqueued", began_ms, 0, dues_ms[0], "one", 0)
    assert rows(broker, "change", "sequence") == [
        ("enqueued", 0),
        ("enqueued", 1),
        ("enqueued", 2),
        ("moved", 0),
        ("cancelled", 2),
        ("delivered", 0),
        ("nacked", 0),
        ("redelivered", 0),
        ("acked", 0),
        ("delivered", 1),
        ("lapsed", 1),
        ("redelivered", 1),
    ]
    table = history(broker)
    positions = table.column("position").to_pylist()
    assert positions == sorted(positions)
    by_change = {row["change"]: row for row in table.to_pylist()}
    assert by_change["moved"]["due"] == began_ms + 1_500
    assert by_change["nacked"]["reason"] == "busy"
    assert by_change["acked"]["due"] is None
    delivered = next(row for row in table.to_pylist() if row["change"] == "delivered")
    assert (delivered["lateness_ms"], delivered["consumer"]) == (10, "worker")
    assert (delivered["attempt"], by_change["redelivered"]["attempt"]) == (1, 2)


def test_how_far_ahead_a_lease_was_and_might_be_is_recorded(on_files: MakeBroker) -> None:
    broker = on_files(history=True, lease_ahead_ms=50)
    consumer = broker.consumer()
    consumer.knows_its_clock()
    broker.send([b"a"], [broker.now_ms + 30])
    consumer.take_all()
    (ahead,) = [row for row in rows(broker, "change", "lateness_ms", "ahead_ms") if row[1]]
    assert ahead == ("delivered", -30, 50)


@pytest.mark.one_broker("counts ids from 0")
def test_deaths_say_why(on_files: MakeBroker) -> None:
    broker = on_files(history=True, max_attempts=1, lease_ms=1_000)
    began_ms = broker.now_ms
    broker.write(
        "enqueue",
        {
            "payload": pa.array([b"old", b"bad", b"slow"], pa.binary()),
            "due": pa.array([began_ms + 50_000, began_ms, began_ms]),
            "expires": pa.array([began_ms + 10, None, None], pa.int64()),
        },
    )
    consumer = broker.consumer(batch_rows_max=1)
    bad, slow = consumer.take_all()
    assert (bad.payloads, slow.payloads) == ([b"bad"], [b"slow"])
    consumer.settle(
        SettleOp.NACK, partition=0, lease_id=bad.lease_id, argument_ms=-1, reason="broken"
    )
    broker.advance(20)
    broker.advance(1_100)
    broker.letters_arrive()
    found = [row for row in rows(broker, "change", "sequence", "reason") if row[2] is not None]
    assert sorted(found) == [
        ("dead", 1, "broken"),
        ("dead", 2, "lease ended"),
        ("expired", 0, "expired"),
    ]


@pytest.mark.one_broker("counts ids from 0")
def test_groups_and_priorities_go_with_each_change(on_files: MakeBroker) -> None:
    broker = on_files(history=True, kind="fair")
    broker.write(
        "enqueue",
        {
            "payload": pa.array([b"a", b"b", b"c"], pa.binary()),
            "group": pa.array(["x", None, "y"]),
            "priority": pa.array([1, 2, 3], pa.uint16()),
        },
    )
    (got,) = broker.consumer().take_all()
    assert len(got.ids) == 3
    expected = {0: ("x", 1), 1: (None, 2), 2: ("y", 3)}
    found = rows(broker, "change", "sequence", "group", "priority")
    assert len(found) == 6
    for _, sequence, *facts in found:
        assert tuple(facts) == expected[sequence]


@pytest.mark.one_broker("counts ids from 0")
def test_a_replaced_message_is_cancelled(on_files: MakeBroker) -> None:
    broker = on_files(history=True, on_duplicate="replace")
    later_ms = broker.now_ms + 1_000
    broker.send([b"a"], [later_ms], ["k"])
    broker.send([b"b"], [later_ms], ["k"])
    assert rows(broker, "change", "sequence", "reason") == [
        ("enqueued", 0, None),
        ("cancelled", 0, "replaced"),
        ("enqueued", 1, None),
    ]


@pytest.mark.one_broker("looks into a broker")
def test_without_the_setting_nothing_is_written(on_files: MakeBroker) -> None:
    broker = on_files()
    broker.send([b"a"])
    assert history(broker).num_rows == 0
    assert broker.path is not None
    assert not (broker.path / "history").exists()


def test_a_broker_in_memory_needs_a_directory_for_it() -> None:
    with pytest.raises(BadRequest, match=r"topic\.history.*history\.directory"):
        BrokerFixture(history=True)


@pytest.mark.one_broker("counts ids from 0")
def test_what_happened_while_it_was_off_is_a_gap(on_files: MakeBroker) -> None:
    broker = on_files()
    broker.send([b"a"])
    broker.broker.alter_topic(TOPIC, {"history": True})
    broker.send([b"b"])
    broker.broker.alter_topic(TOPIC, {"history": False})
    broker.send([b"c"])
    broker.broker.alter_topic(TOPIC, {"history": True})
    broker.send([b"d"])
    assert rows(broker, "change", "sequence", "reason") == [
        ("gap", -1, "history was off"),
        ("enqueued", 1, None),
        ("gap", -1, "history was off"),
        ("enqueued", 3, None),
    ]
    assert broker.broker.runtime(TOPIC).counting.history_missed.value == 0


# --- files --------------------------------------------------------------------------------------


@pytest.mark.one_broker("looks into a broker")
def test_files_are_whole_and_anybody_reads_them(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    assert broker.path is not None
    broker.send([b"a", b"b"])
    assert not list((broker.path / "history").rglob("*.parquet"))
    broker.advance(60_000)
    broker.broker.history.submit(lambda: None).result(PATIENCE_SECONDS)
    (path,) = (broker.path / "history").rglob("*.parquet")
    assert pq.read_schema(path).equals(STORED)
    dataset = pyarrow.dataset.dataset(broker.path / "history", partitioning="hive")
    row = dataset.to_table().to_pylist()[0]
    assert (row["topic"], row["partition"], row["change"]) == (TOPIC, 0, "enqueued")


def test_each_hour_has_files_of_its_own(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    for _ in range(3):
        broker.send([b"a"])
        broker.clock.advance(ms=HOUR_MS)
    files = broker.broker.call("history_files", {"name": TOPIC})["files"]
    assert len(files) == 3
    assert len({file["hour_ms"] for file in files}) == 3
    assert all(file["hour_ms"] % HOUR_MS == 0 for file in files)
    for before, after in itertools.pairwise(files):
        assert after["first"] == before["last"] + 1
    for file in files:
        named = {"topic": TOPIC, "partition": 0, "file": file["name"]}
        (batch,) = broker.broker.read("history", named)[1]
        assert batch.column("at_ms")[0].as_py() // HOUR_MS * HOUR_MS == file["hour_ms"]
    wanted = {"at_from": files[1]["hour_ms"], "at_to": files[2]["hour_ms"]}
    assert broker.broker.call("history_files", {"name": TOPIC} | wanted)["files"] == [files[1]]


@pytest.mark.one_broker("looks into a broker")
def test_a_file_grows_only_so_large(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.broker.settings.history.__dict__["roll_bytes"] = 1
    for _ in range(4):
        broker.send([b"a"] * 30_000)
    assert len(broker.broker.call("history_files", {"name": TOPIC})["files"]) >= 2
    assert history(broker).num_rows == 120_000


@pytest.mark.one_broker("has settings of its own")
def test_old_files_go_and_are_not_written_again(on_files: MakeBroker) -> None:
    broker = on_files(history=True, snapshot_interval_ms=0)  # none while the directory is copied
    broker.send([b"a"])
    assert history(broker).num_rows == 1
    broker.clock.advance(ms=8 * 24 * HOUR_MS)
    broker.settle_down()
    broker.broker.history.submit(lambda: None).result(PATIENCE_SECONDS)
    assert history(broker).num_rows == 0
    broker.crash()  # the journal has the entry still
    broker.send([b"b"])
    assert rows(broker, "change", "sequence") == [("enqueued", 1)]


@pytest.mark.one_broker("counts ids from 0")
def test_a_new_topic_of_an_old_name_has_no_history(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.send([b"a"] * 10)
    broker.broker.delete_topic(TOPIC)
    broker.broker.create_topic(Topic(TOPIC, history=True))
    broker.send([b"b"])
    assert rows(broker, "change", "sequence") == [("enqueued", 10)]  # ids go on


# --- restarts -------------------------------------------------------------------------------------


def lives(broker: BrokerFixture) -> None:
    """Some messages of which most are done."""
    consumer = broker.consumer()
    for _ in range(5):
        broker.send([b"x"] * 20)
        for got in consumer.take_all():
            consumer.ack_rows(got.ids[::2], got.attempts[::2])
        broker.clock.advance(ms=10)
    consumer.session.close(release=True)


@pytest.mark.one_broker("has settings of its own")
@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("snapshot_entries", [3, 20_000])
def test_a_crash_neither_loses_nor_doubles_what_was_recorded(
    on_files: MakeBroker, flushes: bool, snapshot_entries: int
) -> None:
    broker = on_files(history=True, snapshot_entries=snapshot_entries)
    lives(broker)
    if flushes:
        history(broker)
    lives(broker)
    # A directory is copied while nobody takes snapshots, which also removes files.
    broker.broker.settings.journal.__dict__["snapshot_entries"] = 0
    for _ in range(2):
        broker.wait_for_snapshots()
        broker.settle_down()
    broker.crash()
    lives(broker)
    found = history(broker)
    keys = Counter(
        zip(*(found.column(name).to_pylist() for name in ("position", "id", "change")), strict=True)
    )
    assert max(keys.values()) == 1
    changes = Counter(found.column("change").to_pylist())
    counts = broker.broker.runtime(TOPIC).partitions[0].core.engine.counts
    assert changes["enqueued"] == counts.enqueued == 300
    assert changes["acked"] == counts.acked
    assert changes["delivered"] + changes["redelivered"] == counts.delivered
    assert changes["redelivered"] == counts.redelivered
    assert changes["gap"] == 0


@pytest.mark.one_broker("counts ids from 0")
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_notes_what_was_recorded_and_noting_changes_no_state(
    on_files: MakeBroker, seed: int
) -> None:
    broker = on_files(history=True, lease_ms=200)
    work(broker, seed)
    live = history(broker).select(["position", "change", "id", "due", "attempt"]).to_pylist()
    broker.stop()
    assert broker.path is not None
    store = SegmentStore(broker.path)
    journal = store.open(TOPIC, 0)
    noting, silent = Engine(0), Engine(0)
    noting.note_changes(True)
    pieces = []
    for position, _epoch, entry in journal.scan(0):
        command = entries.to_command(entry, position)
        effects = noting.apply(command)
        assert silent.apply(command).changes == ()
        if effects.changes:
            noted = (EntryChanges.of(0, entry, effects),)
            pieces.append(Piece(position, position, position, noted))
    assert noting.state_hash() == silent.state_hash()
    found = pa.concat_tables(tables_of(pieces, 0))
    again = found.select(["position", "change", "id", "due", "attempt"]).to_pylist()
    assert again[: len(live)] == live
    assert len({row["change"] for row in live}) >= 8
    journal.close()
    store.close()


@pytest.mark.one_broker("looks into a broker")
def test_a_graceful_stop_leaves_nothing_out(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    lives(broker)
    broker.restart()
    lives(broker)
    changes = Counter(history(broker).column("change").to_pylist())
    assert changes["enqueued"] == 200
    assert changes["gap"] == 0


@pytest.mark.one_broker("counts ids from 0")
def test_restarts_in_which_nothing_happens_leave_no_gap(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.send([b"a"])
    for _ in range(3):
        broker.restart()
        broker.settle_down()
    broker.send([b"b"])
    assert rows(broker, "change", "sequence") == [("enqueued", 0), ("enqueued", 1)]


@pytest.mark.one_broker("looks into a broker")
def test_files_that_somebody_took_away_are_a_gap(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    lives(broker)
    broker.restart()
    broker.broker.stop()
    assert broker.path is not None
    Files(broker.path / "history").drop(TOPIC)
    broker.broker = broker._start()
    broker.send([b"a"])
    (gap, *_) = rows(broker, "change", "reason")
    assert gap == ("gap", "history was off, or its files are gone")


# --- what cannot be recorded ----------------------------------------------------------------------


@pytest.mark.one_broker("looks into a broker")
def test_what_finds_no_room_is_dropped_and_said(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.broker.settings.history.__dict__["waiting_rows_max"] = 100
    stuck, go = threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        go.wait(PATIENCE_SECONDS)

    broker.broker.history.submit(hang)
    assert stuck.wait(PATIENCE_SECONDS)
    broker.send([b"a"] * 60)
    for _ in range(3):  # nobody waits for the disk of the history
        broker.send([b"b"] * 60)
    go.set()
    broker.broker.history.submit(lambda: None).result(PATIENCE_SECONDS)
    broker.send([b"c"] * 5)
    table = history(broker)
    assert Counter(table.column("change").to_pylist()) == {"enqueued": 65, "gap": 1}
    (gap,) = [row for row in table.to_pylist() if row["change"] == "gap"]
    assert (gap["missed"], gap["reason"]) == (180, "the disk did not keep up")
    assert broker.broker.runtime(TOPIC).counting.history_missed.value == 180
    assert broker.broker.runtime(TOPIC).counting.history_recorded.value == 66


@pytest.mark.one_broker("looks into a broker")
def test_a_disk_that_refuses_costs_history_and_nothing_else(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = on_files(history=True)
    broker.send([b"a"] * 3)

    def refuse(*_: object, has_gaps: bool) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Files, "finish", refuse)
        assert history(broker).num_rows == 0
    broker.send([b"b"] * 2)
    table = history(broker)
    assert table.column("change").to_pylist() == ["gap", "enqueued", "enqueued"]
    assert table.column("missed")[0].as_py() == 3
    assert broker.counts()["enqueued"] == 5
    assert broker.path is not None
    assert not list((broker.path / "history" / ".open").iterdir())


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.one_broker("counts ids from 0")
def test_a_reader_chooses_columns_and_times(on_files: MakeBroker) -> None:
    broker = on_files(history=True)
    broker.send([b"a"])
    middle_ms = broker.now_ms + 1
    broker.clock.advance(ms=5)
    broker.send([b"b"])
    assert history(broker, columns=["id", "topic"]).to_pylist() == [
        {"topic": TOPIC, "id": 0},
        {"topic": TOPIC, "id": 1},
    ]
    assert history(broker, at_from=middle_ms).column("id").to_pylist() == [1]
    assert history(broker, at_to=middle_ms).column("id").to_pylist() == [0]


@pytest.mark.parametrize(
    ("ticket", "text"),
    [
        ({"file": "../../../lock"}, "file"),
        ({"file": 3}, "file"),
        ({"columns": ["payload"]}, "columns"),
        ({"partition": -1}, "partition"),
        ({"at_from": -1}, "at_from"),
        ({"colour": 1}, "colour"),
    ],
)
def test_bad_tickets_are_refused(on_files: MakeBroker, ticket: dict[str, Any], text: str) -> None:
    broker = on_files(history=True)
    broker.send([b"a"])
    (file,) = broker.broker.call("history_files", {"name": TOPIC})["files"]
    good = {"topic": TOPIC, "partition": 0, "file": file["name"]}
    with pytest.raises(BadRequest, match=text):
        broker.broker.read("history", good | ticket)


@pytest.mark.one_broker("looks into a broker")
def test_a_file_that_was_pruned_since_is_an_error(on_files: MakeBroker, tmp_path: Path) -> None:
    broker = on_files(history=True)
    broker.send([b"a"])
    (file,) = broker.broker.call("history_files", {"name": TOPIC})["files"]
    Files(tmp_path / "journal" / "history").drop(TOPIC)
    ticket = {"topic": TOPIC, "partition": 0, "file": file["name"]}
    with pytest.raises(Refused, match="too old"):
        list(broker.broker.read("history", ticket)[1])


@pytest.mark.one_broker("counts ids from 0")
def test_a_seek_is_told_with_its_reason(on_files: MakeBroker) -> None:
    broker = on_files(history=True, retention_ms=HOUR_MS)
    broker.send([b"a", b"b"])
    consumer = broker.consumer(credit=1)
    [got] = consumer.take_all()
    consumer.ack(got)
    for to in ("beginning", "end"):
        broker.broker.call("seek", {"topic": TOPIC, "to": to})
    broker.settle_down()
    told = [row for row in rows(broker, "change", "id", "reason") if row[2]]
    assert told == [("moved", 0, "seek"), ("acked", 0, "seek"), ("acked", 1, "seek")]
    broker.crash()
    assert [row for row in rows(broker, "change", "id", "reason") if row[2]] == told
