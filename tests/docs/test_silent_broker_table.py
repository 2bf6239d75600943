"""Covers: the table of docs/guides/workers.md of what calls do at a silent broker names each call
once, in the row that the table of calls gives it; its times are those of the code.

Not covered: that a client does what its column says (tests/integration/test_silent_broker.py,
tests/clients/test_silent_broker.py, test_light_silent_broker.py,
tests/cluster/test_hanging_calls.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import dejaqueue_client._aio.connection as light
from dejaqueue.access.calls import ACTIONS, TICKETS
from dejaqueue.client.flight_transport import CALL_SECONDS_MAX
from dejaqueue.client.silence_watch import (
    AGAIN_SECONDS_MAX,
    ANSWER_SECONDS_MAX,
    SILENT_SECONDS_MAX,
)
from dejaqueue.http.forwarding import SILENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guides/workers.md"
JAVA = ROOT / "clients/java/src/main/java/dejaqueue"
LOOKS = {"peek", "payload"}
"""Tickets that are answered as a call is; the others are read as a stream."""
BY_BODY = {"create_topic", "alter_topic"}
"""May be made twice, if their body says so."""


def rows() -> dict[str, list[str]]:
    """The cells of each row, by what stands before the names in its first one."""
    table = PAGE.read_text().partition("<!-- silent broker -->")[2].partition("<!-- end")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].partition(":")[0]: row for row in cells}


ROWS = rows()


def names_of(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", ROWS[row][0])


def test_no_cell_is_empty() -> None:
    assert {len(row) for row in ROWS.values()} == {5}
    assert all(cell for row in ROWS.values() for cell in row)


def test_each_call_is_in_the_row_that_the_table_of_calls_gives_it() -> None:
    users = {name: call for name, call in ACTIONS.items() if not call.rule.peers}
    twice = {name for name, call in users.items() if call.repeats}
    assert names_of("may be made twice") == [*sorted(twice), *sorted(LOOKS, reverse=True)]
    assert names_of("is made once") == sorted(users.keys() - twice - BY_BODY)
    assert set(names_of("may be made twice, if its body says so")) == BY_BODY
    assert set(names_of("rows in a stream")) == TICKETS.keys() - LOOKS


def constant(path: Path, pattern: str) -> float:
    found = re.search(pattern, path.read_text())
    assert found is not None, pattern
    return float(found[1])


def test_its_times_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    first, again = SILENT_SECONDS_MAX + ANSWER_SECONDS_MAX, AGAIN_SECONDS_MAX
    assert f"**after {first:g} seconds**" in page
    assert f"**after {again:g} seconds**" in page
    assert first == light.SILENT_SECONDS_MAX + light.ANSWER_SECONDS_MAX
    assert again == light.AGAIN_SECONDS_MAX
    go = ROOT / "clients/go/routes.go"
    assert constant(go, r"silentAfter = (\d+) \*") + constant(go, r"signMost = (\d+) \*") == first
    assert constant(go, r"signAgainMost += (\d+) \*") == again
    silent = constant(JAVA / "Attention.java", r"SILENT_NS = TimeUnit.SECONDS.toNanos\((\d+)\)")
    assert silent + constant(JAVA / "Broker.java", r"SIGN_SECONDS_MAX = (\d+);") == first
    assert constant(JAVA / "Broker.java", r"SIGN_AGAIN_SECONDS_MAX = (\d+);") == again
    _, ours, lights, _, passed_on = ROWS["is made once"]
    assert ours == f"ends after {CALL_SECONDS_MAX:g} s"
    assert lights == f"ends after {light.SILENCE_SECONDS:g} s"
    assert passed_on == f"{ours}; over HTTP after {SILENCE_S:g} s"
