"""What servers say, put together; with real servers: tests/cluster/test_jetstream.py."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.cluster.jetstream import read_status
from dejaqueue.connections.nats.monitor import ServerReport, read_report


def report(server: str, last: int, cluster: dict[str, Any]) -> ServerReport:
    """A server's answer with one stream."""
    state = {"messages": last, "first_seq": 1, "last_seq": last}
    stream = {"name": "q-records-t-0", "state": state, "cluster": cluster}
    told = {
        "account_details": [{"stream_detail": [stream]}],
        "config": {"sync_always": True},
        "meta_cluster": {"leader": "a", "cluster_size": 3},
    }
    return read_report(server, {}, told)


def led_by(leader: str, **lags: int) -> dict[str, Any]:
    return {"leader": leader, "replicas": [{"name": n, "lag": lag} for n, lag in lags.items()]}


@pytest.mark.parametrize(
    "stale",
    [
        {"replicas": [{"name": "a"}, {"name": "b"}]},  # it knows of no leader
        led_by("c", a=0, b=0),  # it has not heard of the next one
    ],
)
def test_a_server_that_led_and_could_not_write_is_behind(stale: dict[str, Any]) -> None:
    whole = [report("a", 20, led_by("a", b=0, c=10)), report("b", 20, led_by("a"))]
    status = read_status(["a", "b", "c"], [*whole, report("c", 10, stale)])
    assert status.lasts() == {"q-records-t-0": 20}
    assert status.flaw(status.lasts()) == "c is behind in q-records-t-0"
    assert status.flaw(status.lasts(), but="c") == ""
    status = read_status(["a", "b", "c"], [*whole, report("c", 20, led_by("a"))])
    assert [copy.lag for copy in status.copies] == [0, 0, 10]


def test_a_server_that_is_alone_leads() -> None:
    status = read_status(["a"], [report("a", 3, {})])
    assert status.flaw(status.lasts()) == ""
    assert [copy.is_leader for copy in status.copies] == [True]


def test_a_stream_of_which_all_know_no_leader_has_none() -> None:
    status = read_status(["a", "b"], [report(n, 3, {"name": "dejaq"}) for n in ("a", "b")])
    assert status.flaw({"q-records-t-0": 3}) == "q-records-t-0 has no leader"
