"""Quotas and tokens: what fits together, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dejaqueue.setting_groups import OidcSettings, QuotaSettings


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
