"""Dead letters over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.http.conftest import Api

PLACE = "/v1/topics/t.dead/dead-letters"


@pytest.fixture(autouse=True)
def _letters(api: Api) -> None:
    """Two letters: one that was refused for a reason, one for another."""
    for reason in ("first", "second"):
        api.send(reason, headers={"own": "yes"}, key=reason)
        assert api.settle("nack", api.lease(wait_ms=10_000), dead=True, reason=reason) == ["OK"]
    for _ in range(10_000):
        found = api.broker.call("stats")["topics"].get("t.dead", {"scheduled": 0})
        if found["scheduled"] == 2:
            return
    pytest.fail("the letters did not arrive")


def test_letters_say_how_they_died(api: Api) -> None:
    found = api.get(PLACE)["messages"]
    assert sorted(letter["death"]["reason"] for letter in found) == ["first", "second"]
    [letter] = api.get(PLACE, reason="second")["messages"]
    assert letter["payload"] == "second"
    assert letter["headers"] == {"own": "yes"}
    assert letter["death"]["origin"] == "t"
    assert letter["death"]["attempts"] == "1"


def test_letters_go_back(api: Api) -> None:
    assert api.post(f"{PLACE}/redrive", {"reason": "first"})["moved"] == 1
    [back] = api.lease(wait_ms=10_000)
    assert (back["payload"], back["attempt"], back["headers"]) == ("first", 1, {"own": "yes"})


def test_letters_are_thrown_away(api: Api) -> None:
    ids = [letter["id"] for letter in api.get(PLACE)["messages"]]
    found = api.post(f"{PLACE}/purge", {"ids": ids[:1]})
    assert found == {"moved": 1, "left": 0, "next": None}
    assert api.post(f"{PLACE}/purge", {})["moved"] == 1
    assert api.get(PLACE)["messages"] == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("redrive", {"other": 1}, "other"),
        ("redrive", {"to": "t.dead"}, "to"),
        ("redrive", {"ids": "1"}, "ids"),
        ("redrive", {"ids": ["x"]}, "ids"),
        ("purge", {"to": "t"}, "to"),
        ("purge", {"after": "?"}, "after"),
        ("purge", {"limit": -1}, "limit"),
    ],
)
def test_what_is_wrong_is_named(api: Api, path: str, body: Any, field: str) -> None:
    assert api.post(f"{PLACE}/{path}", body, status=400)["field"] == field
