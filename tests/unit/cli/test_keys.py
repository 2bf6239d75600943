"""`dejaq key`: which options go together, where a key is printed, and a directory without a broker.

Not covered: what a key lets in (tests/unit/access), brokers as processes (tests/cli/test_keys.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dejaqueue.clock import SystemClock
from tests.cli.conftest import Run, invoke

HOUR_MS = 3_600_000


def test_a_key_is_printed_once__alone_on_standard_output(run: Run) -> None:
    made = run("key", "create", "root", "--grant", "admin:*")
    text = made.stdout.strip()
    assert text.startswith("dq_")
    assert made.stdout == f"{text}\n"
    assert "only time" in made.stderr
    shown = run("key", "list", "--api-key", text, "--json").stdout
    assert json.loads(shown)["name"] == "root"
    assert text.rpartition("_")[2] not in shown


def test_an_end_is_said_in_one_way(run: Run) -> None:
    both = ("--for", "1h", "--until", "2100-01-01T00:00:00Z")
    found = run("key", "create", "k", "--grant", "produce:t", *both)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--for and --until: one of them" in found.stderr


def test_a_length_counts_from_now__and_shows_when_it_is_over(run: Run) -> None:
    root = run("key", "create", "root", "--grant", "admin:*").stdout.strip()
    before_ms = SystemClock().now_ms()
    made = run(
        *("key", "create", "k", "--grant", "produce:t", "--for", "1h"),
        *("--json", "--api-key", root),
    )
    after_ms = SystemClock().now_ms()
    ends_ms = json.loads(made.stdout)["ends_ms"]
    assert before_ms + HOUR_MS <= ends_ms <= after_ms + HOUR_MS
    rows = run("key", "list", "--api-key", root).stdout.splitlines()[1:]
    ends = {row.split()[1]: row.split()[-2] for row in rows}
    assert ends["root"] == "never"
    assert ends["k"].endswith("Z")
    used = {row.split()[1]: row.split()[-1] for row in rows}
    assert used["root"].endswith(":00.000Z")  # by these very calls, to the minute
    assert used["k"] == "-"


def test_the_name_of_a_certificate_has_roles_but_no_text(run: Run) -> None:
    root = run("key", "create", "root", "--grant", "admin:*").stdout.strip()
    grants = ("--grant", "produce:t", "--grant", "observe:*")
    made = run("key", "create", "cert:shop", *grants, "--api-key", root)
    assert (made.stdout, made.stderr) == ("cert:shop: produce:t observe:*\n", "")


@pytest.mark.parametrize("revoked_by", ["id", "name"])
def test_a_directory_without_a_broker_makes_lists_and_revokes(
    tmp_path: Path, revoked_by: str
) -> None:
    data = ("--data", str(tmp_path / "data"))
    made = invoke("key", "create", "root", "--grant", "admin:*", *data, "--json")
    number = json.loads(made.stdout)["id"]
    assert json.loads(invoke("key", "list", *data, "--json").stdout)["id"] == number
    named = {"id": number, "name": "root"}[revoked_by]
    refused = invoke("key", "revoke", named, *data)
    assert refused.exit_code != 0
    assert "last" in refused.stderr
    assert invoke("key", "revoke", named, *data, "--force").exit_code == 0
    assert invoke("key", "list", *data, "--json").stdout == ""


def test_what_is_in_memory_has_no_keys() -> None:
    found = invoke("key", "list", "--data", "memory:")
    assert found.exit_code == 2
    assert "--data: a directory; what is in memory has no keys" in found.stderr
