"""Covers: names of branches, and what a home keeps of a decision.

Not covered: what is decided with them (tests/rules/test_rule_12_branches.py).
"""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.broker.transactions.names import check_branch, check_branches, check_epoch
from dejaqueue.broker.transactions.record import Record
from dejaqueue.errors import BadRequest


@pytest.mark.parametrize(
    "record",
    [
        Record(),
        Record((("a-b.c", 0), ("t", 12))),
        Record((("t", 0),), "f00d", -1, ("0.1", "1.a")),
        Record((), "f00d", -1, ()),
        Record((("t", 0),), "f00d", 7, ()),
        Record(epoch=7),
    ],
)
def test_a_record_reads_as_it_was_written(record: Record) -> None:
    assert Record.parse(record.to_text()) == record


def test_without_branches_it_is_the_places_as_ever() -> None:
    assert Record((("t", 0), ("u", 1))).to_text() == "t/0,u/1"
    assert Record.parse("t/0,u/1") == Record((("t", 0), ("u", 1)))


def test_when_all_know_it_only_an_epoch_is_kept() -> None:
    assert Record((("t", 0),), "f00d", -1, ("0.1",)).when_all_know().to_text() == ""
    assert Record((("t", 0),), "f00d", 7, ("0.1",)).when_all_know().to_text() == ";;7;"


@pytest.mark.parametrize("branch", ["", "a b", "0;1", "a.b.c.d.e", "x" * 21, "0..1", 7, None])
def test_another_name_of_a_branch_is_refused(branch: object) -> None:
    with pytest.raises(BadRequest, match="branch"):
        check_branch(branch)


def test_the_number_of_branches_is_bounded() -> None:
    most = limits.TRANSACTION_BRANCHES_MAX
    with pytest.raises(BadRequest, match=str(most)):
        check_branches(["0.1"] * (most + 1))
    assert check_branches(["0.1", "1.1", "0.1"]) == ("0.1", "1.1")


def test_a_sink_has_a_name_and_its_epochs_numbers() -> None:
    assert check_epoch("q", 0) == ("q", 0)
    for query, epoch in [("", 0), ("q" * 257, 0), ("q", -1), ("q", True), (None, 0), ("q", "1")]:
        with pytest.raises(BadRequest):
            check_epoch(query, epoch)
