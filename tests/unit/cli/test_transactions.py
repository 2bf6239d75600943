"""`dejaq transactions`: what is listed and what no more. What staging is: tests/rules."""

from __future__ import annotations

import json

import dejaqueue
from tests.cli.conftest import Run


def test_what_is_staged_is_listed_until_it_is_decided(run: Run, url: str) -> None:
    run("topic", "create", "t")
    run("topic", "create", "other")
    with dejaqueue.Client(url) as client, client.transaction() as transaction:
        for payload in (b"1", b"2"):
            transaction.send("t", payload)
        row = json.loads(run("transactions", "t", "--json").stdout)
        assert row["transaction"] == transaction.name
        assert (row["partition"], row["staged"], row["acked"]) == (0, 2, 0)
        assert 0 < row["left_ms"] <= 60_000
        heads, values = run("transactions", "t").stdout.splitlines()
        assert heads.split()[:2] == ["transaction", "partition"]
        assert values.split()[0] == transaction.name
        assert run("transactions", "other", "--json").stdout == ""
    assert run("transactions", "t", "--json").stdout == ""
