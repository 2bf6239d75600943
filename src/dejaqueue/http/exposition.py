"""Exposition: the broker's numbers as Prometheus reads them.

Room: http. Runs in a thread of the pool, never on the event loop. prometheus_client chooses the
format and tells about the process; what there is of every topic is written here, as text at once.
Holds: one registry for each application, so that two brokers in one process do not mix; nothing is
shown that the catalogue does not have; a thousand topics take a tenth of a second.
See: catalogue.py for what there is; broker/watching/observation.py for where it comes from.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from dejaqueue.broker.watching import (
    GAUGES,
    HORIZONS,
    Disks,
    Observer,
    SubscriptionNumbers,
    TopicNumbers,
    clock_numbers,
)
from dejaqueue.http.catalogue import METRICS, TOPIC
from dejaqueue.http.protocol import Connections
from dejaqueue.http.readiness import readiness
from dejaqueue.http.requests import RequestCounts
from dejaqueue.http.service import Service
from dejaqueue.metrics import COUNT_BOUNDS, DURATION_BOUNDS_US, HistogramCounts
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.access.pages import Pages

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
    "dejaq_history_recorded": "history_recorded",
    "dejaq_history_missed": "history_missed",
    "dejaq_repeated_batches": "repeated",
    "dejaq_subscriptions_ended": "ended",
    "dejaq_journal_appended_bytes": "appended_bytes",
    "dejaq_journal_cut_bytes": "cut_bytes",
    "dejaq_journal_size_bytes": "journal_bytes",
    "dejaq_inbox_bytes": "inbox_bytes",
}
_SUBSCRIPTION_TOTALS = {
    "dejaq_subscription_delivered": "delivered",
    "dejaq_subscription_redelivered": "redelivered",
    "dejaq_subscription_acked": "acked",
    "dejaq_subscription_nacked": "nacked",
    "dejaq_subscription_lease_expired": "expired",
    "dejaq_subscription_dead": "died",
}
_SUBSCRIPTION_STATES = ("scheduled", "leased", "dead")
_OUTCOMES = {"DUPLICATE": "rejected", "KEPT": "kept"}


class _Page:
    """Samples by metric, as lines of text: strings cost the garbage collector nothing, where a
    page of sample objects made it walk the whole broker for 150 ms."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def add(self, name: str, labels: str, value: float) -> None:
        """One sample of a counter or a gauge."""
        shown = METRICS[name].shown_name
        self._lines[name].append(f"{shown}{{{labels}}} {value}" if labels else f"{shown} {value}")

    def add_histogram(self, name: str, labels: str, counts: HistogramCounts) -> None:
        """Nothing while nothing was counted: most topics are idle, and have 150 buckets."""
        if not counts.count:
            return
        is_time = counts.bounds is DURATION_BOUNDS_US
        begin = f'{name}_bucket{{{labels},le="' if labels else f'{name}_bucket{{le="'
        labels = f"{{{labels}}}" if labels else ""
        ends = _TIME_ENDS if is_time else _COUNT_ENDS
        cumulated = counts.counts.cumsum().tolist()
        lines = self._lines[name]
        lines += [f'{begin}{end}"}} {count}' for end, count in zip(ends, cumulated, strict=True)]
        lines.append(f"{name}_count{labels} {cumulated[-1]}")
        lines.append(f"{name}_sum{labels} {counts.sum / 1e6 if is_time else counts.sum}")

    def render(self, *, open_metrics: bool) -> bytes:
        """All of it, in the order of the catalogue."""
        parts = []
        for name, lines in self._lines.items():
            if not lines:
                continue
            metric = METRICS[name]
            family = name if open_metrics else metric.shown_name
            head = f"# HELP {family} {metric.meaning}\n# TYPE {family} {metric.type}\n"
            parts.append((head + "\n".join(lines) + "\n").encode())
        return b"".join(parts)


def _ends(bounds: tuple[int, ...], scale: float) -> list[str]:
    return [*(repr(bound / scale) for bound in bounds), "+Inf"]


_TIME_ENDS = _ends(DURATION_BOUNDS_US, 1e6)
_COUNT_ENDS = _ends(COUNT_BOUNDS, 1)


def _label(value: str) -> str:
    """A value as it stands between the quotes of a label."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{_label(value)}"' for name, value in zip(names, values, strict=True))


class Exposition:
    """What /metrics answers.

    Attributes:
        connections: those of the server around the application, if it has one.

    Args:
        service: its broker may be not started yet.
        requests: what the application counted.
        pages: what its entrance refused web pages.
    """

    def __init__(self, service: Service, requests: RequestCounts, pages: Pages) -> None:
        self._service = service
        self._broker = service.broker
        self._requests = requests
        self._pages = pages
        self._observer = Observer(service.broker)
        self.connections: Connections | None = None
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that the Accept header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        own = self._page().render(open_metrics="openmetrics" in content_type)
        return own + encode(self._registry), content_type

    def _page(self) -> _Page:
        page = _Page()
        self._add_broker(page)
        now_ms = self._broker.clock.utc_ms()
        for topic in self._observer.topics():
            _add_topic(page, topic)
            for subscription in topic.subscriptions:
                _add_subscription(page, topic, subscription, now_ms)
        self._add_servers(page)
        return page

    def _add_broker(self, page: _Page) -> None:
        broker = self._broker
        versions = (__version__, platform.python_version(), pa.__version__)
        page.add("dejaq_build_info", _labels(METRICS["dejaq_build_info"].labels, versions), 1)
        page.add("dejaq_topics", "", broker.topic_count)
        page.add("dejaq_ready_state", "", int(readiness(self._service).is_ready))
        alive = sum(worker.is_alive for worker in broker.workers)
        page.add("dejaq_workers", 'state="alive"', alive)
        page.add("dejaq_workers", 'state="dead"', len(broker.workers) - alive)
        page.add("dejaq_start_time_seconds", "", broker.started_us / 1e6)
        clock = clock_numbers(broker)
        page.add("dejaq_clock_jump_seconds", "", clock.jump_us / 1e6)
        page.add("dejaq_clock_jumps", "", clock.jump_count)
        page.add("dejaq_clock_standing_still_seconds", "", clock.still_us / 1e6)
        page.add("dejaq_clock_apart_seconds", "", clock.apart_us / 1e6)
        if clock.kept is not None:
            page.add("dejaq_clock_kept_state", "", int(clock.kept))
        page.add("dejaq_clock_partitions_set", "", clock.set_count)
        disks = Disks() if broker.node is None else broker.node.disks
        page.add("dejaq_journal_disks_short", "", len(disks.short))
        if disks.free_bytes is not None:
            page.add("dejaq_journal_disk_free_bytes", "", disks.free_bytes)
        self._add_backups(page)
        self._add_payloads(page)
        page.add("dejaq_key_documents_refused", "", broker.keys.refused_count)
        for row in broker.journal_servers():
            _add_journal_server(page, row)

    def _add_backups(self, page: _Page) -> None:
        counts = self._broker.backups.counts
        page.add("dejaq_backups", 'outcome="done"', counts.done)
        page.add("dejaq_backups", 'outcome="failed"', counts.failed)
        page.add("dejaq_backup_stored_bytes", "", counts.new_bytes)
        if counts.last_ms:
            page.add("dejaq_backup_last_seconds", "", counts.last_ms / 1_000)
            age_ms = max(0, self._broker.clock.utc_ms() - counts.last_ms)
            page.add("dejaq_backup_age_seconds", "", age_ms / 1_000)
        archiver = self._broker.backups.archiver
        if archiver.is_wanted:
            page.add("dejaq_archive_lag_seconds", "", archiver.lag_us() / 1e6)
            page.add("dejaq_archive_pieces", "", archiver.pieces)
            page.add("dejaq_archive_stored_bytes", "", archiver.stored_bytes)
            page.add("dejaq_archive_failures", "", archiver.failures)
            page.add_histogram("dejaq_archive_wait_seconds", "", archiver.waits.read())
        if self._broker.site.stands_by:
            standby = self._broker.standby
            page.add("dejaq_standby_behind_seconds", "", standby.behind_us() / 1e6)
            follower = standby.follower
            page.add("dejaq_standby_entries", "", 0 if follower is None else follower.entries)

    def _add_payloads(self, page: _Page) -> None:
        counts = self._broker.payloads.counts
        names = ("stored", "stored_bytes", "fetched", "fetched_bytes", "deleted", "damaged")
        for name in (*names, "cold_stored", "cold_returned", "cold_late"):
            page.add(f"dejaq_payloads_{name}", "", getattr(counts, name))
        page.add("dejaq_payload_store_failures", "", counts.failed)

    def _add_servers(self, page: _Page) -> None:
        requests, counting = self._requests, self._broker.counting
        names = METRICS["dejaq_http_requests"].labels
        for labels, count in requests.ended().items():
            page.add("dejaq_http_requests", _labels(names, labels), count)
        names = METRICS["dejaq_http_request_seconds"].labels
        for pair, histogram in requests.durations().items():
            page.add_histogram("dejaq_http_request_seconds", _labels(names, pair), histogram)
        page.add("dejaq_http_requests_open", "", requests.open)
        if self.connections is not None:
            page.add("dejaq_http_connections_open", "", len(self.connections.open))
            for outcome, count in self.connections.counters.values().items():
                page.add("dejaq_http_connections", f'outcome="{outcome}"', count)
        for reason, count in self._pages.refused().items():
            page.add("dejaq_http_pages_refused", f'reason="{reason}"', count)
        names = METRICS["dejaq_quota_refusals"].labels
        for quota, count in self._broker.quotas.refused.read().items():
            page.add("dejaq_quota_refusals", _labels(names, quota), count)
        # What ends while this is read may be in one and not yet in the other.
        begun, ended = counting.flight_begun.read(), counting.flight_ended.read()
        for (method, status), count in ended.items():
            page.add("dejaq_flight_calls", f'method="{method}",status="{status}"', count)
        for (method,), count in begun.items():
            done = sum(count for (known, _), count in ended.items() if known == method)
            page.add("dejaq_flight_calls_open", f'method="{method}"', max(0, count - done))


def _add_journal_server(page: _Page, row: dict[str, Any]) -> None:
    name = _labels(("server",), (row["server"],))
    page.add("dejaq_journal_servers", f'{name},state="{row["state"]}"', 1)
    page.add("dejaq_journal_copies", name, row["copies"])
    if row["lag"] >= 0:
        page.add("dejaq_journal_lag_operations", name, row["lag"])


def _add_topic(page: _Page, topic: TopicNumbers) -> None:
    labels = _labels(TOPIC, (topic.name, topic.kind))
    for name, total in _TOTALS.items():
        page.add(name, labels, topic.totals[total])
    for name, attribute in _NUMBERS.items():
        page.add(name, labels, getattr(topic, attribute))
    for state in GAUGES:
        page.add("dejaq_messages", f'{labels},state="{state}"', topic.states[state])
    page.add("dejaq_ready", labels, topic.states["ready"])
    for within, count in zip(HORIZONS, topic.outlook.due_within, strict=True):
        page.add("dejaq_due_within", f'{labels},within="{within}"', count)
    page.add("dejaq_due_within_excess", labels, topic.outlook.excess)
    for name, attribute in _HISTOGRAMS.items():
        page.add_histogram(name, labels, topic.histograms[attribute])
    _add_refusals(page, labels, topic)
    partitions = {
        "loaded": topic.loaded,
        "not_loaded": topic.partitions - topic.loaded - topic.failed,
        "failed": topic.failed,
    }
    for state, count in partitions.items():
        page.add("dejaq_partitions", f'{labels},state="{state}"', count)
    _add_consumers(page, labels, topic)


def _add_subscription(
    page: _Page, topic: TopicNumbers, numbers: SubscriptionNumbers, now_ms: int
) -> None:
    """What tells whether a subscription keeps up; what came in is its topic's."""
    labels = _labels((*TOPIC, "subscription"), (topic.name, topic.kind, numbers.name))
    for name, total in _SUBSCRIPTION_TOTALS.items():
        page.add(name, labels, numbers.totals[total])
    for state in _SUBSCRIPTION_STATES:
        labelled = f'{labels},state="{state}"'
        page.add("dejaq_subscription_messages", labelled, numbers.states[state])
    page.add("dejaq_subscription_ready", labels, numbers.ready.count)
    page.add("dejaq_subscription_consumers", labels, numbers.consumers)
    first_ms = numbers.ready.first_due_ms
    behind_ms = max(0, now_ms - first_ms) if first_ms >= 0 else 0
    if first_ms >= 0 or not numbers.ready.count:
        page.add("dejaq_subscription_behind_seconds", labels, behind_ms / 1_000)


def _add_refusals(page: _Page, labels: str, topic: TopicNumbers) -> None:
    outcomes = dict.fromkeys(_OUTCOMES.values(), 0)
    for (op, status), count in topic.refused.items():
        page.add("dejaq_refused", f'{labels},op="{op}",status="{status}"', count)
        if op == "enqueue" and status in _OUTCOMES:
            outcomes[_OUTCOMES[status]] += count
    for outcome, count in outcomes.items():
        page.add("dejaq_duplicate_keys", f'{labels},outcome="{outcome}"', count)


def _add_consumers(page: _Page, labels: str, topic: TopicNumbers) -> None:
    page.add("dejaq_consumers", labels, sum(one.consumers for one in topic.consumers))
    for one in topic.consumers:
        own = f'{labels},consumer="{_label(one.name)}"'
        page.add("dejaq_consumer_credit_messages", own, one.credit)
        page.add("dejaq_consumer_leases", own, one.leases)
        if one.uncertainty_us >= 0:
            page.add("dejaq_consumer_clock_offset_seconds", own, one.offset_us / 1e6)
            page.add("dejaq_consumer_clock_uncertainty_seconds", own, one.uncertainty_us / 1e6)
