"""`dejaq erase`: what it refuses before it asks a broker, and what it says of backups.

Not here: what is erased (tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

from click.testing import CliRunner

from dejaqueue.cli.erasure import _until, erase


def test_messages_are_named_or_selected() -> None:
    both = (["orders", "--key", "k", "--group", "g"], ["orders", "--key", "k", "--id", "7"])
    for arguments in (["orders"], *both):
        outcome = CliRunner().invoke(erase, [*arguments, "--yes"])
        assert outcome.exit_code == 2
        assert "name the messages by --key" in outcome.output


def test_it_asks_first() -> None:
    outcome = CliRunner().invoke(erase, ["orders", "--key", "k"], input="n\n")
    assert outcome.exit_code == 1
    assert "Erase every message of topic orders with 1 key?" in outcome.output
    named = ["orders", "--id", "7", "--id", "8"]
    outcome = CliRunner().invoke(erase, named, input="n\n")
    assert "Erase every message of topic orders with 2 ids?" in outcome.output


def test_until_when_a_backup_has_it() -> None:
    assert _until({"until_ms": 1_796_000_000_000}) == "until 2026-11-30 00:53 UTC"
    assert _until({}) == "until somebody deletes it"
