"""A program with boto3 at a real broker: sends, receives, deletes, with a key and without."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sqs.conftest import client, key_of


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    code: str = error.value.response["Error"]["Code"]
    return code


def test_a_program_of_boto3_runs(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="boto", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    entries = [
        {
            "Id": str(number),
            "MessageBody": f"body {number}",
            "MessageAttributes": {
                "number": {"DataType": "Number", "StringValue": str(number)},
                "bytes": {"DataType": "Binary", "BinaryValue": bytes([number])},
            },
        }
        for number in range(10)
    ]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert len(sent["Successful"]) == 10
    found: dict[str, Any] = {}
    while len(found) < 10:
        answer = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=5,
            MessageAttributeNames=["All"],
        )
        found |= {message["Body"]: message for message in answer["Messages"]}
    assert found["body 7"]["MessageAttributes"]["bytes"]["BinaryValue"] == b"\7"
    handles = [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
        for number, message in enumerate(found.values())
    ]
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 10
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="boto")
    assert [one for page in pages for one in page["QueueUrls"]] == [url]


def test_errors_are_those_that_programs_catch(sqs: Any) -> None:
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as unknown:
        sqs.get_queue_url(QueueName="away")
    assert code_of(unknown) == "AWS.SimpleQueueService.NonExistentQueue"
    sqs.create_queue(QueueName="errors")
    with pytest.raises(sqs.exceptions.QueueNameExists) as there:
        sqs.create_queue(QueueName="errors", Attributes={"DelaySeconds": "9"})
    assert code_of(there) == "QueueAlreadyExists"
    url = sqs.get_queue_url(QueueName="errors")["QueueUrl"]
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="x")


def test_a_long_poll_is_answered_when_a_message_is_due(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="polled")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="b", DelaySeconds=1)
    began = time.monotonic()
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "b"
    assert time.monotonic() - began >= 0.9


def test_only_what_a_key_has_signed_is_done(guarded: tuple[str, dict[str, str]]) -> None:
    url, root = guarded
    boss = client(url, **root)
    queue = boss.create_queue(QueueName="signed")["QueueUrl"]
    shop = client(url, **key_of(url, "shop", "produce:signed", by=root))
    sent = shop.send_message(QueueUrl=queue, MessageBody="b")
    with pytest.raises(ClientError) as forbidden:
        shop.receive_message(QueueUrl=queue)
    assert code_of(forbidden) == "AccessDeniedException"
    [message] = boss.receive_message(
        QueueUrl=queue, WaitTimeSeconds=5, MessageSystemAttributeNames=["SenderId"]
    )["Messages"]
    assert (message["MessageId"], message["Attributes"]["SenderId"]) == (
        sent["MessageId"],
        "shop",
    )
    stranger = client(url, aws_access_key_id="x", aws_secret_access_key="y")
    with pytest.raises(ClientError) as unknown:
        stranger.list_queues()
    assert code_of(unknown) == "InvalidClientTokenId"
    for one in (boss, shop, stranger):
        one.close()
