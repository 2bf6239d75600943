"""SQS's operations on queues: make, find, list, change, tag, permit, purge, delete.

Room: http. On the event loop; what waits for the catalogue or many partitions runs on a thread.
See: topics.py for what a queue is; access/roles.py for what permissions are here.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

from fastapi.concurrency import run_in_threadpool

from dejaqueue.access import rules
from dejaqueue.access.roles import Principal, Role
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicExists, TopicUnknown
from dejaqueue.http.sqs import topics
from dejaqueue.http.sqs.names import ACCOUNT, arn_of, is_fifo, name_of_url, new_name, url_of
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.http.sqs.rows import wrong
from dejaqueue.http.sqs.state import Operation
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import WriteStream

PAGE_MAX = 1_000
PURGE_ROWS = 1_000
Answer = dict[str, Any]

_USER = f"arn:aws:iam::{ACCOUNT}:user/"
ROLES_OF = {
    "SendMessage": Role.PRODUCE,
    "ReceiveMessage": Role.CONSUME,
    "DeleteMessage": Role.CONSUME,
    "ChangeMessageVisibility": Role.CONSUME,
    "GetQueueAttributes": Role.OBSERVE,
    "GetQueueUrl": Role.OBSERVE,
    "ListDeadLetterSourceQueues": Role.OBSERVE,
    "ListQueueTags": Role.OBSERVE,
    "PurgeQueue": Role.MANAGE,
}
"""The actions that AddPermission names, and the role that each is here."""


def _managed(operation: Operation) -> str:
    """The queue of an operation that administers it."""
    queue_name = name_of_url(operation.values.get("QueueUrl"))
    operation.require(Role.MANAGE, queue_name)
    return queue_name


def _known(operation: Operation, roles: tuple[Role, ...] = rules.ANY) -> Topic:
    """The queue of an operation that looks at it."""
    queue_name = name_of_url(operation.values.get("QueueUrl"))
    rules.require_any(operation.principal, roles, queue_name)
    return operation.topic(queue_name)


# --- queues ---------------------------------------------------------------------------------------


async def create(operation: Operation) -> Answer:
    """CreateQueue: one that is there, with the same attributes, is fine."""
    values = operation.values
    name = new_name(values.get("QueueName"))
    operation.require(Role.MANAGE, name)
    attributes = values.get("Attributes")
    topic = topics.new_topic(name, attributes, values.get("tags"), operation.now_ms())
    await run_in_threadpool(_check_letters, operation, topic)
    await run_in_threadpool(_create, operation.broker, topic, attributes)
    return {"QueueUrl": url_of(operation.base_url, name)}


def _create(broker: Broker, topic: Topic, attributes: object) -> None:
    try:
        known = broker.topic(topic.name)
    except TopicUnknown:
        try:
            broker.create_topic(topic)
            return
        except TopicExists:
            known = broker.topic(topic.name)
    if not topics.is_queue(known):
        raise SqsRefusal("QueueNameExists", f"a topic {topic.name} is there that is no queue")
    asked, there = topics.attributes_of(topic, ""), topics.attributes_of(known, "")
    named = attributes if isinstance(attributes, dict) else {}
    for name in named:
        if asked.get(name) != there.get(name):
            text = f"queue {topic.name} is there with another {name}: {there.get(name)}"
            raise SqsRefusal("QueueNameExists", text)


def _check_letters(operation: Operation, topic: Topic) -> None:
    """Raise SqsRefusal, Forbidden unless a queue's dead letters may go where it says."""
    if not topic.max_attempts:
        return
    operation.require(Role.MANAGE, topic.dead_letter_name)
    try:
        letters = operation.topic(topic.dead_letter_name)
    except TopicUnknown:
        text = f"deadLetterTargetArn: a queue that is there, got: {topic.dead_letter_name}"
        raise wrong(text) from None
    topics.check_allows(letters, topic.name)


async def url(operation: Operation) -> Answer:
    """GetQueueUrl."""
    name = operation.values.get("QueueName")
    if not isinstance(name, str):
        raise SqsRefusal("MissingParameter", "QueueName: a name")
    try:
        queue_name = name_of_url(name)
    except SqsRefusal:
        raise TopicUnknown(name[:100]) from None
    rules.require_any(operation.principal, rules.ANY, queue_name)
    return {"QueueUrl": url_of(operation.base_url, operation.topic(queue_name).name)}


async def list_all(operation: Operation) -> Answer:
    """ListQueues, of those that the caller has any role for."""
    prefix = operation.values.get("QueueNamePrefix") or ""
    if not isinstance(prefix, str):
        raise wrong("QueueNamePrefix: a text")
    return _page(operation, "QueueUrls", lambda topic: topic.name.startswith(prefix))


async def list_sources(operation: Operation) -> Answer:
    """ListDeadLetterSourceQueues: whose dead letters come to a queue."""
    letters = _known(operation)

    def sends(topic: Topic) -> bool:
        return bool(topic.max_attempts) and topic.dead_letter_name == letters.name

    answer = _page(operation, "queueUrls", sends)
    return {"queueUrls": []} | answer


def _page(operation: Operation, field: str, is_wanted: Callable[[Topic], bool]) -> Answer:
    values, principal = operation.values, operation.principal
    most = values.get("MaxResults")
    if most is not None and (type(most) is not int or not 1 <= most <= PAGE_MAX):
        raise wrong(f"MaxResults: from 1 to {PAGE_MAX}, got: {most!r:.100}")
    after = _after(values.get("NextToken"))
    names = sorted(
        topic.name
        for topic in operation.broker.topics()
        if topic.name > after
        and topics.is_queue(topic)
        and principal.sees(topic.name)
        and is_wanted(topic)
    )
    page = names[: most or PAGE_MAX]
    answer: Answer = {field: [url_of(operation.base_url, name) for name in page]} if page else {}
    if len(names) > len(page) and most:
        answer["NextToken"] = urlsafe_b64encode(page[-1].encode()).decode()
    return answer


def _after(token: object) -> str:
    try:
        return urlsafe_b64decode(token).decode() if isinstance(token, str) else ""
    except ValueError:
        raise wrong("NextToken: one that was in an answer") from None


async def delete(operation: Operation) -> Answer:
    """DeleteQueue: with its messages."""
    queue_name = _managed(operation)
    operation.topic(queue_name)
    await run_in_threadpool(operation.broker.delete_topic, queue_name)
    return {}


async def purge(operation: Operation) -> Answer:
    """PurgeQueue: all messages that are there now, also those that are in flight."""
    queue_name = _managed(operation)
    operation.served(queue_name)
    await run_in_threadpool(_cancel_all, operation.broker, queue_name)
    after = None
    while True:
        ticket = {"topic": queue_name, "state": "leased", "limit": PURGE_ROWS, "after": after}
        rows, after = await run_in_threadpool(read_page, operation.broker, ticket)
        held = [(row["id"], row["attempts"]) for row in rows]
        if held:
            await operation.flow.gather(WriteStream(queue_name, "ack"), NOBODY).put(held)
        if after is None:
            return {}


def _cancel_all(broker: Broker, queue_name: str) -> None:
    after = None
    while True:
        answer = broker.call("cancel_where", {"topic": queue_name, "after": after})
        after = answer["next"]
        if after is None:
            return


def read_page(broker: Broker, ticket: Answer) -> tuple[list[Answer], Any]:
    """Rows of a peek, and where the next page begins; None = this was the last."""
    given = {name: value for name, value in ticket.items() if value is not None}
    schema, batches = broker.read("peek", given)
    [batch] = list(batches)
    following = (batch.schema.metadata or schema.metadata or {}).get(b"next")
    return batch.to_pylist(), None if following is None else json.loads(following)


# --- attributes, tags, permissions ----------------------------------------------------------------


async def attributes(operation: Operation) -> Answer:
    """GetQueueAttributes. The counts are for those who may look at the queue."""
    topic = _known(operation)
    wanted = topics.check_names(operation.values.get("AttributeNames"))
    shown = topics.attributes_of(topic, operation.region)
    counts = wanted & set(topics.COUNTS)
    may_look = rules.may_look(operation.principal, topic.name)
    may_look = may_look or operation.principal.may(Role.CONSUME, topic.name)
    if counts and not may_look:
        rules.require_any(operation.principal, rules.LOOKS, topic.name)
    if counts or ("All" in wanted and may_look):
        stats = await run_in_threadpool(operation.broker.call, "stats", {"topic": topic.name})
        shown |= topics.counts_of(stats)
    chosen = {name: text for name, text in shown.items() if name in wanted or "All" in wanted}
    return {"Attributes": chosen} if chosen else {}


async def set_attributes(operation: Operation) -> Answer:
    """SetQueueAttributes."""
    queue_name = _managed(operation)
    given = operation.values.get("Attributes")
    if not given:
        raise SqsRefusal("MissingParameter", "Attributes: at least one")
    if isinstance(given, dict) and "FifoQueue" in given:
        raise SqsRefusal("InvalidAttributeName", "FifoQueue: is fixed when the queue is made")
    before = operation.topic(queue_name)
    changes = topics.changes_of(before, given, operation.now_ms())
    if "max_attempts" in changes:
        asked = Topic.from_dict(before.to_dict() | changes)
        await run_in_threadpool(_check_letters, operation, asked)
    now_ms, by_ms = operation.now_ms(), 0

    def change(topic: Topic) -> Answer:
        nonlocal by_ms
        changes = topics.changes_of(topic, given, now_ms)
        after = Topic.from_dict(topic.to_dict() | changes)
        seconds = [int(topics.label_of(one, "DelaySeconds")) for one in (topic, after)]
        by_ms = (seconds[1] - seconds[0]) * 1_000
        return changes

    await operation.alter(queue_name, change)
    if is_fifo(queue_name):
        await run_in_threadpool(_shift, operation.broker, queue_name, by_ms)
    return {}


def _shift(broker: Broker, queue_name: str, by_ms: int) -> None:
    """A FIFO queue's delay is that of all its messages: those that are there keep their order."""
    place = None
    while by_ms:
        body = {"topic": queue_name, "by_ms": by_ms, "after": place}
        place = broker.call("move_where", body)["next"]
        if place is None:
            return


async def tag(operation: Operation) -> Answer:
    """TagQueue."""
    queue_name = _managed(operation)
    tags = topics.tags_of(operation.values.get("Tags"))
    await operation.alter(queue_name, lambda topic: _tagged(topic, tags))
    return {}


def _tagged(topic: Topic, more: dict[str, str]) -> Answer:
    tags = topics.with_tags(topics.json_label(topic, topics.TAGS), more)
    return {"labels": {**topic.labels, topics.TAGS: json.dumps(tags)}}


async def untag(operation: Operation) -> Answer:
    """UntagQueue."""
    queue_name = _managed(operation)
    names = operation.values.get("TagKeys")
    if not isinstance(names, list):
        raise wrong("TagKeys: a list of names")

    def change(topic: Topic) -> Answer:
        tags = topics.json_label(topic, topics.TAGS)
        left = {name: text for name, text in tags.items() if name not in names}
        return {"labels": {**topic.labels, topics.TAGS: json.dumps(left)}}

    await operation.alter(queue_name, change)
    return {}


async def list_tags(operation: Operation) -> Answer:
    """ListQueueTags."""
    tags = topics.json_label(_known(operation), topics.TAGS)
    return {"Tags": tags} if tags else {}


async def add_permission(operation: Operation) -> Answer:
    """AddPermission: writes down that API keys may do something, if they may.

    What a key may do is said by its grants alone, which only administrators give. A statement that
    is not so is refused, so nobody relies on one.
    """
    queue_name = _managed(operation)
    values = operation.values
    label, accounts, actions = (values.get(n) for n in ("Label", "AWSAccountIds", "Actions"))
    if not isinstance(label, str) or not 1 <= len(label) <= 80:
        raise wrong("Label: 1 to 80 characters")
    for name, given in (("AWSAccountIds", accounts), ("Actions", actions)):
        if not isinstance(given, list) or not given or not all(isinstance(g, str) for g in given):
            raise wrong(f"{name}: a list of texts, not empty")
    assert isinstance(accounts, list)
    assert isinstance(actions, list)
    for account in accounts:
        _check_permitted(operation, account, actions, queue_name)

    def change(topic: Topic) -> Answer:
        known = topics.json_label(topic, topics.PERMISSIONS)
        if label in known:
            raise wrong(f"Label: another one than those that are there, got: {label}")
        known[label] = {"accounts": accounts, "actions": actions}
        return _with_permissions(operation, topic, known)

    await operation.alter(queue_name, change)
    return {}


def _check_permitted(
    operation: Operation, account: str, actions: list[str], queue_name: str
) -> None:
    keys = operation.sqs.service.gate.keys
    if not keys.required:
        return
    key = keys.snapshot.get(account) or keys.named(account)
    if key is None:
        raise wrong(f"AWSAccountIds: the id or the name of an API key, got: {account[:100]}")
    for action in actions:
        _check_action(key.principal, action, queue_name)


def _check_action(principal: Principal, action: str, queue_name: str) -> None:
    if action != "*" and action not in ROLES_OF:
        raise wrong(f"Actions: of {', '.join(ROLES_OF)}, got: {action[:100]}")
    for role in set(ROLES_OF.values()) if action == "*" else {ROLES_OF[action]}:
        if not principal.may(role, queue_name):
            text = f"{principal.name} has no role {role.value!r} for it, and a queue's permissions "
            raise SqsRefusal("UnsupportedOperation", f"{text}give none: `dejaq key create` does")


def _with_permissions(operation: Operation, topic: Topic, known: dict[str, Any]) -> Answer:
    """The permissions, and the policy that says the same."""
    labels = {**topic.labels, topics.PERMISSIONS: json.dumps(known)}
    statements = [
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {
                "AWS": [f"arn:aws:iam::{ACCOUNT}:user/{one}" for one in rule["accounts"]]
            },
            "Action": [f"SQS:{action}" for action in rule["actions"]],
            "Resource": arn_of(operation.region, topic.name),
        }
        for label, rule in known.items()
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    labels[f"{topics.PREFIX}Policy"] = json.dumps(policy)
    if not known:
        del labels[f"{topics.PREFIX}Policy"]
    return {"labels": labels}


async def remove_permission(operation: Operation) -> Answer:
    """RemovePermission."""
    queue_name = _managed(operation)
    label = operation.values.get("Label")

    def change(topic: Topic) -> Answer:
        known = topics.json_label(topic, topics.PERMISSIONS)
        if not isinstance(label, str) or known.pop(label, None) is None:
            raise wrong(f"Label: one that is there, got: {label!r:.100}")
        return _with_permissions(operation, topic, known)

    await operation.alter(queue_name, change)
    return {}
