"""The same calls to two servers, and generated sequences of them.

A message has a name here, because each server gives ids of its own; in what is compared the name
stands for the id. Not compared: texts of problems, rates, the priority in the answer to a nack.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import httpx

from dejaqueue.clock import SystemClock
from tests.patience import PATIENCE_SECONDS

Answer = tuple[int, Any]
IN_AN_HOUR = 3_600
NOT_COMPARED = {"enqueue_rps", "dequeue_rps", "ack_rps", "nack_rps"}


@dataclass(frozen=True)
class Call:
    """One request; `{name}` in the path stands for a message's id there.

    Attributes:
        named: what the message that it sends is called from now on.
    """

    method: str
    path: str
    body: Any = None
    named: str = ""


class Side:
    """One of the two servers."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False)
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def call(self, call: Call) -> Answer:
        """What it answers, with names in place of ids."""
        path = call.path.format(**self._ids) if "{" in call.path else call.path
        found = self._http.request(call.method, path, json=call.body)
        body: Any = (
            found.json() if found.content and "json" in found.headers["content-type"] else None
        )
        if call.named and found.status_code == 200:
            assert body is not None
            self._ids[call.named] = body["id"]
            self._names[body["id"]] = call.named
        return found.status_code, self._compared(found.status_code, body)

    def _compared(self, status: int, body: Any) -> Any:
        if status >= 400:
            assert body["status"] == status, body
            return None
        if not isinstance(body, dict):
            return None
        found = {name: value for name, value in body.items() if name not in NOT_COMPARED}
        if "queues" in found:
            found["queues"] = [self._compared(status, queue) for queue in found["queues"]]
        if "id" in found:
            found["id"] = self._names.get(found["id"], found["id"])
        if found.get("status") == "UNACKNOWLEDGED":
            del found["priority"]
        if "ids" in found:
            found["ids"] = len(set(found["ids"]))
        return found


@dataclass
class Generated:
    """A sequence of calls to a delayed queue, each chosen by what was answered so far.

    What is known to differ is not called (test_differences.py does): ids of messages that live, a
    named id and a priority that others have, a new priority for what a consumer has.
    """

    dice: random.Random
    queue: str = "/API/v1/queues/q"
    count: int = 0
    waiting: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def first(self) -> Call:
        """Makes the queue."""
        name = self.queue.rpartition("/")[2]
        settings = {"ack_timeout": self.dice.choice((60, 600))}
        body = {"name": name, "type": "delayed", "settings": settings}
        return Call("POST", "/API/v1/queues", body)

    def next(self) -> Call:
        """The next call."""
        kinds = (self._send, self._take, self._settle, self._look, self._change, self._wrong)
        return self.dice.choices(kinds, (30, 20, 20, 10, 10, 10))[0]()

    def note(self, call: Call, answer: Answer) -> None:
        """What a call was answered."""
        status, body = answer
        if status >= 400:
            return
        about = call.path.rpartition("messages/")[2].partition("/")[0].strip("{}")
        if call.named:
            self.waiting.add(call.named)
        elif call.method == "GET" and "messages?" in call.path:
            self._move(body["id"], self.gone if "true" in call.path else self.held)
        elif call.path.endswith("/ack") or call.method == "DELETE":
            self._move(about, self.gone)
        elif call.path.endswith("/nack"):
            self._move(about, self.waiting)

    def _move(self, name: str, to: set[str]) -> None:
        for names in (self.waiting, self.held, self.gone):
            names.discard(name)
        to.add(name)

    def _own_priority(self) -> int:
        """One that no other message has."""
        return 1_000 + self.count

    def _send(self) -> Call:
        self.count += 1
        body: dict[str, Any] = {"content": f"content {self.count}"}
        body["priority"] = self.dice.choice(
            (0, 1, 2, 2, 2, SystemClock().now_ms() // 1_000 + IN_AN_HOUR)
        )
        if self.dice.random() < 0.3:
            body |= {"id": str(7_000 + self.count), "priority": self._own_priority()}
        if self.dice.random() < 0.3:
            body["metadata"] = {"retry": str(self.count), "kind": "ü"}
        if self.dice.random() < 0.2:
            body["group"] = "default"
        return Call("POST", f"{self.queue}/messages", body, f"m{self.count}")

    def _take(self) -> Call:
        return Call("GET", f"{self.queue}/messages?ack={self.dice.choice(('true', 'false'))}")

    def _one(self) -> str:
        """A message's path: of one that is held, more often than not."""
        names = sorted(self.held)
        if not names or self.dice.random() < 0.3:
            names = sorted(self.held | self.waiting | self.gone)
        name = f"{{{self.dice.choice(names)}}}" if names else "12345"
        return f"{self.queue}/messages/{name}"

    def _settle(self) -> Call:
        what = self.dice.choice(("ack", "nack", "nack", "touch", "delete"))
        path = self._one()
        if what == "delete":
            return Call("DELETE", path)
        body: dict[str, Any] | None = {} if what == "nack" else None
        if what == "nack" and self.dice.random() < 0.5:
            self.count += 1
            body = {"priority": self._own_priority()}
            if self.dice.random() < 0.5:
                body["metadata"] = {"retry": "again"}
        return Call("POST", f"{path}/{what}", body)

    def _look(self) -> Call:
        calls = [Call("GET", self.queue), Call("GET", self._one()), Call("GET", "/API/v1/queues")]
        return self.dice.choice([*calls, Call("POST", "/API/v1/ids", {"number": 3})])

    def _change(self) -> Call:
        names = sorted((self.waiting | self.gone) - self.held)
        if not names:
            return self._send()
        self.count += 1
        path = f"{self.queue}/messages/{{{self.dice.choice(names)}}}/priority"
        return Call("PUT", path, {"priority": self._own_priority()})

    def _wrong(self) -> Call:
        here, away = self.queue, "/API/v1/queues/away"
        message = {"content": "", "priority": 1}
        return self.dice.choice(
            [
                Call("GET", away),
                Call("DELETE", away),
                Call("PUT", away, {"settings": {"ack_timeout": 60}}),
                Call("POST", f"{away}/messages", message),
                Call("GET", f"{away}/messages"),
                Call("POST", f"{away}/messages/1/ack"),
                Call("GET", f"{here}/messages/54321"),
                Call("POST", f"{here}/messages/54321/touch"),
                Call("PUT", f"{here}/messages/54321/priority", {"priority": 1}),
                Call("GET", f"{here}/messages/one"),
                Call("POST", f"{here}/messages/18446744073709551616/ack"),
                Call("POST", f"{here}/messages", {"content": ""}),
                Call("POST", f"{here}/messages", {"priority": 1}),
                Call("POST", f"{here}/messages", message | {"priority": -1}),
                Call("POST", f"{here}/messages", message | {"priority": "1"}),
                Call("POST", f"{here}/messages", message | {"content": 1}),
                Call("POST", f"{here}/messages", message | {"metadata": {"a": 1}}),
                Call("POST", f"{here}/messages", message | {"more": 1}),
                Call("PUT", f"{here}/messages/1/priority", {}),
                Call("POST", "/API/v1/queues", {"name": "x", "type": "cron"}),
                Call("POST", "/API/v1/queues", {"type": "fair"}),
                Call("POST", "/API/v1/ids", {"number": 0}),
                Call("POST", "/API/v1/ids", {"number": 1_001}),
            ]
        )
