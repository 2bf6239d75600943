"""What a queue is called: its name, its address (QueueUrl), its ARN.

Room: http. Pure.
Holds: the last part of an address or an ARN is the topic; the account is one, and stands for the
broker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urlsplit

from dejaqueue.errors import BadRequest
from dejaqueue.http.sqs.refusals import SqsRefusal
from dejaqueue.topic_names import check_topic_name

ROOT = "/sqs"
"""The path of the API."""
ACCOUNT = "000000000000"
REGION = "us-east-1"
"""Of callers who sign nothing."""
FIFO = ".fifo"
_NEW = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_ARN = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]*:[0-9]*:([A-Za-z0-9._-]{1,255})")


def is_fifo(name: str) -> bool:
    """True for the name of a FIFO queue."""
    return name.endswith(FIFO)


def new_name(value: object) -> str:
    """A name for a new queue. Raises SqsRefusal."""
    if not isinstance(value, str) or _NEW.fullmatch(value) is None:
        raise SqsRefusal(
            "InvalidParameterValue",
            "QueueName: 1 to 80 characters of A-Z a-z 0-9 - _, a FIFO queue's ends with .fifo, "
            f"got: {value!r:.100}",
        )
    return value


def name_of_url(value: object) -> str:
    """The queue of an address. Raises SqsRefusal."""
    try:
        if isinstance(value, str) and value:
            return _last_part(value)
    except (BadRequest, ValueError):
        pass
    raise SqsRefusal("InvalidAddress", f"QueueUrl: the address of a queue, got: {value!r:.100}")


@lru_cache(1_024)
def _last_part(url: str) -> str:
    """What ends an address, if it is a topic's name. Each request has the same few addresses."""
    return check_topic_name(urlsplit(url).path.rpartition("/")[2])


def url_of(base_url: str, name: str) -> str:
    """The address of a queue.

    Args:
        base_url: scheme and host under which the caller reached the broker.
    """
    return f"{base_url}{ROOT}/{ACCOUNT}/{name}"


def arn_of(region: str, name: str) -> str:
    """The ARN of a queue; the region is the one that the caller signs for."""
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"


def name_of_arn(value: object, field: str) -> str:
    """The queue of an ARN of any region. Raises SqsRefusal."""
    match = _ARN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        text = f"{field}: arn:aws:sqs:REGION:{ACCOUNT}:NAME, got: {value!r:.100}"
        raise SqsRefusal("InvalidParameterValue", text)
    return match[1]
