"""Covers: which facts outlive the process, and what a file does that cannot be read or written.

Not covered: the contract of a coordinator (tests/conformance/test_coordinator_parent_facts.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.coordinator.interface import Conflict
from dejaqueue.coordinator.kept_facts import KeptFacts
from dejaqueue.errors import JournalDamaged, Unavailable

KEPT = ("documents/", "cluster/")


def test_some_facts_outlive_the_process__with_revisions_that_grow(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    facts = KeptFacts(path, KEPT)
    facts.put("documents/keys", bytes(range(256)), 0, None)
    facts.put("members/a", b"gone", 0, None)
    facts.put("cluster/identity", b"here", 0, None)
    facts.put("cluster/wrong", b"", 0, None)
    assert facts.delete("cluster/wrong", None)
    before = facts.copy().revision
    assert path.stat().st_mode & 0o777 == 0o600
    again = KeptFacts(path, KEPT)
    assert [fact.key for fact in again.find("")] == ["cluster/identity", "documents/keys"]
    assert again.find("documents/")[0].value == bytes(range(256))
    assert again.find("") == [*facts.find("cluster/"), *facts.find("documents/")]
    with pytest.raises(Conflict):
        again.put("documents/keys", b"x", 0, None)
    assert again.put("members/a", b"", 0, None) > before - 1


def test_a_fact_that_cannot_be_kept_is_not_changed__and_members_come_and_go(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    facts = KeptFacts(directory / "facts.json", KEPT)
    revision = facts.put("documents/keys", b"before", 0, None)
    (directory / "facts.json").unlink()
    directory.rmdir()
    with pytest.raises(Unavailable, match=r"facts\.json cannot be written"):
        facts.put("documents/keys", b"after", revision, None)
    with pytest.raises(Unavailable, match="cannot be written"):
        facts.delete("documents/keys", revision)
    assert [(fact.value, fact.revision) for fact in facts.find("documents/")] == [
        (b"before", revision)
    ]
    facts.put("members/a", b"", 0, 1_000)
    assert facts.delete("members/a", None)
    facts.close()


@pytest.mark.parametrize("content", [b"", b"1\n[0, {}]", b"wrong", b"0\n"])
def test_a_file_that_is_not_what_was_written_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "facts.json"
    path.write_bytes(content)
    with pytest.raises(JournalDamaged, match=r"facts\.json"):
        KeptFacts(path, KEPT)


def test_without_a_file_nothing_is_kept() -> None:
    facts = KeptFacts(None, KEPT)
    facts.put("documents/keys", b"x", 0, None)
    assert [fact.key for fact in facts.find("")] == ["documents/keys"]
