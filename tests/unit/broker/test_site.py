"""Covers: what a broker that is active, stands by, or was replaced lets be done."""

from __future__ import annotations

import pytest

from dejaqueue.backup.fence import Fence
from dejaqueue.broker.site import Site
from dejaqueue.errors import NotActive

FENCE = Fence("9f", "a1", 0, "dejaq://b:7464")


def test_an_active_one_does_everything__a_standby_reads__a_replaced_one_nothing() -> None:
    site = Site()
    site.check_reads()
    site.check_changes()
    assert not site.stands_by
    site.begin_standby("s3://bucket/dejaq")
    assert site.stands_by
    assert site.refusal() is None  # it writes what it is given
    site.check_reads()
    with pytest.raises(NotActive, match="standby of the broker whose archive is s3://bucket/dejaq"):
        site.check_changes()
    site.become_active()
    site.check_changes()
    site.replace(FENCE)
    for check in (site.check_reads, site.check_changes):
        with pytest.raises(NotActive, match=r"replaced: standby a1 \(dejaq://b:7464\) was promot"):
            check()
    assert isinstance(site.refusal(), NotActive)
