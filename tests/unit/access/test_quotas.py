"""Quotas by principal: shares of the whole, refusals by name, who waits and who does not."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.access import crowding
from dejaqueue.access import quotas as module
from dejaqueue.access.quotas import (
    BYTES,
    CONNECTIONS,
    LATELY_MINUTES,
    OPENINGS,
    ROWS,
    STREAMS,
    TRANSACTIONS,
    WHOLE,
    Bucket,
    Opening,
    Quotas,
)
from dejaqueue.access.roles import EVERYBODY, Principal
from dejaqueue.errors import ResourceExhausted
from dejaqueue.setting_groups import QuotaSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock

SHOP, MILL = Principal("shop", (), "k1"), Principal("mill", (), "k2")
FAR, NEAR = "ipv4:10.0.0.7:5000", "ipv4:127.0.0.1:5000"
SECONDS_MAX = 10.0


def make(**settings: Any) -> tuple[Quotas, VirtualClock]:
    clock = VirtualClock()
    return Quotas(BrokerSettings(quotas=QuotaSettings(**settings)), clock), clock


def in_thread(call: Callable[[], None]) -> Future[None]:
    """Where it may wait."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
            future.set_result(None)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until(condition: Callable[[], object]) -> None:
    bell, turns = threading.Event(), 0
    while not condition():
        turns += 1
        assert turns < SECONDS_MAX * 1_000
        bell.wait(0.001)


# --- how much -------------------------------------------------------------------------------------


def test_a_key_and_an_address_have_a_tenth_of_the_whole() -> None:
    quotas, _ = make()
    for account in (quotas.of(SHOP, NEAR), quotas.of(EVERYBODY, FAR)):
        settings = BrokerSettings()
        limit_of = {quota: account.limit(quota) for quota in WHOLE}
        assert limit_of == {quota: whole(settings) // 10 for quota, whole in WHOLE.items()}
    assert limit_of[STREAMS] == 409
    assert limit_of[CONNECTIONS] == 409
    assert limit_of[TRANSACTIONS] == 1_000
    assert limit_of[OPENINGS] == 100
    assert limit_of[ROWS] == 100_000
    assert limit_of[BYTES] == 53_687_091


def test_programs_of_this_machine_without_keys_may_have_all() -> None:
    quotas, _ = make()
    account = quotas.of(EVERYBODY, NEAR)
    assert [account.limit(quota) for quota in WHOLE] == [0] * len(WHOLE)
    account.take_sent(100_000_000, 0)
    account.hold_bytes(1 << 40)
    account.hold_bytes(1 << 40)
    for _ in range(limits.FLIGHT_STREAMS_MAX):
        assert account.enter_stream() == 0
    assert quotas.refused.read() == {}


def test_accounts_are_by_key_then_by_address() -> None:
    quotas, _ = make()
    assert quotas.of(SHOP, FAR) is quotas.of(SHOP, NEAR)
    assert quotas.of(SHOP, FAR) is not quotas.of(MILL, FAR)
    assert quotas.of(EVERYBODY, FAR) is quotas.of(EVERYBODY, "10.0.0.7")
    assert quotas.of(EVERYBODY, FAR) is not quotas.of(EVERYBODY, "10.0.0.8")


def test_a_share_by_name_wins_over_a_number_and_that_over_the_share() -> None:
    quotas, _ = make(percent=50, percents={"mill": 100, "10.0.0.7": 20}, streams_max=7)
    assert quotas.of(SHOP, NEAR).limit(STREAMS) == 7
    assert quotas.of(SHOP, NEAR).limit(TRANSACTIONS) == limits.TRANSACTIONS_OPEN_MAX // 2
    assert quotas.of(MILL, NEAR).limit(STREAMS) == 0
    assert quotas.of(EVERYBODY, FAR).limit(STREAMS) == limits.FLIGHT_STREAMS_EXPECTED // 5


def test_settings_change_live() -> None:
    settings = BrokerSettings()
    quotas = Quotas(settings, VirtualClock())
    account = quotas.of(SHOP, NEAR)
    changed, refused = settings.adopt(BrokerSettings(quotas=QuotaSettings(streams_max=1)))
    assert [change.name for change in changed] == ["quotas.streams_max"]
    assert refused == []
    assert account.limit(STREAMS) == 1


def test_a_share_over_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from 1 to 100 percent, got: shop = 101"):
        QuotaSettings(percents={"shop": 101})


# --- streams --------------------------------------------------------------------------------------


def open_one(quotas: Quotas, principal: Principal, stack: contextlib.ExitStack) -> Opening:
    opening = stack.enter_context(quotas.opening(principal, FAR))
    opening.opened()
    return opening


def test_a_stream_too_many_is_refused_by_name_and_another_principals_is_not() -> None:
    quotas, _ = make(streams_max=2)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            open_one(quotas, SHOP, stack)
        with pytest.raises(ResourceExhausted) as caught:
            open_one(quotas, SHOP, stack)
        assert str(caught.value) == "quotas.streams_max: at most 2 for shop, got: 3"
        assert caught.value.retry_after_ms == 1_000
        open_one(quotas, MILL, stack)
        assert quotas.of(SHOP, FAR).streams == 2
    with contextlib.ExitStack() as stack:
        open_one(quotas, SHOP, stack)
    assert quotas.of(SHOP, FAR).is_idle
    assert quotas.refused.read() == {(STREAMS, "shop"): 1}


def test_streams_opened_too_fast_wait_their_turn_and_then_are_refused() -> None:
    quotas, clock = make(openings_per_s=10, streams_max=1_000)
    account = quotas.of(SHOP, FAR)
    waits_ms = [account.enter_stream() for _ in range(60)]
    assert waits_ms[:10] == [0] * 10
    assert waits_ms[10:] == [100 * turn for turn in range(1, 51)]
    with pytest.raises(ResourceExhausted, match=r"openings_per_s: at most 10 for shop, got: 61"):
        account.enter_stream()
    clock.advance(ms=100)
    assert account.enter_stream() == 5_000
    assert account.streams == 61


def test_who_waits_for_its_turn_lets_others_of_its_principal_be_closed() -> None:
    quotas, clock = make(openings_per_s=1)
    with contextlib.ExitStack() as stack:
        first = open_one(quotas, SHOP, stack)

        def open_another() -> None:
            with quotas.opening(SHOP, FAR):
                pass

        late = in_thread(open_another)
        until(clock.next_instant_us)
        first.closing()
        first.closed()
        assert not late.done()
        clock.advance(ms=1_000)
        late.result(SECONDS_MAX)


def test_streams_of_one_principal_are_opened_one_at_a_time() -> None:
    quotas, _ = make()
    inside = quotas.opening(SHOP, FAR)
    with inside:
        second = in_thread(lambda: quotas.opening(SHOP, FAR).__enter__().opened())
        with quotas.opening(MILL, FAR):
            pass
        assert not second.done()
        inside.opened()
        second.result(SECONDS_MAX)
        inside.closing()
        with quotas.opening(SHOP, FAR):  # one that is being closed holds up no opening
            pass


def test_of_many_that_are_closed_at_once_each_lets_others_work_for_a_while() -> None:
    quotas, clock = make()
    with contextlib.ExitStack() as stack:
        first, second = (open_one(quotas, SHOP, stack) for _ in range(2))
        first.closing()
        late = in_thread(second.closing)
        until(lambda: crowding.CROWDING._waiting)
        first.closed()
        until(clock.next_instant_us)
        assert not late.done()
        clock.advance(ms=module.CLOSING_PAUSE_MS)
        late.result(SECONDS_MAX)


def test_a_stream_that_is_refused_holds_nothing() -> None:
    quotas, _ = make(streams_max=1)
    with contextlib.ExitStack() as stack:
        open_one(quotas, SHOP, stack)
        for _ in range(3):
            with pytest.raises(ResourceExhausted):
                open_one(quotas, SHOP, stack)
    with contextlib.ExitStack() as stack:
        open_one(quotas, SHOP, stack)


# --- connections, rows, bytes ---------------------------------------------------------------------


def test_connections_of_an_address_are_counted() -> None:
    quotas, _ = make(connections_max=1)
    account = quotas.of_address("10.0.0.7")
    assert account.open_connection()
    assert not account.open_connection()
    refused = account.refused_connection()
    assert str(refused) == "quotas.connections_max: at most 1 for 10.0.0.7, got: 2"
    account.close_connection()
    assert account.open_connection()


def test_rows_over_the_rate_are_refused_until_they_fit() -> None:
    quotas, clock = make(rows_per_s=100)
    account = quotas.of(SHOP, FAR)
    account.take_sent(100, 0)
    with pytest.raises(ResourceExhausted) as caught:
        account.take_sent(50, 0)
    assert str(caught.value) == "quotas.rows_per_s: at most 100 for shop, got: 50"
    assert caught.value.retry_after_ms == 500
    quotas.of(MILL, FAR).take_sent(100, 0)
    clock.advance(ms=500)
    account.take_sent(50, 0)
    clock.advance(ms=1_000)
    account.take_sent(1_000, 0)  # a full bucket lets it in, and owes the rest
    clock.advance(ms=8_999)
    with pytest.raises(ResourceExhausted):
        account.take_sent(1, 0)


def test_bytes_over_the_rate_wait_until_they_fit() -> None:
    quotas, clock = make(bytes_per_s=100)
    account = quotas.of(SHOP, FAR)
    account.take_sent(1, 100)
    late = in_thread(lambda: account.take_sent(1, 50))
    until(clock.next_instant_us)
    quotas.of(MILL, FAR).take_sent(1, 100)
    clock.advance(ms=499)
    assert not late.done()
    clock.advance(ms=1)
    late.result(SECONDS_MAX)


def test_bytes_that_would_wait_too_long_are_refused_and_their_rows_are_given_back() -> None:
    quotas, clock = make(bytes_per_s=100, rows_per_s=10)
    account = quotas.of(SHOP, FAR)
    account.take_sent(0, 100 + 100 * (module.PATIENCE_MS // 1_000 + 1))  # a full bucket owes
    with pytest.raises(ResourceExhausted) as caught:
        account.take_sent(10, 1)
    assert str(caught.value) == "quotas.bytes_per_s: at most 100 for shop, got: 1"
    assert caught.value.retry_after_ms == 6_010
    clock.advance(ms=6_010)
    account.take_sent(10, 1)
    with pytest.raises(ResourceExhausted, match="rows_per_s"):
        account.take_sent(1, 0)


def test_bytes_over_http_do_not_wait() -> None:
    quotas, _ = make(bytes_per_s=100)
    account = quotas.of_address("10.0.0.7")
    account.take_sent(1, 100, wait=False)
    with pytest.raises(ResourceExhausted) as caught:
        account.take_sent(1, 1, wait=False)
    assert caught.value.retry_after_ms == 10


def test_bytes_wait_for_room_in_order() -> None:
    quotas, _ = make(bytes_in_flight_max=100)
    account = quotas.of(SHOP, FAR)
    account.hold_bytes(80)
    large = in_thread(lambda: account.hold_bytes(90))
    until(lambda: len(account._waiters) == 1)
    small = in_thread(lambda: account.hold_bytes(10))  # would fit, but came later
    until(lambda: len(account._waiters) == 2)
    quotas.of(MILL, FAR).hold_bytes(100)
    account.give_bytes(80)
    large.result(SECONDS_MAX)
    small.result(SECONDS_MAX)
    assert account.bytes_in_flight == 100


def test_bytes_that_find_no_room_in_time_are_refused() -> None:
    quotas, clock = make(bytes_in_flight_max=100)
    account = quotas.of(SHOP, FAR)
    account.hold_bytes(1_000)  # alone: it must come in some time
    late = in_thread(lambda: account.hold_bytes(1))
    until(clock.next_instant_us)
    clock.advance(ms=module.PATIENCE_MS)
    with pytest.raises(ResourceExhausted, match=r"bytes_in_flight_max: at most 100 for shop, got"):
        late.result(SECONDS_MAX)
    assert account.bytes_in_flight == 1_000
    account.give_bytes(1_000)
    account.hold_bytes(100)


def test_a_body_may_be_larger_alone_and_never_waits() -> None:
    quotas, _ = make(bytes_in_flight_max=100)
    account = quotas.of_address("10.0.0.7")
    account.hold_bytes(80, 0, wait=False)
    account.hold_bytes(80, 80, wait=False)
    with pytest.raises(ResourceExhausted):
        account.hold_bytes(1, 0, wait=False)
    account.give_bytes(160)
    assert account.is_idle


# --- refusals -------------------------------------------------------------------------------------


def test_refusals_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    quotas, clock = make(rows_per_s=1, streams_max=1)
    account = quotas.of(SHOP, FAR)
    account.take_sent(1, 0)
    with caplog.at_level(logging.WARNING, "dejaqueue.quotas"):
        for _ in range(1_000):
            with pytest.raises(ResourceExhausted):
                account.take_sent(1, 0)
        assert len(caplog.records) == 1
        clock.advance(ms=module.LOG_MS)
        account.take_sent(1, 0)
        with pytest.raises(ResourceExhausted):
            account.take_sent(1, 0)
    assert [getattr(record, "left_out", 0) for record in caplog.records] == [0, 999]
    assert caplog.records[1].getMessage().startswith("refused: quotas.rows_per_s: at most 1 for")
    assert quotas.refused.read() == {(ROWS, "shop"): 1_001}


def test_principals_beyond_a_hundred_are_counted_together() -> None:
    quotas, _ = make()
    for number in range(module.LABELS_MAX + 50):
        quotas.of_address(f"10.0.{number}.1").refused(STREAMS, 1, 2)
    found = quotas.refused.read()
    assert len(found) == module.LABELS_MAX + 1
    assert found[STREAMS, module.OTHERS] == 50


def test_accounts_with_nothing_open_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRINCIPALS_MAX", 5)
    quotas, _ = make()
    kept = quotas.of_address("10.9.9.9")
    kept.open_connection()
    for number in range(100):
        quotas.of_address(f"10.0.0.{number}")
        assert len(quotas._accounts) <= 5
    assert quotas.of_address("10.9.9.9") is kept


def test_a_bucket_goes_ahead_of_itself_only_as_far_as_it_may() -> None:
    bucket = Bucket()
    assert bucket.take(10, 10, 0) == (True, 0)
    assert bucket.take(10, 1, 0) == (False, 100)
    assert bucket.take(10, 1, 0, 100) == (True, 100)
    assert bucket.take(10, 1, 0, 100) == (False, 200)
    assert bucket.take(10, 11, 1_100_000) == (True, 0)


def test_what_was_refused_lately_is_told__the_most_often_first__and_forgotten() -> None:
    quotas, clock = make(streams_max=1, percents={"mill": 1})
    assert quotas.lately() == []
    now_ms = clock.utc_ms()
    for principal, count in ((SHOP, 1), (MILL, 3)):
        account = quotas.of(principal, FAR)
        for _ in range(count):
            with pytest.raises(ResourceExhausted):
                raise account.refused(STREAMS, account.limit(STREAMS), 2)
    mill, shop = quotas.lately()
    assert (mill["principal"], mill["quota"], mill["count"]) == ("mill", STREAMS, 3)
    assert mill["limit"] == quotas.limit(STREAMS, "mill")
    assert shop == {
        "principal": "shop", "quota": STREAMS, "limit": 1, "count": 1, "last_ms": now_ms,
    }  # fmt: skip
    clock.advance(ms=(LATELY_MINUTES - 1) * 60_000)
    assert len(quotas.lately()) == 2
    quotas.of(SHOP, FAR).refused(STREAMS, 1, 2)
    clock.advance(ms=60_000)
    [left] = quotas.lately()
    assert (left["principal"], left["count"]) == ("shop", 1), "those of the first minute are over"
    clock.advance(ms=LATELY_MINUTES * 60_000)
    assert quotas.lately() == []
    assert quotas.refused.read()[STREAMS, "shop"] == 2, "the totals of the metrics stay"
