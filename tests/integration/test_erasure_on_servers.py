"""Erasure where journals are on a server: the server gives no record of it any more, and no file of
the copy beside the broker has a byte.

Here: each kind of server, real ones, through the client's calls. Not here: journals in segments
(test_erasure.py); without being asked (test_erasure_bound_on_servers.py); what a record log
promises (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.model import RowStatus
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.integration.erasure_servers import (
    KINDS,
    check_kept,
    on_the_server,
    opened,
    send_kept,
    server_url,
    wait_for_copies,
)

KEPT = 60


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from server_url(request.param, tmp_path / "server")


def test_the_server_has_no_record_of_what_was_erased__and_all_else_is_delivered(
    url: str, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    with opened(url, mirror) as client:
        client.create_topic("orders", max_attempts=1)
        client.create_topic("letters")
        send_kept(client, 0, 20)
        done = client.send("orders", "marker-done", key="marker-key", group="marker-group")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                message.ack(wait=True)
        send_kept(client, 20, 40)
        client.send("orders", "marker-waits", key="marker-key", due=far_ms())
        cancelled = client.send("orders", "marker-cancelled", due=far_ms())
        client.cancel("orders", id=cancelled)
    with opened(url, mirror) as client:  # nothing of what is done is in memory any more
        send_kept(client, 40, KEPT)
        leased = client.send("orders", "marker-leased", tags=["marker-tag"])
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                assert on_the_server(url, "marker-")
                assert files_with("marker-", mirror)
                erased = client.erase("orders", keys=["marker-key"])
                assert (erased.ended, erased.held) == (1, 0)
                assert erased.found >= 2
                assert client.erase("orders", ids=[done]).found == 0
                assert client.erase("orders", ids=[cancelled, leased]).ended == 1
                assert on_the_server(url, "marker-") == []
                assert files_with("marker-", mirror) == []
                assert message.ack(wait=True) is RowStatus.LEASE_LOST
        check_kept(client, KEPT)
    with opened(url, mirror) as client:
        assert client.counts("orders")["scheduled"] == 0
    assert on_the_server(url, "marker-") == []
    assert files_with("marker-", mirror) == []
    if not url.startswith("sqlite:"):
        wait_for_copies(url, "marker-")
