"""What moto's server answers beside ours: the same, but for what the guide says.

moto is what many programs' tests know as SQS. Generated calls of the common operations, and a call
for each row of the guide's table, so none can go stale.
Not covered: operations that moto has not (message move tasks); what takes time (delays, ends of
visibility timeouts): tests/unit/http/sqs on a virtual clock.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.sqs.beside import Call, Generated, Side, fifo_calls
from tests.sqs.conftest import CONFIG
from tests.sqs.differences import (
    ANY_KEY,
    HIGH,
    NOT_IN_FLIGHT,
    SENT,
    SET,
    TAKE,
    TAKE_FIFO,
    TAKEN,
    WRONG,
    WRONG_NAME,
    WRONG_VALUE,
    Row,
    attribute,
    check_difference,
    check_guide,
    check_run,
    make,
    put,
    send,
    visible,
)

CALLS, SEEDS = 60, 3
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def moto() -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    url = f"http://127.0.0.1:{port}"
    client = boto3.client(
        "sqs", endpoint_url=url, region_name="eu-west-1", config=CONFIG, **ANY_KEY
    )
    yield client
    client.close()
    server.stop()


@pytest.fixture
def sides(sqs: Any, moto: Any) -> tuple[Side, Side]:
    """Ours and moto's, without the queues of the test before."""
    prefix = f"beside-{next(_numbers)}-"
    return Side(sqs, prefix), Side(moto, prefix)


SHOWN: list[Row] = [
    ("values of attributes out of bounds", [make(VisibilityTimeout="43201")], TAKEN, WRONG_VALUE),
    ("values of attributes out of bounds", [make(MessageRetentionPeriod="5")], TAKEN, WRONG_VALUE),
    ("names of attributes that are unknown, or fixed", [make(Colour="1")], TAKEN, WRONG_NAME),
    (
        "names of attributes that are unknown, or fixed",
        [make(), Call(SET, {"Attributes": {"QueueArn": "x"}})],
        TAKEN,
        WRONG_NAME,
    ),
    (
        "names of attributes that are unknown, or fixed",
        [make(), send("a"), Call("receive_message", {"AttributeNames": ["Colour"]})],
        ["a"],
        WRONG_NAME,
    ),
    (
        "`FifoThroughputLimit` by group without the scope",
        [make("q.fifo", FifoThroughputLimit="perMessageGroupId")],
        TAKEN,
        WRONG_VALUE,
    ),
    (
        "`FifoQueue` for a name without `.fifo`",
        [make(FifoQueue="true")],
        WRONG,
        WRONG_VALUE,
    ),
    ("no attributes to set", [make(), Call(SET, {"Attributes": {}})], TAKEN, "MissingParameter"),
    ("a body that is empty, or no XML", [make(), send("")], SENT, WRONG),
    ("a body that is empty, or no XML", [make(), send("\1")], SENT, "InvalidMessageContents"),
    (
        "attributes of a message: wrong values",
        [make(), send("a", **attribute(DataType="Number", StringValue="x"))],
        SENT,
        WRONG,
    ),
    (
        "attributes of a message: wrong values",
        [make(), send("a", **attribute(DataType="String", StringValue=""))],
        SENT,
        WRONG,
    ),
    (
        "a deduplication id for a standard queue",
        [make(), send("a", MessageDeduplicationId="d")],
        SENT,
        WRONG,
    ),
    ("ids of groups and deduplication", [make("q.fifo"), put("a", "two words")], SENT, WRONG),
    ("ids of groups and deduplication", [make("q.fifo"), put("a", "g" * 129)], SENT, WRONG),
    (
        "a negative `VisibilityTimeout`",
        [make(), send("a"), Call("receive_message", {"VisibilityTimeout": -1})],
        ["a"],
        WRONG,
    ),
    (
        "the timeout of a message that is deleted",
        [make(), send("a"), TAKE, Call("delete_message", receipt="a"), visible("a", 5)],
        "ReceiptHandleIsInvalid",
        NOT_IN_FLIGHT,
    ),
    (
        "the timeout of a message that nobody holds any more",
        [make(), send("a"), TAKE, visible("a", 0), visible("a", 5)],
        TAKEN,
        NOT_IN_FLIGHT,
    ),
    (
        "an empty `ChangeMessageVisibilityBatch`",
        [make(), Call("change_message_visibility_batch", {"Entries": []})],
        TAKEN,
        "AWS.SimpleQueueService.EmptyBatchRequest",
    ),
    (
        "a second purge",
        [make(), Call("purge_queue"), Call("purge_queue")],
        "AWS.SimpleQueueService.PurgeQueueInProgress",
        TAKEN,
    ),
    (
        "no tags, no names of tags",
        [make(), Call("tag_queue", {"Tags": {}})],
        "MissingParameter",
        TAKEN,
    ),
    ("no tags, no names of tags", [make(), Call("untag_queue", {"TagKeys": []})], WRONG, TAKEN),
    (
        "`AddPermission` for an unknown action, on a broker without keys",
        [
            make(),
            Call(
                "add_permission",
                {"Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["Fly"]},
            ),
        ],
        WRONG,
        TAKEN,
    ),
    (
        "FIFO: a deduplication id whose message was deleted",
        [
            make("q.fifo"),
            put("a", name="n"),
            TAKE_FIFO,
            Call("delete_message", {}, "q.fifo", "a"),
            put("b", name="n"),
            TAKE_FIFO,
        ],
        ["b"],
        [],
    ),
    (
        "FIFO: `DeduplicationScope` by group",
        [make("q.fifo", **HIGH), put("a", "g", "n"), put("b", "h", "n"), TAKE_FIFO],
        ["a"],
        ["a", "b"],
    ),
]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_generated_calls_have_the_same_answers(seed: int, sides: tuple[Side, Side]) -> None:
    calls, told = Generated(random.Random(seed)), []
    for number in range(CALLS):
        call = make() if number == 0 else calls.next()
        here, there = (side.call(call) for side in sides)
        told.append(f"{call}")
        assert here == there, "\n".join(["here, then there, of the last of these:", *told])
    assert calls.count > 10, "it came far enough to prove something"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_generated_calls_of_a_fifo_queue(seed: int, sides: tuple[Side, Side]) -> None:
    calls = [make("q.fifo"), *fifo_calls(random.Random(seed), CALLS)]
    for number, call in enumerate(calls):
        here, there = (side.call(call) for side in sides)
        assert here == there, "\n".join(["of the last of these:", *map(str, calls[: number + 1])])


@pytest.mark.parametrize("row", SHOWN, ids=[row[0] for row in SHOWN])
def test_a_difference_is_as_the_guide_says(row: Row, sides: tuple[Side, Side]) -> None:
    check_difference(row, sides)


def test_a_run_of_a_group_is_given_and_let_go_as_there(sides: tuple[Side, Side]) -> None:
    check_run(sides)


def test_the_guide_names_these_differences_and_no_others() -> None:
    check_guide("## Beside moto's server", SHOWN)
