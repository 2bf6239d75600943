"""DOQ as its documentation and its source describe it: what its HTTP API answers, in memory.

Go's module proxy does not give the real server, so this stands for it, on a port of its own: what
compares the two knows addresses only, and takes a real server as well (`DOQ_URL`).
Left out: the cluster, time-outs (10 s at least), rates, the weights of WEIGHTED.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from dejaqueue.clock import SystemClock

Answer = tuple[int, Any]
Kinds = Mapping[str, type]
"""The fields of a body, by what JSON makes of their values."""
INT64_MAX = (1 << 63) - 1
ACK_TIMEOUT_SECONDS = 1_800
ACK_TIMEOUT_SECONDS_MIN = 10
FIRST_ID = 1_900_000_000_000_000_000
"""About what its generator gives: a time, shifted."""


class Problem(Exception):
    """A call is refused."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class Message:
    """One message."""

    number: int
    group: str
    priority: int
    content: str
    metadata: dict[str, str]

    def shown(self, status: str) -> dict[str, Any]:
        """As an answer shows it."""
        found: dict[str, Any] = {"status": status, "id": str(self.number), "group": self.group}
        found |= {"priority": self.priority, "content": self.content}
        return found | ({"metadata": self.metadata} if self.metadata else {})


@dataclass
class Queue:
    """One queue: what waits, what is with consumers, whose turn it is."""

    type: str
    settings: dict[str, Any]
    messages: dict[int, Message] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    unacked: set[int] = field(default_factory=set)
    turns: list[str] = field(default_factory=list)
    place: int = 0

    def add(self, message: Message) -> None:
        """A message waits, or waits again. A group that had none goes to the end of the round."""
        if message.group not in self.turns:
            self.turns.append(message.group)
        self.messages[message.number] = message
        self.waiting.add(message.number)

    def _first(self, numbers: set[int]) -> int | None:
        """The lowest priority, then the lowest id; None if it is in the future."""
        found = min(numbers, key=lambda n: (self.messages[n].priority, n), default=None)
        is_late = self.type == "delayed" and found is not None
        if is_late and self.messages[found].priority > SystemClock().now_ms() / 1_000:  # type: ignore[index]
            return None
        return found

    def take(self) -> int | None:
        """The next message."""
        if self.type == "delayed":
            return self._first(self.waiting)
        limit = self.settings.get("max_unacked") or INT64_MAX
        for _ in range(len(self.turns)):
            group = self.turns[self.place]
            held = sum(self.messages[number].group == group for number in self.unacked)
            found = self._first({n for n in self.waiting if self.messages[n].group == group})
            if found is not None and held < limit:
                self._turn(group, found)
                return found
            self.place = (self.place + 1) % len(self.turns)
        return None

    def _turn(self, group: str, taken: int) -> None:
        left = [n for n in self.waiting if self.messages[n].group == group and n != taken]
        if left:
            self.place += 1
        else:
            self.turns.remove(group)
        if self.place == len(self.turns):
            self.place = 0  # a group that comes now waits for the others

    def described(self, name: str) -> dict[str, Any]:
        """As GET shows it."""
        rates = {f"{what}_rps": 0.0 for what in ("enqueue", "dequeue", "ack", "nack")}
        counts = {"ready": len(self.waiting), "unacked": len(self.unacked)}
        counts["total"] = sum(counts.values())
        return {"name": name, "type": self.type, "settings": self.settings, **rates, **counts}


def fields(body: Any, required: Kinds, optional: Kinds) -> dict[str, Any]:
    """The fields of a body, checked as its OpenAPI document says."""
    if not isinstance(body, dict) or not required.keys() <= body.keys():
        raise Problem(422)
    for name, value in body.items():
        kind = required.get(name) or optional.get(name)
        if kind is None or type(value) is not kind:
            raise Problem(422)
        if isinstance(value, int) and not 0 <= value <= INT64_MAX:
            raise Problem(422)
        texts = value.values() if name == "metadata" and isinstance(value, dict) else ()
        if any(type(text) is not str for text in texts):
            raise Problem(422)
    return dict(body)


SETTINGS: Kinds = {"strategy": str, "max_unacked": int, "ack_timeout": int}
STRATEGIES = {"", "ROUND_ROBIN", "WEIGHTED"}
QUEUES = "/API/v1/queues"
IN_QUEUE = re.compile(QUEUES + r"/(?P<name>[^/]+)(?P<rest>/.*)?")
OF_MESSAGE = re.compile(r"/messages/(?P<id>[^/]+)(?P<what>/ack|/nack|/touch|/priority)?")


class Documented:
    """All queues. `call` is one request; whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._next = FIRST_ID

    def call(self, method: str, target: str, text: str) -> Answer:
        """Status and JSON of a request."""
        path, _, query = target.partition("?")
        path = unquote(path)
        with self._lock:
            try:
                return self._call(method, path, query, self._body(text))
            except Problem as problem:
                titles = {400: "Bad Request", 409: "Conflict", 422: "Unprocessable Entity"}
                title = titles.get(problem.status, "")
                return problem.status, {"title": title, "status": problem.status}

    def _body(self, text: str) -> Any:
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise Problem(400) from None

    def _call(self, method: str, path: str, query: str, body: Any) -> Answer:
        if path in ("/livez", "/readyz"):
            return 200, "OK"
        if path == "/API/v1/cluster/servers":
            server = {"id": "node-0", "addr": "", "leader_addr": "", "is_leader": True}
            return 200, {"servers": [server | {"suffrage": "Voter"}]}
        if path == "/API/v1/ids":
            number = fields(body, {"number": int}, {})["number"]
            if not 1 <= number <= 1_000:
                raise Problem(422)
            return 200, {"ids": [str(self._new_id()) for _ in range(number)]}
        if path == QUEUES:
            if method == "POST":
                return self._create(body)
            shown = [queue.described(name) for name, queue in sorted(self._queues.items())]
            return 200, {"queues": shown}
        found = IN_QUEUE.fullmatch(path)
        assert found is not None, path
        if not found["rest"]:
            return self._of_queue(method, found["name"], body)
        if found["rest"] == "/messages":
            if method == "POST":
                return self._enqueue(found["name"], body)
            return self._dequeue(found["name"], query)
        message = OF_MESSAGE.fullmatch(found["rest"])
        assert message is not None, path
        what = (message["what"] or f"/{method}").lower()[1:]
        return self._of_message(what, found["name"], message["id"], body)

    def _new_id(self) -> int:
        self._next += 1
        return self._next

    def _queue(self, name: str, status: int) -> Queue:
        if name not in self._queues:
            raise Problem(status)
        return self._queues[name]

    # --- queues ---

    def _settings(self, type_name: str, given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is answered, and what is kept."""
        found = dict(fields(given, {}, SETTINGS))
        if "strategy" in found:
            found["strategy"] = found["strategy"].upper()
        if found.get("strategy", "") not in STRATEGIES:
            raise Problem(422)
        if 0 < found.get("ack_timeout", 0) < ACK_TIMEOUT_SECONDS_MIN:
            raise Problem(409)
        if type_name == "delayed" and (found.get("strategy") or found.get("max_unacked")):
            raise Problem(409)
        kept = found | {"ack_timeout": found.get("ack_timeout") or ACK_TIMEOUT_SECONDS}
        return {name: value for name, value in found.items() if value}, kept

    def _create(self, body: Any) -> Answer:
        fields(body, {"name": str, "type": str}, {"settings": dict})
        if body["type"] not in ("delayed", "fair") or len(body["name"]) > 1_024:
            raise Problem(422)
        shown, kept = self._settings(body["type"], body.get("settings", {}))
        self._queues.setdefault(body["name"], Queue(body["type"], kept))
        made = {"status": "CREATED", "name": body["name"], "type": body["type"]}
        return 200, made | {"settings": shown}

    def _of_queue(self, method: str, name: str, body: Any) -> Answer:
        if method == "PUT":
            given = fields(body, {"settings": dict}, {})["settings"]
            queue = self._queue(name, 409)
            shown, kept = self._settings(queue.type, given)
            if kept.get("strategy", "") != queue.settings.get("strategy", ""):
                raise Problem(409)
            queue.settings = kept
            return 200, {"status": "UPDATED", "name": name, "settings": shown}
        queue = self._queue(name, 400)
        if method == "DELETE":
            del self._queues[name]
            return 200, {"status": "DELETED"}
        return 200, queue.described(name)

    # --- messages ---

    def _enqueue(self, name: str, body: Any) -> Answer:
        optional: Kinds = {"id": str, "group": str, "metadata": dict}
        fields(body, {"priority": int, "content": str}, optional)
        queue = self._queue(name, 409)
        given = body.get("id", "")
        number = int(given) if given.isdecimal() and int(given) < 1 << 64 else 0
        group = body.get("group") or "default"
        kept_group = group if queue.type == "fair" else "default"
        number = number or self._new_id()
        rest = (body["priority"], body["content"], body.get("metadata") or {})
        message = Message(number, kept_group, *rest)
        if number in queue.waiting or number in queue.unacked:
            # The content is replaced; its place is as it was.
            queue.messages[number] = message
        else:
            queue.add(message)
        return 200, message.shown("ENQUEUED") | {"group": group}

    def _dequeue(self, name: str, query: str) -> Answer:
        wants_ack = {"": False, "ack=true": True, "ack=false": False}.get(query)
        if wants_ack is None:
            raise Problem(422)
        queue = self._queue(name, 400)
        number = queue.take()
        if number is None:
            raise Problem(400)
        shown = queue.messages[number].shown("DEQUEUED")
        queue.waiting.remove(number)
        if wants_ack:
            del queue.messages[number]
        else:
            queue.unacked.add(number)
        return 200, shown

    def _of_message(self, what: str, name: str, text: str, body: Any) -> Answer:
        if not text.isdecimal() or int(text) >= 1 << 64:
            raise Problem(422)
        number, missing = int(text), 409 if what == "priority" else 400
        if what == "priority":
            priority = fields(body, {"priority": int}, {})["priority"]
        if what == "nack":
            given = fields(body or {}, {}, {"priority": int, "metadata": dict})
        queue = self._queue(name, missing)
        message = queue.messages.get(number)
        if message is None or (what in ("ack", "nack", "touch") and number not in queue.unacked):
            raise Problem(missing)
        if what == "get":
            return 200, message.shown("GOT")
        if what == "priority":
            message.priority = priority
            return 200, {"status": "UPDATED", "id": text, "priority": priority}
        if what == "touch":
            return 200, {"status": "TOUCHED", "id": text}
        queue.unacked.discard(number)
        if what == "nack":
            message.priority = given.get("priority") or message.priority
            message.metadata = given.get("metadata") or message.metadata
            queue.add(message)
            told = {"status": "UNACKNOWLEDGED", "id": text, "priority": 0}
            return 200, told | ({"metadata": given["metadata"]} if given.get("metadata") else {})
        queue.waiting.discard(number)
        del queue.messages[number]
        return (204, None) if what == "delete" else (200, {"status": "ACKNOWLEDGED", "id": text})


@contextmanager
def serve() -> Iterator[str]:
    """The address where it is served."""
    documented = Documented()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nobody reads it."""

        def _answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            text = self.rfile.read(length).decode()
            status, found = documented.call(self.command, self.path, text)
            content = b"" if found is None else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the framework's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="documented-doq")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
