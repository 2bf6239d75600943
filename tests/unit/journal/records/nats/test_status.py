from __future__ import annotations

from dejaqueue.connections.nats.monitor import Copy, ServerReport
from dejaqueue.journal.records.nats.status import copy_rows, server_rows
from dejaqueue.journal.records.nats.watch import SickCopy


def copy(server: str, stream: str = "q-1", **more: object) -> Copy:
    leads = server == "a"
    values = {
        "messages": 5,
        "first": 1,
        "last": 5,
        "byte_count": 100,
        "leader": "a",
        "followers": ("b", "c") if leads else (),
        "lags": (0, 7) if leads else (),
    }
    return Copy(server, stream, **(values | more))  # type: ignore[arg-type]


def report(server: str, *copies: Copy) -> ServerReport:
    return ServerReport(server, "2.15.1", True, False, copies, "b")


REPORTS = [report("a", copy("a"), copy("a", "other")), report("b", copy("b"))]


def test_servers_with_what_they_lead_and_how_far_they_are_behind() -> None:
    sick = [SickCopy("b", "q-1", "records are missing")]
    a, b, c = server_rows(REPORTS, sick, lambda name: name.startswith("q-"))
    assert [row["state"] for row in (a, b, c)] == ["whole", "sick", "silent"]
    assert (a["leads"], a["copies"], a["lag"], a["bytes"]) == (1, 1, 0, 100)
    assert (b["leads"], b["copies"], b["meta_leader"]) == (0, 1, True)
    assert b["why"] == "server b is sick: q-1: records are missing"
    assert (c["server"], c["copies"], c["lag"], c["version"]) == ("c", 0, -1, "")


def test_copies_of_each_partition() -> None:
    reports = [report("a", copy("a")), report("c", copy("c", messages=4, last=4))]
    leader, follower = copy_rows(reports, ["q-0", "q-1"])
    assert leader == {
        "partition": 1, "server": "a", "role": "leader", "records": 5, "last": 5, "lag": 0,
    }  # fmt: skip
    assert (follower["role"], follower["last"], follower["lag"]) == ("follower", 4, 7)


def test_partitions_of_one_stream_have_the_same_copies() -> None:
    rows = copy_rows([report("a", copy("a"))], ["q-1", "q-0", "q-1"])
    assert [(row["partition"], row["server"]) for row in rows] == [(0, "a"), (2, "a")]


def test_a_copy_is_as_far_behind_as_the_leader_says_though_its_server_believes_to_lead() -> None:
    stale = copy("c", last=4, leader="c", followers=("a", "b"), lags=(0, 0))
    rows = copy_rows([report("a", copy("a")), report("b", copy("b")), report("c", stale)], ["q-1"])
    assert {row["server"]: row["lag"] for row in rows} == {"a": 0, "b": 0, "c": 7}
