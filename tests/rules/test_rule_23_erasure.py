"""Rule 23: what was erased is in no file any more; all others stay as they are.

Here: in the files of a broker in this process, through its calls. Not here: a real broker that is
killed (tests/crash/test_erasure_kill.py); subscriptions, leases (test_erasure.py of
integration).
"""

from __future__ import annotations

from pathlib import Path

import dejaqueue
from tests.crash.test_erasure_kill import files_with


def test_what_was_acked_long_ago_is_erased__and_others_are_delivered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with dejaqueue.open(str(data)) as client:
        client.create_topic("orders")
        client.send("orders", b"marker", key="k")
        with client.consume("orders", max_messages=1) as messages:
            for message in messages:
                message.ack(wait=True)
        client.send("orders", b"stays", key="other")
    with dejaqueue.open(str(data)) as client:
        assert files_with("marker", data)
        erased = client.erase("orders", keys=["k"])
        assert (erased.found, erased.ended) == (1, 0)
        assert files_with("marker", data) == []
        with client.consume("orders", max_messages=1) as messages:
            assert [message.payload for message in messages if message.ack() is None] == [b"stays"]
    assert files_with("marker", data) == []
