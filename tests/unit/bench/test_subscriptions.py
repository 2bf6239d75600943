"""Covers: what the rows of `subscriptions` compare; that an older tree is asked for its queue;
that what Kafka lacks is named; that it and the other logs keep up, where they are there.

Not covered: the run from the command to the rows (test_quick_run.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import subscription_turn
from bench.load import past_load
from bench.questions import subscriptions
from bench.subscription_turn import Turn
from bench.systems import kafka
from bench.systems.system import Plan
from bench.targets import TARGETS

CASES = (
    *("enqueue_1", "enqueue_10", "deliver_10", "log_through", "queue_through", "replay"),
    *("replay_beside_p99", "start_usable", "start_held", "memory_due", "memory_log"),
)


def test_each_target_has_a_row() -> None:
    medians = {("dejaq", case): 6.0 for case in CASES}
    medians |= {("kafka", case): 3.0 for case in ("enqueue_1", "deliver_10", "log_through")}
    medians |= {("redis", "deliver_10"): 2.0}
    rows = {row.case: row for row in subscriptions.rows_of(medians) if row.system == "dejaq"}
    wanted = {target.case for target in TARGETS if target.question == "subscriptions"}
    assert wanted <= set(rows)
    found = {case: (row.ratio, row.ratio_to) for case, row in rows.items() if row.ratio}
    assert found == {
        "enqueue_10": (1.0, "dejaq's enqueue_1"),
        "log_through": (1.0, "dejaq's queue_through"),
        "deliver_10": (3.0, "redis"),
        "enqueue_1_by_kafka": (2.0, "kafka"),
        "deliver_10_by_kafka": (2.0, "kafka"),
        "log_through_by_kafka": (2.0, "kafka"),
    }


def test_a_tree_without_subscriptions_is_asked_for_its_queue(tmp_path: Path) -> None:
    plan = Plan(200, 2.0, 1, 4, tmp_path, ("dejaq",), 1, quick=True)
    turn = Turn(plan, 1, queue_only=True, short=True)
    figures = turn.run()
    assert set(figures) == {"queue_enqueue", "queue_deliver", "queue_through"} == set(turn.costs)
    assert all(value > 0 for value in figures.values())
    assert subscription_turn.has_subscriptions()
    assert list(tmp_path.iterdir()) == []


def test_what_kafka_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "JARS", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/javac")
    assert "install_kafka.sh" in kafka.KafkaGroups.left_out()
    (tmp_path / "kafka_2.13-4.0.1.jar").touch()
    assert (kafka.KafkaGroups.left_out(), kafka.KafkaGroups.version()) == ("", "4.0.1")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert kafka.KafkaGroups.left_out() == "kafka: a JDK is not installed"


@pytest.mark.slow
@pytest.mark.may_skip
def test_kafka_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "WARM_RUNS", 0)
    reason = kafka.KafkaGroups.left_out()
    if reason:
        pytest.skip(reason)
    system = kafka.KafkaGroups()
    try:
        system.start(tmp_path, past_load(2_000, 1_800_000_000_000, 1))
        topic, filled = system.fill(2_000, 20.0)
        assert filled.rows == 2_000
        assert system.drain(topic, 3, 2_000, 20.0).rows == 6_000
        assert system.through(2_000, 20.0).rows == 2_000
    finally:
        system.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.may_skip
def test_the_other_logs_keep_up_too(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    pytest.importorskip("nats")
    from bench.systems.jetstream import JetStreamGroups
    from bench.systems.redis_streams import RedisStreams

    if RedisStreams.version() is None or JetStreamGroups.left_out():
        pytest.skip("a server is not installed")
    for system in (RedisStreams(), JetStreamGroups()):
        system.start(tmp_path)
        try:
            load = past_load(5_500, 1_800_000_000_000, 1)
            assert system.through(load, 40.0).rows == 5_500
        finally:
            system.stop()
