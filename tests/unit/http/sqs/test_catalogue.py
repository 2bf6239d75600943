"""SQS's operations on queues: made, found, changed, tagged, permitted, purged, deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.catalogue import Changes
from dejaqueue.http.sqs.topics import TAGS
from dejaqueue.model import Topic, TopicKind
from tests.unit.http.sqs.conftest import Sqs

ARN = "arn:aws:sqs:us-east-1:000000000000:"


def test_a_queue_is_made_once__and_only_with_what_it_has(sqs: Sqs, broker: Broker) -> None:
    url = sqs.queue("q", VisibilityTimeout="40", DelaySeconds="3")
    assert url == f"{sqs.base_url}/sqs/000000000000/q"
    assert sqs.queue("q") == url
    assert sqs.queue("q", DelaySeconds="3") == url
    text = sqs.refused("CreateQueue", QueueName="q", Attributes={"DelaySeconds": "4"})
    assert text == "QueueNameExists queue q is there with another DelaySeconds: 3"
    broker.create_topic(Topic("crons", kind=TopicKind.CRON))
    assert sqs.refused("CreateQueue", QueueName="crons").startswith("QueueNameExists")
    assert sqs.do("GetQueueUrl", QueueName="q") == {"QueueUrl": url}
    for name in ("away", "not a name", "crons"):
        assert sqs.refused("GetQueueUrl", QueueName=name).startswith("QueueDoesNotExist")
    sqs.do("DeleteQueue", QueueUrl=url)
    assert sqs.refused("DeleteQueue", QueueUrl=url).startswith("QueueDoesNotExist")


def test_queues_are_listed_by_pages(sqs: Sqs) -> None:
    assert sqs.do("ListQueues") == {}
    for name in ("a1", "a2", "a3", "b1"):
        sqs.queue(name)
    page = sqs.do("ListQueues", QueueNamePrefix="a", MaxResults=2)
    names = [url.rpartition("/")[2] for url in page["QueueUrls"]]
    more = sqs.do("ListQueues", QueueNamePrefix="a", MaxResults=2, NextToken=page["NextToken"])
    assert "NextToken" not in more
    assert [*names, *(url.rpartition("/")[2] for url in more["QueueUrls"])] == ["a1", "a2", "a3"]
    assert sqs.refused("ListQueues", MaxResults=0).startswith("InvalidParameterValue")
    assert sqs.refused("ListQueues", NextToken="\xff").startswith("InvalidParameterValue")


def test_attributes_are_set_shown_and_survive_as_settings(sqs: Sqs, broker: Broker) -> None:
    letters = sqs.queue("letters")
    url = sqs.queue("q")
    policy = {"deadLetterTargetArn": f"{ARN}letters", "maxReceiveCount": "3"}
    given = {
        "VisibilityTimeout": "50",
        "MaximumMessageSize": "2048",
        "ReceiveMessageWaitTimeSeconds": "7",
        "RedrivePolicy": json.dumps(policy),
        "Policy": json.dumps({"Version": "2012-10-17"}, indent=1),
    }
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes=given)
    topic = broker.topic("q")
    assert (topic.lease_ms, topic.max_payload_bytes) == (50_000, 2_048)
    assert (topic.max_attempts, topic.dead_letter) == (3, "letters")
    shown = sqs.shown(url)
    assert json.loads(shown["RedrivePolicy"]) == policy | {"maxReceiveCount": 3}
    assert shown["QueueArn"] == f"{ARN}q"
    assert shown["ReceiveMessageWaitTimeSeconds"] == "7"
    assert shown["ApproximateNumberOfMessages"] == "0"
    assert sqs.shown(url, "Policy") == {"Policy": '{"Version": "2012-10-17"}'}
    assert sqs.do("GetQueueAttributes", QueueUrl=url) == {}
    off = {"RedrivePolicy": "", "Policy": ""}
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes=off)
    assert sqs.shown(url, "Policy", "RedrivePolicy") is None
    denied = {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    sqs.do("SetQueueAttributes", QueueUrl=letters, Attributes=denied)
    asked = {"RedrivePolicy": given["RedrivePolicy"]}
    text = sqs.refused("SetQueueAttributes", QueueUrl=url, Attributes=asked)
    assert text.startswith("InvalidParameterValue queue letters does not take dead letters of q")
    asked["RedrivePolicy"] = json.dumps(policy | {"deadLetterTargetArn": f"{ARN}away"})
    text = sqs.refused("SetQueueAttributes", QueueUrl=url, Attributes=asked)
    assert text.startswith("InvalidParameterValue deadLetterTargetArn: a queue that is there")


@pytest.mark.parametrize("attributes", [None, {}, {"FifoQueue": "true"}, {"Colour": "red"}])
def test_what_cannot_be_set_is_refused(sqs: Sqs, attributes: Any) -> None:
    url = sqs.queue("q")
    name = sqs.refused("SetQueueAttributes", QueueUrl=url, Attributes=attributes).split()[0]
    assert name == ("InvalidAttributeName" if attributes else "MissingParameter")
    assert sqs.refused("GetQueueAttributes", QueueUrl=url, AttributeNames=["X"]).startswith(
        "InvalidAttributeName"
    )


def test_tags_are_put_and_taken(sqs: Sqs) -> None:
    url = sqs.queue("q")
    assert sqs.do("ListQueueTags", QueueUrl=url) == {}
    sqs.do("TagQueue", QueueUrl=url, Tags={"a": "1", "b": "ü\n"})
    sqs.do("TagQueue", QueueUrl=url, Tags={"a": "2"})
    assert sqs.do("ListQueueTags", QueueUrl=url)["Tags"] == {"a": "2", "b": "ü\n"}
    sqs.do("UntagQueue", QueueUrl=url, TagKeys=["a", "away"])
    assert sqs.do("ListQueueTags", QueueUrl=url)["Tags"] == {"b": "ü\n"}
    many = {str(number): "" for number in range(50)}
    assert sqs.refused("TagQueue", QueueUrl=url, Tags=many).startswith("InvalidParameterValue")
    assert sqs.refused("UntagQueue", QueueUrl=url, TagKeys="b").startswith("InvalidParameter")


def test_a_purge_takes_what_waits__and_what_is_in_flight(sqs: Sqs) -> None:
    url = sqs.queue("q")
    for number in range(12):
        sqs.send(url, str(number), DelaySeconds=number % 2)
    assert len(sqs.take(url)) == 6
    sqs.send(url, "waits")
    sqs.do("PurgeQueue", QueueUrl=url)
    shown = sqs.shown(url)
    assert {shown[name] for name in shown if name.startswith("Approximate")} == {"0"}


def test_a_permission_is_written_down_where_the_key_has_the_role(
    sqs: Sqs, gate: Gate, broker: Broker
) -> None:
    url = sqs.queue("q")
    _, text = gate.keys.create("root", ["admin:*"])
    key, _ = gate.keys.create("shop", ["produce:q"])
    sqs.http.headers["authorization"] = f"Bearer {text}"
    asked = {"QueueUrl": url, "Label": "l", "AWSAccountIds": [key.id, "shop"]}
    sqs.do("AddPermission", **asked, Actions=["SendMessage"])
    policy = json.loads(sqs.shown(url, "Policy")["Policy"])
    assert policy["Statement"][0]["Action"] == ["SQS:SendMessage"]
    refused = {
        ("l", "shop", "SendMessage"): "InvalidParameterValue Label",
        ("m", "shop", "ReceiveMessage"): "UnsupportedOperation shop has no role 'consume'",
        ("m", "shop", "*"): "UnsupportedOperation",
        ("m", "nobody", "SendMessage"): "InvalidParameterValue AWSAccountIds",
        ("m", "shop", "Fly"): "InvalidParameterValue Actions",
    }
    for (label, account, action), told in refused.items():
        values = {"Label": label, "AWSAccountIds": [account], "Actions": [action]}
        assert sqs.refused("AddPermission", QueueUrl=url, **values).startswith(told)
    sqs.do("RemovePermission", QueueUrl=url, Label="l")
    assert sqs.shown(url, "Policy") is None
    assert sqs.refused("RemovePermission", QueueUrl=url, Label="l").startswith("InvalidParam")
    assert gate.keys.named("shop").principal.grants == key.principal.grants  # type: ignore[union-attr]


def test_roles_say_what_a_key_may_do(sqs: Sqs, gate: Gate) -> None:
    url = sqs.queue("q")
    gate.keys.create("root", ["admin:*"])
    sqs.queue = None  # type: ignore[assignment,method-assign]
    told = {"SendMessage": "produce", "ReceiveMessage": "consume", "PurgeQueue": "manage"}
    for role in ("produce", "consume", "observe"):
        _, text = gate.keys.create(role, [f"{role}:q"])
        sqs.http.headers["authorization"] = f"Bearer {text}"
        for name, needed in told.items():
            more = {"MessageBody": "b"} if name == "SendMessage" else {}
            status, answer = sqs.ask(name, QueueUrl=url, **more)
            assert (status == 200) is (needed == role), answer
            if needed != role:
                assert answer["__type"].endswith("AccessDeniedException")
        assert sqs.shown(url, "QueueArn") == {"QueueArn": f"{ARN}q"}
        counts = {"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessages"]}
        assert sqs.ask("GetQueueAttributes", **counts)[0] == (403 if role == "produce" else 200)
        assert len(sqs.do("ListQueues")["QueueUrls"]) == 1
    _, text = gate.keys.create("other", ["admin:others"])
    sqs.http.headers["authorization"] = f"Bearer {text}"
    assert sqs.do("ListQueues") == {}
    assert sqs.refused("GetQueueUrl", QueueName="q").startswith("AccessDeniedException")


def test_what_another_broker_changes_at_the_same_time_stays(
    sqs: Sqs, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqs.queue("q.fifo")
    alter = broker.alter_topic

    def overtaken(name: str, changes: Changes) -> Topic:
        """Another broker is quicker by a tag and a delay."""
        theirs = {TAGS: json.dumps({"theirs": "1"}), "sqs.DelaySeconds": "5"}
        alter(name, {"labels": {**broker.topic(name).labels, **theirs}})
        return alter(name, changes)

    with monkeypatch.context() as patch:
        patch.setattr(broker, "alter_topic", overtaken)
        sqs.do("TagQueue", QueueUrl=url, Tags={"ours": "2"})
        assert sqs.do("ListQueueTags", QueueUrl=url)["Tags"] == {"theirs": "1", "ours": "2"}
        sqs.do("UntagQueue", QueueUrl=url, TagKeys=["ours"])
        assert sqs.do("ListQueueTags", QueueUrl=url)["Tags"] == {"theirs": "1"}
        sqs.do("AddPermission", QueueUrl=url, Label="l", AWSAccountIds=["1"], Actions=["*"])
        sqs.do("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    assert sqs.do("ListQueueTags", QueueUrl=url)["Tags"] == {"theirs": "1"}
    shown = sqs.shown(url)
    assert (shown["DelaySeconds"], shown["VisibilityTimeout"]) == ("5", "7")
    assert "Policy" in shown
