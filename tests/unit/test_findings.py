"""Covers: a finding as a line of JSON."""

from __future__ import annotations

from dejaqueue.findings import Level, fine, hurts, look


def test_a_finding_says_how_bad_it_is_and_what_mends_it() -> None:
    assert hurts("disk", "it is full", "df -h").to_dict() == {
        "check": "disk",
        "level": "hurts",
        "text": "it is full",
        "mend": "df -h",
    }
    assert (look("a", "b", "c").level, fine("a", "b").level) == (Level.LOOK, Level.FINE)
    assert fine("a", "b").mend == ""
