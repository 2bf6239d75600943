"""Message move tasks: back to each origin or elsewhere, at a rate, cancelled, told.

What other implementations got wrong: moves that drop messages, or go faster than they were told.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dejaqueue.broker.broker import Broker
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import until
from tests.unit.http.sqs.conftest import Sqs

ARN = "arn:aws:sqs:us-east-1:000000000000:"


def with_letters(sqs: Sqs, clock: VirtualClock, count: int, *names: str) -> str:
    """Queues whose messages have died; the address of the one where they are."""
    letters = sqs.queue("letters")
    policy = f'{{"deadLetterTargetArn":"{ARN}letters","maxReceiveCount":1}}'
    for name in names:
        url = sqs.queue(name, RedrivePolicy=policy, VisibilityTimeout="10")
        for number in range(count):
            colour = {"colour": {"DataType": "String", "StringValue": "red"}}
            sqs.send(url, f"{name} {number}", MessageAttributes=colour)
        while sqs.take(url):
            pass
    clock.advance(ms=11_000)
    for name in names:
        sqs.take(f"{sqs.base_url}/sqs/000000000000/{name}")
    until(lambda: waiting(sqs, letters) == count * len(names), "all are dead letters")
    return letters


def waiting(sqs: Sqs, url: str) -> int:
    return int(sqs.shown(url, "ApproximateNumberOfMessages")["ApproximateNumberOfMessages"])


def tasks(sqs: Sqs, most: int = 10) -> list[Any]:
    found: list[Any] = sqs.do("ListMessageMoveTasks", SourceArn=f"{ARN}letters", MaxResults=most)[
        "Results"
    ]
    return found


def ended(sqs: Sqs) -> Any:
    until(lambda: tasks(sqs)[0]["Status"] != "RUNNING", "the task has ended")
    return tasks(sqs)[0]


def test_letters_go_back_to_where_each_came_from(sqs: Sqs, clock: VirtualClock) -> None:
    letters = with_letters(sqs, clock, 3, "a", "b")
    [one, *_] = sqs.take(letters, 1, VisibilityTimeout=1)
    assert one["Attributes"]["DeadLetterQueueSourceArn"] in (f"{ARN}a", f"{ARN}b")
    assert list(one["MessageAttributes"]) == ["colour"]
    clock.advance(ms=2_000)
    sources = sqs.do("ListDeadLetterSourceQueues", QueueUrl=letters)["queueUrls"]
    assert [url.rpartition("/")[2] for url in sources] == ["a", "b"]
    handle = sqs.do("StartMessageMoveTask", SourceArn=f"{ARN}letters")["TaskHandle"]
    task = ended(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 6)
    assert "TaskHandle" not in task
    for name in ("a", "b"):
        url = f"{sqs.base_url}/sqs/000000000000/{name}"
        until(lambda url=url: waiting(sqs, url) == 3)  # type: ignore[misc]
        found = sqs.take(url)
        assert sorted(message["Body"] for message in found) == [f"{name} {n}" for n in range(3)]
        assert list(found[0]["MessageAttributes"]) == ["colour"]
    assert waiting(sqs, letters) == 0
    text = sqs.refused("CancelMessageMoveTask", TaskHandle=handle)
    assert text.startswith("ResourceNotFoundException"), "it has ended"


def test_a_rate_is_kept__and_a_task_that_is_cancelled_drops_nothing(
    sqs: Sqs, clock: VirtualClock
) -> None:
    letters = with_letters(sqs, clock, 40, "a")
    other = sqs.queue("other")
    began = time.monotonic()
    handle = sqs.do(
        "StartMessageMoveTask",
        SourceArn=f"{ARN}letters",
        DestinationArn=f"{ARN}other",
        MaxNumberOfMessagesPerSecond=10,
    )["TaskHandle"]
    text = sqs.refused("StartMessageMoveTask", SourceArn=f"{ARN}letters")
    assert text.startswith("InvalidParameterValue SourceArn")
    until(lambda: tasks(sqs)[0]["ApproximateNumberOfMessagesMoved"] >= 5)
    took = time.monotonic() - began
    moved = sqs.do("CancelMessageMoveTask", TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert 5 <= moved <= 40
    assert moved <= (time.monotonic() - began) * 10 + 1
    assert took >= 0.4
    task = ended(sqs)
    assert (task["Status"], task["DestinationArn"]) == ("CANCELLED", f"{ARN}other")
    assert task["MaxNumberOfMessagesPerSecond"] == 10
    until(lambda: waiting(sqs, other) == moved)
    assert waiting(sqs, letters) == 40 - moved
    sqs.do("StartMessageMoveTask", SourceArn=f"{ARN}letters", DestinationArn=f"{ARN}other")
    assert ended(sqs)["Status"] == "COMPLETED"
    until(lambda: waiting(sqs, other) == 40)
    assert [one["Status"] for one in tasks(sqs)] == ["COMPLETED", "CANCELLED"]
    assert len(tasks(sqs, 1)) == 1


def test_of_tasks_that_are_started_at_once_one_runs(sqs: Sqs, clock: VirtualClock) -> None:
    with_letters(sqs, clock, 3, "a")
    asked = {"SourceArn": f"{ARN}letters", "MaxNumberOfMessagesPerSecond": 1}
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: sqs.ask("StartMessageMoveTask", **asked), range(8)))
    started = [answer for status, answer in found if status == 200]
    assert len(started) == 1
    sqs.do("CancelMessageMoveTask", TaskHandle=started[0]["TaskHandle"])


def test_what_has_no_way_back_stays__and_is_told(
    sqs: Sqs, clock: VirtualClock, broker: Broker
) -> None:
    letters = with_letters(sqs, clock, 2, "a", "b")
    sqs.send(letters, "was sent here")
    broker.delete_topic("b")
    sqs.do("StartMessageMoveTask", SourceArn=f"{ARN}letters")
    task = ended(sqs)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 2)
    assert task["FailureReason"].startswith("CouldNotDetermineMessageSource: 3 messages stay")
    assert waiting(sqs, letters) == 3


def test_what_is_no_source_is_refused(sqs: Sqs) -> None:
    sqs.queue("plain")
    refused = {
        "plain": "InvalidParameterValue SourceArn: a queue that another one's",
        "nowhere": "ResourceNotFoundException",
    }
    for name, text in refused.items():
        found = sqs.refused("StartMessageMoveTask", SourceArn=f"{ARN}{name}")
        assert found.startswith(text)
    arn = f"{ARN}plain"
    for more in ({"DestinationArn": arn}, {"MaxNumberOfMessagesPerSecond": 501}):
        found = sqs.refused("StartMessageMoveTask", SourceArn=arn, **more)
        assert found.startswith("InvalidParameterValue")
    assert sqs.refused("CancelMessageMoveTask", TaskHandle="x").startswith("InvalidParameterValue")
    assert sqs.refused("StartMessageMoveTask", SourceArn="plain").startswith(
        "InvalidParameterValue SourceArn"
    )
