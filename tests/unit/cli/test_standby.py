"""Covers: what `dejaq standby` and `dejaq promote` show and ask, of a broker that is no standby.

Not covered: a standby and its promotion by command (tests/crash/test_standby_kill.py).
"""

from __future__ import annotations

from tests.cli.conftest import Run


def test_an_active_broker_says_so__and_is_not_promoted(run: Run) -> None:
    assert run("standby").output == "active\n"
    assert run("standby", "--json").output == '{"state":"active"}\n'
    refused = run("promote", "--yes")
    assert refused.exit_code == 3
    assert "this broker is no standby: it serves already" in refused.output
    asked = run("promote", stdin=b"n\n")
    assert asked.exit_code == 130
    assert "Take the place of the broker whose archive is" in asked.output
