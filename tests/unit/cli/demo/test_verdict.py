"""The verdict: each way in which a broker could be wrong is found, and counted as what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.cli.demo.consumer import RECEIVED
from dejaqueue.cli.demo.plan import make_plan
from dejaqueue.cli.demo.verdict import NOT_TOLD, UNSURE, Verdict, judge
from dejaqueue.model import RowStatus
from tests.cli.small_flights import small_flights

START_MS = 1_000_000
FLIGHTS = small_flights()
PLAN = make_plan(FLIGHTS, 10_000, notice_minutes=20, notice_ms_min=50)
OK = [NOT_TOLD, RowStatus.OK, RowStatus.OK, RowStatus.OK, NOT_TOLD]


def delivery(
    name: str, due_ms: int, late_us: int = 300, attempt: int = 1, **changed: Any
) -> dict[str, Any]:
    """A delivery of flight `name`, due so long after the start."""
    return {
        "key": name,
        "due": START_MS + due_ms,
        "attempts": attempt,
        "payload": f'{{"flight":"{name}"}}'.encode(),
        "received_us": (START_MS + due_ms) * 1_000 + late_us,
        "acked": True,
    } | changed


def good() -> list[dict[str, Any]]:
    """What a correct broker delivers: B late, C early, D not at all."""
    return [
        delivery("A", 0),
        delivery("B", 1_500),
        delivery("C", 1_900),
        delivery("E", 10_000, late_us=1_000),
    ]


def verdict_of(
    received: list[dict[str, Any]], statuses: list[int] | None = None, *, killed: bool = False
) -> Verdict:
    told = np.array(OK if statuses is None else statuses, dtype=np.uint8)
    table = pa.Table.from_pylist(received, schema=RECEIVED)
    return judge(FLIGHTS, PLAN, START_MS, told, table, killed=killed)[0]


def wrongs(verdict: Verdict) -> dict[str, int | float]:
    """The figures that are neither 0 nor those of a good run."""
    expected = verdict_of(good()).figures()
    return {
        name: value
        for name, value in verdict.figures().items()
        if value != expected[name] and "ms" not in name and "second" not in name
    }


def test_good_run() -> None:
    verdict = verdict_of(good())
    assert verdict.is_good
    assert (verdict.scheduled, verdict.moved, verdict.cancelled) == (5, 2, 1)
    assert verdict.delivered == 4
    assert verdict.lateness_p50_ms == 0.3
    assert verdict.lateness_max_ms == 1.0
    assert verdict.messages_per_second == pytest.approx(0.4, rel=0.01)


def test_message_that_did_not_arrive_is_lost() -> None:
    verdict = verdict_of(good()[1:])
    assert wrongs(verdict) == {"delivered": 3, "lost": 1}
    assert not verdict.is_good


def test_message_that_arrived_a_microsecond_before_its_time_is_early() -> None:
    verdict = verdict_of([delivery("A", 0, late_us=-1), *good()[1:]])
    assert wrongs(verdict) == {"early": 1}
    assert not verdict.is_good


def test_message_that_arrived_at_its_time_is_not_early() -> None:
    assert verdict_of([delivery("A", 0, late_us=0), *good()[1:]]).early == 0


def test_moved_message_at_its_old_time_is_early_and_wrong() -> None:
    received = good()
    received[1] = delivery("B", 1_000)
    verdict = verdict_of(received)
    assert wrongs(verdict) == {"early": 1, "wrong_due": 1}
    assert not verdict.is_good


def test_message_that_comes_twice_is_a_duplicate() -> None:
    verdict = verdict_of([*good(), delivery("A", 500, attempt=2)])
    assert wrongs(verdict) == {"duplicate": 1}
    assert not verdict.is_good


def test_after_a_kill__again_before_its_ack_was_confirmed_is_redelivered() -> None:
    received = [*good(), delivery("A", 5_000, attempt=2)]
    received[0]["acked"] = False
    verdict = verdict_of(received, killed=True)
    assert wrongs(verdict) == {"redelivered": 1}
    assert verdict.is_good


def test_after_a_kill__again_after_its_ack_was_confirmed_is_a_duplicate() -> None:
    verdict = verdict_of([*good(), delivery("A", 5_000, attempt=2)], killed=True)
    assert wrongs(verdict) == {"duplicate": 1}
    assert not verdict.is_good


def test_cancelled_message_that_arrives_is_resurrected() -> None:
    verdict = verdict_of([*good(), delivery("D", 3_000)])
    assert wrongs(verdict) == {"delivered": 5, "resurrected": 1}
    assert not verdict.is_good


@pytest.mark.parametrize("answer", [RowStatus.LEASED, RowStatus.NOT_FOUND])
def test_cancel_that_came_too_late_has_to_be_delivered(answer: RowStatus) -> None:
    statuses = [*OK[:3], answer, NOT_TOLD]
    verdict = verdict_of([*good(), delivery("D", 3_000)], statuses)
    assert wrongs(verdict) == {"delivered": 5, "cancelled": 0, "cancelled_too_late": 1}
    assert verdict.is_good
    assert verdict_of(good(), statuses).lost == 1


def test_move_that_came_too_late_has_to_be_delivered_at_its_old_time() -> None:
    statuses = [NOT_TOLD, RowStatus.LEASED, *OK[2:]]
    received = good()
    received[1] = delivery("B", 1_000)
    verdict = verdict_of(received, statuses)
    assert wrongs(verdict) == {"moved": 1, "moved_too_late": 1}
    assert verdict.is_good


def test_wrong_payload_is_found() -> None:
    verdict = verdict_of([delivery("A", 0, payload=b'{"flight":"B"}'), *good()[1:]])
    assert wrongs(verdict) == {"wrong_payload": 1}
    assert not verdict.is_good


def test_message_that_nobody_sent_is_found() -> None:
    verdict = verdict_of([*good(), delivery("Z", 0), delivery("A", 0, key=None)])
    assert wrongs(verdict) == {"unknown": 2}
    assert not verdict.is_good


def test_cancel_of_which_nobody_knows_is_told_by_what_arrived() -> None:
    statuses = [*OK[:3], UNSURE, NOT_TOLD]
    assert wrongs(verdict_of(good(), statuses, killed=True)) == {}
    late = verdict_of([*good(), delivery("D", 3_000)], statuses, killed=True)
    assert wrongs(late) == {"delivered": 5, "cancelled": 0, "cancelled_too_late": 1}
    assert late.is_good


@pytest.mark.parametrize("due_ms", [1_000, 1_500])
def test_move_of_which_nobody_knows_may_have_either_time(due_ms: int) -> None:
    received = good()
    received[1] = delivery("B", due_ms)
    verdict = verdict_of(received, [NOT_TOLD, UNSURE, *OK[2:]], killed=True)
    assert wrongs(verdict) == {"moved": 1, "moved_too_late": 1}
    assert verdict.is_good


def test_nothing_received_at_all_is_all_lost() -> None:
    verdict = verdict_of([])
    assert (verdict.delivered, verdict.lost) == (0, 4)
    assert not verdict.is_good


def test_report_is_one_name_and_value_a_line() -> None:
    lines = verdict_of(good()).lines()
    assert lines[:4] == ["scheduled 5", "moved 2", "cancelled 1", "delivered 4"]
    assert "lateness_p99.9_ms 0.998" in lines
    assert all(len(line.split(" ")) == 2 for line in lines)
