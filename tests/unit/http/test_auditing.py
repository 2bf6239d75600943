"""Which requests leave a line in the audit log, and what is in it.

Not covered: how a line is written (tests/unit/access/test_audit.py), who is let in
(tests/integration/test_access.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Request

from dejaqueue.access import audit
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.errors import BadRequest, Forbidden
from dejaqueue.http import auditing

Lines = list[dict[str, Any]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    found: Lines = []

    def record(who: str, peer: str, action: str, topic: str, outcome: str, **more: object) -> None:
        found.append({"peer": peer, "action": action, "topic": topic, "outcome": outcome, **more})

    def some(kind: str, *values: str, **more: object) -> None:
        who, peer, action, topic, outcome = values
        record(who, peer, action, topic, outcome, kind=kind, **more)

    monkeypatch.setattr(audit, "record", record)
    monkeypatch.setattr(audit, "record_some", some)
    return found


def scope_of(method: str, path: str, **more: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "client": ("10.0.0.1", 5), **more}


def test_what_administers_leaves_a_line_with_its_topic_and_facts(lines: Lines) -> None:
    scope = scope_of("DELETE", "/v1/topics/t", path_params={"topic": "t"})
    scope["route"] = type("Route", (), {"path": "/v1/topics/{topic}"})
    auditing.note(Request(scope), count=3)
    auditing.record(scope, 200)
    [line] = lines
    assert (line["topic"], line["outcome"], line["count"]) == ("t", "done", 3)
    assert (line["peer"], line["action"]) == ("10.0.0.1:5", "DELETE /v1/topics/{topic}")


def test_what_does_not_administer_leaves_none__unless_it_says_so(lines: Lines) -> None:
    scope = scope_of("GET", "/v1/topics")
    auditing.record(scope, 200)
    assert lines == []
    auditing.note_administers(Request(scope))
    auditing.record(scope, 200)
    assert [line["outcome"] for line in lines] == ["done"]


def test_a_failure_is_called_by_its_error__or_by_its_status(lines: Lines) -> None:
    scope = scope_of("POST", "/v1/keys")
    auditing.record(scope, 422)
    auditing.note_error(scope, BadRequest("name", "a text", 5))
    auditing.record(scope, 400)
    assert [(line["outcome"], line["kind"]) for line in lines] == [
        ("422", "failed"),
        ("BadRequest", "failed"),
    ]


def test_a_refusal_is_written_at_once__and_once(lines: Lines) -> None:
    scope = scope_of("POST", "/v1/keys")
    auditing.note_error(scope, Forbidden("no"))
    assert [(line["outcome"], line["kind"]) for line in lines] == [("Forbidden", "refused")]
    auditing.record(scope, 403)
    assert len(lines) == 1


def test_a_topic_that_is_noted_stands_for_the_one_of_the_path(lines: Lines) -> None:
    scope = scope_of("POST", "/v1/keys", path_params={"topic": "t"})
    auditing.note(Request(scope), topic="u")
    auditing.record(scope, 200)
    assert [line["topic"] for line in lines] == ["u"]


def test_who_has_no_address_is_nobody_s_neighbour(lines: Lines) -> None:
    scope = scope_of("POST", "/v1/keys") | {"client": None}
    auditing.record(scope, 200)
    assert lines[0]["peer"] == f"{audit.NOBODY}:0"


def test_a_caller_is_known_by_a_certificate_only_without_a_key() -> None:
    assert not auditing.is_by_certificate({})
    assert not auditing.is_by_certificate({auditing.PRINCIPAL: EVERYBODY})
