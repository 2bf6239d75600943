"""One message as a row; futures of many answers."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.client.sending.gather import Gathered
from dejaqueue.client.sending.sent import AwaitableFuture, Sent, joined, result_of, row_of
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.wire.frames import Reply

NOON_MS = 1_767_268_800_000
DEFAULTS: dict[str, Any] = {
    "due": None,
    "delay": None,
    "key": None,
    "group": "",
    "priority": None,
    "tags": (),
    "headers": None,
    "now_ms": 1_000,
}


def made(payload: Any = b"x", **values: Any) -> Any:
    return row_of(payload, **{**DEFAULTS, **values})


def test_a_plain_message_has_few_columns() -> None:
    assert made() == ((b"x", None, None, "", 32_768, None, None, None), (False, False))
    assert made(due=NOON_MS)[1] == (True, False)
    assert made(delay=2) == ((b"x", 3_000, None, "", 32_768, None, None, None), (True, False))


def test_everything() -> None:
    row, kind = made("x", key="k", group="g", priority=0, tags=("t",), headers={"a": "b"})
    assert kind == (False, True)
    assert row == (b"x", None, "k", "g", 0, ["t"], [("a", "b")], None)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"due": NOON_MS, "delay": 1}, "delay"),
        ({"key": 5}, "key"),
        ({"group": 5}, "group"),
        ({"tags": "red"}, "tags"),
        ({"due": "soon"}, "due"),
        ({"due": NOON_MS // 1_000}, "due"),
        ({"key": ""}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"payload": "\ud800"}, "payload"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 65_536}, "priority"),
        ({"tags": [1]}, "tags[0]"),
        ({"tags": {"a": "b"}}, "tags"),
        ({"headers": {"a": 1}}, "headers['a']"),
        ({"headers": {1: "a"}}, "name in headers"),
        ({"headers": "a"}, "headers"),
        ({"payload": None}, "payload"),
    ],
)
def test_bad_messages(values: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        made(**values)
    assert caught.value.field == field


def test_answers_are_joined_in_order() -> None:
    answers: list[Future[Reply]] = [Future(), Future()]
    whole = joined(answers)
    answers[1].set_result(Reply(2, 2, 50))
    assert not whole.done()
    answers[0].set_result(Reply(1, 3, 10))
    assert whole.result().ids.tolist() == [10, 11, 12, 50, 51]
    assert whole.result().ok


def test_one_failure_fails_the_whole() -> None:
    answers: list[Future[Reply]] = [Future(), Future()]
    whole = joined(answers)
    answers[0].set_exception(Unavailable("gone"))
    answers[1].set_result(Reply(2, 2, 50))
    assert isinstance(whole.exception(), Unavailable)


def test_nothing_sent_is_nothing_answered() -> None:
    assert len(joined([]).result()) == 0
    assert result_of([]).ok


def test_futures_can_be_awaited() -> None:
    gathered = Gathered()
    gathered.future = AwaitableFuture()
    gathered.reply = Reply(1, 2, 40)
    sent = Sent(gathered, 1)
    assert not sent.done()

    async def main() -> int:
        asyncio.get_running_loop().call_soon(gathered.wake)
        return await sent

    assert asyncio.run(main()) == 41
    assert sent.done()
    assert sent.result(0) == 41
