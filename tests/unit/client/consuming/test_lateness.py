"""The histogram of lateness."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.client.consuming.lateness import LatenessHistogram
from dejaqueue.wire import frames
from dejaqueue.wire.frames import Ping


def test_an_empty_one() -> None:
    assert LatenessHistogram().quantile_us(0.99) == 0.0
    assert LatenessHistogram().summary()["count"] == 0


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_quantiles_are_right_within_their_bucket(share: float) -> None:
    rng = np.random.default_rng(3)
    lateness_us = (10 ** rng.uniform(0, 6, 20_000)).astype(np.int64)
    histogram = LatenessHistogram()
    for part in np.array_split(lateness_us, 37):
        histogram.add_many(part)
    exact = float(np.quantile(lateness_us, share, method="inverted_cdf"))
    assert histogram.quantile_us(share) == pytest.approx(exact, rel=0.05, abs=1.0)


def test_one_by_one_is_the_same() -> None:
    values = [0, 1, 5, 5, 1_000, 123_456]
    one, many = LatenessHistogram(), LatenessHistogram()
    for value in values:
        one.add(value)
    many.add_many(np.array(values))
    assert one.summary() == many.summary()
    assert one.buckets() == many.buckets()
    assert one.count == 6
    assert (one.min_us, one.max_us) == (0, 123_456)


def test_merging() -> None:
    one, two = LatenessHistogram(), LatenessHistogram()
    one.add(10)
    two.add(30)
    two.add(5)
    one.merge(two)
    assert (one.count, one.min_us, one.max_us) == (3, 5, 30)


def test_monstrous_lateness_has_a_bucket() -> None:
    histogram = LatenessHistogram()
    histogram.add(10**17)
    assert histogram.quantile_us(1.0) > 10**12


def test_reports_add_up_to_all() -> None:
    lateness = LatenessHistogram()
    assert lateness.take_report() is None
    assert not lateness.has_news
    lateness.add(100)
    lateness.add_many(np.array([100, 5_000]))
    assert lateness.has_news
    first = lateness.take_report()
    assert first is not None
    assert (first.sum_us, sum(first.counts)) == (5_200, 3)
    assert list(first.buckets) == sorted(first.buckets)
    assert lateness.take_report() is None
    lateness.add(100)
    second = lateness.take_report()
    assert second is not None
    assert (second.sum_us, second.buckets, second.counts) == (100, first.buckets[:1], (1,))
    assert (lateness.count, lateness.sum_us) == (4, 5_300)


def test_a_report_of_many_messages_that_were_due_years_ago_can_be_sent() -> None:
    histogram = LatenessHistogram()
    histogram.add_many(np.full(60_000, 100 * 365 * 86_400 * 10**6, dtype=np.int64))
    report = histogram.take_report()
    assert report is not None
    assert frames.decode(frames.encode(Ping(1, 0, 0, 0, report))) == Ping(1, 0, 0, 0, report)
    assert report.counts == (60_000,)
