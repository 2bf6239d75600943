"""What tests of ours beside another server share: calls, and rows of the guide that they show.

Not covered: the servers, and the rows: test_beside_moto.py, test_beside_elasticmq.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tests.sqs.beside import RECEIVE, Call, Side

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/moving-from-sqs.md"
ANY_KEY = {"aws_access_key_id": "any", "aws_secret_access_key": "thing"}
Row: TypeAlias = tuple[str, list[Call], Any, Any]
"""The row of the guide; calls; what the other server answers the last of them, and we: a code, a
type, or the bodies of messages."""


def make(name: str = "q", **attributes: str) -> Call:
    if name.endswith(".fifo"):
        attributes["FifoQueue"] = "true"
    return Call("create_queue", {"QueueName": f"@{name}", "Attributes": attributes}, "")


def send(body: str, **more: Any) -> Call:
    return Call("send_message", {"MessageBody": body, **more})


def put(body: str, group: str = "g", name: str = "") -> Call:
    named = {"MessageGroupId": group, "MessageDeduplicationId": name or body}
    return Call("send_message", {"MessageBody": body, **named}, "q.fifo")


def visible(body: str, seconds: int, queue: str = "q") -> Call:
    return Call("change_message_visibility", {"VisibilityTimeout": seconds}, queue, body)


def attribute(**value: str) -> dict[str, Any]:
    return {"MessageAttributes": {"name": value}}


TAKE, TAKE_FIFO = Call("receive_message", RECEIVE), Call("receive_message", RECEIVE, "q.fifo")
HIGH = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
SET = "set_queue_attributes"
WRONG_VALUE, WRONG_NAME = "InvalidAttributeValue", "InvalidAttributeName"
WRONG = "InvalidParameterValue"
SENT = TAKEN = dict
NOT_IN_FLIGHT = "AWS.SimpleQueueService.MessageNotInflight"


def check_difference(row: Row, sides: tuple[Side, Side]) -> None:
    """Make the calls of a row at both; here is first."""
    _, calls, there, here = row
    for side, expected in zip(sides, (here, there), strict=True):
        for call in calls[:-1]:
            assert not isinstance(side.call(call), str), call
        answer = side.call(calls[-1])
        assert _is_as_said(answer, expected), answer


def _is_as_said(answer: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return [one["Body"] for one in answer.get("Messages", [])] == expected
    return answer == expected if isinstance(expected, str) else isinstance(answer, expected)


def check_run(sides: tuple[Side, Side]) -> None:
    """Three of one group in one receive: the second is deleted, the first let go, the third deleted
    at last. Nothing comes of the group before that, then the first, and what was behind."""
    take_three = Call("receive_message", RECEIVE | {"MaxNumberOfMessages": 3}, "q.fifo")
    story = [
        *((call, "") for call in (make("q.fifo"), *map(put, "abcd"))),
        (take_three, "abc"),
        (TAKE_FIFO, ""),
        (Call("delete_message", {}, "q.fifo", "b"), ""),
        (visible("a", 0, "q.fifo"), ""),
        (TAKE_FIFO, ""),
        (Call("delete_message", {}, "q.fifo", "c"), ""),
        (TAKE_FIFO, "ad"),
    ]
    for side in sides:
        for call, bodies in story:
            answer = side.call(call)
            assert not isinstance(answer, str), (call, answer)
            assert "".join(side.received) == bodies, call


def check_guide(heading: str, shown: Sequence[Row]) -> None:
    """Check that the guide names these rows below a heading, and no others."""
    text = GUIDE.read_text(encoding="utf-8").partition(heading)[2]
    rows = re.findall(r"^\| ([^|]+?) \|", text.partition("\n## ")[0], re.MULTILINE)[1:]
    assert sorted(rows) == sorted({name for name, *_ in shown})
