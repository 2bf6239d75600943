"""Whatever fits the OpenAPI document, or nearly fits it, is answered as the document says.

Schemathesis makes requests of every operation, right and wrong ones, for a broker that runs. What
would take long or much is made small: waits, and numbers of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.app import build_app
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import WriteStream
from tests.patience import PATIENCE_SECONDS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 40
SMALL = {"partitions": 3, "wait_ms": 3}
TOPICS = {
    "timeline": Topic("timeline", partitions=2),
    "fair": Topic("fair", TopicKind.FAIR),
    "cron": Topic("cron", TopicKind.CRON),
}
DOCUMENT = build_app(Service(Broker(), Gate(), lambda: True)).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {
    f"{method.upper()} {path}": SCHEMA[path][method.upper()]
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
}


class Served:
    """A broker behind HTTP, with some topics."""

    def __init__(self) -> None:
        self.broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
        self.broker.start()
        self.server = HttpServer(Service(self.broker, Gate(), lambda: True), "127.0.0.1", 0)
        self.server.start()
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.session = requests.Session()
        self.session.trust_env = False
        # Keys are made meanwhile: from then on every request needs one.
        made = self.session.post(f"{self.url}/v1/keys", json={"name": "all", "grants": ["admin:*"]})
        self.session.headers["Authorization"] = f"Bearer {made.json()['api_key']}"

    def refill(self) -> None:
        """Have the topics there, with a message each."""
        for topic in TOPICS.values():
            try:
                self.broker.create_topic(topic)
            except Exception:  # noqa: BLE001 - it is there, perhaps with other settings by now
                continue
            if topic.kind is TopicKind.CRON:
                self.broker.call(
                    "cron_put", {"topic": "cron", "entries": [{"name": "entry", "every_ms": 9_000}]}
                )
            else:
                writer = self.broker.open_write(WriteStream(topic.name))
                writer.submit(1, _batch(), lambda _reply: None)

    def stop(self) -> None:
        self.session.close()
        self.broker.stop()
        self.server.stop()


def _batch() -> Any:
    import pyarrow as pa

    return pa.record_batch({"payload": [b"x"], "key": ["k"], "tags": [["a"]]})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.stop()


def _small(value: Any) -> Any:
    """The value with what takes long or much made small."""
    if isinstance(value, dict):
        return {name: _small_one(name, inner) for name, inner in value.items()}
    return [_small(inner) for inner in value] if isinstance(value, list) else value


def _small_one(name: str, value: Any) -> Any:
    if name in SMALL and isinstance(value, int | float) and value > SMALL[name]:
        return SMALL[name]
    return _small(value)


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_request_is_answered_as_it_must_not(served: Served, name: str) -> None:
    operation = OPERATIONS[name]
    modes = st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    cases = modes.flatmap(lambda mode: operation.as_strategy(generation_mode=mode))

    @hypothesis.given(cases, st.sampled_from([*TOPICS, "*"]))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case[Any], topic: str) -> None:
        if "topic" in case.path_parameters and topic != "*":
            case.path_parameters["topic"] = "cron" if "cron" in name else topic
            if "name" in case.path_parameters and topic != "timeline":
                case.path_parameters["name"] = "entry"
        case.body = _small(case.body)
        if operation.path.endswith("/events"):  # else it goes on for as long as nothing comes
            case.query = {**(case.query or {}), "idle_ms": 3}
        served.refill()
        response = case.call(base_url=served.url, session=served.session, timeout=PATIENCE_SECONDS)
        # What DOQ answers is not ours to describe; that nothing breaks is.
        is_doq = operation.path.startswith("/API/")
        case.validate_response(response, checks=CHECKS[:1] if is_doq else CHECKS)

    check()
