"""One answer of several: rows in their places, one failure fails all, once."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.topic.joined_reply import JoinedReply
from dejaqueue.errors import Elsewhere, Unavailable
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply


def rows(*indices: int) -> np.ndarray:
    return np.array(indices, dtype=np.int64)


def test_each_part_fills_its_rows__and_the_last_one_answers() -> None:
    answers: list[Reply] = []
    joined = JoinedReply(7, 4, [rows(0, 3), rows(1, 2)], answers.append)
    joined.part(1)(Reply(7, 2, first_id=50))
    assert answers == []
    statuses = np.array([RowStatus.OK, RowStatus.DUPLICATE], dtype=np.uint8)
    joined.part(0)(Reply(7, 2, -1, rows(10, -1), statuses))
    [answer] = answers
    assert (answer.number, answer.all_ids().tolist()) == (7, [10, 50, 51, -1])
    assert answer.all_statuses().tolist() == [0, 0, 0, RowStatus.DUPLICATE]


def test_one_part_that_fails_fails_all__when_the_others_have_answered() -> None:
    answers: list[Reply] = []
    joined = JoinedReply(7, 2, [rows(0), rows(1)], answers.append)
    joined.part(0)(Reply(7, 1, error=Unavailable("away")))
    assert answers == []
    joined.part(1)(Reply(7, 1, first_id=3))
    [answer] = answers
    assert str(answer.error) == "away"


def test_that_nothing_was_done_is_said_only_if_nothing_was() -> None:
    """What is sent again after Elsewhere would be done twice."""
    answers: list[Reply] = []
    for other in (Reply(7, 1, error=Elsewhere("gone")), Reply(7, 1, first_id=3)):
        for order in ((0, 1), (1, 0)):
            joined = JoinedReply(7, 2, [rows(0), rows(1)], answers.append)
            replies = (Reply(7, 1, error=Elsewhere("gone")), other)
            for index in order:
                joined.part(index)(replies[index])
    assert [type(answer.error) for answer in answers] == [Elsewhere] * 2 + [Unavailable] * 2
    assert str(answers[-1].error) == "gone, and some of it was done"


def test_rows_that_no_part_answers_keep_what_was_known_of_them() -> None:
    answers: list[Reply] = []
    statuses = np.zeros(2, dtype=np.uint8)
    JoinedReply(7, 2, [], answers.append, rows(8, 9), statuses).finish()
    assert answers[0].all_ids().tolist() == [8, 9]
