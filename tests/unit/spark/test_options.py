"""Covers: options of the data source, checked on the driver."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.client.credentials import Tls
from dejaqueue.errors import BadRequest
from dejaqueue.spark.options import TIMEOUT_SECONDS, URL_DEFAULT, Options


def test_a_topic_is_enough() -> None:
    options = Options.of({"topic": "t"})
    assert options.url == URL_DEFAULT
    assert options.timeout_ms == 1000 * TIMEOUT_SECONDS
    assert not options.fails_on_refusals


def test_a_topic_may_be_the_path__names_have_no_case() -> None:
    assert Options.of({"path": "t", "Rows.Per.Partition": "5"}).rows_per_partition == 5


def test_a_key_is_not_shown__tls_is_made_of_its_options() -> None:
    options = Options.of({"topic": "t", "api_key": "secret", "tls.ca": "/ca.pem"})
    assert "secret" not in repr(options)
    assert options.api_key == "secret"
    assert options.tls == Tls(ca="/ca.pem")
    assert Options.of({"topic": "t"}).tls is None


def test_a_subscription_is_named_in_one_way_or_the_other__and_not_written_to() -> None:
    for given in (
        {"topic": "t@a"},
        {"topic": "t", "subscription": "a"},
        {"path": "t@a", "subscription": "a"},
    ):
        options = Options.of(given)
        assert (options.topic, options.subscription, options.served) == ("t", "a", "t@a")
        with pytest.raises(BadRequest, match="option subscription"):
            options.check_written()
    plain = Options.of({"topic": "t"})
    assert (plain.served, plain.check_written()) == ("t", plain)


def test_a_table_may_leave_damaged_messages_out__nothing_else_may() -> None:
    assert not Options.of({"topic": "t"}).drops_damaged
    fails = Options.of({"topic": "t", "mode": "failfast"})
    assert (fails.drops_damaged, fails.check_claimed(), fails.check_written()) == (
        False,
        fails,
        fails,
    )
    drops = Options.of({"topic": "t", "Mode": "DropMalformed"})
    assert drops.drops_damaged
    for check in (drops.check_claimed, drops.check_written):
        with pytest.raises(BadRequest, match="option mode: FAILFAST .*, got: 'DROPMALFORMED'"):
            check()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "topic"),
        ({"topic": "a/b"}, "topic"),
        ({"topic": "t", "colour": "red"}, "colour"),
        ({"topic": "t@"}, "subscription"),
        ({"topic": "t", "subscription": "a b"}, "subscription"),
        ({"topic": "t@a", "subscription": "b"}, "subscription"),
        ({"topic": "a/b", "subscription": "b"}, "topic"),
        ({"topic": "t@a", "view": "history"}, "subscription"),
        ({"topic": "t", "state": "blue"}, "state"),
        ({"topic": "t", "refusals": "ignore"}, "refusals"),
        ({"topic": "t", "lost.claims": "never"}, "lost.claims"),
        ({"topic": "t", "claim.timeout": "99999999"}, "claim.timeout"),
        ({"topic": "t", "timeout": "0"}, "timeout"),
        ({"topic": "t", "timeout": "1h"}, "timeout"),
        ({"topic": "t", "timeout": str(limits.BRANCHED_MS_MAX)}, "timeout"),
        ({"topic": "t", "rows.per.partition": "-1"}, "rows.per.partition"),
        ({"topic": "t", "mode": "PERMISSIVE"}, "mode"),
        ({"topic": "t", "mode": "DROPMALFORMED", "view": "history"}, "mode"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequest, match=f"option {field}"):
        Options.of(given)
