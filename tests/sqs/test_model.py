"""Every operation and every shape of botocore's model of SQS, at a real broker.

Answers are what the model says they are, right down to the types; what is wrong in a request gets
an error that the model or AWS's list of common errors has, and never a fault of the broker's.
Not covered: what the operations do (test_boto3.py, tests/unit/http/sqs).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from botocore.loaders import Loader

MODEL = Loader().load_service_model("sqs", "service-2")
SHAPES = MODEL["shapes"]
OPERATIONS = sorted(MODEL["operations"])
COMMON = {
    "InvalidParameterValue",
    "MissingParameter",
    "UnsupportedOperation",
    "ResourceNotFoundException",
    "QueueDoesNotExist",
}
ERRORS = COMMON | {name for name, shape in SHAPES.items() if shape.get("exception")}
ARN = "arn:aws:sqs:us-east-1:000000000000:"
KINDS = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": str}
WRONG: dict[str, list[Any]] = {
    "string": [5, ["x"], {"a": 1}, "\ud83d\ude00" * 400, "\0"],
    "integer": ["x", 2**70, -1, 1.5, [1], True],
    "long": ["x"],
    "list": ["x", {"a": 1}, [5], [None], [["x"]], [{}], []],
    "map": ["x", [1], {"a": 5}, {"": None}, {"a": {"b": []}}, {}],
    "structure": ["x", [], 5],
    "blob": [5, "%"],
}


class World:
    """Queues in which every operation has something to do."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)
        policy = json.dumps({"deadLetterTargetArn": f"{ARN}letters", "maxReceiveCount": 5})
        self.letters = self.queue("letters")
        self.url = self.queue("model", {"RedrivePolicy": policy, "DelaySeconds": "0"})

    def queue(self, name: str, attributes: dict[str, str] | None = None) -> str:
        values = {"QueueName": name, "Attributes": attributes or {}}
        found: str = self.do("CreateQueue", values)["QueueUrl"]
        return found

    def ask(self, name: str, values: Any) -> tuple[int, Any]:
        content = json.dumps(values)
        headers = {"x-amz-target": f"AmazonSQS.{name}"}
        answer = self.http.post("/sqs", content=content, headers=headers)
        return answer.status_code, answer.json()

    def do(self, name: str, values: Any) -> Any:
        status, answer = self.ask(name, values)
        assert status == 200, (name, values, answer)
        return answer

    def receipt(self) -> str:
        """A message that is in flight."""
        self.do("SendMessage", {"QueueUrl": self.url, "MessageBody": "b"})
        found = self.do("ReceiveMessage", {"QueueUrl": self.url, "WaitTimeSeconds": 5})
        receipt: str = found["Messages"][0]["ReceiptHandle"]
        return receipt

    def values(self, name: str) -> dict[str, Any]:
        """A right request, with every field that the operation has and can have at once."""
        queue, url = {"QueueUrl": self.url}, self.url
        attribute = {"DataType": "String", "StringValue": "x"}
        message = {
            "MessageBody": "b",
            "DelaySeconds": 0,
            "MessageAttributes": {
                "text": attribute,
                "bytes": {"DataType": "Binary", "BinaryValue": "AAE="},
            },
            "MessageSystemAttributes": {"AWSTraceHeader": attribute},
            "MessageGroupId": "g",
        }
        permission = {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]}
        match name:
            case "CreateQueue":
                return {"QueueName": "made", "Attributes": {}, "tags": {"a": "b"}}
            case "GetQueueUrl":
                return {"QueueName": "model", "QueueOwnerAWSAccountId": "000000000000"}
            case "ListQueues":
                self.queue("another")
                return {"QueueNamePrefix": "", "MaxResults": 1}
            case "ListDeadLetterSourceQueues":
                return {"QueueUrl": self.letters, "MaxResults": 5}
            case "DeleteQueue":
                return {"QueueUrl": self.queue("gone")}
            case "GetQueueAttributes":
                return queue | {"AttributeNames": ["All"]}
            case "SetQueueAttributes":
                return queue | {"Attributes": {"DelaySeconds": "0"}}
            case "TagQueue":
                return queue | {"Tags": {"a": "b"}}
            case "UntagQueue":
                return queue | {"TagKeys": ["b"]}
            case "ListQueueTags":
                self.do("TagQueue", queue | {"Tags": {"a": "b"}})
                return queue
            case "AddPermission":
                self.ask("DeleteQueue", {"QueueUrl": "permitted"})
                return {"QueueUrl": self.queue("permitted")} | permission
            case "RemovePermission":
                self.ask("DeleteQueue", {"QueueUrl": "forbidden"})
                queue["QueueUrl"] = self.queue("forbidden")
                self.do("AddPermission", queue | permission)
                return queue | {"Label": "l"}
            case "SendMessage":
                return queue | message
            case "SendMessageBatch":
                wrong = {"Id": "wrong", "MessageBody": ""}
                return queue | {"Entries": [{"Id": "right"} | message, wrong]}
            case "ReceiveMessage":
                self.do("SendMessage", queue | message)
                return queue | {
                    "AttributeNames": ["All"],
                    "MessageSystemAttributeNames": ["All"],
                    "MessageAttributeNames": ["All"],
                    "MaxNumberOfMessages": 10,
                    "VisibilityTimeout": 30,
                    "WaitTimeSeconds": 1,
                    "ReceiveRequestAttemptId": "a",
                }
            case "DeleteMessage":
                return queue | {"ReceiptHandle": self.receipt()}
            case "ChangeMessageVisibility":
                return queue | {"ReceiptHandle": self.receipt(), "VisibilityTimeout": 9}
            case "DeleteMessageBatch" | "ChangeMessageVisibilityBatch":
                entries: list[dict[str, Any]] = [
                    {"Id": "right", "ReceiptHandle": self.receipt()},
                    {"Id": "wrong", "ReceiptHandle": "x"},
                ]
                if name.startswith("Change"):
                    entries = [entry | {"VisibilityTimeout": 9} for entry in entries]
                return queue | {"Entries": entries}
            case "PurgeQueue":
                return {"QueueUrl": self.letters}
            case "StartMessageMoveTask":
                self.emptied()
                return {
                    "SourceArn": f"{ARN}letters",
                    "DestinationArn": f"{ARN}model",
                    "MaxNumberOfMessagesPerSecond": 1,
                }
            case "ListMessageMoveTasks":
                if not self.do("ListMessageMoveTasks", {"SourceArn": f"{ARN}letters"})["Results"]:
                    self.do("StartMessageMoveTask", self.values("StartMessageMoveTask"))
                return {"SourceArn": f"{ARN}letters", "MaxResults": 10}
            case "CancelMessageMoveTask":
                values = self.values("StartMessageMoveTask")
                for number in range(3):
                    body = {"QueueUrl": self.letters, "MessageBody": str(number)}
                    self.do("SendMessage", body)
                return dict(self.do("StartMessageMoveTask", values))
        raise AssertionError(f"{name} is new: {url}")

    def emptied(self) -> None:
        """No task runs, and nothing is left of an earlier one."""
        self.do("PurgeQueue", {"QueueUrl": self.letters})
        source = {"SourceArn": f"{ARN}letters", "MaxResults": 10}
        while True:
            results = self.do("ListMessageMoveTasks", source)["Results"]
            if all(one["Status"] not in ("RUNNING", "CANCELLING") for one in results):
                return


@pytest.fixture(scope="module")
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.http.close()


def check_shape(value: Any, name: str, where: str) -> None:
    """A value is what a shape of the model says."""
    shape = SHAPES[name]
    kind = shape["type"]
    if kind == "structure":
        assert isinstance(value, dict), where
        assert set(value) <= set(shape["members"]), (where, set(value) - set(shape["members"]))
        assert set(shape.get("required", ())) <= set(value), where
        for member, part in value.items():
            check_shape(part, shape["members"][member]["shape"], f"{where}.{member}")
    elif kind == "list":
        assert isinstance(value, list), where
        for part in value:
            check_shape(part, shape["member"]["shape"], f"{where}[]")
    elif kind == "map":
        assert isinstance(value, dict), where
        for key, part in value.items():
            check_shape(key, shape["key"]["shape"], f"{where} key")
            check_shape(part, shape["value"]["shape"], f"{where}.{key}")
    else:
        assert type(value) is KINDS[kind], (where, value)
        assert value in shape.get("enum", [value]), (where, value)


def spoilt(values: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Requests with one thing wrong in them, each with what that is."""
    shape = SHAPES[name]
    for member, found in shape["members"].items():
        kind = SHAPES[found["shape"]]["type"]
        for wrong in WRONG[kind]:
            yield f"{member} = {wrong!r:.40}", values | {member: wrong}
        inner = values.get(member)
        inner_shape = SHAPES[found["shape"]]
        if kind == "list" and SHAPES[inner_shape["member"]["shape"]]["type"] == "structure":
            assert inner
            for where, part in spoilt(inner[0], inner_shape["member"]["shape"]):
                yield f"{member}[0].{where}", values | {member: [part]}
    for member in shape.get("required", ()):
        yield f"without {member}", {key: values[key] for key in values if key != member}
    yield "a field that is unknown", values | {"Colour": "red"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_answer_is_what_the_model_says(world: World, name: str) -> None:
    answer = world.do(name, world.values(name))
    output = MODEL["operations"][name].get("output")
    if output is None:
        assert answer == {}
    else:
        check_shape(answer, output["shape"], name)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_wrong_gets_an_error_that_clients_know(world: World, name: str) -> None:
    values = world.values(name)
    if name == "ReceiveMessage":
        values["WaitTimeSeconds"] = 0
    shape = MODEL["operations"][name]["input"]["shape"]
    refused = 0
    for where, wrong in spoilt(values, shape):
        status, answer = world.ask(name, wrong)
        assert status in (200, 400), (name, where, answer)
        if status == 400:
            refused += 1
            found = answer["__type"].partition("#")[2]
            assert found in ERRORS, (name, where, answer)
            assert answer["message"], (name, where)
    assert refused > 5
    assert world.ask("ListQueues", {})[0] == 200
