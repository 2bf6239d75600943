"""Covers: the figures of the question `doq`, and the load that measures it, for a moment."""

from __future__ import annotations

import json

from bench.questions.doq import LEFT_OUT, outcome_of
from bench.systems.servers import start_helper
from dejaqueue.http.doq.catalogue import create
from dejaqueue.http.doq.shapes import DoqSettings
from dejaqueue.http.doq.topics import topic_of
from dejaqueue.setting_groups import DoqSettings as DoqPort
from tests.integration.access_fixture import running
from tests.patience import PATIENCE_SECONDS


def test_ratios_are_to_doq_where_it_was_measured() -> None:
    rates = {"dejaq": {"both": [4.0, 8.0, 6.0]}, "doq": {"both": [3.0, 3.0, 3.0]}}
    outcome = outcome_of(rates)
    [ours, theirs] = outcome.rows
    assert (ours.case, ours.value, ours.ratio, ours.ratio_to) == ("streams_both", 6.0, 2.0, "doq")
    assert (theirs.system, theirs.ratio) == ("doq", None)
    assert outcome.left_out == []
    assert outcome_of({"dejaq": rates["dejaq"]}).left_out == [LEFT_OUT]


def test_the_load_sends_takes_and_does_both() -> None:
    """In a process of its own, as always: grpcio serves one event loop of a process well."""
    loader = start_helper("bench.doq_load", 2)
    told, said = loader.stdin, loader.stdout
    assert told is not None
    assert said is not None
    try:
        with running(doq=DoqPort(enabled=True, port=0)) as site:
            create(site.broker, topic_of("q", "fair", DoqSettings()))

            def run(case: str, seconds: float, rows: int = 1 << 40) -> int:
                values = {"case": case, "seconds": seconds, "rows": rows, "queue": "q"}
                values["address"] = f"127.0.0.1:{site.http.doq_port}"
                print(json.dumps(values), file=told, flush=True)
                return int(json.loads(said.readline())["messages"])

            sent = run("enqueue", 0.3)
            assert sent >= 2
            assert site.broker.call("stats", {"topic": "q"})["scheduled"] == sent
            assert run("dequeue", PATIENCE_SECONDS, sent) == sent
            assert run("both", 0.3) >= 4
    finally:
        told.close()
        assert loader.wait(PATIENCE_SECONDS) == 0
        said.close()
