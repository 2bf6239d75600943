"""Event streams as others read them: curl, keys, quotas, killed brokers, several processes.

Not covered: what a stream does in itself (tests/unit/http/test_event_stream.py).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dejaqueue import Client
from dejaqueue.setting_groups import QuotaSettings
from tests.crash.broker_process import BrokerProcess
from tests.integration.access_fixture import MINE, Site, give_keys, make_topics, running
from tests.patience import PATIENCE_SECONDS, until

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


def curl(url: str, *more: str) -> tuple[list[dict[str, Any]], str]:
    """Messages of a stream, to its end, and the id of the last event."""
    command = ["curl", "--silent", "--show-error", "--fail", "--no-buffer", "--noproxy", "*"]
    found = subprocess.run(
        [*command, "--max-time", str(PATIENCE_SECONDS), *more, url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    messages = [json.loads(line) for line in re.findall(r"^data: (.*)$", found, re.M)]
    ids = re.findall(r"^id: (.*)$", found, re.M)
    return messages, ids[-1] if ids else ""


@needs_curl
def test_a_client_of_somebody_else_comes_back_after_the_broker_was_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log")
    broker.start()
    try:
        with Client(broker.url) as client:
            client.create_topic("t")
            client.create_subscription("t", "page", order="arrival")
            client.send_batch("t", [{"payload": f"{n}", "delay": 3_600} for n in range(6)])
        address = "http://127.0.0.1:{}/v1/topics/t@page/events"
        url = address.format(broker.http_port)
        first, last = curl(f"{url}?max=4&lease_ms=3600000")
        broker.kill()
        broker.start()
        url = address.format(broker.http_port)
        second, last = curl(f"{url}?idle_ms=1", "--header", f"Last-Event-ID: {last}")
        third, _ = curl(f"{url}?idle_ms=1", "--header", f"Last-Event-ID: {last}")
        with Client(broker.url) as client:
            stats = client.stats("t@page")
            others = client.stats("t")
    finally:
        broker.kill()
    assert [message["payload"] for message in (*first, *second, *third)] == list("012345")
    assert {message["attempt"] for message in (*first, *second)} == {1}
    assert (stats["acked"], stats["leased"], others["scheduled"]) == (6, 0, 6)


@needs_curl
@pytest.mark.timeout(900)
def test_subscriptions_of_a_broker_of_several_processes(tmp_path: Path) -> None:
    """Whichever process serves a topic, and whichever is asked."""
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log", server__processes=2)
    broker.start()
    topics = [f"t{number}" for number in range(6)]
    try:
        with Client(broker.url) as client:
            for topic in topics:
                client.create_topic(topic)
                client.create_subscription(topic, "billing")
                client.create_subscription(topic, "page", order="arrival")
                client.send_batch(topic, [{"payload": "a"}, {"payload": "b"}])
            nodes = {one["node"] for name in topics for one in client.cluster(name)["topics"]}
            for topic in topics:
                with client.consume(topic, subscription="billing", max_messages=2) as messages:
                    for message in messages:
                        message.ack()
                url = f"http://127.0.0.1:{broker.http_port}/v1/topics/{topic}@page/events?idle_ms=1"
                events, last = curl(url)
                assert [event["payload"] for event in events] == ["a", "b"]
                assert curl(url, "--header", f"Last-Event-ID: {last}") == ([], "")
                for name, acked in (("@billing", 2), ("@page", 2), ("", 0)):
                    assert client.stats(f"{topic}{name}")["acked"] == acked
    finally:
        broker.stop()
    assert nodes == {"process-1", "process-2"}


@pytest.fixture
def site() -> Iterator[Site]:
    with running(quotas=QuotaSettings(streams_max=1)) as made:
        give_keys(made)
        make_topics(made.broker)
        yield made


@contextmanager
def stream(site: Site, key: str) -> Iterator[httpx.Response]:
    url = f"{site.http_url}/v1/topics/{MINE}/events"
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False) as http,
        http.stream("GET", url, headers=headers) as answer,
    ):
        yield answer


def test_a_stream_ends_with_its_key(site: Site) -> None:
    made, key = site.broker.keys.create("page", [f"consume:{MINE}"])
    with stream(site, key) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry: ")
        site.broker.keys.revoke(made.id)
        told = [line for line in lines if line.startswith(("event: ", "data: "))]
        assert told[0] == "event: end"
        assert "Unauthenticated" in told[1]
    with stream(site, key) as answer:
        assert answer.status_code == 401


def test_a_stream_counts_for_the_quota_of_its_key(site: Site) -> None:
    key = site.keys["consume mine"]
    assert key is not None
    account = site.broker.quotas.of(site.broker.keys.find(key).principal, "")
    with stream(site, key) as first:
        lines = first.iter_lines()  # whose end would close the connection
        next(lines)
        with stream(site, key) as second:
            assert second.status_code == 429
            assert "streams_max" in second.read().decode()
    until(lambda: account.streams == 0, "the stream is counted no more")
    with stream(site, key) as again:
        assert again.status_code == 200


def test_a_stopping_broker_ends_its_streams(site: Site) -> None:
    key = site.keys["consume mine"]
    assert key is not None
    with stream(site, key) as answer:
        lines = answer.iter_lines()
        next(lines)
        stopping = threading.Thread(target=site.http.stop)
        stopping.start()
        told = [line for line in lines if line]
        stopping.join(PATIENCE_SECONDS)
    assert any("Unavailable" in line for line in told), told
