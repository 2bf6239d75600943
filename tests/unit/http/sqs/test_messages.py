"""SQS's operations on messages of standard queues: each by itself, at a real server.

Not covered here: FIFO queues (test_fifo.py), SQS's own clients (tests/sqs).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.http.sqs.conftest import Sqs


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"Id": f"e{number}", **more}


def test_a_message_is_sent_received_and_deleted(sqs: Sqs) -> None:
    url = sqs.queue("q")
    sent = sqs.send(url, "body")
    [message] = sqs.take(url)
    assert (message["Body"], message["MessageId"]) == ("body", sent["MessageId"])
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert sqs.take(url) == [], "it is invisible"
    sqs.delete(url, message)
    sqs.delete(url, message)
    assert sqs.shown(url, "ApproximateNumberOfMessagesNotVisible") == {
        "ApproximateNumberOfMessagesNotVisible": "0"
    }


def test_what_is_not_deleted_comes_again__with_its_first_receive(
    sqs: Sqs, clock: VirtualClock
) -> None:
    url = sqs.queue("q", VisibilityTimeout="20")
    sqs.send(url, "body")
    [first] = sqs.take(url)
    clock.advance(ms=21_000)
    [second] = sqs.take(url)
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    counts = [one["Attributes"]["ApproximateReceiveCount"] for one in (first, second)]
    assert counts == ["1", "2"]
    name = "ApproximateFirstReceiveTimestamp"
    assert second["Attributes"][name] == first["Attributes"][name]


def test_a_message_whose_time_is_over_is_deleted_all_the_same(
    sqs: Sqs, clock: VirtualClock
) -> None:
    url = sqs.queue("q", VisibilityTimeout="20")
    sqs.send(url, "body")
    [message] = sqs.take(url)
    clock.advance(ms=21_000)
    sqs.delete(url, message)
    assert sqs.take(url) == []


def test_a_message_that_somebody_else_has_received_stays(sqs: Sqs, clock: VirtualClock) -> None:
    url = sqs.queue("q", VisibilityTimeout="20")
    sqs.send(url, "body")
    [old] = sqs.take(url)
    clock.advance(ms=21_000)
    assert sqs.bodies(url) == ["body"]
    sqs.delete(url, old)
    clock.advance(ms=21_000)
    assert sqs.bodies(url) == ["body"], "and also while it waits again"


def test_a_delay_is_kept__and_more_than_the_queue_allows_is_refused(
    sqs: Sqs, clock: VirtualClock
) -> None:
    url = sqs.queue("q", DelaySeconds="5", VisibilityTimeout="300")
    sqs.send(url, "by queue")
    sqs.send(url, "own", DelaySeconds=60)
    sqs.send(url, "none", DelaySeconds=0)
    assert sqs.bodies(url) == ["none"]
    clock.advance(ms=5_000)
    assert sqs.bodies(url) == ["by queue"]
    clock.advance(ms=55_000)
    assert sqs.bodies(url) == ["own"]
    text = sqs.refused("SendMessage", QueueUrl=url, MessageBody="b", DelaySeconds=901)
    assert text.startswith("InvalidParameterValue DelaySeconds: from 0 to 900")


def test_a_topic_without_a_limit_takes_any_delay(
    sqs: Sqs, broker: Broker, clock: VirtualClock
) -> None:
    broker.create_topic(Topic("free"))
    url = f"{sqs.base_url}/sqs/000000000000/free"
    days = 30 * 86_400
    sqs.send(url, "in a month", DelaySeconds=days)
    clock.advance(ms=(days - 1) * 1_000)
    assert sqs.bodies(url) == []
    clock.advance(ms=1_000)
    assert sqs.bodies(url) == ["in a month"]
    too_far = {"QueueUrl": url, "MessageBody": "b", "DelaySeconds": 10_000 * 366 * 86_400}
    assert sqs.refused("SendMessage", **too_far).startswith("InvalidParameterValue DelaySeconds")


def test_visibility_is_made_longer_shorter_and_ended(sqs: Sqs, clock: VirtualClock) -> None:
    url = sqs.queue("q", VisibilityTimeout="20")
    for body in ("long", "short", "none"):
        sqs.send(url, body)
    by_body = {message["Body"]: message["ReceiptHandle"] for message in sqs.take(url)}
    entries = [
        entry(number, ReceiptHandle=by_body[body], VisibilityTimeout=seconds)
        for number, (body, seconds) in enumerate((("long", 60), ("short", 2), ("none", 0)))
    ]
    answer = sqs.do("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["e0", "e1", "e2"]
    assert sqs.bodies(url) == ["none"]
    clock.advance(ms=2_000)
    assert sqs.bodies(url) == ["short"]
    handle = by_body["none"]
    change = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 5}
    assert sqs.refused("ChangeMessageVisibility", **change).startswith("MessageNotInflight")
    clock.advance(ms=57_000)
    assert "long" not in sqs.bodies(url)
    clock.advance(ms=1_000)
    assert "long" in sqs.bodies(url)


def test_a_batch_is_done_but_for_what_is_wrong(sqs: Sqs) -> None:
    url = sqs.queue("q")
    entries = [
        entry(0, MessageBody="a"),
        entry(1, MessageBody="b", DelaySeconds=9_999),
        entry(2, MessageBody="c\0"),
        entry(3, MessageBody="d"),
    ]
    answer = sqs.do("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["e0", "e3"]
    failed = [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]]
    assert failed == [
        ("e1", "InvalidParameterValue", True),
        ("e2", "InvalidMessageContents", True),
    ]
    found = sqs.take(url)
    assert [message["Body"] for message in found] == ["a", "d"]
    entries = [
        entry(0, ReceiptHandle="nonsense"),
        entry(1, ReceiptHandle=found[1]["ReceiptHandle"], VisibilityTimeout=99_999),
        entry(2, ReceiptHandle=found[0]["ReceiptHandle"], VisibilityTimeout=0),
    ]
    entries[0]["VisibilityTimeout"] = 3
    answer = sqs.do("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["e2"]
    codes = [(one["Id"], one["Code"]) for one in answer["Failed"]]
    assert codes == [("e0", "ReceiptHandleIsInvalid"), ("e1", "InvalidParameterValue")]
    entries = [entry(0, ReceiptHandle="x"), entry(1, ReceiptHandle=found[1]["ReceiptHandle"])]
    answer = sqs.do("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["e1"]
    assert sqs.bodies(url) == ["a"]


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ([], "EmptyBatchRequest"),
        ([entry(n, MessageBody="b") for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry(1, MessageBody="b"), entry(1, MessageBody="c")], "BatchEntryIdsNotDistinct"),
        ([{"Id": "not so!", "MessageBody": "b"}], "InvalidBatchEntryId"),
        ([entry(n, MessageBody="b" * 300_000) for n in range(4)], "BatchRequestTooLong"),
        (["entry"], "InvalidParameterValue"),
    ],
)
def test_a_batch_that_is_wrong_as_a_whole_is_refused(
    sqs: Sqs, entries: list[Any], name: str
) -> None:
    url = sqs.queue("q")
    assert sqs.refused("SendMessageBatch", QueueUrl=url, Entries=entries).split()[0] == name
    assert sqs.take(url) == []


def test_groups_of_a_standard_queue_take_turns(sqs: Sqs) -> None:
    url = sqs.queue("q")
    for number in range(4):
        sqs.send(url, f"noisy {number}", MessageGroupId="noisy")
    sqs.send(url, "quiet", MessageGroupId="quiet")
    assert "quiet" in sqs.bodies(url, 2)
    [message] = sqs.take(url, 1)
    assert message["Attributes"]["MessageGroupId"] == "noisy"
    sqs.send(url, "without a group")
    assert sqs.refused(
        "SendMessage", QueueUrl=url, MessageBody="b", MessageDeduplicationId="d"
    ).startswith("InvalidParameterValue MessageDeduplicationId")


def test_a_receive_of_another_visibility_and_number(sqs: Sqs, clock: VirtualClock) -> None:
    url = sqs.queue("q")
    for number in range(3):
        sqs.send(url, str(number))
    assert sqs.bodies(url, 2, VisibilityTimeout=3) == ["0", "1"]
    clock.advance(ms=3_000)
    assert sorted(sqs.bodies(url)) == ["0", "1", "2"]
    for wrong in ({"MaxNumberOfMessages": 11}, {"WaitTimeSeconds": 21}, {"VisibilityTimeout": -1}):
        assert sqs.refused("ReceiveMessage", QueueUrl=url, **wrong).split()[0] == (
            "InvalidParameterValue"
        )
    text = sqs.refused("ReceiveMessage", QueueUrl=url, AttributeNames=["Colour"])
    assert text.startswith("InvalidAttributeName")


def test_our_own_messages_are_read__and_theirs_by_us(sqs: Sqs, broker: Broker) -> None:
    broker.create_topic(Topic("t"))
    message = {"payload": "ours", "headers": {"trace": "x"}}
    assert sqs.http.post("/v1/topics/t/messages", json=message).status_code == 201
    url = f"{sqs.base_url}/sqs/000000000000/t"
    [found] = sqs.take(url)
    assert found["Body"] == "ours"
    assert found["MessageAttributes"] == {"trace": {"DataType": "String", "StringValue": "x"}}
    assert len(found["MessageId"]) == 36
    attributes = {"colour": {"DataType": "String", "StringValue": "red"}}
    sqs.send(url, "theirs", MessageAttributes=attributes)
    leased = sqs.http.post("/v1/topics/t/lease", json={}).json()["messages"]
    assert leased[0]["payload"] == "theirs"
    assert leased[0]["headers"]["colour"] == "red"
