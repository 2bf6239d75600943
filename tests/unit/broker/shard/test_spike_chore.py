"""When a partition looks for a spike. What becomes of one: tests/rules/test_rule_02_spikes.py."""

from __future__ import annotations

from dataclasses import replace

from dejaqueue.broker.shard.spike_chore import LOOK_MS, SpikeChore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, DispatchSettings
from tests.unit.broker.cores import Served

AHEAD_MS = 20_000
SETTINGS = BrokerSettings(dispatch=DispatchSettings(partition_rows_per_s=10))


def served(ahead_ms: int = AHEAD_MS) -> Served:
    return Served(Topic("t", spike_ahead_ms=ahead_ms), settings=SETTINGS)


def schedule(here: Served, in_ms: int, rows: int = 100) -> int:
    due_ms = (here.core.now_ms() + in_ms) // 1_000 * 1_000
    here.send([b"x"] * rows, dues_ms=[due_ms] * rows)
    return due_ms


def test_a_topic_that_does_not_ask_for_it_is_not_looked_at() -> None:
    here, chore = served(0), SpikeChore()
    schedule(here, 5_000)
    chore.step(here.core)
    assert here.core.spike is None
    assert chore.next_us(here.core) is None


def test_it_looks_once_a_second__and_wants_a_step_when_the_spike_begins() -> None:
    here, chore = served(), SpikeChore()
    chore.step(here.core)
    due_ms = schedule(here, 15_000)
    chore.step(here.core)
    assert here.core.spike is None, "a second is not over"
    here.clock.advance(ms=LOOK_MS)
    chore.step(here.core)
    assert here.core.spike == (due_ms - 10_000, due_ms + 1_000)
    here.clock.advance(ms=due_ms - 10_200 - here.core.now_ms())
    chore.step(here.core)
    assert chore.next_us(here.core) == (due_ms - 10_000) * 1_000 + here.clock.ahead_us


def test_what_was_begun_goes_on_to_its_end__also_when_little_is_left() -> None:
    here, chore = served(), SpikeChore()
    due_ms = schedule(here, 9_000)
    chore.step(here.core)
    spike = here.core.spike
    assert spike == (due_ms - 10_000, due_ms + 1_000)
    here.core.engine = served().core.engine  # all of it is leased
    here.clock.advance(ms=5_000)
    chore.step(here.core)
    assert here.core.spike is spike
    here.clock.advance(ms=5_000)
    chore.step(here.core)
    assert here.core.spike is None


def test_what_is_due_much_later_is_looked_at_when_it_is_near() -> None:
    here, chore = served(), SpikeChore()
    due_ms = schedule(here, 3_600_000)
    chore.step(here.core)
    at_ms = due_ms - AHEAD_MS - LOOK_MS
    assert chore.next_us(here.core) == at_ms * 1_000 + here.clock.ahead_us


def test_new_settings_begin_anew() -> None:
    here, chore = served(), SpikeChore()
    schedule(here, 9_000)
    chore.step(here.core)
    here.topic = replace(here.topic, spike_ahead_ms=0)
    chore.configured(here.core)
    assert here.core.spike is None
