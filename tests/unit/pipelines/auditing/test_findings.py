"""What an audit says in one sentence, and when it is good."""

from __future__ import annotations

from typing import Any

from dejaqueue.pipelines.auditing.findings import Findings

NONE = {"lost": 0, "early": 0, "duplicate": 0, "late": 0}


def findings(**more: Any) -> Findings:
    values: dict[str, Any] = {
        "messages": 1_200, "deliveries": 1_300, "unknown_begin": 0, "faults": NONE, "gaps": 0,
        "missed": 0, "from_ms": 0, "to_ms": 1,
    }  # fmt: skip
    return Findings(**values | more)


def test_it_is_good_if_nothing_is_wrong_and_all_is_known() -> None:
    assert findings().is_good
    assert findings().headline == "1,200 messages, none lost, early, twice or late"
    assert not findings(gaps=2).is_good
    assert findings(gaps=2).headline.endswith("; the history has 2 gaps")
    assert not findings(faults=NONE | {"late": 1}).is_good


def test_faults_are_named_with_their_counts() -> None:
    found = findings(faults=NONE | {"lost": 3, "late": 1_000})
    assert found.headline == "1,200 messages: 3 lost, 1,000 late"
    assert found.fault_count == 1_003
