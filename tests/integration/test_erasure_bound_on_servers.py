"""`journal.erase_ms_max` where journals are on a server: after that time the server gives no record
of what is done, and no file of the copy beside the broker has a byte.

Here: acked, cancelled and replaced messages, what was done before a start, on each kind of server,
real ones; a bucket, which cannot. Not here: journals in segments (tests/crash/
test_erasure_bound.py); what a cluster's other brokers have (tests/cluster/test_erasure.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.errors import BadRequest
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.integration.erasure_servers import (
    KINDS,
    check_kept,
    on_the_server,
    opened,
    send_kept,
    server_url,
)
from tests.patience import until

ERASE_MS = 8_000
KEPT = 60


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from server_url(request.param, tmp_path / "server")


def send_done(client: dejaqueue.Client, text: str) -> None:
    """A message that is acked, one that is cancelled, and one that another one replaces."""
    client.send("orders", f"{text} acked")
    with client.consume("orders", max_messages=1) as messages:
        for message in messages:
            message.ack(wait=True)
    client.send("orders", f"{text} cancelled", key="c", due=far_ms())
    assert client.cancel("orders", keys=["c"]).ok
    client.send("orders", f"{text} replaced", key="r", due=far_ms())
    client.send("orders", "in its place", key="r", due=far_ms())
    assert client.cancel("orders", keys=["r"]).ok


def wait_until_gone(url: str, text: str, mirror: Path) -> None:
    until(lambda: not files_with(text, mirror), f"the copy has nothing of {text}")
    until(lambda: not on_the_server(url, text), "nor has the server")


def test_what_is_done_goes_from_the_server_in_time__and_what_lives_stays(
    url: str, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    with opened(url, mirror, ERASE_MS) as client:
        client.create_topic("orders", on_duplicate="replace")
        send_kept(client, 0, 20)
        send_done(client, "marker")
        assert files_with("marker", mirror)
        assert on_the_server(url, "marker")
        send_kept(client, 20, 40)
        wait_until_gone(url, "marker", mirror)
    with opened(url, mirror) as client:
        send_done(client, "later")
        send_kept(client, 40, KEPT)
    assert on_the_server(url, "later")
    with opened(url, mirror, ERASE_MS) as client:  # nobody uses it: it goes all the same
        wait_until_gone(url, "later", mirror)
        check_kept(client, KEPT)
    for text in ("marker", "later"):
        assert on_the_server(url, text) == []


def test_a_bucket_cannot__and_its_broker_says_so_at_the_start(tmp_path: Path) -> None:
    url = f"bucket://{tmp_path}/bucket"
    with pytest.raises(BadRequest, match="journal.erase_ms_max: 0 where .*, got: 8000"):
        opened(url, tmp_path / "mirror", ERASE_MS).close()
    opened(url, tmp_path / "mirror").close()
