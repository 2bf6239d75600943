"""What DejaQ set out to reach, and whether the kept rows reach it.

Room: bench. Rows in, verdicts out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """One bound on one row of DejaQ.

    Attributes:
        question, case: of the row.
        of: the field of the row that is bounded.
        bound: the number it must reach, or not exceed.
        unit: of the bound.
        system: of the row.
    """

    question: str
    case: str
    of: Literal["value", "ratio"]
    sign: Literal["≥", "≤", "="]
    bound: float
    unit: str
    system: str = "dejaq"


PEERS_BY_GO: tuple[tuple[str, Literal["≥", "≤"], float, str], ...] = (
    ("deliver_p50_by_jetstream_go", "≤", 1, "jetstream_go"),
    ("deliver_p50_by_redis_streams_go", "≤", 2, "redis_streams_go"),
    ("send_1_by_postgresql_go", "≥", 0.8, "postgresql_go"),
    ("send_64_by_redis_streams_go", "≥", 1, "redis_streams_go"),
)
"""Our Go driver beside the compiled clients of others."""

SIZES = {"16k": "16 KiB", "64k": "64 KiB", "256k": "256 KiB", "1m": "a MiB"}
BESIDE = {
    "cancel_keys": "500,000 are cancelled by key",
    "cancel_where": "500,000 are cancelled by filter",
    "move_where": "500,000 are moved by filter",
    "hot": "200,000 are due in one millisecond",
    "fair": "2,000,000 of a fair topic are",
    "priority": "2,000,000 of a priority topic are",
}

TARGETS = (
    Target("throughput", "enqueue", "ratio", "≥", 3, "× redis"),
    Target("throughput", "enqueue", "value", "≥", 1_000_000, "messages/s"),
    Target("throughput", "lease_ack", "ratio", "≥", 4, "× redis"),
    Target("throughput", "single", "ratio", "≥", 1, "× beanstalkd"),
    Target("throughput", "single_by_redis", "ratio", "≥", 1.5, "× redis"),
    Target("throughput", "single_asyncio_by_redis", "ratio", "≥", 1.5, "× redis"),
    Target("throughput", "enqueue_per_core", "ratio", "≥", 7, "× redis"),
    Target("throughput", "lease_ack_per_core", "ratio", "≥", 6, "× redis"),
    Target("kinds", "enqueue_keys", "ratio", "≥", 0.75, "× without keys"),
    Target("kinds", "enqueue_keys_written", "ratio", "≤", 1.3, "× without keys"),
    Target("kinds", "enqueue_tags", "ratio", "≥", 0.75, "× without tags"),
    Target("kinds", "lease_ack_priority", "ratio", "≥", 0.95, "× timeline"),
    Target("kinds", "lease_ack_fair", "ratio", "≥", 0.85, "× timeline"),
    Target("kinds", "lease_ack_nested", "ratio", "≥", 0.7, "× timeline"),
    Target("kinds", "enqueue_history", "ratio", "≥", 0.85, "× without a history"),
    Target("kinds", "lease_ack_history", "ratio", "≥", 0.85, "× without a history"),
    *(Target("sizes", f"enqueue_{size}", "value", "≥", 0.6, "GB/s") for size in SIZES),
    Target("lateness", "p50", "value", "≤", 0.2, "ms"),
    Target("lateness", "p99", "value", "≤", 0.6, "ms"),
    Target("lateness", "early", "value", "=", 0, "messages"),
    Target("lateness", "at_100k_p50", "value", "≤", 0.5, "ms"),
    Target("lateness", "at_100k_p99", "value", "≤", 3, "ms"),
    Target("lateness", "at_100k_early", "value", "=", 0, "messages"),
    *(Target("beside", f"{case}_p99", "value", "≤", 10, "ms") for case in BESIDE),
    Target("pollers", "beside_p99", "value", "≤", 10, "ms"),
    Target("pollers", "beside_early", "value", "=", 0, "messages"),
    Target("hot_instant", "drained", "value", "≤", 3, "s"),
    Target("hot_instant", "steady_p99", "value", "≤", 50, "ms"),
    Target("fair", "lease_ack", "ratio", "≥", 0.7, "× timeline"),
    Target("fair", "jain", "value", "≥", 0.99, "of 1"),
    Target("fair", "lease_ack_priority", "ratio", "≥", 0.8, "× by arrival"),
    Target("subscriptions", "deliver_10", "value", "≥", 3_000_000, "messages/s"),
    Target("subscriptions", "enqueue_10", "ratio", "≥", 0.6, "× one subscription"),
    Target("subscriptions", "log_through", "ratio", "≥", 0.9, "× the unnamed one"),
    Target("subscriptions", "log_through_by_kafka", "ratio", "≥", 1, "× kafka"),
    Target("subscriptions", "replay", "value", "≥", 3_000_000, "messages/s"),
    Target("subscriptions", "replay_beside_p99", "value", "≤", 10, "ms"),
    Target("subscriptions", "start_usable", "value", "≤", 2, "s"),
    Target("subscriptions", "start_held", "value", "≤", 50, "ms"),
    Target("subscriptions", "memory_due", "value", "≤", 30, "bytes"),
    Target("subscriptions", "memory_log", "value", "≤", 1, "bytes"),
    Target("bytes", "streamed_up_dejaq", "ratio", "≥", 0.7, "× the store alone"),
    Target("bytes", "streamed_down_dejaq", "ratio", "≥", 0.7, "× the store alone"),
    Target("bytes", "streamed_memory_client_dejaq", "value", "≤", 64, "MiB"),
    Target("bytes", "streamed_memory_broker_dejaq", "value", "≤", 64, "MiB"),
    Target("bytes", "enqueue_encrypted", "ratio", "≥", 0.9, "× plain"),
    Target("bytes", "lease_ack_encrypted", "ratio", "≥", 0.9, "× plain"),
    Target("bytes", "backup_incremental_bytes", "ratio", "≤", 0.03, "× a full one"),
    Target("bytes", "backup_incremental_s", "ratio", "≤", 0.03, "× a full one"),
    Target("bytes", "enqueue_archived", "ratio", "≥", 0.9, "× without"),
    Target("bytes", "archive_behind_p99", "value", "≤", 200, "ms"),
    # Twenty seconds for ten million.
    Target("bytes", "restore", "value", "≥", 500_000, "messages/s"),
    Target("bytes", "promotion", "value", "≤", 3, "s"),
    Target("bytes", "bucket_enqueue", "value", "≥", 500_000, "messages/s"),
    Target("bytes", "bucket_puts", "value", "≤", 10, "PUTs/s"),
    Target("bytes", "bucket_puts_idle", "value", "=", 0, "PUTs/s"),
    Target("bytes", "bucket_answered_p99", "value", "≤", 300, "ms"),
    Target("bytes", "bucket_lateness_p99", "value", "≤", 1, "ms"),
    Target("bytes", "bucket_early", "value", "=", 0, "messages"),
    Target("http", "send", "ratio", "≥", 0.5, "× a bare route"),
    Target("http", "lease", "ratio", "≥", 0.5, "× a bare route"),
    Target("http", "ack", "ratio", "≥", 0.5, "× a bare route"),
    Target("http", "ndjson", "value", "≥", 100_000, "messages/s"),
    Target("doq", "streams_enqueue", "ratio", "≥", 1, "× doq"),
    Target("doq", "streams_dequeue", "ratio", "≥", 1, "× doq"),
    Target("doq", "streams_both", "ratio", "≥", 1, "× doq"),
    Target("scale", "memory_per_message", "value", "≤", 40, "bytes"),
    Target("scale", "memory_per_message_keys", "value", "≤", 60, "bytes"),
    Target("scale", "enqueue", "ratio", "≥", 0.8, "× that at 1M"),
    Target("scale", "lease_ack", "ratio", "≥", 0.8, "× that at 1M"),
    Target("scale", "restart", "value", "≤", 30, "s"),
    Target("spark", "write", "value", "≥", 400_000, "rows/s"),
    Target("spark", "read", "value", "≥", 1_000_000, "rows/s"),
    Target("spark", "stream_read", "value", "≥", 300_000, "rows/s"),
    Target("cluster", "enqueue_jetstream", "value", "≥", 200_000, "messages/s"),
    Target("cluster", "enqueue_jetstream", "ratio", "≥", 0.25, "× segments"),
    Target("cluster", "enqueue_postgresql", "value", "≥", 150_000, "messages/s"),
    Target("cluster", "through_postgresql", "ratio", "≥", 5, "× skip_locked"),
    Target("cluster", "hand_over_postgresql", "value", "≤", 1, "s"),
    Target("cluster", "hand_over_jetstream", "value", "≤", 1, "s"),
    Target("cluster", "rolling_postgresql", "value", "≤", 1, "s"),
    Target("cluster", "rolling_jetstream", "value", "≤", 1, "s"),
    Target("cluster", "failover_postgresql", "value", "≤", 3, "s"),
    Target("cluster", "failover_jetstream", "value", "≤", 3, "s"),
    Target("cluster", "failover_jetstream_leader", "value", "≤", 8, "s"),
    Target("many", "consumers_64_us", "ratio", "≤", 1.5, "× one consumer"),
    Target("many", "consumers_64", "ratio", "≥", 0.7, "× one consumer"),
    Target("many", "in_64_us", "ratio", "≤", 1.25, "× one partition"),
    Target("many", "out_64_us", "ratio", "≤", 1.25, "× one partition"),
    Target("processes", "in_2_us", "ratio", "≤", 1.1, "× one process"),
    Target("processes", "out_2_us", "ratio", "≤", 1.1, "× one process"),
    Target("many", "few_in_5000", "ratio", "≥", 0.333, "× one partition"),
    Target("many", "few_out_5000", "ratio", "≥", 0.333, "× one partition"),
    Target("many", "singles_10000", "ratio", "≥", 0.8, "× one topic"),
    Target("console", "page_p95", "value", "≤", 200, "ms"),
    Target("console", "first_paint", "value", "≤", 1_000, "ms"),
    Target("console", "preview_p95", "value", "≤", 300, "ms"),
    Target("console", "cancel", "value", "≤", 2, "s"),
    Target("console", "consoles_10", "value", "≤", 3, "% of a core"),
    # "No change", as far as two runs of the same agree on two cores that others use as well.
    Target("console", "late_beside_p99", "ratio", "≤", 1.1, "× without consoles"),
    Target("console", "transfer", "value", "≤", 300, "KB"),
    Target("workers", "noop_threads", "ratio", "≥", 2, "× the best peer"),
    Target("workers", "noop_asyncio", "ratio", "≥", 2, "× arq"),
    Target("workers", "noop_threads", "ratio", "≥", 1, "× celery_redis", "celery_dejaq"),
    Target("workers", "eta_p99", "value", "≤", 10, "ms"),
    Target("workers", "eta_early", "value", "=", 0, "tasks"),
    Target("workers", "eta_twice", "value", "=", 0, "tasks"),
    Target("workers", "week_lost", "value", "=", 0, "tasks"),
    Target("workers", "week_twice", "value", "=", 0, "tasks"),
    Target("workers", "week_memory", "ratio", "≤", 1.1, "× the first worker"),
    Target("workers", "killed_lost", "value", "=", 0, "tasks"),
    Target("workers", "killed_unexplained", "value", "=", 0, "tasks"),
    Target("peers", "deliver_p50_by_jetstream", "ratio", "≤", 1, "× jetstream"),
    Target("peers", "deliver_p50_by_redis_streams", "ratio", "≤", 2, "× redis_streams"),
    Target("peers", "deliver_p99", "value", "≤", 3, "ms"),
    Target("peers", "send_1_by_postgresql", "ratio", "≥", 0.8, "× postgresql"),
    Target("peers", "send_64_by_redis_streams", "ratio", "≥", 1, "× redis_streams"),
    Target("peers", "send_64_server_us", "value", "≤", 40, "us"),
    Target("peers", "take_1", "value", "≥", 10_000, "messages/s"),
    Target("peers", "delay_early", "value", "=", 0, "messages"),
    *(
        Target("peers", case, "ratio", sign, bound, f"× {peer}", "dejaq_go")
        for case, sign, bound, peer in PEERS_BY_GO
    ),
    Target("sqs", "send", "value", "≥", 10_000, "messages/s"),
    Target("sqs", "send", "ratio", "≥", 2, "× elasticmq"),
    Target("sqs", "send_by_moto", "ratio", "≥", 10, "× moto"),
    Target("sqs", "receive_delete", "value", "≥", 20_000, "messages/s"),
    Target("sqs", "delay_early", "value", "=", 0, "messages"),
    Target("sqs", "delay_p99", "value", "≤", 5, "ms"),
    Target("starting", "import_client", "value", "≤", 200, "ms"),
    Target("starting", "first_send", "value", "≤", 50, "ms"),
    Target("starting", "command_send", "value", "≤", 350, "ms"),
    Target("starting", "broker", "value", "≤", 800, "ms"),
    Target("starting", "broker_memory", "value", "≤", 120, "MB"),
)

WORK = {
    ("throughput", "enqueue"): "enqueue, batches of 1,000, one producer",
    ("throughput", "lease_ack"): "lease + ack, 1,000 at a time",
    ("throughput", "single"): "64 producers, one message per call",
    ("throughput", "single_by_redis"): "the same beside Redis with 64 connections",
    ("throughput", "single_asyncio_by_redis"): "64 coroutines, one message per call",
    ("throughput", "enqueue_per_core"): "enqueue by processor time, client and server",
    ("throughput", "lease_ack_per_core"): "lease + ack by processor time, client and server",
    ("kinds", "enqueue_keys"): "enqueue with keys",
    ("kinds", "lease_ack_priority"): "lease + ack by priority",
    ("kinds", "lease_ack_fair"): "lease + ack, 1,000 groups in turn",
    ("kinds", "enqueue_history"): "enqueue, history recorded",
    ("kinds", "lease_ack_history"): "lease + ack, history recorded",
    ("kinds", "enqueue_keys_written"): "the same: bytes that the broker writes",
    ("kinds", "enqueue_tags"): "enqueue with two tags a message",
    ("kinds", "lease_ack_nested"): "lease + ack, 1,000 groups within 100",
    **{("sizes", f"enqueue_{size}"): f"payloads of {text} in" for size, text in SIZES.items()},
    ("lateness", "at_100k_p50"): "lateness at 100,000 messages/s, p50",
    ("lateness", "at_100k_p99"): "lateness at 100,000 messages/s, p99",
    ("lateness", "at_100k_early"): "early at 100,000 messages/s",
    **{
        ("beside", f"{case}_p99"): f"lateness of one topic while of another {text}, p99"
        for case, text in BESIDE.items()
    },
    ("scale", "memory_per_message_keys"): "10 M scheduled with keys, memory of each",
    ("starting", "import_client"): "import of the client",
    ("starting", "first_send"): "from there to the first message that is durable",
    ("starting", "command_send"): "`dejaq send`: processor time",
    ("starting", "broker"): "a broker on an empty directory, until it listens",
    ("starting", "broker_memory"): "its memory then",
    ("lateness", "p50"): "lateness at 10,000 messages/s, p50",
    ("lateness", "p99"): "lateness at 10,000 messages/s, p99",
    ("lateness", "early"): "early at 10,000 messages/s",
    ("pollers", "beside_p99"): "lateness beside 200 clients that wait over HTTP, p99",
    ("pollers", "beside_early"): "early beside 200 clients that wait over HTTP",
    ("hot_instant", "drained"): "a million due in one millisecond, all acked",
    ("hot_instant", "steady_p99"): "meanwhile another topic, p99",
    ("fair", "lease_ack"): "fair, 10,000 groups, Zipf backlog: lease + ack",
    ("fair", "jain"): "Jain's index over the 10,000 groups",
    ("fair", "lease_ack_priority"): "the same groups, by priority within each: lease + ack",
    ("subscriptions", "deliver_10"): "10 subscriptions: lease + ack, 1,000 at a time, together",
    ("subscriptions", "enqueue_10"): "enqueue for 10 subscriptions",
    ("subscriptions", "log_through"): "a log that keeps up: enqueue, lease and ack at once",
    ("subscriptions", "log_through_by_kafka"): "the same beside Kafka, each append on disk",
    ("subscriptions", "replay"): "50 M retained messages again, by due time",
    ("subscriptions", "replay_beside_p99"): "meanwhile another topic, p99",
    ("subscriptions", "start_usable"): "a new subscription on 10 M scheduled: until it delivers",
    ("subscriptions", "start_held"): "meanwhile another topic, the latest message",
    ("subscriptions", "memory_due"): "memory of one more subscription by due time",
    ("subscriptions", "memory_log"): "memory of one more log that keeps up",
    ("bytes", "enqueue_encrypted"): "enqueue, encrypted at rest",
    ("bytes", "lease_ack_encrypted"): "lease and ack, encrypted at rest",
    ("bytes", "backup_incremental_bytes"): "a backup after one percent was changed: its bytes",
    ("bytes", "backup_incremental_s"): "a backup after one percent was changed: its time",
    ("bytes", "enqueue_archived"): "enqueue, archived as it comes",
    ("bytes", "archive_behind_p99"): "acknowledged and not archived yet, at 100,000 a second",
    ("bytes", "streamed_up_dejaq"): "a payload of a GiB, streamed up",
    ("bytes", "streamed_down_dejaq"): "the same, streamed down",
    ("bytes", "streamed_memory_client_dejaq"): "meanwhile the client's memory",
    ("bytes", "streamed_memory_broker_dejaq"): "meanwhile the broker's memory",
    ("bytes", "restore"): "restore, until a broker serves it",
    ("bytes", "promotion"): "a standby is promoted, until it takes messages",
    ("bytes", "bucket_enqueue"): "journal in a bucket, a PUT takes 100 ms more: enqueue",
    ("bytes", "bucket_puts"): "meanwhile requests to store",
    ("bytes", "bucket_puts_idle"): "the same while nothing is done",
    ("bytes", "bucket_answered_p99"): "the same: 1,000 messages are durable, p99",
    ("bytes", "bucket_lateness_p99"): "the same: lateness of what is due later, p99",
    ("bytes", "bucket_early"): "the same: early",
    ("http", "send"): "HTTP: 64 connections send one message a request",
    ("http", "lease"): "HTTP: 64 connections lease one message a request",
    ("http", "ack"): "HTTP: 64 connections ack one message a request",
    ("http", "ndjson"): "HTTP: NDJSON, 1,000 messages a request",
    ("doq", "streams_enqueue"): "DOQ's gRPC: 10 enqueue streams, one message a turn",
    ("doq", "streams_dequeue"): "DOQ's gRPC: 10 dequeue streams, one message a turn",
    ("doq", "streams_both"): "DOQ's gRPC: 10 + 10 streams at once, one message a turn",
    ("scale", "memory_per_message"): "100 M scheduled, memory of each",
    ("scale", "enqueue"): "100 M scheduled, enqueue",
    ("scale", "lease_ack"): "100 M scheduled, lease + ack",
    ("scale", "restart"): "100 M scheduled, start from snapshot",
    ("spark", "write"): "Spark writes a table, two threads",
    ("spark", "read"): "Spark reads a topic, two threads",
    ("spark", "stream_read"): "Spark drains a topic, 100,000 rows a batch",
    ("cluster", "enqueue_jetstream"): "enqueue, three copies on JetStream",
    ("cluster", "enqueue_postgresql"): "enqueue with the journal on PostgreSQL",
    ("cluster", "through_postgresql"): "in and out again, beside FOR UPDATE SKIP LOCKED",
    ("cluster", "hand_over_postgresql"): "a broker is stopped, PostgreSQL: a partition is away",
    ("cluster", "hand_over_jetstream"): "a broker is stopped, JetStream: a partition is away",
    ("cluster", "rolling_postgresql"): "all brokers restart in turn, PostgreSQL: the longest wait",
    ("cluster", "rolling_jetstream"): "all brokers restart in turn, JetStream: the longest wait",
    ("cluster", "failover_postgresql"): "a broker is killed, PostgreSQL",
    ("cluster", "failover_jetstream"): "a broker is killed, JetStream",
    ("cluster", "failover_jetstream_leader"): "the JetStream leader is killed with its broker",
    ("processes", "in_2_us"): "two processes, enqueue: processor time of a message",
    ("processes", "out_2_us"): "two processes, lease + ack: processor time of a message",
    ("many", "consumers_64_us"): "64 consumers on one topic: processor time of a message",
    ("many", "consumers_64"): "64 consumers on one topic: rate",
    ("many", "in_64_us"): "64 partitions, enqueue without keys: processor time of a message",
    ("many", "out_64_us"): "64 partitions, lease + ack: processor time of a message",
    ("many", "few_in_5000"): "5,000 partitions, enqueue of 20,000",
    ("many", "few_out_5000"): "5,000 partitions, lease + ack of 20,000",
    ("many", "singles_10000"): "64 threads, one message per call, to 10,000 random topics",
    ("console", "page_p95"): "the console, 200 topics: the slowest page, at the broker, p95",
    ("console", "first_paint"): "a browser's first look: until the slowest page shows something",
    ("console", "preview_p95"): "a stretch of the chart is selected: count and samples, p95",
    ("console", "cancel"): "a million messages are cancelled from the console",
    ("console", "consoles_10"): "ten open consoles: processor time of the broker",
    ("console", "late_beside_p99"): "10,000 messages/s beside ten open consoles: lateness, p99",
    ("console", "transfer"): "the overview and all that it loads",
    ("workers", "noop_threads"): "tasks that do nothing, two processes with threads",
    ("workers", "noop_asyncio"): "tasks that do nothing, two processes with asyncio",
    ("workers", "eta_p99"): "10,000 etas a second: lateness at the function, p99",
    ("workers", "eta_early"): "10,000 etas a second: run early",
    ("workers", "eta_twice"): "10,000 etas a second: run twice",
    ("workers", "week_lost"): "a million etas a week ahead, workers restarted 20 times: lost",
    ("workers", "week_twice"): "the same: run twice",
    ("workers", "week_memory"): "the same: memory of the last workers before the week is over",
    ("workers", "killed_lost"): "workers killed again and again under load: lost",
    ("workers", "killed_unexplained"): "the same: run twice though no kill explains it",
    ("peers", "deliver_p50_by_jetstream"): "one message a call: send to delivered, p50",
    ("peers", "deliver_p50_by_redis_streams"): "the same beside Redis streams",
    ("peers", "deliver_p99"): "the same, p99",
    ("peers", "send_1_by_postgresql"): "one thread, one send after the other",
    ("peers", "send_64_by_redis_streams"): "64 connections, one message a call each",
    ("peers", "deliver_p50_by_jetstream_go"): "Go clients: send to delivered, p50",
    ("peers", "deliver_p50_by_redis_streams_go"): "the same beside Redis streams",
    ("peers", "send_1_by_postgresql_go"): "Go clients: one connection, one send after the other",
    ("peers", "send_64_by_redis_streams_go"): "Go clients: 64 connections, one message a call",
    ("peers", "send_64_server_us"): "64 connections: the broker's processor time of a message",
    ("peers", "take_1"): "consume and ack one by one",
    ("peers", "delay_early"): "delays of 0.2 to 2 s: early",
    ("sqs", "send"): "SQS: 64 connections send one message a request",
    ("sqs", "send_by_moto"): "the same beside moto",
    ("sqs", "receive_delete"): "SQS: 64 connections receive and delete ten at a time",
    ("sqs", "delay_early"): "SQS: delays of 10 minutes to 10 days, received early",
    ("sqs", "delay_p99"): "SQS: delays of 10 minutes to 10 days, lateness, p99",
}
"""What a target is about, for readers, by question and case."""

REACHED: dict[str, Callable[[float, float], bool]] = {
    "≥": lambda got, bound: got >= bound,
    "≤": lambda got, bound: got <= bound,
    "=": lambda got, bound: got == bound,
}


def verdicts(rows: list[dict[str, Any]]) -> list[tuple[Target, float | None, bool | None]]:
    """Each target with what was measured and whether that reaches it; None if not measured."""
    by_case = {(r["system"], r["question"], r["case"]): r for r in rows}
    found: list[tuple[Target, float | None, bool | None]] = []
    for target in TARGETS:
        got = by_case.get((target.system, target.question, target.case), {}).get(target.of)
        reached = None if got is None else REACHED[target.sign](got, target.bound)
        found.append((target, got, reached))
    return found
