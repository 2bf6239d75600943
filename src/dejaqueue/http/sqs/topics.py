"""SQS's queues are topics: a queue's attributes in a topic's settings and labels.

Room: http. Pure: attributes to settings, and back.
Holds: what a queue is can be read from its topic alone; an attribute that cannot be kept is
refused, or docs/guides/moving-from-sqs.md says what it does.

    VisibilityTimeout   lease_ms             MaximumMessageSize    max_payload_bytes
    RedrivePolicy       max_attempts, dead_letter
    FIFO queue          kind fair, group_runs, group_in_flight_max 10: as many as one receive has
    standard queue      kind fair (made here), or timeline or priority (made elsewhere)
    the others          labels `sqs.NAME`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dejaqueue import limits
from dejaqueue.digits import number_of
from dejaqueue.http.bodies import load_json
from dejaqueue.http.sqs.names import arn_of, is_fifo, name_of_arn
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.model import Assignment, Topic, TopicKind

PREFIX = "sqs."
"""How the labels begin that these attributes are kept in."""
TAGS, PERMISSIONS, MOVES = f"{PREFIX}tags", f"{PREFIX}permissions", f"{PREFIX}moves"
CREATED, MODIFIED = f"{PREFIX}created", f"{PREFIX}modified"
_SCOPE = "DeduplicationScope"
DELAY_MS_MAX = 900_000
"""A quarter of an hour: what SQS allows, and a queue that is made here."""
TAGS_MAX = 50
RECEIVES_MAX = 1_000
RUN_MAX = 10
"""Messages of one group that a FIFO queue gives at once: as many as one receive may have."""
KINDS = (TopicKind.FAIR, TopicKind.TIMELINE, TopicKind.PRIORITY)
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
"""Attributes that are counted when somebody asks."""
_SHOWN_ONLY = frozenset({*COUNTS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"})


@dataclass(frozen=True, slots=True)
class _Label:
    """An attribute that is kept as a label.

    Attributes:
        default: what a queue has that was not given it; "" = it is not shown.
        check: returns the text that is kept, or raises SqsRefusal.
    """

    default: str
    check: Callable[[str, str], str]
    fifo_only: bool = False


def _whole(low: int, high: int) -> Callable[[str, str], str]:
    def check(name: str, text: str) -> str:
        number = number_of(text)
        if number is None or not low <= number <= high:
            raise wrong_value(name, f"a whole number from {low} to {high}", text)
        return str(number)

    return check


def _one_of(*words: str) -> Callable[[str, str], str]:
    def check(name: str, text: str) -> str:
        if text not in words:
            raise wrong_value(name, f"one of {', '.join(words)}", text)
        return text

    return check


def _json(name: str, text: str) -> str:
    try:
        value = load_json(text.encode())
    except ValueError:
        raise wrong_value(name, "JSON", text) from None
    if not isinstance(value, dict):
        raise wrong_value(name, "a JSON object", text)
    return json.dumps(value)


_LABELS = {
    "DelaySeconds": _Label("0", _whole(0, 900)),
    "MessageRetentionPeriod": _Label("345600", _whole(60, 1_209_600)),
    "ReceiveMessageWaitTimeSeconds": _Label("0", _whole(0, 20)),
    "Policy": _Label("", _json),
    "RedriveAllowPolicy": _Label("", _json),
    "ContentBasedDeduplication": _Label("false", _one_of("true", "false"), fifo_only=True),
    "DeduplicationScope": _Label("queue", _one_of("queue", "messageGroup"), fifo_only=True),
    "FifoThroughputLimit": _Label(
        "perQueue", _one_of("perQueue", "perMessageGroupId"), fifo_only=True
    ),
}


def wrong_value(name: str, limit: str, value: object) -> SqsRefusal:
    """What is said of an attribute with a wrong value."""
    return SqsRefusal("InvalidAttributeValue", f"{name}: {limit}, got: {value!r:.200}")


def is_queue(topic: Topic) -> bool:
    """True if SQS's clients can use the topic."""
    return topic.kind in KINDS and topic.assignment is Assignment.SHARED


def label_of(topic: Topic, name: str) -> str:
    """An attribute that is kept as a label, or its default."""
    return topic.labels.get(f"{PREFIX}{name}", _LABELS[name].default)


def is_scoped_by_group(topic: Topic) -> bool:
    """True if a deduplication id counts within its message group alone."""
    return label_of(topic, _SCOPE) == "messageGroup"


def json_label(topic: Topic, label: str) -> Any:
    """A label that is JSON; {} if there is none."""
    try:
        return json.loads(topic.labels.get(label, "{}"))
    except ValueError:  # somebody else wrote it
        return {}


# --- attributes that are given --------------------------------------------------------------------


def changes_of(topic: Topic, attributes: object, now_ms: int) -> dict[str, Any]:
    """The settings that attributes mean for a topic; the others stay as they are.

    Raises:
        SqsRefusal: an attribute is unknown, fixed or wrong.
    """
    texts = _texts_of(attributes)
    changes: dict[str, Any] = {}
    labels = dict(topic.labels)
    for name, text in texts.items():
        known = _LABELS.get(name)
        if known is not None:
            if known.fifo_only and not is_fifo(topic.name):
                raise SqsRefusal("InvalidAttributeName", f"{name}: for FIFO queues alone")
            labels.pop(f"{PREFIX}{name}", None)
            if text or known.default:  # an empty policy is none
                labels[f"{PREFIX}{name}"] = known.check(name, text)
        elif name == "VisibilityTimeout":
            seconds = int(_whole(0, 43_200)(name, text))
            changes["lease_ms"] = max(seconds * 1_000, limits.LEASE_MS_MIN)
        elif name == "MaximumMessageSize":
            changes["max_payload_bytes"] = int(
                _whole(1_024, limits.PAYLOAD_BYTES_DEFAULT)(name, text)
            )
        elif name == "RedrivePolicy":
            changes |= _redrive_of(topic, text)
        else:
            _check_fixed(topic, name, text)
    _check_throughput(labels)
    labels[MODIFIED] = str(now_ms // 1_000)
    labels.setdefault(CREATED, labels[MODIFIED])
    return changes | {"labels": labels}


def _check_throughput(labels: Mapping[str, str]) -> None:
    """Raise SqsRefusal for a limit by group where deduplication ids count for the whole queue.

    SQS refuses the pair, too. No queue has a limit here; who sets one wants to see it again.
    """
    limit, scope = (labels.get(f"{PREFIX}{n}") for n in ("FifoThroughputLimit", _SCOPE))
    if limit == "perMessageGroupId" and scope != "messageGroup":
        told = "perQueue, unless DeduplicationScope is messageGroup"
        raise wrong_value("FifoThroughputLimit", told, limit)


def _texts_of(attributes: object) -> dict[str, str]:
    if attributes is None:
        return {}
    if not isinstance(attributes, dict):
        raise SqsRefusal("InvalidParameterValue", "Attributes: texts by name")
    for name, text in attributes.items():
        if not isinstance(text, str):
            raise wrong_value(name, "a text", text)
    return attributes


def _check_fixed(topic: Topic, name: str, text: str) -> None:
    """Refuse what is not there, unless it says what is so anyway."""
    if name == "FifoQueue":
        if text != "true" or not is_fifo(topic.name):
            raise wrong_value(name, "true, for a name that ends with .fifo", text)
    elif name in ("KmsMasterKeyId", "SqsManagedSseEnabled", "KmsDataKeyReusePeriodSeconds"):
        if text not in ("", "false"):
            raise SqsRefusal(
                "UnsupportedOperation", f"{name}: messages are not encrypted by the broker"
            )
    else:
        is_known = name in _SHOWN_ONLY
        text = "cannot be set" if is_known else "unknown attribute"
        raise SqsRefusal("InvalidAttributeName", f"{name[:100]}: {text}")


def _redrive_of(topic: Topic, text: str) -> dict[str, Any]:
    """What a redrive policy means; an empty one ends it."""
    if not text:
        return {"max_attempts": 0, "dead_letter": ""}
    policy = json.loads(_json("RedrivePolicy", text))
    for name in policy:
        if name not in ("deadLetterTargetArn", "maxReceiveCount"):
            raise wrong_value("RedrivePolicy", "deadLetterTargetArn and maxReceiveCount", name)
    count = _whole(1, RECEIVES_MAX)("maxReceiveCount", str(policy.get("maxReceiveCount")))
    target = name_of_arn(policy.get("deadLetterTargetArn"), "deadLetterTargetArn")
    if target == topic.name:
        raise wrong_value("deadLetterTargetArn", "another queue", target)
    if is_fifo(target) != is_fifo(topic.name):
        kind = "a FIFO queue" if is_fifo(topic.name) else "a standard queue"
        raise wrong_value("deadLetterTargetArn", f"{kind}, as {topic.name} is one", target)
    return {"max_attempts": int(count), "dead_letter": target}


def check_allows(letters: Topic, source: str) -> None:
    """Raise SqsRefusal if a queue does not take dead letters of another one."""
    policy = json_label(letters, f"{PREFIX}RedriveAllowPolicy")
    permission = policy.get("redrivePermission", "allowAll")
    arns = policy.get("sourceQueueArns", [])
    names = [name_of_arn(arn, "sourceQueueArns") for arn in arns]
    if permission == "denyAll" or (permission == "byQueue" and source not in names):
        text = f"queue {letters.name} does not take dead letters of {source}: RedriveAllowPolicy"
        raise SqsRefusal("InvalidParameterValue", text)


def tags_of(values: object) -> dict[str, str]:
    """Checked tags. Raises SqsRefusal."""
    pairs = values.items() if isinstance(values, dict) else ()
    is_right = isinstance(values, dict) and all(
        isinstance(value, str) and 1 <= len(name) <= 128 and len(value) <= 256
        for name, value in pairs
    )
    if not is_right:
        limit = "names of 1 to 128 characters, values of at most 256"
        raise SqsRefusal("InvalidParameterValue", f"Tags: {limit}")
    return dict(pairs)


def new_topic(name: str, attributes: object, tags: object, now_ms: int) -> Topic:
    """The topic for a new queue. Raises SqsRefusal."""
    texts = _texts_of(attributes)
    if is_fifo(name) and texts.get("FifoQueue") != "true":
        raise wrong_value("FifoQueue", "true, as the name ends with .fifo", texts.get("FifoQueue"))
    plain = Topic(
        name,
        TopicKind.FAIR,
        max_delay_ms=DELAY_MS_MAX,
        group_in_flight_max=RUN_MAX if is_fifo(name) else 0,
        group_runs=is_fifo(name),
    )
    labels = {}
    if tags:
        labels = {TAGS: json.dumps(with_tags({}, tags_of(tags)))}
    topic = Topic.from_dict(plain.to_dict() | {"labels": labels})
    return Topic.from_dict(topic.to_dict() | changes_of(topic, texts, now_ms))


def with_tags(tags: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Tags of a queue with others. Raises SqsRefusal: there are too many."""
    together = {**tags, **more}
    if len(together) > TAGS_MAX:
        raise SqsRefusal("InvalidParameterValue", f"Tags: at most {TAGS_MAX}")
    return together


# --- attributes that are shown --------------------------------------------------------------------


def attributes_of(topic: Topic, region: str) -> dict[str, str]:
    """All attributes of a queue, but for COUNTS."""
    shown = {
        "QueueArn": arn_of(region, topic.name),
        "VisibilityTimeout": str(topic.lease_ms // 1_000),
        "MaximumMessageSize": str(topic.max_payload_bytes),
        "CreatedTimestamp": topic.labels.get(CREATED, "0"),
        "LastModifiedTimestamp": topic.labels.get(MODIFIED, "0"),
        "SqsManagedSseEnabled": "false",
    }
    for name, known in _LABELS.items():
        text = label_of(topic, name)
        if text and (is_fifo(topic.name) or not known.fifo_only):
            shown[name] = text
    if is_fifo(topic.name):
        shown["FifoQueue"] = "true"
    if topic.max_attempts:
        policy = {
            "deadLetterTargetArn": arn_of(region, topic.dead_letter_name),
            "maxReceiveCount": topic.max_attempts,
        }
        shown["RedrivePolicy"] = json.dumps(policy, separators=(",", ":"))
    return shown


def counts_of(stats: dict[str, Any]) -> dict[str, str]:
    """COUNTS, of the numbers of a topic."""
    scheduled, ready = int(stats["scheduled"]), int(stats["ready"])
    numbers = (ready, int(stats["leased"]), max(0, scheduled - ready))
    return dict(zip(COUNTS, map(str, numbers), strict=True))


def check_names(values: object) -> frozenset[str]:
    """Which attributes somebody wants to see. Raises SqsRefusal."""
    if values is None:
        return frozenset()
    known = {*_LABELS, *_SHOWN_ONLY, "All", "VisibilityTimeout", "MaximumMessageSize", "FifoQueue"}
    known |= {"RedrivePolicy", "SqsManagedSseEnabled", "KmsMasterKeyId"}
    known |= {"KmsDataKeyReusePeriodSeconds"}
    for name in values if isinstance(values, list) else [values]:
        if not isinstance(name, str) or name not in known:
            raise SqsRefusal("InvalidAttributeName", f"unknown attribute {name!r:.100}")
    return frozenset(values) if isinstance(values, list) else frozenset()
