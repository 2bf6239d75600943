"""Covers: what reports of servers say together, who leads by them, what keeps nodes from being
whole, lines of logs.

Not covered: a server that runs, is repaired and heals (tests/cluster).
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.cluster.jetstream import (
    PROGRAM_VARIABLE,
    ClusterStatus,
    find_program,
    pass_line_on,
    read_status,
)
from dejaqueue.connections.nats.monitor import Copy, ServerReport, read_report
from dejaqueue.errors import Refused

NODES = ("a", "b", "c")
RECORDS, OBJECTS = "dejaq-records-t-0", "dejaq-objects"


def copy(server: str, stream: str = RECORDS, leader: str = "a", **more: Any) -> Copy:
    lags: tuple[int, ...] = more.pop("lags", (0, 0))
    is_leader = server == leader
    followers = tuple(name for name in NODES if name != server) if is_leader else ()
    made = Copy(server, stream, 10, 1, 10, 100, leader, followers, lags if is_leader else ())
    return replace(made, **more)


def report(server: str, *copies: Copy, is_off: bool = False, meta: str = "a") -> ServerReport:
    return ServerReport(server, "2.15", True, is_off, copies, meta)


def whole(**more: Any) -> list[ServerReport]:
    return [report(name, copy(name, **more)) for name in NODES]


def status(*reports: ServerReport) -> ClusterStatus:
    return read_status(NODES, reports)


def flaw(*reports: ServerReport, but: str = "", **lasts: int) -> str:
    return status(*reports).flaw({RECORDS: lasts.get("last", 10)}, but)


# --- reports put together


def test_servers_that_are_whole_have_no_flaw() -> None:
    found = status(*whole())
    assert (found.present, found.absent, found.meta_leader) == (NODES, (), "a")
    assert found.lasts() == {RECORDS: 10}
    assert found.missing == ()
    assert [(one.node, one.is_leader, one.lag) for one in found.copies] == [
        ("a", True, 0),
        ("b", False, 0),
        ("c", False, 0),
    ]
    assert found.flaw(found.lasts()) == ""


def test_how_far_a_copy_is_behind_is_said_by_its_leader() -> None:
    found = status(report("a", copy("a", lags=(7, 0))), report("b", copy("b")))
    assert {one.node: one.lag for one in found.copies} == {"a": 0, "b": 7}
    found = status(report("b", copy("b")))
    assert [one.lag for one in found.copies] == [-1], "nobody says"


# --- what is in the way


def test_a_server_that_does_not_answer_or_is_off_is_a_flaw__but_the_one_meant_is_not() -> None:
    a, b, c = whole()
    assert flaw(a, b) == "c does not answer"
    assert flaw(a, b, replace(c, is_off=True)) == "c does not answer"
    assert flaw(a, b, but="c") == ""


@pytest.mark.parametrize(("meta", "but"), [("", ""), ("c", "c")])
def test_a_cluster_without_a_leader_is_a_flaw__and_one_led_by_who_is_to_go(
    meta: str, but: str
) -> None:
    reports = [replace(one, meta_leader=meta) for one in whole()]
    assert flaw(*reports, but=but) == "the cluster has no leader"


def test_a_copy_that_should_be_there_is_named() -> None:
    a, b, c = whole()
    assert flaw(a, b, replace(c, copies=())) == f"c has no copy of {RECORDS}"
    assert flaw(a, b, replace(c, copies=()), but="c") == ""


def test_a_stream_that_lost_its_leader_is_a_flaw() -> None:
    reports = [report(name, copy(name, leader="")) for name in NODES]
    assert flaw(*reports) == f"{RECORDS} has no leader"


def test_a_stream_without_a_leader_is_a_flaw__though_nobody_saw_it_led() -> None:
    # c is to be emptied, and leads no more; d goes on without its copy, whose write failed.
    found = read_status(("a", "c", "d"), [report("a", copy("a", leader="")), report("d")])
    assert found.lasts() == {}
    assert found.flaw({}, "c") == f"{RECORDS} has no leader"


def test_records_that_no_copy_has_any_more_are_no_flaw() -> None:
    streams = [report(name, copy(name, messages=4)) for name in NODES]
    assert status(*streams).flaw({}) == ""


def test_a_copy_with_fewer_records_than_another_of_the_same_end_is_a_flaw() -> None:
    reports = [report(name, copy(name, OBJECTS)) for name in ("a", "c")]
    short = report("b", copy("b", OBJECTS, messages=9))
    expected = f"b has fewer records of {OBJECTS} than another"
    assert status(reports[0], short, reports[1]).flaw({}) == expected


def test_a_copy_that_is_behind_is_a_flaw() -> None:
    a, b, c = whole()
    behind = report("b", copy("b", messages=8, last=8))
    assert flaw(a, behind, c) == f"b is behind in {RECORDS}"
    assert flaw(a, behind, c, but="b") == ""
    lagging = report("a", copy("a", lags=(3, 0)))
    assert flaw(lagging, b, c) == f"b is behind in {RECORDS}"


def test_what_was_there_when_the_repair_began_must_be_there() -> None:
    assert flaw(*whole(), last=11) == f"a is behind in {RECORDS}"


# --- the program, and what it writes


# --- who leads, by what servers say ---------------------------------------------------------------


def told_report(server: str, last: int, cluster: dict[str, Any]) -> ServerReport:
    """A server's answer with one stream, as the server gives it."""
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
    whole = [told_report("a", 20, led_by("a", b=0, c=10)), told_report("b", 20, led_by("a"))]
    status = read_status(["a", "b", "c"], [*whole, told_report("c", 10, stale)])
    assert status.lasts() == {"q-records-t-0": 20}
    assert status.flaw(status.lasts()) == "c is behind in q-records-t-0"
    assert status.flaw(status.lasts(), but="c") == ""
    status = read_status(["a", "b", "c"], [*whole, told_report("c", 20, led_by("a"))])
    assert [copy.lag for copy in status.copies] == [0, 0, 10]


def test_a_server_that_is_alone_leads() -> None:
    status = read_status(["a"], [told_report("a", 3, {})])
    assert status.flaw(status.lasts()) == ""
    assert [copy.is_leader for copy in status.copies] == [True]


def test_a_stream_of_which_all_know_no_leader_has_none() -> None:
    status = read_status(["a", "b"], [told_report(n, 3, {"name": "dejaq"}) for n in ("a", "b")])
    assert status.flaw({"q-records-t-0": 3}) == "q-records-t-0 has no leader"


# --- the program, and its log ---------------------------------------------------------------------


def test_the_program_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my-nats"
    program.write_text("")
    program.chmod(0o755)
    assert find_program(str(program)) == os.path.realpath(program)
    monkeypatch.setenv(PROGRAM_VARIABLE, str(program))
    assert find_program() == os.path.realpath(program)


def test_a_program_that_is_named_and_not_there_is_refused__no_other_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match="there is no program .*none: pip install"):
        find_program(str(tmp_path / "none"))
    monkeypatch.setenv(PROGRAM_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(Refused):
        find_program()


def test_without_a_name_the_program_beside_python_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Refused, match="there is no program nats-server"):
        find_program()
    (tmp_path / "nats-server").write_text("")
    assert find_program() == os.path.realpath(tmp_path / "nats-server")


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("[1] 2026/01/02 03:04:05.6 [INF] Server is ready", logging.DEBUG, "Server is ready"),
        ("[1] 2026/01/02 03:04:05.6 [WRN] Disk is slow", logging.WARNING, "Disk is slow"),
        ("[1] 2026/01/02 03:04:05.6 [ERR] No space", logging.ERROR, "No space"),
        ("[1] 2026/01/02 03:04:05.6 [FTL] Gone", logging.ERROR, "Gone"),
        (
            "[1] 2026/01/02 03:04:05.6 [WRN] Waiting for routing to be established...",
            logging.DEBUG,
            "Waiting for routing to be established...",
        ),
        ("panic: something else", logging.INFO, "panic: something else"),
    ],
)
def test_a_line_of_the_server_gets_its_level__information_is_for_debugging(
    caplog: pytest.LogCaptureFixture, line: str, level: int, text: str
) -> None:
    with caplog.at_level(logging.DEBUG, logger="dejaqueue.jetstream"):
        pass_line_on(line)
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (level, text)
