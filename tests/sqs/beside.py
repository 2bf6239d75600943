"""The same calls to two servers of SQS's protocol, and generated sequences of them.

Receipts, ids and times are each server's own, so a message is called by its body, and of ids only
that they are there is compared. So are texts of errors: their codes are compared.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

OWN = {
    "MessageId",
    "SequenceNumber",
    "ReceiptHandle",
    "SentTimestamp",
    "ApproximateFirstReceiveTimestamp",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "SenderId",
}
"""Of these only that they are there is compared."""
MARK = "there"
NOT_COMPARED = {"Message", "ResponseMetadata"}
"""Texts of errors; and a list that is empty is none."""


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        name: of boto3's method.
        queue: its QueueUrl is given to the call; "" = none.
        receipt: the body of the message whose last receipt is given to it.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    queue: str = "q"
    receipt: str = ""


class Side:
    """One of the two servers.

    Attributes:
        received: bodies of the messages in the last answer, in the order they came.
    """

    def __init__(self, client: Any, prefix: str) -> None:
        self.received: list[str] = []
        self._client = client
        self._prefix = prefix
        self._receipts: dict[str, str] = {}
        self._urls: dict[str, str] = {}

    def call(self, call: Call) -> Any:
        """What it answers, or the code of its refusal; without what is its own."""
        values = json.loads(json.dumps(call.values).replace("@", self._prefix))
        if call.queue:
            values["QueueUrl"] = self._url(call.queue)
        if call.receipt:
            values["ReceiptHandle"] = self._receipts.get(call.receipt, call.receipt)
        for entry in values.get("Entries", ()):
            if "ReceiptHandle" in entry:
                body = entry["ReceiptHandle"]
                entry["ReceiptHandle"] = self._receipts.get(body, body)
        try:
            answer = getattr(self._client, call.name)(**values)
        except ClientError as error:
            return error.response["Error"]["Code"]
        self.received = [message["Body"] for message in answer.get("Messages", ())]
        for message in answer.get("Messages", ()):
            self._receipts[message["Body"]] = message["ReceiptHandle"]
        return self._compared(answer)

    def _url(self, queue: str) -> str:
        """The address of a queue, or what it would be."""
        found = self._urls.get(queue)
        if found is None:
            other, name = f"{self._prefix}other", self._prefix + queue
            try:
                found = self._client.get_queue_url(QueueName=name)["QueueUrl"]
                self._urls[queue] = found
            except ClientError:
                made: str = self._client.create_queue(QueueName=other)["QueueUrl"]
                found = made.replace(other, name)
        return found

    def _compared(self, value: Any, name: str = "") -> Any:
        if name in OWN:
            return MARK
        if isinstance(value, dict):
            kept = {key: one for key, one in value.items() if one != [] and key not in NOT_COMPARED}
            return {key: self._compared(one, key) for key, one in kept.items()}
        if isinstance(value, list):
            parts = [self._compared(one) for one in value]
            return sorted(parts, key=lambda one: json.dumps(one, sort_keys=True, default=str))
        if isinstance(value, str) and self._prefix in value:
            return value[value.index(self._prefix) + len(self._prefix) :]
        return value


RECEIVE = {
    "MaxNumberOfMessages": 10,
    "VisibilityTimeout": 600,
    "AttributeNames": ["All"],
    "MessageAttributeNames": ["All"],
}
COUNTS = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]
WRONG = (
    Call("send_message", {"MessageBody": "x"}, "away"),
    Call("receive_message", {}, "away"),
    Call("purge_queue", {}, "away"),
    Call("get_queue_attributes", {}, "away"),
    Call("send_message", {"MessageBody": "x", "DelaySeconds": 901}),
    Call("send_message_batch", {"Entries": []}),
    Call(
        "send_message_batch",
        {"Entries": [{"Id": "same", "MessageBody": "x"}, {"Id": "same", "MessageBody": "y"}]},
    ),
    Call("send_message_batch", {"Entries": [{"Id": "no!", "MessageBody": "x"}]}),
    Call("receive_message", {"MaxNumberOfMessages": 11}),
    Call("receive_message", {"WaitTimeSeconds": 21}),
    Call("delete_message", receipt="none"),
    Call("change_message_visibility", {"VisibilityTimeout": 5}, receipt="none"),
    Call("get_queue_attributes", {"AttributeNames": ["Colour"]}),
    Call("get_queue_url", {"QueueName": "@away"}, ""),
)


@dataclass
class Generated:
    """A sequence of calls to a queue, each chosen by what was answered so far.

    What is known to differ is not called (test_beside_moto.py shows it). At most ten messages are
    there, so that one receive has all that can be received, in whichever order.

    Attributes:
        is_plain: no groups, and nothing that is refused.
    """

    dice: random.Random
    is_plain: bool = False
    count: int = 0
    delayed: int = 0
    waiting: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)

    def next(self) -> Call:
        """The next call; what it changes is noted, as all of these are answered."""
        kinds = (self._send, self._send_batch, self._take, self._settle, self._look, self._wrong)
        return self.dice.choices(kinds, (25, 15, 20, 20, 10, 0 if self.is_plain else 10))[0]()

    def _new(self) -> dict[str, Any]:
        self.count += 1
        body = f"body {self.count} ü"
        values: dict[str, Any] = {"MessageBody": body}
        if self.dice.random() < 0.3:
            values["MessageAttributes"] = {
                "number": {"DataType": "Number", "StringValue": str(self.count)},
                "text": {"DataType": "String.own", "StringValue": "ü"},
                "bytes": {"DataType": "Binary", "BinaryValue": "AAE="},
            }
        if self.dice.random() < 0.2 and not self.is_plain:
            values["MessageGroupId"] = self.dice.choice("abc")
        if self.dice.random() < 0.1:
            values["DelaySeconds"] = 900
            self.delayed += 1
        else:
            self.waiting.add(body)
        return values

    def _send(self) -> Call:
        if len(self.waiting | self.held) >= 10:
            return self._take()
        return Call("send_message", self._new())

    def _send_batch(self) -> Call:
        if len(self.waiting | self.held) > 7:
            return self._settle()
        entries = [{"Id": f"id-{n}", **self._new()} for n in range(3)]
        return Call("send_message_batch", {"Entries": entries})

    def _take(self) -> Call:
        self.held |= self.waiting
        self.waiting.clear()
        return Call("receive_message", RECEIVE)

    def _settle(self) -> Call:
        if not self.held:
            return self._look()
        body = self.dice.choice(sorted(self.held))
        what = self.dice.choice(("delete", "delete_batch", "again", "longer"))
        if what == "longer":
            return Call("change_message_visibility", {"VisibilityTimeout": 900}, receipt=body)
        self.held.discard(body)
        if what == "again":
            self.waiting.add(body)
            return Call("change_message_visibility", {"VisibilityTimeout": 0}, receipt=body)
        if what == "delete":
            return Call("delete_message", receipt=body)
        entries = [{"Id": "1", "ReceiptHandle": body}, {"Id": "2", "ReceiptHandle": "none"}]
        return Call("delete_message_batch", {"Entries": entries[: 1 if self.is_plain else 2]})

    def _look(self) -> Call:
        seconds = str(self.dice.choice((30, 60)))
        return self.dice.choice(
            [
                Call("get_queue_attributes", {"AttributeNames": COUNTS}),
                Call("set_queue_attributes", {"Attributes": {"VisibilityTimeout": seconds}}),
                Call("get_queue_attributes", {"AttributeNames": ["VisibilityTimeout", "QueueArn"]}),
                Call("list_queues", {"QueueNamePrefix": "@"}, ""),
                Call("tag_queue", {"Tags": {"a": seconds}}),
            ]
        )

    def _wrong(self) -> Call:
        return self.dice.choice(WRONG)


def fifo_calls(dice: random.Random, count: int) -> list[Call]:
    """A sequence of calls to a FIFO queue with one group, of which some messages are received, and
    deleted in any order."""
    calls: list[Call] = []
    waiting: list[str] = []
    held: list[str] = []
    for number in range(count):
        body = f"body {number}"
        what = dice.choice(("send", "send", "again", "take", "delete", "look"))
        if what == "send" or (what == "again" and not waiting):
            waiting.append(body)
            calls.append(_fifo_send(body, f"name-{number}"))
        elif what == "again":
            calls.append(
                _fifo_send(f"again {number}", dice.choice(waiting).replace("body ", "name-"))
            )
        elif what == "take":
            most = dice.randint(1, 3)
            held = held or waiting[:most]
            values = RECEIVE | {"MaxNumberOfMessages": most}
            calls.append(Call("receive_message", values, "q.fifo"))
        elif what == "delete" and held:
            done = dice.choice(held)
            calls.append(Call("delete_message", {}, "q.fifo", done))
            waiting.remove(done)
            held.remove(done)
        else:
            calls.append(Call("get_queue_attributes", {"AttributeNames": COUNTS}, "q.fifo"))
    return calls


def _fifo_send(body: str, name: str) -> Call:
    values = {"MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": name}
    return Call("send_message", values, "q.fifo")
