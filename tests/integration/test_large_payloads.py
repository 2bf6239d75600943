"""Covers: large payloads through every door, by real clients that know nothing of the payload
store: Python over Flight and the express lane, HTTP, SQS, DOQ; in a directory and in S3; a broker
that is killed; encryption.

Not covered: what happens when the store fails (tests/rules/test_rule_22_payloads.py).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import grpc
import httpx
import pytest
from botocore.config import Config

from dejaqueue import Client
from dejaqueue.payloads.payload_store import open_payload_store
from dejaqueue.setting_groups import DoqSettings, PayloadSettings, SqsSettings
from tests.crash.broker_process import BrokerProcess
from tests.doq.grpc_client import request, stub_of
from tests.integration.access_fixture import Site, running
from tests.object_store import S3Server, s3_server
from tests.patience import PATIENCE_SECONDS
from tests.payload_stores import store_in

INLINE = 1_024
TEXT = "large " * 5_000
MARKER = b"MARKER-that-nobody-may-find"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    payloads = PayloadSettings(
        url=str(tmp_path_factory.mktemp("payloads")), inline_bytes_max=INLINE
    )
    sqs, doq = SqsSettings(enabled=True), DoqSettings(enabled=True, port=0)
    with running(payloads=payloads, sqs=sqs, doq=doq) as served:
        yield served


def taken(client: Client, topic: str, count: int) -> list[bytes]:
    """So many payloads, each acked."""
    found: list[bytes] = []
    idle_ms = int(PATIENCE_SECONDS * 1_000)
    with client.consume(topic, max_messages=count, idle_ms=idle_ms) as messages:
        for message in messages:
            found.append(message.payload)
            message.ack()
    return found


def test_python_clients_notice_nothing(site: Site) -> None:
    payloads = [b"small", *(os.urandom(300_000) for _ in range(3)), b"x" * 1_048_576]
    before = site.broker.payloads.counts.stored
    with Client(f"dejaq://127.0.0.1:{site.flight.port}") as client:
        client.create_topic("python")
        client.send_batch("python", [{"payload": payload} for payload in payloads])
        client.send("python", TEXT.encode())
        assert taken(client, "python", 6) == [*payloads, TEXT.encode()]
    assert site.broker.payloads.counts.stored == before + 5


def test_http_notices_nothing(site: Site) -> None:
    with httpx.Client(base_url=f"{site.http_url}/v1", timeout=PATIENCE_SECONDS) as http:
        http.post("/topics", json={"name": "http"}).raise_for_status()
        before = site.broker.payloads.counts.stored
        for payload in ("small", TEXT, "last"):
            http.post("/topics/http/messages", json={"payload": payload}).raise_for_status()
        many = "".join(f'{{"payload": "{text}"}}\n' for text in ("a", TEXT))
        lines = {"content-type": "application/x-ndjson"}
        http.post("/topics/http/messages", content=many, headers=lines).raise_for_status()
        assert site.broker.payloads.counts.stored == before + 2
        seen = http.get("/topics/http/messages").json()["messages"]
        assert [one["payload"] for one in seen] == ["small", TEXT, "last", "a", TEXT]
        got: list[str] = []
        while len(got) < 5:
            leased = http.post("/topics/http/lease", json={"max": 10, "wait_ms": 5_000})
            got += [one["payload"] for one in leased.raise_for_status().json()["messages"]]
        assert got == ["small", TEXT, "last", "a", TEXT]


def test_sqs_notices_nothing(site: Site) -> None:
    sqs: Any = boto3.client(
        "sqs",
        endpoint_url=f"{site.http_url}/sqs",
        region_name="eu-west-1",
        aws_access_key_id="any",
        aws_secret_access_key="thing",
        config=Config(proxies={}, ignore_configured_endpoint_urls=True),
    )
    url = sqs.create_queue(QueueName="sqs-large")["QueueUrl"]
    before = site.broker.payloads.counts.stored
    sqs.send_message(QueueUrl=url, MessageBody=TEXT)
    assert site.broker.payloads.counts.stored == before + 1
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == TEXT
    sqs.close()


def test_doq_notices_nothing(site: Site) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{site.http.doq_port}") as channel:
        stub, bound = stub_of(channel), {"timeout": PATIENCE_SECONDS}
        stub.CreateQueue(request("CreateQueue", name="doq-large", type="delayed"), **bound)
        before = site.broker.payloads.counts.stored
        for ack in (False, True):
            stub.Enqueue(
                request("Enqueue", queueName="doq-large", content=TEXT, priority=0), **bound
            )
            found = stub.Dequeue(request("Dequeue", queueName="doq-large", ack=ack), **bound)
            assert found.content == TEXT
        assert site.broker.payloads.counts.stored == before + 2


def test_over_http_small_messages_go_on_while_the_store_is_away(site: Site, tmp_path: Path) -> None:
    payloads = site.broker.payloads
    store, (away, bucket, _) = payloads.store, store_in(tmp_path / "away")
    bucket.is_away = True
    url = f"{site.http_url}/v1/topics/half/messages"
    with httpx.Client(timeout=PATIENCE_SECONDS) as http, ThreadPoolExecutor(8) as threads:
        http.post(f"{site.http_url}/v1/topics", json={"name": "half"}).raise_for_status()
        payloads.store = away
        try:
            bodies = [{"payload": TEXT if number % 2 else "small"} for number in range(16)]
            found = list(threads.map(lambda body: http.post(url, json=body).status_code, bodies))
        finally:
            payloads.store = store
    assert found == [201, 503] * 8


def test_metrics_tell_of_the_store(site: Site) -> None:
    with httpx.Client(base_url=site.http_url, timeout=PATIENCE_SECONDS) as http:
        page = http.get("/metrics").raise_for_status().text
    for name in ("stored", "stored_bytes", "fetched", "fetched_bytes", "deleted", "damaged"):
        assert f"dejaq_payloads_{name}_total " in page
    assert "dejaq_payload_store_failures_total " in page


def test_a_broker_that_is_killed_has_every_payload_that_it_acknowledged__in_s3_encrypted(
    s3: S3Server, tmp_path: Path
) -> None:
    key = tmp_path / "master.key"
    key.touch(mode=0o600)
    key.write_text(base64.b64encode(bytes([1]) * 32).decode())
    url = f"{s3.new_bucket()}/payloads"
    broker = BrokerProcess(
        tmp_path / "data",
        tmp_path / "broker.log",
        encryption__master_key=f"file:{key}",
        payloads__url=url,
        payloads__inline_bytes_max=INLINE,
    )
    sent = [MARKER + bytes([number]) * 40_000 for number in range(12)]
    broker.start()
    try:
        with Client(broker.url) as client:
            client.create_topic("large")
        for life in range(3):
            with Client(broker.url) as client:
                for payload in sent[4 * life : 4 * life + 4]:
                    client.send("large", payload)
            broker.kill()
            broker.start()
        store = open_payload_store(url, lambda: 0)
        names = [one.name for one in store.objects("")]
        assert len(names) == len(sent)
        contents = [store._bucket.get(name) or b"" for name in names]
        contents += [path.read_bytes() for path in tmp_path.rglob("data/**/*") if path.is_file()]
        assert all(MARKER not in content for content in contents)
        with Client(broker.url) as client:
            assert sorted(taken(client, "large", len(sent))) == sent
    finally:
        broker.kill()
