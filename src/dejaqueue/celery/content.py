"""A message of kombu as a payload: a line of JSON, then the body as it is.

Room: celery. Pure functions.
Holds: the body is neither encoded nor looked into; what a worker is given says no `eta`, as the
broker has kept to it.
See: names.py for what becomes of the headers; tests/unit/celery/test_content.py.
"""

from __future__ import annotations

from typing import Any

from kombu.utils.json import dumps, loads

from dejaqueue.celery.names import due_ms_of


def payload_of(message: dict[str, Any]) -> bytes:
    """The payload of a message as a virtual channel prepares it."""
    body = message.get("body") or b""
    head = {name: value for name, value in message.items() if name != "body"}
    line = str(dumps(head)).encode()
    return line + b"\n" + (body.encode() if isinstance(body, str) else bytes(body))


def message_of(payload: bytes, tag: str, attempt: int) -> dict[str, Any]:
    """The message of a payload, for its `attempt`-th delivery (from 1).

    Raises:
        ValueError: the payload is not one of `payload_of`.
    """
    line, newline, body = payload.partition(b"\n")
    if not newline:
        raise ValueError("the message was not sent by Celery: it has no line of JSON at its head")
    message: dict[str, Any] = loads(line.decode())
    message["body"] = body
    properties = message["properties"]
    properties.update(delivery_tag=tag, body_encoding=None)
    properties.setdefault("delivery_info", {})["redelivered"] = attempt > 1
    headers = message.get("headers")
    if headers and due_ms_of(headers) is not None:
        headers["eta"] = None
    return message
