"""The door: the path, the protocol, signatures by botocore, the audit log."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.clock import SystemClock
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.http.sqs.door import BODY_BYTES_MAX, is_ours
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.http.sqs.conftest import Sqs

BODY = b'{"QueueNamePrefix":"a"}'


@pytest.fixture
def clock() -> VirtualClock:
    """As late as it is: signatures have a time."""
    clock = VirtualClock()
    clock.advance(ms=SystemClock().utc_ms() - clock.utc_ms())
    return clock


def signed(
    sqs: Sqs,
    key_id: str,
    secret: str,
    *,
    path: str = "/sqs",
    body: bytes = BODY,
    name: str = "ListQueues",
) -> httpx.Request:
    headers = {"X-Amz-Target": f"AmazonSQS.{name}", "Content-Type": "application/x-amz-json-1.0"}
    asked = AWSRequest("POST", f"{sqs.base_url}{path}", data=body, headers=headers)
    SigV4Auth(Credentials(key_id, secret), "sqs", "eu-west-1").add_auth(asked)
    return sqs.http.build_request("POST", path, content=body, headers=dict(asked.headers.items()))


def test_a_request_is_believed_if_a_key_signed_it(
    sqs: Sqs, gate: Gate, clock: VirtualClock
) -> None:
    root, text = gate.keys.create("root", ["admin:*"])
    other, _ = gate.keys.create("other", ["admin:*"])
    assert sqs.http.send(signed(sqs, root.id, text)).json() == {}
    assert sqs.http.send(signed(sqs, root.id, text, path="/sqs/000000000000/a.b")).is_success
    refused = [
        signed(sqs, root.id, f"{text}x"),
        signed(sqs, other.id, text),
        signed(sqs, "nobody", text),
        sqs.http.build_request("POST", "/sqs", content=BODY),
    ]
    spoilt = signed(sqs, root.id, text)
    body = b"x" * len(BODY)
    refused.append(sqs.http.build_request("POST", "/sqs", content=body, headers=spoilt.headers))
    other_target = signed(sqs, root.id, text)
    other_target.headers["x-amz-target"] = "AmazonSQS.DeleteQueue"
    refused.append(other_target)
    for request in refused:
        answer = sqs.http.send(request)
        assert (answer.status_code, answer.json()["__type"]) == (
            403,
            "com.amazonaws.sqs#InvalidClientTokenId",
        )
        assert text not in answer.text
    late = signed(sqs, root.id, text)
    gate.keys.revoke(other.id)
    clock.advance(ms=16 * 60_000)
    answer = sqs.http.send(late)
    assert answer.status_code == 403
    assert "the signature has expired" in answer.json()["message"]


def test_a_key_that_was_revoked_or_made_without_signs_nothing(
    sqs: Sqs, gate: Gate, broker: Broker
) -> None:
    gate.keys.create("root", ["admin:*"])
    key, text = gate.keys.create("shop", ["admin:*"])
    gate.keys.revoke(key.id)
    assert sqs.http.send(signed(sqs, key.id, text)).status_code == 403
    gate.keys.keeps_signing = False
    key, text = gate.keys.create("later", ["admin:*"])
    assert sqs.http.send(signed(sqs, key.id, text)).status_code == 403
    sqs.http.headers["authorization"] = f"Bearer {text}"
    assert sqs.do("ListQueues") == {}, "with the key itself it may call"


def test_a_request_that_was_passed_on_is_signed_for_another_host(sqs: Sqs, gate: Gate) -> None:
    root, text = gate.keys.create("root", ["admin:*"])
    request = signed(sqs, root.id, text)
    host = request.headers["host"]
    request.headers["host"] = "another:1"
    assert sqs.http.send(request).status_code == 403
    request.headers["x-dejaq-forwarded"], request.headers["x-dejaq-host"] = "1", host
    assert sqs.http.send(request).is_success


def test_without_keys_a_signature_says_nothing__and_pages_are_kept_out(sqs: Sqs) -> None:
    assert sqs.http.send(signed(sqs, "any", "thing")).is_success
    request = signed(sqs, "any", "thing")
    request.headers["origin"] = "http://evil.example"
    answer = sqs.http.send(request)
    assert (answer.status_code, answer.json()["__type"]) == (
        403,
        "com.amazonaws.sqs#AccessDeniedException",
    )


@pytest.mark.parametrize(
    ("target", "content", "told"),
    [
        ("AmazonSQS.Fly", b"{}", "UnsupportedOperation"),
        ("", b"Action=ListQueues", "UnsupportedOperation"),
        ("AmazonSQS.ListQueues", b"{", "InvalidParameterValue"),
        ("AmazonSQS.ListQueues", b"[]", "InvalidParameterValue"),
        ("AmazonSQS.ListQueues", b'{"Colour":1}', "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b"{}", "MissingParameter"),
        ("AmazonSQS.ListQueues", b" " * (BODY_BYTES_MAX + 1), "InvalidParameterValue"),
    ],
)
def test_what_is_no_operation_is_refused_in_sqs_s_words(
    sqs: Sqs, target: str, content: bytes, told: str
) -> None:
    answer = sqs.http.post("/sqs", content=content, headers={"x-amz-target": target})
    assert (answer.status_code, answer.json()["__type"]) == (400, f"com.amazonaws.sqs#{told}")
    assert sqs.http.get("/sqs").status_code == 400


def test_what_administers_is_in_the_audit_log(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dejaqueue.audit"):
        url = sqs.queue("q")
        sqs.send(url, "b")
        sqs.refused("DeleteQueue", QueueUrl=f"{url}x")
    facts: list[Any] = [record.__dict__["audit"] for record in caplog.records]
    # A line that counts what tests before left out of the log may be among them.
    told = [one for one in facts if one["outcome"] != "left out"]
    found = [(one["operation"], one["topic"], one["outcome"]) for one in told]
    assert found == [("CreateQueue", "q", "done"), ("DeleteQueue", "qx", "TopicUnknown")]


def test_it_is_not_there_unless_it_is_wanted() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        sqs = Sqs(server.port)
        assert sqs.ask("ListQueues")[0] == 404
        sqs.http.close()
    finally:
        server.stop()
        broker.stop()
    assert is_ours({"path": "/sqs/1/q"})
    assert not is_ours({"path": "/sqsx"})
