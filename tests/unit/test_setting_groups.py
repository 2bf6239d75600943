"""Quotas and tokens: what fits together, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dejaqueue.setting_groups import ConsoleSettings, OidcSettings, QuotaSettings


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_a_share_is_from_1_to_100_percent(percent: int) -> None:
    with pytest.raises(ValidationError, match="percent"):
        QuotaSettings(percent=percent)
    with pytest.raises(ValidationError, match=f"campaign = {percent}"):
        QuotaSettings(percents={"campaign": percent})


def test_true_is_no_number() -> None:
    with pytest.raises(ValidationError, match="no numbers"):
        QuotaSettings(streams_max=True)


def test_an_issuer_needs_an_audience() -> None:
    with pytest.raises(ValidationError, match="audience"):
        OidcSettings(issuer="https://login.example")
    assert OidcSettings(issuer="https://login.example", audience="dejaq").issuer


@pytest.mark.parametrize("algorithms", ["none", "HS256", "RS256,HS256", ""])
def test_no_algorithm_that_shares_a_secret_or_has_none(algorithms: str) -> None:
    with pytest.raises(ValidationError, match="algorithms"):
        OidcSettings(algorithms=algorithms)


@pytest.mark.parametrize(
    "url",
    ["https://tracing.example/", "javascript:alert('{trace_id}')", "{trace_id}", "//x/{trace_id}",
     "https://{trace_id}.example/", "https://user@x/{trace_id}", "https://x/{trace_id} y",
     'https://x/{trace_id}"', "ftp://x/{trace_id}", "https:///{trace_id}"],
)  # fmt: skip
def test_where_traces_are_is_an_address_of_the_web(url: str) -> None:
    with pytest.raises(ValidationError, match="trace_id"):
        ConsoleSettings(trace_url=url)


def test_where_traces_are_may_have_parts_and_queries() -> None:
    for url in ("", "http://localhost:16686/trace/{trace_id}", "https://x/?t={trace_id}&org={o}"):
        assert ConsoleSettings(trace_url=url).trace_url == url
