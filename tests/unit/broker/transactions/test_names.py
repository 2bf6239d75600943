"""Names of transactions and lists of participants. Decisions are in tests/rules and tests/crash."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.transactions.names import TransactionName, check_participants, family_of
from dejaqueue.errors import BadRequest

NONCE = "0123456789abcdef" * 2


def test_a_name_says_where_its_home_is_and_when_its_time_is_over() -> None:
    name = TransactionName.parse(f"a.b-c_D/7/1000-500-{NONCE}")
    assert (name.topic, name.partition, name.began_ms, name.until_ms) == ("a.b-c_D", 7, 1000, 1500)


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        7,
        "t/0",
        f"t/0/1-{limits.BRANCHED_MS_MAX + 1}-{NONCE}",
        f"t/0/1--5-{NONCE}",
        f"t/0/1-5-{NONCE}x",
        f"a/b/0/1-5-{NONCE}",
    ],
)
def test_another_text_is_refused(text: object) -> None:
    with pytest.raises(BadRequest, match="begin_transaction"):
        TransactionName.parse(text)


def test_a_name_is_its_owners() -> None:
    for sender in (NOBODY, Sender("a")):
        text = f"t/0/1-5-{family_of(sender)}"
        assert TransactionName.parse(text, sender).text == text
        with pytest.raises(BadRequest, match="gave this caller"):
            TransactionName.parse(text, Sender("b"))


def test_families_tell_words_and_senders_apart() -> None:
    mine = Sender("a")
    assert len(family_of(mine, "q", 1)) == len(family_of(mine)) == 32
    assert family_of(mine, "q", 1) == family_of(mine, "q", 1) != family_of(mine, "q1")
    assert family_of(mine, "q", 1) != family_of(Sender("b"), "q", 1)
    assert family_of(mine) != family_of(mine)


def test_participants_are_each_named_once() -> None:
    assert check_participants(["t/1", "u/0", "t/1"]) == [("t", 1), ("u", 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        "t/1",
        None,
        [1],
        ["t"],
        ["t/"],
        ["t/-1"],
        ["t/1"] * (limits.TRANSACTION_PARTICIPANTS_MAX + 1),
    ],
)
def test_other_participants_are_refused(wrong: object) -> None:
    with pytest.raises(BadRequest, match="participants"):
        check_participants(wrong)
