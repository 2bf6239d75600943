"""Message move tasks: dead letters go back to their queues, or to another one, at a rate.

Room: http. On the event loop; each page is a redrive (broker/calls/redrive.py), on a thread.
Holds: nothing is lost or doubled by a move, whenever it ends; never more than the rate in a second;
what stays is told. A task ends with the broker; what it had moved until then stays moved.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from typing import Any

from fastapi.concurrency import run_in_threadpool

from dejaqueue.access import rules
from dejaqueue.access.roles import Role
from dejaqueue.access.senders import Requester
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.http.bodies import load_json
from dejaqueue.http.sqs import topics
from dejaqueue.http.sqs.catalogue import read_page
from dejaqueue.http.sqs.names import arn_of, name_of_arn
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.rows import wrong
from dejaqueue.http.sqs.state import Operation
from dejaqueue.http.sqs.tasks import CANCELLED, CANCELLING, COMPLETED, FAILED, RUNNING, Task
from dejaqueue.model import Topic

RATE_MAX = 500
PAGE_ROWS = 256
STEPS_PER_SECOND = 10
TASKS_KEPT = 10
Answer = dict[str, Any]


async def start(operation: Operation) -> Answer:
    """StartMessageMoveTask."""
    values = operation.values
    source = name_of_arn(values.get("SourceArn"), "SourceArn")
    operation.require(Role.MANAGE, source)
    destination = ""
    if values.get("DestinationArn") is not None:
        destination = name_of_arn(values["DestinationArn"], "DestinationArn")
        rules.require_any(operation.principal, (Role.PRODUCE, Role.MANAGE), destination)
    rate = values.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and (type(rate) is not int or not 1 <= rate <= RATE_MAX):
        raise wrong(f"MaxNumberOfMessagesPerSecond: from 1 to {RATE_MAX}, got: {rate!r:.100}")
    _found(operation, source)
    if destination:
        _found(operation, destination)
        if destination == source:
            raise wrong("DestinationArn: another queue")
    elif not any(
        one.max_attempts and one.dead_letter_name == source for one in operation.broker.topics()
    ):
        raise wrong("SourceArn: a queue that another one's dead letters go to")
    tasks = operation.sqs.tasks
    running = tasks.get(source)
    if running is not None and running.status in (RUNNING, CANCELLING):
        raise wrong(f"SourceArn: a queue that no task empties now; {running.handle[:24]}… does")
    broker = operation.broker
    principal = operation.principal
    by = Requester(principal.sender, rules.may_receive(principal))
    now_ms = operation.now_ms()
    task = Task(_handle(operation, source), source, destination, rate or 0, now_ms, 0, by)
    tasks[source] = task  # before anything is waited for: one that begins meanwhile finds it
    try:
        stats = await run_in_threadpool(broker.call, "stats", {"topic": source})
        task.to_move = int(stats["ready"])
        await _keep(operation, task)
        task.work = asyncio.create_task(_run(operation, broker, task))
    finally:
        if task.work is None:
            task.status = FAILED
    return {"TaskHandle": task.handle}


def _handle(operation: Operation, source: str) -> str:
    arn = arn_of(operation.region, source)
    text = json.dumps({"taskId": str(uuid.uuid4()), "sourceArn": arn})
    return urlsafe_b64encode(text.encode()).decode()


def _found(operation: Operation, queue_name: str) -> Topic:
    try:
        operation.served(queue_name)
        return operation.topic(queue_name)
    except TopicUnknown:
        text = f"there is no queue {queue_name}"
        raise SqsRefusal("ResourceNotFoundException", text) from None


async def _run(operation: Operation, broker: Broker, task: Task) -> None:
    try:
        await _move(broker, task)
        task.status = CANCELLED if task.ending.is_set() else COMPLETED
        if task.left and task.status == COMPLETED:
            task.status = FAILED
            task.failure = (
                f"CouldNotDetermineMessageSource: {task.left} messages stay, as they did not come "
                "from a queue that is there, or a message of the same key is there"
            )
    except DejaQError as error:
        task.status, task.failure = FAILED, error.told()
    with suppress(DejaQError):  # the queue was deleted meanwhile
        await _keep(operation, task)


async def _move(broker: Broker, task: Task) -> None:
    """Page by page, in the order in which they are due."""
    step = max(1, task.rate // STEPS_PER_SECOND) if task.rate else PAGE_ROWS
    place: Any = None
    while not task.ending.is_set():
        ticket = {
            "topic": task.source,
            "state": "scheduled",
            "limit": step,
            "after": place,
            "due_to": task.until_ms + 1,
        }
        rows, place = await run_in_threadpool(read_page, broker, ticket)
        if rows:
            body: Answer = {"topic": task.source, "ids": [row["id"] for row in rows]}
            if task.destination:
                body["to"] = task.destination
            answer = await run_in_threadpool(broker.call, "redrive", body, task.by)
            task.moved += answer["moved"]
            task.left += len(rows) - answer["moved"]
        if place is None:
            return
        if task.rate:
            with suppress(TimeoutError):
                await asyncio.wait_for(task.ending.wait(), step / task.rate)


# --- looking, ending ------------------------------------------------------------------------------


async def list_tasks(operation: Operation) -> Answer:
    """ListMessageMoveTasks: the newest first."""
    source = name_of_arn(operation.values.get("SourceArn"), "SourceArn")
    rules.require_any(operation.principal, rules.LOOKS, source)
    most = operation.values.get("MaxResults", 1)
    if type(most) is not int or not 1 <= most <= TASKS_KEPT:
        raise wrong(f"MaxResults: from 1 to {TASKS_KEPT}, got: {most!r:.100}")
    topic = _found(operation, source)
    results = [_result(operation, source, one) for one in _kept(operation, topic)[:most]]
    return {"Results": results}


def _kept(operation: Operation, topic: Topic) -> list[Answer]:
    """What is known of a queue's tasks: of one that runs here what it says of itself."""
    kept: list[Answer] = topics.json_label(topic, topics.MOVES).get("tasks", [])
    task = operation.sqs.tasks.get(topic.name)
    shown = []
    for one in kept:
        if task is not None and one["TaskHandle"] == task.handle:
            one = task.shown()
        elif one["Status"] in (RUNNING, CANCELLING):
            one = one | {"Status": FAILED, "FailureReason": "the broker was restarted meanwhile"}
        shown.append(one)
    return shown


def _result(operation: Operation, source: str, kept: Answer) -> Answer:
    result = {name: value for name, value in kept.items() if value not in ("", 0)}
    result["ApproximateNumberOfMessagesMoved"] = kept["ApproximateNumberOfMessagesMoved"]
    if kept["Status"] != RUNNING:
        del result["TaskHandle"]
    destination = result.pop("Destination", "")
    if destination:
        result["DestinationArn"] = arn_of(operation.region, destination)
    return result | {"SourceArn": arn_of(operation.region, source)}


async def cancel(operation: Operation) -> Answer:
    """CancelMessageMoveTask."""
    handle = operation.values.get("TaskHandle")
    try:
        source = name_of_arn(load_json(urlsafe_b64decode(str(handle)))["sourceArn"], "TaskHandle")
    except (ValueError, KeyError, TypeError):
        raise wrong("TaskHandle: one that StartMessageMoveTask gave") from None
    operation.require(Role.MANAGE, source)
    _found(operation, source)
    task = operation.sqs.tasks.get(source)
    if task is None or task.handle != handle or task.status != RUNNING:
        raise SqsRefusal("ResourceNotFoundException", "there is no such task that runs")
    task.status = CANCELLING
    task.ending.set()
    if task.work is not None:
        await asyncio.wait([task.work])
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def _keep(operation: Operation, task: Task) -> None:
    """Write down how a task is, with the queue that it empties."""

    def change(topic: Topic) -> Answer:
        kept = [one for one in _kept(operation, topic) if one["TaskHandle"] != task.handle]
        label = json.dumps({"tasks": [task.shown(), *kept][:TASKS_KEPT]})
        return {"labels": {**topic.labels, topics.MOVES: label}}

    await operation.alter(task.source, change)
