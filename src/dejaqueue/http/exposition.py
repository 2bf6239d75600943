"""Exposition: the broker's numbers as Prometheus reads them.

Room: http. prometheus_client; runs in a thread of the pool, never on the event loop.
Holds: one registry for each application, so that two brokers in one process do not mix; nothing is
shown that the catalogue does not have.
See: catalogue.py for what there is; broker/observation.py for where it comes from.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dejaqueue.broker.counting import GAUGES
from dejaqueue.broker.observation import HORIZONS_S, Observer, TopicNumbers
from dejaqueue.http.catalogue import METRICS
from dejaqueue.metrics import DURATION_BOUNDS_US, HistogramCounts
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.broker.broker import Broker
    from dejaqueue.http.requests import RequestCounts

_FAMILIES: dict[str, type[Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_TOTALS = {
    "dejaq_enqueued": "enqueued",
    "dejaq_delivered": "delivered",
    "dejaq_redelivered": "redelivered",
    "dejaq_acked": "acked",
    "dejaq_nacked": "nacked",
    "dejaq_extended": "extended",
    "dejaq_moved": "moved",
    "dejaq_cancelled": "cancelled",
    "dejaq_lease_expired": "expired",
    "dejaq_dead": "died",
    "dejaq_buried": "buried",
    "dejaq_outlived": "outlived",
    "dejaq_aborted": "aborted",
    "dejaq_relocated": "relocated",
}
"""Metric -> total of the engine."""
_HISTOGRAMS = {
    "dejaq_lateness_seconds": "lateness",
    "dejaq_felt_lateness_seconds": "felt",
    "dejaq_ready_to_delivery_seconds": "waited",
    "dejaq_journal_append_seconds": "appends",
    "dejaq_group_entries": "group_entries",
    "dejaq_group_rows": "group_rows",
    "dejaq_snapshot_seconds": "snapshots",
}
_NUMBERS = {
    "dejaq_lease_ahead_misses": "misses",
    "dejaq_repeated_batches": "repeated",
    "dejaq_journal_appended_bytes": "appended_bytes",
    "dejaq_journal_size_bytes": "journal_bytes",
    "dejaq_inbox_bytes": "inbox_bytes",
}
_OUTCOMES = {"DUPLICATE": "rejected", "KEPT": "kept"}
WITHIN = ("1s", "10s", "1m", "10m", "1h")
"""How HORIZONS_S is written in a label."""
assert len(WITHIN) == len(HORIZONS_S)


class _Families(dict[str, Any]):
    """Families by name, each made when it is first needed."""

    def __missing__(self, name: str) -> Any:
        metric = METRICS[name]
        family = _FAMILIES[metric.type](metric.name, metric.meaning, labels=metric.labels)
        self[name] = family
        return family

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self[name].add_metric(labels, value)

    def add_histogram(self, name: str, labels: tuple[str, ...], counts: HistogramCounts) -> None:
        """Nothing while nothing was counted: most topics are idle, and have 150 buckets."""
        if not counts.count:
            return
        scale = 1e6 if counts.bounds is DURATION_BOUNDS_US else 1
        ends = [*(repr(bound / scale) for bound in counts.bounds), "+Inf"]
        buckets = list(zip(ends, counts.counts.cumsum().tolist(), strict=True))
        self[name].add_metric(labels, buckets, counts.sum / scale)


class BrokerCollector(Collector):
    """Reads the broker when it is scraped.

    Args:
        is_ready: what /readyz goes by.
    """

    def __init__(
        self, broker: Broker, requests: RequestCounts, is_ready: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._requests = requests
        self._is_ready = is_ready
        self._observer = Observer(broker)

    def describe(self) -> list[Metric]:
        """Nothing: the broker may be not started yet when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family that has a sample now."""
        families = _Families()
        self._add_broker(families)
        topics = self._observer.topics()
        for topic in topics:
            _add_messages(families, topic)
            _add_consumers(families, topic)
        self._add_servers(families)
        # In the order of the catalogue, whatever came first.
        yield from (families[name] for name in METRICS if name in families)

    def _add_broker(self, families: _Families) -> None:
        broker = self._broker
        versions = (__version__, platform.python_version(), pa.__version__)
        families.add("dejaq_build_info", versions, 1)
        families.add("dejaq_topics", (), len(broker.runtimes()))
        families.add("dejaq_ready_state", (), int(self._is_ready()))
        families.add("dejaq_start_time_seconds", (), broker.started_us / 1e6)

    def _add_servers(self, families: _Families) -> None:
        requests, counting = self._requests, self._broker.counting
        for labels, count in requests.ended.read().items():
            families.add("dejaq_http_requests", labels, count)
        for labels, histogram in requests.durations().items():
            families.add_histogram("dejaq_http_request_seconds", labels, histogram)
        families.add("dejaq_http_requests_open", (), requests.open)
        ended: dict[str, int] = {}
        for (method, status), count in counting.flight_ended.read().items():
            families.add("dejaq_flight_calls", (method, status), count)
            ended[method] = ended.get(method, 0) + count
        for (method,), count in counting.flight_begun.read().items():
            # What ended while this was read may be in one and not yet in the other.
            open_count = max(0, count - ended.get(method, 0))
            families.add("dejaq_flight_calls_open", (method,), open_count)


def _add_messages(families: _Families, topic: TopicNumbers) -> None:
    labels = (topic.name, topic.kind)
    for name, total in _TOTALS.items():
        families.add(name, labels, topic.totals[total])
    for name, attribute in _NUMBERS.items():
        families.add(name, labels, getattr(topic, attribute))
    for state in GAUGES:
        families.add("dejaq_messages", (*labels, state), topic.states[state])
    families.add("dejaq_ready", labels, topic.states["ready"])
    for within, count in zip(WITHIN, topic.outlook.due_within, strict=True):
        families.add("dejaq_due_within", (*labels, within), count)
    families.add("dejaq_due_within_excess", labels, topic.outlook.excess)
    for name, attribute in _HISTOGRAMS.items():
        families.add_histogram(name, labels, topic.histograms[attribute])
    outcomes = dict.fromkeys(_OUTCOMES.values(), 0)
    for (op, status), count in topic.refused.items():
        families.add("dejaq_refused", (*labels, op, status), count)
        if op == "enqueue" and status in _OUTCOMES:
            outcomes[_OUTCOMES[status]] += count
    for outcome, count in outcomes.items():
        families.add("dejaq_duplicate_keys", (*labels, outcome), count)
    partitions = {
        "loaded": topic.loaded,
        "not_loaded": topic.partitions - topic.loaded - topic.failed,
        "failed": topic.failed,
    }
    for state, count in partitions.items():
        families.add("dejaq_partitions", (*labels, state), count)


def _add_consumers(families: _Families, topic: TopicNumbers) -> None:
    labels = (topic.name, topic.kind)
    families.add("dejaq_consumers", labels, sum(one.consumers for one in topic.consumers))
    for one in topic.consumers:
        own = (*labels, one.name)
        families.add("dejaq_consumer_credit_messages", own, one.credit)
        families.add("dejaq_consumer_leases", own, one.leases)
        if one.uncertainty_us >= 0:
            families.add("dejaq_consumer_clock_offset_seconds", own, one.offset_us / 1e6)
            families.add("dejaq_consumer_clock_uncertainty_seconds", own, one.uncertainty_us / 1e6)


class Exposition:
    """What /metrics answers."""

    def __init__(
        self, broker: Broker, requests: RequestCounts, is_ready: Callable[[], bool]
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BrokerCollector(broker, requests, is_ready))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that the Accept header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
