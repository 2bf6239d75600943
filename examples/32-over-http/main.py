"""The whole life of messages over plain HTTP: what any language can do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

OPENER = build_opener(ProxyHandler({}))  # a proxy of the shell would not know this machine


@contextmanager
def address() -> Iterator[str]:
    """Where to call: what DEJAQ_HTTP_URL says, or a broker of our own."""
    if "DEJAQ_HTTP_URL" in os.environ:
        yield os.environ["DEJAQ_HTTP_URL"]
        return
    command = [sys.executable, "-m", "dejaqueue", "serve", "--data", "memory:", "--port", "0"]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert broker.stdout is not None
        yield json.loads(broker.stdout.readline())["http_url"]
        broker.terminate()


def call(url: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """POST a JSON object; the answer, also if it is a problem (RFC 9457)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json", **named}, method="POST")
    try:
        with OPENER.open(request, timeout=60) as answer:
            return dict(json.loads(answer.read()))
    except HTTPError as refused:
        with refused:
            return dict(json.loads(refused.read()))


with address() as broker_url:
    call(f"{broker_url}/v1/topics", {"name": "letters"})
    topic = f"{broker_url}/v1/topics/letters"

    # The same request twice, as after a lost answer: one message.
    letter = {"json": {"to": "Ada", "text": "hello"}, "delay_ms": 100, "key": "ada-1"}
    first = call(f"{topic}/messages", letter, Idempotency_Key="request-1")
    again = call(f"{topic}/messages", letter, Idempotency_Key="request-1")
    print("sent once:", first == again)

    refused = call(f"{topic}/messages", {"payload": "x", "priority": 70_000})
    print(refused["status"], refused["detail"])

    call(f"{topic}/messages", {"messages": [{"payload": "for Ben", "delay_ms": 100}]})

    # Nobody asks again and again: the request waits until something is due.
    done: list[str] = []
    while len(done) < 2:
        leased = call(f"{topic}/lease", {"max": 10, "wait_ms": 20_000})["messages"]
        done += [message["payload"] for message in leased]
        held = [{"id": message["id"], "attempt": message["attempt"]} for message in leased]
        statuses = call(f"{topic}/ack", {"messages": held})["messages"]
        assert {row["status"] for row in statuses} == {"OK"}
    print(sorted(done))
    print("left:", call(f"{topic}/lease", {})["messages"])
