"""A client of the queue DOQ, unchanged but for the address: plain HTTP, no library of ours."""

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


def call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One call of DOQ's API; what it refuses is an answer as well."""
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/API/v1{path}", content, headers, method=method)
    try:
        with OPENER.open(request, timeout=30) as answer:
            return dict(json.loads(answer.read() or b"{}"))
    except HTTPError as refused:
        with refused:
            return dict(json.loads(refused.read()))


with address() as url:
    call(url, "POST", "/queues", {"name": "transcode", "type": "fair", "settings": {}})
    for number in range(4):
        video = {"content": f"video {number}", "group": "big customer", "priority": 1}
        call(url, "POST", "/queues/transcode/messages", video)
    video = {"content": "holiday", "group": "small customer", "priority": 1}
    call(url, "POST", "/queues/transcode/messages", video)
    first = [call(url, "GET", "/queues/transcode/messages?ack=true") for _ in range(2)]
    print("served first:", ", ".join(sorted(message["group"] for message in first)))

    call(url, "POST", "/queues", {"name": "index", "type": "delayed", "settings": {}})
    for content, priority in (("rebuild", 60), ("user 1", 5)):
        message = {"content": content, "priority": priority}
        call(url, "POST", "/queues/index/messages", message)
    taken = call(url, "GET", "/queues/index/messages?ack=false")
    print("most urgent:", taken["content"])
    path = f"/queues/index/messages/{taken['id']}"
    call(url, "POST", f"{path}/nack", {"priority": 70, "metadata": {"retry": "1"}})
    print("then:", call(url, "GET", "/queues/index/messages?ack=true")["content"])
    again = call(url, "GET", "/queues/index/messages?ack=true")
    print("again:", again["content"], again["metadata"])
    print("then:", call(url, "GET", "/queues/index/messages")["errors"][0]["message"])
    for name in ("transcode", "index"):
        call(url, "DELETE", f"/queues/{name}")
