"""Names of transactions. What a home decides is in tests/rules and tests/cluster."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.broker.deciding import TransactionName
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
