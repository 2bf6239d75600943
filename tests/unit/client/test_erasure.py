"""What a client makes of an erasure's answers.

Here: the body, pages, dead-letter topics. Not here: what the broker does
(tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client.erasure import check_erase, erase
from dejaqueue.errors import BadRequest, TopicUnknown

SUMS = dict.fromkeys(("found", "ended", "held", "segments", "bytes", "payloads", "changes"), 0)
LAST = {"next": None, "took_ms": 7, "letters": ["orders.dead"], "backups": [], "unread": []}


class Answers:
    """Answers in order, and what was asked."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        self.asked.append((name, body))
        future: Future[dict[str, Any]] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        raise AssertionError(f"asked for rows of {ticket}")


def test_it_goes_on_until_all_is_gone__and_to_the_dead_letters() -> None:
    broker = Answers(
        SUMS | {"next": {"partition": 1}},
        SUMS | LAST | {"found": 2, "backups": [{"id": "b"}]},
        SUMS | LAST | {"found": 1, "backups": [{"id": "b"}], "left": ["history of it"]},
    )
    erased = erase(broker, {"topic": "orders", "keys": ["k"]}, letters=True)
    assert (erased.found, erased.took_ms, erased.backups) == (3, 14, ({"id": "b"},))
    assert erased.left == ("history of it",)
    assert [body.get("after") for _, body in broker.asked] == [None, {"partition": 1}, None]
    assert broker.asked[-1][1] == {
        "topic": "orders.dead", "origin": "orders", "keys": ["k"], "after": None,
    }  # fmt: skip


def test_a_topic_without_dead_letters_has_none_to_erase() -> None:
    broker = Answers(SUMS | LAST | {"found": 2}, TopicUnknown("orders.dead"))
    assert erase(broker, {"topic": "orders", "keys": ["k"]}, letters=True).found == 2
    assert erase(Answers(SUMS | LAST), {"topic": "orders"}, letters=False).found == 0


def test_the_body_names_keys_or_selects() -> None:
    assert check_erase("orders", ["k"], None, {}) == {"topic": "orders", "keys": ["k"]}
    assert check_erase("orders", None, [7, 8], {}) == {"topic": "orders", "ids": [7, 8]}
    assert check_erase("orders", None, None, {"group": "g"}) == {"topic": "orders", "group": "g"}
    for keys, ids, where in (
        (None, None, {}),
        (["k"], None, {"group": "g"}),
        (None, [7], {"group": "g"}),
        (["k"], [7], {}),
        (None, ["a"], {}),
        (None, None, {"state": "ready"}),
    ):
        with pytest.raises(BadRequest):
            check_erase("orders", keys, ids, where)  # type: ignore[arg-type]
