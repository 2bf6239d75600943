"""Lines of the audit log: whole, one each, without secrets, not too many."""

from __future__ import annotations

import logging

import pytest

from dejaqueue.access import audit
from dejaqueue.errors import BadRequest, Forbidden, Unauthenticated
from dejaqueue.log_rate import LogRate
from dejaqueue.testing.virtual_clock import VirtualClock

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(autouse=True)
def log(
    caplog: pytest.LogCaptureFixture, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(audit, "_rate", LogRate(audit.LINES_PER_SECOND_MAX, 1.0))
    monkeypatch.setattr(audit, "_clock", clock)
    caplog.set_level(logging.INFO, "dejaqueue.audit")
    return caplog


def test_a_line_has_all_facts_as_text_and_as_fields(log: pytest.LogCaptureFixture) -> None:
    audit.record("root", "ipv4:10.0.0.1:5", "delete_topic", "orders", "done", dry_run=False)
    [record] = log.records
    assert record.getMessage() == (
        'principal="root" peer="ipv4:10.0.0.1:5" action="delete_topic" topic="orders" '
        'outcome="done" dry_run=false'
    )
    assert record.audit["dry_run"] is False  # type: ignore[attr-defined]


def test_texts_of_callers_stay_in_their_place(log: pytest.LogCaptureFixture) -> None:
    audit.record("r", "p", "a", 'x"\noutcome="done"', "Refused", grants=["y" * 10_000])
    text = log.records[0].getMessage()
    assert "\n" not in text
    assert len(text) < 1_000


def test_a_key_in_a_wrong_place_is_not_written(log: pytest.LogCaptureFixture) -> None:
    key = f"dq_0a1b2c3d4e5f_{SECRET}"
    for action in ("create_key", "revoke_key"):
        more = audit.facts(action, {"name": key, "key": key, "grants": [key], "secret": key})
        audit.record("r", "p", action, key, "Refused", **more)
    assert len(log.records) == 2
    assert SECRET not in log.text
    assert "dq_0a1b2c3d4e5f_***" in log.text


def test_what_a_block_does_is_recorded(log: pytest.LogCaptureFixture) -> None:
    more: dict[str, object] = {}
    with audit.recorded("r", "p", "create_key", "", always=True, more=more):
        more["key_id"] = "5"
    with audit.recorded("r", "p", "peek", "a"):
        pass
    for error in (Forbidden("no"), BadRequest("a", "b")):
        for always in (True, False):
            with pytest.raises(type(error)), audit.recorded("r", "p", "x", "", always=always):
                raise error
    found = [(one.audit["action"], one.audit["outcome"]) for one in log.records]  # type: ignore[attr-defined]
    assert found == [
        ("create_key", "done"),
        ("x", "Forbidden"),
        ("x", "Forbidden"),
        ("x", "BadRequest"),
    ]
    assert "key_id" in log.records[0].getMessage()


def test_strangers_do_not_fill_the_log(log: pytest.LogCaptureFixture, clock: VirtualClock) -> None:
    most, wrong = audit.LINES_PER_SECOND_MAX, Unauthenticated("no")
    for _ in range(most + 7):
        audit.refused(audit.NOBODY, "p", "x", "", wrong)
    assert len(log.records) == most
    audit.refused("known", "p", "x", "", Forbidden("no"))
    audit.record("root", "p", "delete_topic", "a", "done")
    assert len(log.records) == most + 2, "those with a key are still written down"
    clock.advance(ms=1_000)
    audit.refused(audit.NOBODY, "p", "x", "", wrong)
    assert [one.getMessage() for one in log.records[-2:]] == [
        'principal="unknown" outcome="left out" refused=7',
        'principal="unknown" peer="p" action="x" topic="" outcome="Unauthenticated"',
    ]


def test_calls_that_fail_do_not_fill_the_log_and_those_that_are_done_all_count(
    log: pytest.LogCaptureFixture,
) -> None:
    most = audit.LINES_PER_SECOND_MAX
    for _ in range(2 * most):
        with pytest.raises(BadRequest), audit.recorded("m", "p", "create_topic", "", always=True):
            raise BadRequest("name", "a name")
    assert len(log.records) == most
    for _ in range(2 * most):
        with audit.recorded("m", "p", "delete_topic", "a", always=True):
            pass
    assert len(log.records) == 3 * most
