"""Rule 22, cold payloads: what is due much later leaves the journal and is back before it is due.

Also here: a store that is away, crashes at each step, moves, cancels, subscriptions, erasure, and
what is deleted. Not covered: real clients and object stores
(tests/integration/test_cold_payloads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.calls.erasure import erase
from dejaqueue.broker.shard import cold_chore
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.wire.frames import SettleOp
from tests.patience import until
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.test_rule_22_payloads import Kept

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PAYLOADS = [bytes([65 + number % 26]) * 1_024 for number in range(64)]


@pytest.fixture
def make_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Kept]]:
    monkeypatch.setattr(cold_chore, "OBJECT_BYTES", 16_384)
    monkeypatch.setattr(cold_chore, "CONTENT_BYTES_MIN", 8_192)
    made: list[Kept] = []

    def make(**topic: Any) -> Kept:
        settings = {"cold_after_ms": HOUR_MS} | topic
        made.append(Kept(tmp_path / "payloads", tmp_path / "journal", **settings))
        return made[-1]

    yield make
    for one in made:
        one.fixture.stop()


def until_after(act: Callable[[], object], is_so: Callable[[], object]) -> None:
    """As `until`, with something done before each look."""

    def look() -> object:
        act()
        return is_so()

    until(look)


def core_of(kept: Kept) -> PartitionCore:
    return kept.fixture.broker.runtime(TOPIC).partitions[0].core


def cold_count(kept: Kept) -> int:
    return core_of(kept).cold.row_count


def settle_at(kept: Kept, count: int) -> None:
    """Wait until so many messages are cold, by the journal."""

    def is_so() -> bool:
        kept.fixture.advance(200)
        return cold_count(kept) == count

    until(is_so)


def send_late(kept: Kept, payloads: list[bytes] = PAYLOADS, delay_ms: int = DAY_MS) -> int:
    """Send, and have it go to the store; when they are due."""
    due_ms = kept.fixture.clock.utc_ms() + delay_ms
    kept.fixture.send(payloads, [due_ms] * len(payloads))
    before = cold_count(kept)
    kept.fixture.advance(1_000)
    settle_at(kept, before + len(payloads))
    return due_ms


def advance_to(kept: Kept, instant_ms: int) -> None:
    kept.fixture.advance(instant_ms - kept.fixture.clock.utc_ms())
    kept.fixture.settle_down()


def test_what_is_due_tomorrow_leaves__and_is_back_before_it_is_due(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    due_ms = send_late(kept)
    assert kept.stored == 4, "many messages share an object"
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS
    counts = kept.fixture.broker.payloads.counts
    assert (counts.cold_stored, counts.cold_returned) == (64, 0)
    advance_to(kept, due_ms - HOUR_MS // 2 - 1_000)
    assert cold_count(kept) == 64
    advance_to(kept, due_ms - HOUR_MS // 4)
    settle_at(kept, 0)
    assert (counts.cold_returned, counts.cold_late) == (64, 0)
    kept.clean()
    assert kept.stored == 0, "nobody needs the objects any more"
    advance_to(kept, due_ms)
    kept.bucket.is_away = True
    assert kept.take() == PAYLOADS
    assert counts.cold_late == 0


def test_late_ones_of_an_object_go_on_being_cold(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    now_ms = kept.fixture.clock.utc_ms()
    dues_ms = [now_ms + DAY_MS + number * HOUR_MS for number in range(16)]
    kept.fixture.send(PAYLOADS[:16], dues_ms)
    kept.fixture.advance(1_000)
    settle_at(kept, 16)
    advance_to(kept, now_ms + DAY_MS - HOUR_MS // 4)
    settle_at(kept, 15)
    advance_to(kept, now_ms + DAY_MS)
    assert kept.take() == PAYLOADS[:1]
    advance_to(kept, now_ms + DAY_MS + HOUR_MS - HOUR_MS // 4)
    settle_at(kept, 14)
    assert kept.stored == 1
    assert kept.fixture.broker.payloads.counts.cold_late == 0


def test_small_payloads_stay__and_so_do_those_that_are_few(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    far_ms = kept.fixture.clock.utc_ms() + DAY_MS
    kept.fixture.send([b"s" * 511] * 64, [far_ms] * 64)
    kept.fixture.send(PAYLOADS[:4], [far_ms] * 4)
    for _ in range(5):
        kept.fixture.advance(1_000)
    assert (cold_count(kept), kept.stored) == (0, 0)


def test_what_is_due_soon_stays(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    soon_ms = kept.fixture.clock.utc_ms() + HOUR_MS - 1
    kept.fixture.send(PAYLOADS, [soon_ms] * 64)
    for _ in range(5):
        kept.fixture.advance(1_000)
    assert (cold_count(kept), kept.stored) == (0, 0)


def test_a_restart_finds_what_is_cold__and_a_crash_loses_nothing(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    due_ms = send_late(kept)
    for end in (kept.restart, kept.crash):
        end()
        kept.fixture.advance(1_000)
        settle_at(kept, 64)
        assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS
    kept.clean()
    assert kept.stored == 4
    advance_to(kept, due_ms - HOUR_MS // 4)
    settle_at(kept, 0)
    kept.crash()
    advance_to(kept, due_ms)
    assert kept.take() == PAYLOADS
    kept.clean()
    assert kept.stored == 0


def test_a_crash_between_object_and_journal_leaves_the_payloads_where_they_were(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    far_ms = kept.fixture.clock.utc_ms() + DAY_MS
    puts: list[str] = []
    kept.bucket.before_put = puts.append
    kept.bucket.fails_get = True
    kept.fixture.send(PAYLOADS, [far_ms] * 64)
    until_after(lambda: kept.fixture.advance(1_000), lambda: len(puts) > 0)
    assert cold_count(kept) == 0, "what cannot be read back is not relied on"
    kept.crash()
    kept.bucket.fails_get = False
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS
    kept.fixture.advance(1_000)
    settle_at(kept, 64)
    kept.clean()
    assert kept.stored == 4, "objects without rows are found"


def test_while_the_store_is_away_what_is_back_is_on_time__and_what_is_not_is_late(
    make_kept: Callable[..., Kept], caplog: pytest.LogCaptureFixture
) -> None:
    kept = make_kept()
    first_ms = send_late(kept, PAYLOADS[:32])
    kept.fixture.advance(HOUR_MS)
    second_ms = send_late(kept, PAYLOADS[32:])
    advance_to(kept, first_ms - HOUR_MS // 4)
    settle_at(kept, 32)
    kept.bucket.is_away = True
    advance_to(kept, first_ms)
    assert kept.take() == PAYLOADS[:32]
    advance_to(kept, second_ms - 60_000)
    until(lambda: "payloads of messages that are due soon cannot be read" in caplog.text)
    advance_to(kept, second_ms)
    assert kept.take() == []
    assert "were not back before they were due" in caplog.text
    assert kept.fixture.broker.payloads.counts.cold_late >= 32
    kept.back()
    kept.fixture.advance(5_000)
    assert sorted(kept.take()) == sorted(PAYLOADS[32:]), "late, and not lost"


def test_what_cannot_be_stored_stays__and_goes_later(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    kept.bucket.is_away = True
    far_ms = kept.fixture.clock.utc_ms() + DAY_MS
    kept.fixture.send(PAYLOADS, [far_ms] * 64)
    until_after(lambda: kept.fixture.advance(1_000), lambda: kept.bucket.calls > 0)
    assert cold_count(kept) == 0
    kept.back()
    kept.fixture.advance(5_000)
    settle_at(kept, 64)


def test_moved_to_an_earlier_time__and_cancelled(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    send_late(kept)
    ids = [row["id"] for row in kept.fixture.peek()]
    now_ms = kept.fixture.clock.utc_ms()
    kept.fixture.move(ids[:16], [now_ms + 10_000] * 16)
    settle_at(kept, 48)
    kept.fixture.move(ids[16:17], [now_ms])
    assert kept.take() == PAYLOADS[16:17], "read from the store at once"
    kept.fixture.cancel(ids[17:])
    advance_to(kept, now_ms + 10_000)
    assert kept.take() == PAYLOADS[:16]
    advance_to(kept, now_ms + HOUR_MS)
    settle_at(kept, 0)
    kept.clean()
    assert kept.stored == 0


def test_switched_off_all_come_back(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept()
    send_late(kept)
    kept.fixture.broker.alter_topic(TOPIC, {"cold_after_ms": 0})
    settle_at(kept, 0)
    kept.clean()
    assert kept.stored == 0
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS


def test_switched_off_and_started_anew__the_collector_has_them_come_back(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    send_late(kept)
    kept.bucket.is_away = True
    kept.fixture.broker.alter_topic(TOPIC, {"cold_after_ms": 0})
    kept.restart()
    kept.back()
    assert cold_count(kept) == 0, "nobody has looked"
    kept.collector.collect()
    counts = kept.fixture.broker.payloads.counts
    until_after(lambda: kept.fixture.advance(200), lambda: counts.cold_returned == 64)
    settle_at(kept, 0)
    kept.clean()
    assert kept.stored == 0


def test_dead_letters_of_cold_messages_have_payloads_of_their_own(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept(max_attempts=1)
    send_late(kept)
    ids = [row["id"] for row in kept.fixture.peek()]
    kept.fixture.move(ids[:1], [kept.fixture.clock.utc_ms()])
    consumer = kept.fixture.consumer()
    [got] = consumer.take_all()
    consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id)
    consumer.session.close(release=True)
    until_after(kept.fixture.settle_down, lambda: f"{TOPIC}.dead" in kept.fixture.broker.serving())
    found: list[bytes] = []
    until_after(lambda: found.extend(kept.take(f"{TOPIC}.dead")), lambda: found)
    assert found == PAYLOADS[:1]


def test_erased_with_the_object__and_the_others_in_it_come_back(
    make_kept: Callable[..., Kept],
) -> None:
    kept = make_kept()
    far_ms = kept.fixture.clock.utc_ms() + DAY_MS
    keys = [f"k{number}" for number in range(64)]
    kept.fixture.send(PAYLOADS, [far_ms] * 64, keys)
    kept.fixture.advance(1_000)
    settle_at(kept, 64)
    cursor = None
    answer: dict[str, Any] = {}
    for _ in range(20):
        answer = erase_beside(kept, {"keys": ["k3"], "after": cursor})
        cursor = answer["next"]
        if cursor is None:
            break
    assert (cursor, answer["payloads"]) == (None, 1)
    assert kept.stored == 3
    settle_at(kept, 48)
    left = [payload for number, payload in enumerate(PAYLOADS) if number != 3]
    assert [row["payload"] for row in kept.fixture.peek()] == left


def erase_beside(kept: Kept, values: dict[str, Any]) -> dict[str, Any]:
    """A piece of an erasure, while time goes on."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(erase, kept.fixture.broker, kept.fixture.broker.runtime(TOPIC), values)
        until_after(lambda: kept.fixture.advance(100), future.done)
        return future.result()


def test_encrypted_where_the_broker_encrypts(
    make_kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make_kept()
    monkeypatch.setattr(kept.fixture.broker.payloads, "_is_sealed", True)
    due_ms = send_late(kept)
    assert not any(PAYLOADS[0][:64] in path.read_bytes() for path in kept.bucket.files)
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS
    advance_to(kept, due_ms - HOUR_MS // 4)
    settle_at(kept, 0)
    assert [row["payload"] for row in kept.fixture.peek()] == PAYLOADS


def test_a_subscription_by_arrival_needs_them_at_once(make_kept: Callable[..., Kept]) -> None:
    kept = make_kept(subscriptions={"log": {"order": "arrival"}})
    far_ms = kept.fixture.clock.utc_ms() + DAY_MS
    kept.fixture.send(PAYLOADS, [far_ms] * 64)
    for _ in range(5):
        kept.fixture.advance(1_000)
    assert cold_count(kept) == 0
    assert kept.take(f"{TOPIC}@log") == PAYLOADS


def test_without_a_payload_store_a_topic_cannot_have_it(tmp_path: Path) -> None:
    fixture = BrokerFixture(tmp_path / "journal")
    with pytest.raises(BadRequest, match=r"topic.cold_after_ms: 0 without `payloads.url`"):
        fixture.broker.create_topic(Topic("other", cold_after_ms=HOUR_MS))
    with pytest.raises(BadRequest, match=r"topic.cold_after_ms"):
        fixture.broker.alter_topic(TOPIC, {"cold_after_ms": HOUR_MS})
    fixture.stop()
