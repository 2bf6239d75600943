"""A queue's attributes are a topic's settings and labels, and come back from these alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.topics import (
    attributes_of,
    changes_of,
    check_allows,
    check_names,
    counts_of,
    is_queue,
    is_scoped_by_group,
    json_label,
    label_of,
    new_topic,
    tags_of,
)
from dejaqueue.model import Assignment, Topic, TopicKind

ARN = "arn:aws:sqs:eu-west-1:000000000000:"


def test_a_queue_s_attributes_survive_as_a_topic() -> None:
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}d.fifo", "maxReceiveCount": 4})
    given = {
        "FifoQueue": "true",
        "VisibilityTimeout": "0",
        "DelaySeconds": "7",
        "MessageRetentionPeriod": "60",
        "ContentBasedDeduplication": "true",
        "RedrivePolicy": policy,
        "RedriveAllowPolicy": '{"redrivePermission":"allowAll"}',
        "SqsManagedSseEnabled": "false",
    }
    topic = new_topic("q.fifo", given, {"team": "shop"}, 1_795_480_759_000)
    topic = Topic.from_dict(json.loads(json.dumps(topic.to_dict())))
    assert (topic.kind, topic.group_in_flight_max) == (TopicKind.FAIR, 10)
    assert topic.group_runs
    assert (topic.max_attempts, topic.dead_letter) == (4, "d.fifo")
    shown = attributes_of(topic, "eu-west-1")
    kept = {"VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod", "FifoQueue"}
    assert {name: shown[name] for name in kept} == {name: given[name] for name in kept}
    assert shown["CreatedTimestamp"] == shown["LastModifiedTimestamp"] == "1795480759"
    assert json.loads(shown["RedrivePolicy"]) == json.loads(policy)
    assert shown["DeduplicationScope"] == "queue"
    changed = changes_of(topic, {"DelaySeconds": "8"}, 1_795_480_800_000)
    later = attributes_of(Topic.from_dict(topic.to_dict() | changed), "eu-west-1")
    assert later["LastModifiedTimestamp"] == "1795480800"
    assert later | {"LastModifiedTimestamp": "", "DelaySeconds": ""} == (
        shown | {"LastModifiedTimestamp": "", "DelaySeconds": ""}
    )


HIGH = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}


def test_what_templates_set_for_a_high_throughput_is_kept_and_shown() -> None:
    topic = new_topic("q.fifo", {"FifoQueue": "true"} | HIGH, None, 0)
    assert is_scoped_by_group(topic)
    assert {name: attributes_of(topic, "")[name] for name in HIGH} == HIGH
    with pytest.raises(SqsRefusal, match="unless DeduplicationScope is messageGroup"):
        changes_of(topic, {"DeduplicationScope": "queue"}, 0)
    back = {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    topic = Topic.from_dict(topic.to_dict() | changes_of(topic, back, 0))
    assert not is_scoped_by_group(topic)


@pytest.mark.parametrize(
    ("name", "attributes", "refused"),
    [
        ("q", {"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ("q", {"DelaySeconds": "-1"}, "InvalidAttributeValue"),
        ("q", {"DelaySeconds": ""}, "InvalidAttributeValue"),
        ("q", {"MaximumMessageSize": "1048577"}, "InvalidAttributeValue"),
        ("q", {"Policy": "no JSON"}, "InvalidAttributeValue"),
        ("q", {"Policy": "[]"}, "InvalidAttributeValue"),
        ("q", {"FifoQueue": "true"}, "InvalidAttributeValue"),
        ("q", {"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ("q", {"QueueArn": "x"}, "InvalidAttributeName"),
        ("q", {"KmsMasterKeyId": "alias/x"}, "UnsupportedOperation"),
        ("q", {"DelaySeconds": 5}, "InvalidAttributeValue"),
        ("q", [], "InvalidParameterValue"),
        ("q.fifo", {}, "InvalidAttributeValue"),
        ("q", HIGH, "InvalidAttributeName"),
        ("q.fifo", {"FifoQueue": "true", "DeduplicationScope": "x"}, "InvalidAttributeValue"),
        (
            "q.fifo",
            {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"},
            "InvalidAttributeValue",
        ),
        ("q", {"RedrivePolicy": '{"maxReceiveCount":1}'}, "InvalidParameterValue"),
        ("q", {"RedrivePolicy": '{"colour":1}'}, "InvalidAttributeValue"),
        (
            "q",
            {"RedrivePolicy": f'{{"maxReceiveCount":0,"deadLetterTargetArn":"{ARN}d"}}'},
            "InvalidAttributeValue",
        ),
        (
            "q",
            {"RedrivePolicy": f'{{"maxReceiveCount":1,"deadLetterTargetArn":"{ARN}d.fifo"}}'},
            "InvalidAttributeValue",
        ),
        (
            "q",
            {"RedrivePolicy": f'{{"maxReceiveCount":1,"deadLetterTargetArn":"{ARN}q"}}'},
            "InvalidAttributeValue",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, attributes: Any, refused: str) -> None:
    with pytest.raises(SqsRefusal) as found:
        new_topic(name, attributes, None, 0)
    assert found.value.name == refused


@pytest.mark.parametrize(
    "given",
    [
        {"DelaySeconds": "9" * 5_000},
        {"DelaySeconds": "²"},
        {"RedrivePolicy": "[" * 100_000},
        {"RedrivePolicy": '{"deadLetterTargetArn":' + "[" * 900 + "]" * 900 + "}"},
    ],
    ids=lambda given: str(given)[:30],
)
def test_values_that_no_client_writes_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SqsRefusal) as found:
        new_topic("q", given, None, 0)
    assert found.value.name == "InvalidAttributeValue"


def test_tags_have_bounds() -> None:
    assert tags_of({"a": ""}) == {"a": ""}
    for wrong in (None, ["a"], {"": "a"}, {"a": "b" * 257}, {"a": 5}):
        with pytest.raises(SqsRefusal, match="Tags"):
            tags_of(wrong)


def test_a_queue_says_whose_dead_letters_it_takes() -> None:
    def letters(**policy: Any) -> Topic:
        text = json.dumps(policy)
        return Topic("d", labels={"sqs.RedriveAllowPolicy": text})

    check_allows(Topic("d"), "q")
    check_allows(letters(redrivePermission="byQueue", sourceQueueArns=[f"{ARN}q"]), "q")
    for policy in (
        {"redrivePermission": "denyAll"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [f"{ARN}r"]},
    ):
        with pytest.raises(SqsRefusal, match="queue d does not take dead letters of q"):
            check_allows(letters(**policy), "q")


def test_topics_that_messages_can_be_leased_from_are_queues() -> None:
    assert all(is_queue(Topic("t", kind)) for kind in TopicKind if kind is not TopicKind.CRON)
    assert not is_queue(Topic("t", TopicKind.CRON))
    assert not is_queue(Topic("t", assignment=Assignment.EXCLUSIVE))
    assert label_of(Topic("t"), "DelaySeconds") == "0"
    assert json_label(Topic("t", labels={"sqs.tags": "{"}), "sqs.tags") == {}


def test_numbers_of_a_topic_are_three_counts() -> None:
    counts = counts_of({"scheduled": 7, "ready": 4, "leased": 2})
    assert list(counts.values()) == ["4", "2", "3"]
    assert check_names(None) == frozenset()
    with pytest.raises(SqsRefusal, match="unknown attribute 'X'"):
        check_names(["QueueArn", "X"])
