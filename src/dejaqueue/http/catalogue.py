"""The catalogue of metrics: every one that /metrics shows, with its type, unit, labels and meaning.

Room: http. Values only; docs/reference/metrics.md is generated from it.
Holds: a name ends in its unit, and in `_total` if it only grows (Prometheus' own conventions).
See: exposition.py, which fills it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TOPIC = ("topic", "kind")
SUBSCRIPTION = (*TOPIC, "subscription")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: without `_total`, which its samples have if it is a counter.
        unit: what one of it is.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def shown_name(self) -> str:
        """What a query calls it; of a histogram, what its samples begin with."""
        return f"{self.name}_total" if self.type == "counter" else self.name


def _counter(name: str, unit: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name, "counter", unit, labels, meaning)


def _gauge(name: str, unit: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name, "gauge", unit, labels, meaning)


def _histogram(name: str, unit: str, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(name, "histogram", unit, labels, meaning)


_MESSAGES = (
    _counter("dejaq_enqueued", "messages", TOPIC, "Messages that came in"),
    _counter("dejaq_delivered", "messages", TOPIC, "Deliveries, redeliveries included"),
    _counter(
        "dejaq_redelivered",
        "messages",
        TOPIC,
        "Deliveries that were not the first of their message",
    ),
    _counter("dejaq_acked", "messages", TOPIC, "Messages that were acked"),
    _counter("dejaq_nacked", "messages", TOPIC, "Messages that were nacked"),
    _counter("dejaq_extended", "messages", TOPIC, "Messages whose lease was extended"),
    _counter("dejaq_moved", "messages", TOPIC, "Messages that were moved"),
    _counter("dejaq_cancelled", "messages", TOPIC, "Messages that were cancelled"),
    _counter(
        "dejaq_lease_expired",
        "messages",
        TOPIC,
        "Leases that ended without an ack: consumers that died or were too slow",
    ),
    _counter(
        "dejaq_dead",
        "messages",
        TOPIC,
        "Messages that died, and dead letters that were sent back: they leave for another topic, "
        "or are dropped if the topic has none",
    ),
    _counter("dejaq_buried", "messages", TOPIC, "Of these, the ones that arrived there"),
    _counter("dejaq_outlived", "messages", TOPIC, "Messages that died because they had expired"),
    _counter("dejaq_aborted", "messages", TOPIC, "Messages of transactions that were aborted"),
    _counter("dejaq_relocated", "rows", TOPIC, "Stored rows that compaction copied forward"),
    _counter(
        "dejaq_refused",
        "rows",
        (*TOPIC, "op", "status"),
        "Rows that were not done, by what was asked (`op`) and the row's status or the error; "
        "KEPT is not an error",
    ),
    _counter(
        "dejaq_duplicate_keys",
        "messages",
        (*TOPIC, "outcome"),
        "Messages that did not come in because a live one has their key: `rejected` or `kept`",
    ),
    _counter(
        "dejaq_repeated_batches",
        "batches",
        TOPIC,
        "Batches that a producer sent again, which got their first answer",
    ),
    _counter(
        "dejaq_subscriptions_ended",
        "subscriptions",
        TOPIC,
        "Ephemeral subscriptions that ended, as nobody consumed them any more",
    ),
    _gauge(
        "dejaq_messages",
        "messages",
        (*TOPIC, "state"),
        "Live messages by state: `scheduled` (due or not), `leased`, `dead` (on their way to the "
        "dead-letter topic), `staged` and `staged_acks` (in transactions not decided)",
    ),
    _gauge(
        "dejaq_ready",
        "messages",
        TOPIC,
        "Of the scheduled ones those that are due; above 0 for long: consumers do not keep up",
    ),
    _gauge(
        "dejaq_due_within",
        "messages",
        (*TOPIC, "within"),
        "Scheduled messages that fall due within the next `1s`, `10s`, `1m`, `10m`, `1h`, of the "
        "order index, at most a second old",
    ),
    _gauge(
        "dejaq_due_within_excess",
        "messages",
        TOPIC,
        "By how much `dejaq_due_within` may be too high: messages moved or cancelled lately",
    ),
)

_SUBSCRIPTIONS = (
    _counter(
        "dejaq_subscription_delivered",
        "messages",
        SUBSCRIPTION,
        "Deliveries to consumers of the subscription, redeliveries included",
    ),
    _counter(
        "dejaq_subscription_redelivered",
        "messages",
        SUBSCRIPTION,
        "Deliveries that were not the first of their message there",
    ),
    _counter(
        "dejaq_subscription_acked", "messages", SUBSCRIPTION, "Messages that were acked there"
    ),
    _counter(
        "dejaq_subscription_nacked", "messages", SUBSCRIPTION, "Messages that were nacked there"
    ),
    _counter(
        "dejaq_subscription_lease_expired",
        "messages",
        SUBSCRIPTION,
        "Leases of the subscription that ended without an ack",
    ),
    _counter("dejaq_subscription_dead", "messages", SUBSCRIPTION, "Messages that died there"),
    _gauge(
        "dejaq_subscription_messages",
        "messages",
        (*SUBSCRIPTION, "state"),
        "Messages that the subscription is not done with by state: `scheduled` (due or not), "
        "`leased`, `dead` (on their way to its dead-letter topic)",
    ),
    _gauge(
        "dejaq_subscription_ready",
        "messages",
        SUBSCRIPTION,
        "Of the scheduled ones those that are due there: how far behind it is, in messages",
    ),
    _gauge(
        "dejaq_subscription_behind_seconds",
        "seconds",
        SUBSCRIPTION,
        "How long the first of these has been due (by arrival: has been there); absent by priority "
        "and in turns of groups, whose first is not the oldest, while something is ready",
    ),
    _gauge(
        "dejaq_subscription_consumers",
        "consumers",
        SUBSCRIPTION,
        "Consumers of the subscription that are connected",
    ),
)

_TIMES = (
    _histogram(
        "dejaq_lateness_seconds",
        "seconds",
        TOPIC,
        "From due to pushed to the consumer by the broker. What is sent ahead counts as 0; what "
        "was due already when a seek brought it back, or its subscription began, is left out",
    ),
    _histogram(
        "dejaq_felt_lateness_seconds",
        "seconds",
        TOPIC,
        "From due to handed to the application, as client libraries report it about once a second",
    ),
    _histogram(
        "dejaq_ready_to_delivery_seconds",
        "seconds",
        TOPIC,
        "As `dejaq_lateness_seconds`, but a message that came in after its due time counts from "
        "when it came in",
    ),
    _counter(
        "dejaq_lease_ahead_misses",
        "messages",
        TOPIC,
        "Messages leased after they were due, on their first delivery, though the broker knew "
        "them and a consumer with credit and a known clock waited before: the broker was late",
    ),
)

_CONSUMERS = (
    _gauge("dejaq_consumers", "consumers", TOPIC, "Consumers that are connected"),
    _gauge(
        "dejaq_consumer_credit_messages",
        "messages",
        (*TOPIC, "consumer"),
        "How many more the consumer can take; 0 for long: it is busy",
    ),
    _gauge("dejaq_consumer_leases", "leases", (*TOPIC, "consumer"), "Leases the consumer holds"),
    _gauge(
        "dejaq_consumer_clock_offset_seconds",
        "seconds",
        (*TOPIC, "consumer"),
        "The broker's clock less the client's, as the client measured it",
    ),
    _gauge(
        "dejaq_consumer_clock_uncertainty_seconds",
        "seconds",
        (*TOPIC, "consumer"),
        "The offset is right within this; absent while it is not known",
    ),
)

_STORAGE = (
    _histogram(
        "dejaq_journal_append_seconds", "seconds", TOPIC, "An append to the journal with its sync"
    ),
    _counter("dejaq_journal_appended_bytes", "bytes", TOPIC, "Bytes appended to the journal"),
    _counter(
        "dejaq_journal_cut_bytes",
        "bytes",
        TOPIC,
        "Bytes of unfinished appends, cut off when a partition was read and kept beside",
    ),
    _gauge(
        "dejaq_journal_size_bytes", "bytes", TOPIC, "The journal on its storage, without snapshots"
    ),
    _histogram("dejaq_group_entries", "entries", TOPIC, "Entries that one append made durable"),
    _histogram("dejaq_group_rows", "rows", TOPIC, "Rows that one append made durable"),
    _histogram("dejaq_snapshot_seconds", "seconds", TOPIC, "Writing a snapshot"),
    _counter(
        "dejaq_history_recorded", "changes", TOPIC, "Changes in finished files of the history"
    ),
    _counter(
        "dejaq_history_missed",
        "changes",
        TOPIC,
        "Changes that the history does not have, because its disk did not keep up or refused; 1 "
        "for a gap of unknown size",
    ),
    _counter(
        "dejaq_backups",
        "backups",
        ("outcome",),
        "Backups that this broker took, asked for or by itself, by how they ended: done or failed",
    ),
    _counter("dejaq_backup_stored_bytes", "bytes", (), "What its backups stored"),
    _gauge(
        "dejaq_backup_last_seconds",
        "seconds",
        (),
        "As of when the last backup is that was done, since 1970; also of one before the broker "
        "started. Absent while none is known",
    ),
    _gauge(
        "dejaq_backup_age_seconds",
        "seconds",
        (),
        "How long ago that was: what would be lost if the disk were lost now, but for what is "
        "archived since",
    ),
    _gauge(
        "dejaq_archive_lag_seconds",
        "seconds",
        (),
        "For how long the oldest of what is not in the archive yet is durable: what would be lost "
        "if the disk were lost now. 0 = all is there. These are absent without "
        "`backup.archive_interval_ms`",
    ),
    _counter("dejaq_archive_pieces", "pieces", (), "Pieces that were archived between backups"),
    _counter("dejaq_archive_stored_bytes", "bytes", (), "Bytes of those"),
    _counter(
        "dejaq_archive_failures",
        "tries",
        (),
        "Tries to archive that failed, as the store was away: each is made again",
    ),
    _histogram(
        "dejaq_archive_wait_seconds",
        "seconds",
        (),
        "How long what was done was durable before it was archived, the oldest of each piece",
    ),
    _gauge(
        "dejaq_standby_behind_seconds",
        "seconds",
        (),
        "For how long a standby has not seen the end of the archive that it follows: what is there "
        "is at most so much older than what is archived. Absent at a broker that is active",
    ),
    _counter(
        "dejaq_standby_entries", "entries", (), "Entries of the archive that a standby applied"
    ),
    _counter(
        "dejaq_payloads_stored", "payloads", (), "Payloads that this broker stored in its store"
    ),
    _counter("dejaq_payloads_stored_bytes", "bytes", (), "Bytes of those"),
    _counter(
        "dejaq_payloads_fetched",
        "payloads",
        (),
        "Payloads that it fetched from there, for deliveries and for whoever looks",
    ),
    _counter("dejaq_payloads_fetched_bytes", "bytes", (), "Bytes of those"),
    _counter("dejaq_payloads_deleted", "payloads", (), "Payloads that it deleted there"),
    _counter(
        "dejaq_payloads_damaged",
        "payloads",
        (),
        "Times that a payload was missing there, or was not what was stored. More than 0: the log "
        "names it",
    ),
    _counter(
        "dejaq_payloads_cold_stored",
        "payloads",
        (),
        "Payloads of messages due much later that left the journal for the store",
    ),
    _counter("dejaq_payloads_cold_returned", "payloads", (), "Those that came back to it"),
    _counter(
        "dejaq_payloads_cold_late",
        "payloads",
        (),
        "Deliveries of messages whose payload was not back by then, and was read from the store. "
        "More than 0: the store is slow or away, or messages were moved to an earlier time",
    ),
    _counter(
        "dejaq_payload_store_failures",
        "requests",
        (),
        "Times that the payload store was away, or had no room",
    ),
    _counter(
        "dejaq_key_documents_refused",
        "documents",
        (),
        "Documents of API keys that this broker of a cluster did not believe (a wrong seal, not "
        "readable, gone): what it knew stays in force. More than 0: somebody writes there",
    ),
    _gauge(
        "dejaq_journal_disk_free_bytes",
        "bytes",
        (),
        "What is free on the disk of the JetStream server beside this broker; absent where there "
        "is none. Less than `cluster.reserve_bytes`: producers of the whole cluster wait",
    ),
    _gauge(
        "dejaq_journal_disks_short",
        "servers",
        (),
        "JetStream servers beside brokers whose disk has less than `cluster.reserve_bytes` free, "
        "as this broker knows. More than 0: producers are refused until there is room on it; "
        "`/readyz` names them",
    ),
    _gauge(
        "dejaq_journal_servers",
        "servers",
        ("server", "state"),
        "Servers of JetStream that keep the journals, 1 for the state of each, as this broker saw "
        "it in the last half minute: `whole`, `sick` (copies missing or altered), `silent`",
    ),
    _gauge(
        "dejaq_journal_copies",
        "copies",
        ("server",),
        "Copies of streams that the server of JetStream has",
    ),
    _gauge(
        "dejaq_journal_lag_operations",
        "operations",
        ("server",),
        "How far the copies on the server of JetStream are behind at most; absent while not known",
    ),
    _gauge("dejaq_inbox_bytes", "bytes", TOPIC, "Batches that wait to be written"),
    _gauge(
        "dejaq_partitions",
        "partitions",
        (*TOPIC, "state"),
        "Partitions: `loaded`, `not_loaded` (nobody used them yet, or they are being read), "
        "`failed` (cannot be read or written; the broker has to be started anew)",
    ),
)

_SERVERS = (
    _counter(
        "dejaq_http_requests",
        "requests",
        ("method", "route", "status"),
        "Requests answered; `route` is the template, `unmatched` for paths that no route has",
    ),
    _histogram(
        "dejaq_http_request_seconds",
        "seconds",
        ("method", "route"),
        "From a request's arrival to the end of its answer; long polls wait on purpose",
    ),
    _gauge("dejaq_http_requests_open", "requests", (), "Requests that are being answered"),
    _gauge("dejaq_http_connections_open", "connections", (), "HTTP connections that are open"),
    _counter(
        "dejaq_http_connections",
        "connections",
        ("outcome",),
        "HTTP connections `opened`, and those that were refused or closed for what they did, by "
        "what that was",
    ),
    _counter(
        "dejaq_http_pages_refused",
        "requests",
        ("reason",),
        "Requests without an API key that were refused because a browser made them for a page of "
        "another origin, by what told it: `host`, `origin`, `referer`, `site`, `destination`, "
        "`taking`",
    ),
    _counter(
        "dejaq_flight_calls",
        "calls",
        ("method", "status"),
        "Calls of Arrow Flight that ended: a stream is one call",
    ),
    _gauge("dejaq_flight_calls_open", "calls", ("method",), "Calls and streams that are open"),
    _counter(
        "dejaq_quota_refusals",
        "refusals",
        ("quota", "principal"),
        "Streams, connections, transactions and batches refused by a quota of the settings' group "
        "`quotas`; `principal` is the name of the API key, or an address; `others` beyond the "
        "first hundred",
    ),
    _gauge("dejaq_topics", "topics", (), "Topics there are"),
    _gauge("dejaq_ready_state", "0 or 1", (), "1 while /readyz answers 200"),
    _gauge("dejaq_workers", "threads", ("state",), "Worker threads, `alive` and `dead`"),
    _gauge("dejaq_start_time_seconds", "seconds", (), "When the broker was started, Unix time"),
    _gauge(
        "dejaq_clock_jump_seconds",
        "seconds",
        (),
        "How far the machine's clock is from elapsed time after a jump that is not believed yet; "
        "0 = it is believed",
    ),
    _counter("dejaq_clock_jumps", "jumps", (), "Jumps of the machine's clock, believed or not"),
    _gauge(
        "dejaq_clock_standing_still_seconds",
        "seconds",
        (),
        "How far the partition that is furthest ahead is ahead of the clock: its time stands still "
        "for so long, or is put right at its next step where this is more than "
        "`clock.step_ms_max`",
    ),
    _gauge(
        "dejaq_clock_apart_seconds",
        "seconds",
        (),
        "How far the clock is from those of the other brokers of the cluster, for certain; 0 = it "
        "agrees, or there is no other",
    ),
    _gauge(
        "dejaq_clock_kept_state",
        "0 or 1",
        (),
        "1 while time synchronisation keeps the machine's clock, as its kernel says; missing where "
        "the kernel does not say",
    ),
    _counter(
        "dejaq_clock_partitions_set",
        "partitions",
        (),
        "Times that a partition's time was put right, because the clock was, or because its "
        "journal was far ahead",
    ),
    _gauge("dejaq_build_info", "1", ("version", "python", "pyarrow"), "Always 1; see the labels"),
)

GROUPS: dict[str, tuple[Metric, ...]] = {
    "Messages": _MESSAGES,
    "Subscriptions": _SUBSCRIPTIONS,
    "Time": _TIMES,
    "Consumers": _CONSUMERS,
    "Storage": _STORAGE,
    "Servers": _SERVERS,
}
"""All metrics by what they are about, in the order of the reference."""
METRICS: dict[str, Metric] = {metric.name: metric for group in GROUPS.values() for metric in group}
"""All metrics by name."""
