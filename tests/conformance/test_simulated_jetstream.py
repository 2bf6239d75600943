"""The JetStream of the simulated cluster answers as a real one does.

Covered: every request that the coordinator makes, in 200 drawn orders, what is pushed to a
listener, and the marker of what has vanished. Not covered: when that is, elections, and what a
leader answers while a change is only proposed (tests/cluster has real ones with three servers).
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.coordinator.counted import Told
from dejaqueue.coordinator.jetstream import (
    _EXPECTED,
    REVISION,
    JetStreamCoordinator,
    read_headers,
)
from dejaqueue.testing.simulation.world import World
from dev.services import Service, missing, start
from tests.patience import PATIENCE_SECONDS, until
from tests.simulation.cluster.jetstream_facts import KvServer, Message

KEYS = ("a", "a/b", "a/c", "b")
CALLS = 200
NAMES = (REVISION, "KV-Operation", "Nats-TTL", "Nats-Marker-Reason")


@pytest.fixture(scope="module")
def nats() -> Iterator[Service]:
    if lacking := missing("nats"):
        pytest.skip(lacking)
    with start("nats") as service:
        yield service


class _Both:
    """A real server and a simulated one, asked the same."""

    def __init__(self, service: Service) -> None:
        prefix = uuid.uuid4().hex
        self.connection = NatsConnection(
            read_url(f"nats://127.0.0.1:{service.port}?prefix={prefix}")
        )
        self.real = JetStreamCoordinator(self.connection)
        self.stream, self.subjects = f"KV_{prefix}_facts", f"$KV.{prefix}_facts."
        self.world = World(1)
        self.server = KvServer(self.world)
        self.told: list[Message] = []
        self.server.listeners["inbox"] = self.told.append
        self.channel = self.real._listen()
        self._simulated(f"$JS.API.STREAM.CREATE.{self.stream}", {}, {"name": self.stream})

    def _simulated(self, subject: str, headers: dict[str, str], content: Any) -> dict[str, Any]:
        given: list[dict[str, Any]] = []
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.server.call(subject, headers, body, given.append)
        return given[0]

    def ask(self, subject: str, headers: dict[str, str], content: Any) -> dict[str, Any]:
        """The simulated answer, which is the real one."""
        told = self._simulated(subject, headers, content)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        (reply,) = self.connection.publish_all(subject, [(headers, body)], PATIENCE_SECONDS)
        assert reply is not None
        assert _bare(json.loads(reply.content)) == _bare(told), (subject, headers, content)
        return told

    def close(self) -> None:
        self.channel.close()
        self.real.close()


def _bare(answer: dict[str, Any]) -> Any:
    """What the coordinator reads of an answer."""
    if "error" in answer:
        return answer["error"]["code"], answer["error"]["err_code"]
    if "message" in answer:
        message = answer["message"]
        headers = read_headers(base64.b64decode(message.get("hdrs", "")))
        kept = {name: headers[name] for name in NAMES if name in headers}
        return message["subject"], message["seq"], kept, message.get("data", "")
    if "state" in answer:
        return answer["state"]["last_seq"], answer["state"].get("subjects")
    return answer["seq"]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_calls_have_the_same_answers(nats: Service, seed: int) -> None:
    dice = random.Random(seed)
    both = _Both(nats)
    sequences = ["0", "1"]
    try:
        for number in range(CALLS):
            subject = both.subjects + dice.choice(KEYS)
            what = dice.random()
            if what < 0.6:
                headers = {_EXPECTED: dice.choice(sequences[-6:])} if dice.random() < 0.7 else {}
                if dice.random() < 0.3:
                    headers |= {"Nats-TTL": "60s"}
                if dice.random() < 0.2:
                    headers |= {REVISION: "1"}
                content = b"v%d" % number
                if dice.random() < 0.2:
                    headers |= {"KV-Operation": "DEL", "Nats-TTL": "3600s"}
                    content = b""
                told = both.ask(subject, headers, content)
                sequences += [str(told["seq"])] if "seq" in told else []
            elif what < 0.9:
                asked = {"last_by_subj": subject}
                both.ask(f"$JS.API.STREAM.MSG.GET.{both.stream}", {}, asked)
            else:
                filtered = {"subjects_filter": f"{both.subjects}>", "offset": 0}
                both.ask(f"$JS.API.STREAM.INFO.{both.stream}", {}, filtered)
        both.ask("$JS.API.STREAM.INFO.another", {}, {})
        assert len(both.told) > 50
        wanted = deque(
            Told(
                message.sequence,
                message.subject.removeprefix(both.subjects),
                REVISION not in message.headers,
            )
            for message in both.told
        )
        while wanted:
            heard = both.channel.hear(PATIENCE_SECONDS)
            # A stream keeps one message of a key: a busy server may push the next one alone.
            while wanted[0] != heard:
                key = wanted.popleft().key
                assert any(one.key == key for one in wanted), (key, heard)
            wanted.popleft()
    finally:
        both.close()


def test_what_vanishes_leaves_a_marker(nats: Service) -> None:
    both = _Both(nats)
    try:
        both.ask(both.subjects + "a", {"Nats-TTL": "1s"}, b"v")
        until(lambda: both.real._count() == 2)
        both.world.run(both.world.now_us + 4_000_000)
        asked = {"last_by_subj": both.subjects + "a"}
        both.ask(f"$JS.API.STREAM.MSG.GET.{both.stream}", {}, asked)
        both.ask(both.subjects + "a", {_EXPECTED: "1"}, b"v")
        both.ask(both.subjects + "a", {_EXPECTED: "2"}, b"v")
        assert both.server.last == 3
    finally:
        both.close()
