"""What ElasticMQ answers beside us: the same, but for what the guide says.

Skipped where it is not installed: scripts/install_peers.sh has Maven fetch it for the benchmark,
which no other test needs.
Not covered: what takes time (delays, ends of visibility timeouts).
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from bench.systems.sqs import OUT, start_elasticmq
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
    make,
    put,
    send,
    visible,
)

pytestmark = pytest.mark.may_skip
CALLS, SEEDS = 40, 2
OLDER = "AWS.SimpleQueueService."
INVALID_RECEIPT = "ReceiptHandleIsInvalid"
_numbers = itertools.count(1)

SHOWN: list[Row] = [
    ("values of attributes out of bounds", [make(VisibilityTimeout="43201")], TAKEN, WRONG_VALUE),
    ("names of attributes that are unknown", [make(Colour="1")], TAKEN, WRONG_NAME),
    (
        "names of attributes that are unknown",
        [make(), Call("get_queue_attributes", {"AttributeNames": ["Colour"]})],
        TAKEN,
        WRONG_NAME,
    ),
    ("no attributes to set", [make(), Call(SET, {"Attributes": {}})], TAKEN, "MissingParameter"),
    ("codes of wrong values", [make(), send("")], WRONG_VALUE, WRONG),
    (
        "codes of wrong values",
        [make(), send("a", **attribute(DataType="Number", StringValue="x"))],
        WRONG_VALUE,
        WRONG,
    ),
    (
        "codes of wrong values",
        [make(), Call("receive_message", {"MaxNumberOfMessages": 11})],
        WRONG_VALUE,
        WRONG,
    ),
    (
        "codes without their older name",
        [make(), Call("receive_message", {}, "away")],
        "QueueDoesNotExist",
        f"{OLDER}NonExistentQueue",
    ),
    (
        "ids of a batch's entries",
        [
            make(),
            Call("send_message_batch", {"Entries": [{"Id": "no!", "MessageBody": "x"}]}),
        ],
        SENT,
        f"{OLDER}InvalidBatchEntryId",
    ),
    (
        "an empty batch",
        [make(), Call("send_message_batch", {"Entries": []})],
        SENT,
        f"{OLDER}EmptyBatchRequest",
    ),
    ("a group id on a standard queue", [make(), send("a", MessageGroupId="g")], WRONG, SENT),
    (
        "deleting a message that is deleted",
        [make(), send("a"), TAKE, *[Call("delete_message", receipt="a")] * 2],
        INVALID_RECEIPT,
        TAKEN,
    ),
    (
        "the timeout of a message that is deleted",
        [make(), send("a"), TAKE, Call("delete_message", receipt="a"), visible("a", 5)],
        INVALID_RECEIPT,
        NOT_IN_FLIGHT,
    ),
    (
        "the timeout of a message that nobody holds any more",
        [make(), send("a"), TAKE, visible("a", 0), visible("a", 5)],
        TAKEN,
        NOT_IN_FLIGHT,
    ),
    (
        "a negative `VisibilityTimeout`",
        [make(), send("a"), Call("receive_message", {"VisibilityTimeout": -1})],
        ["a"],
        WRONG,
    ),
    (
        "FIFO: `DeduplicationScope` by group",
        [make("q.fifo", **HIGH), put("a", "g", "n"), put("b", "h", "n"), TAKE_FIFO],
        ["a"],
        ["a", "b"],
    ),
    (
        "FIFO: a message that is let go while its group has others in flight",
        [make("q.fifo"), put("a"), put("b"), TAKE_FIFO, visible("a", 0, "q.fifo"), TAKE_FIFO],
        ["a"],
        [],
    ),
]


@pytest.fixture(scope="module")
def elasticmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (OUT / "elasticmq").is_dir() or shutil.which("java") is None:
        pytest.skip("ElasticMQ, or Java, is not installed (scripts/install_peers.sh)")
    system = start_elasticmq(tmp_path_factory.mktemp("elasticmq"))
    url = f"http://127.0.0.1:{system.port}"
    client = boto3.client(
        "sqs", endpoint_url=url, region_name="eu-west-1", config=CONFIG, **ANY_KEY
    )
    yield client
    client.close()
    system.server.stop()


@pytest.fixture
def sides(sqs: Any, elasticmq: Any) -> tuple[Side, Side]:
    """Ours and ElasticMQ's, without the queues of the test before."""
    prefix = f"elastic-{next(_numbers)}-"
    return Side(sqs, prefix), Side(elasticmq, prefix)


@pytest.mark.parametrize("is_fifo", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_generated_calls_have_the_same_answers(
    seed: int, is_fifo: bool, sides: tuple[Side, Side]
) -> None:
    calls = Generated(random.Random(seed), is_plain=True)
    fifo = iter(fifo_calls(random.Random(seed), CALLS))
    told = []
    for number in range(CALLS):
        first = make("q.fifo") if is_fifo else make()
        call = first if number == 0 else next(fifo) if is_fifo else calls.next()
        told.append(f"{call}")
        here, there = (side.call(call) for side in sides)
        assert here == there, "\n".join(["here, then there, of the last of these:", *told])


@pytest.mark.parametrize("row", SHOWN, ids=[row[0] for row in SHOWN])
def test_a_difference_is_as_the_guide_says(row: Row, sides: tuple[Side, Side]) -> None:
    check_difference(row, sides)


def test_the_guide_names_these_differences_and_no_others() -> None:
    check_guide("## Beside ElasticMQ", SHOWN)
