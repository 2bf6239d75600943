"""What a user may say to the data source, checked.

Room: spark. Runs on the driver; the checked options travel to the executors.
Holds: an unknown option is refused with its name (rule 15).
See: docs/guides/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.core import ClientCore
from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.client.routed_transport import RoutedTransport, connect
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest
from dejaqueue.subscriptions import check_subscription_name
from dejaqueue.topic_names import check_topic_name, parse_subscription, subscription_name

URL_DEFAULT = "dejaq://localhost:7464"
ROWS_PER_PARTITION = 1_000_000
TIMEOUT_SECONDS = 6 * 3_600
STATES = ("scheduled", "ready", "leased", "dead", "staged", "staged_ack")
STREAM_ROWS = 100_000
CLAIM_SECONDS = 600
RETRY_MS_MAX = 60_000
VIEWS = ("messages", "history")
FAILS, DROPS = MODES = ("FAILFAST", "DROPMALFORMED")
KNOWN = (
    "url",
    "topic",
    "subscription",
    "path",
    "view",
    "state",
    "mode",
    "rows.per.partition",
    "timeout",
    "max.rows",
    "max.bytes",
    "claim.timeout",
    "lost.claims",
    "refusals",
    "refusals.path",
    "label",
    "columns",
    "api_key",
    "tls.ca",
    "tls.certificate",
    "tls.key",
    "tls.server_name",
)
"""Every option there is."""

_SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options that streaming queries hand to their sinks."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    Attributes:
        url: of a broker.
        topic: to read or write.
        subscription: of the topic, to read; "" = the unnamed one.
        drops_damaged: True: a table leaves rows out that the broker cannot read, and says how many.
        view: what a batch query reads: one of VIEWS.
        state: of messages to read; "" = scheduled and leased.
        rows_per_partition: sequences of one input partition at most.
        timeout_ms: a job that takes longer is aborted.
        max_rows, max_bytes: of a batch of a stream; 0 bytes = as rows say.
        claim_ms: what a query claimed returns when it was dead for so long.
        skips_lost: True: a claim that returned is left out of the batch that has it.
        fails_on_refusals: True: a row that is refused fails the job.
        refusals_path: where refused rows are written; "" = nowhere.
        label: what a write is called when somebody asks what became of it; "" = a name of ours.
        columns: to read, of those that there are; empty = all, or as a schema says.
        api_key: shown to the broker; None = none is.
        tls: files for dejaqs://, which every executor must have; None = the system's.
    """

    url: str
    topic: str
    view: str
    state: str
    rows_per_partition: int
    timeout_ms: int
    max_rows: int
    max_bytes: int
    claim_ms: int
    skips_lost: bool
    fails_on_refusals: bool
    refusals_path: str
    label: str = ""
    subscription: str = ""
    columns: tuple[str, ...] = ()
    drops_damaged: bool = False
    api_key: str | None = field(default=None, repr=False)
    tls: Tls | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """The checked options; BadRequest names the option."""
        values = {name.lower(): value for name, value in given.items()}
        for name in values:
            if name not in (*KNOWN, *_SPARKS_OWN):
                raise BadRequest(f"option {name}", f"one of {', '.join(KNOWN)}", values[name])
        topic, subscription = _names_of(values)
        refusals = _choice(values, "refusals", ("count", "fail"))
        state = values.get("state", "")
        if state and state not in STATES:
            raise BadRequest("option state", f"one of {', '.join(STATES)}", state)
        if state and values.get("view", "messages") != "messages":
            raise BadRequest("option state", "not with another view than messages", state)
        if subscription and values.get("view") == "history":
            raise BadRequest("option subscription", "none: a history is its topic's", subscription)
        most_seconds = limits.BRANCHED_MS_MAX // 1000
        return cls(
            url=values.get("url", URL_DEFAULT),
            topic=topic,
            subscription=subscription,
            view=_choice(values, "view", VIEWS),
            state=state,
            rows_per_partition=_whole(values, "rows.per.partition", ROWS_PER_PARTITION, 1 << 40),
            timeout_ms=1000 * _whole(values, "timeout", TIMEOUT_SECONDS, most_seconds),
            max_rows=_whole(values, "max.rows", STREAM_ROWS, 1 << 40),
            max_bytes=_whole(values, "max.bytes", 0, 1 << 50),
            claim_ms=1000
            * _whole(values, "claim.timeout", CLAIM_SECONDS, limits.LEASE_MS_MAX // 1000),
            skips_lost=_choice(values, "lost.claims", ("fail", "skip")) == "skip",
            fails_on_refusals=refusals == "fail",
            refusals_path=values.get("refusals.path", ""),
            label=_label(values.get("label", "")),
            columns=_names(values.get("columns")),
            drops_damaged=_drops_damaged(values),
            api_key=values.get("api_key"),
            tls=_tls(values),
        )

    @property
    def served(self) -> str:
        """What is read: the topic, or the subscription of it."""
        return subscription_name(self.topic, self.subscription)

    def check_claimed(self) -> Options:
        """These options, for a query that claims what it reads. Raises BadRequest: a claim is acked
        as a whole, so nobody would get what is left out."""
        if self.drops_damaged:
            limit = "FAILFAST in a streaming query, which acks what it leaves out"
            raise BadRequest("option mode", limit, DROPS)
        return self

    def check_written(self) -> Options:
        """These options, for what writes. Raises BadRequest: a subscription is not written to, and
        nothing that is written is damaged."""
        if self.subscription:
            limit = "none: what is sent to a topic is for all its subscriptions"
            raise BadRequest("option subscription", limit, self.subscription)
        if self.drops_damaged:
            raise BadRequest("option mode", "FAILFAST where a topic is written", DROPS)
        return self

    def transport(self) -> RoutedTransport:
        """A connection of one's own, to be closed."""
        return connect(self.url, self.api_key, self.tls)

    def transport_to(self, url: str) -> FlightTransport:
        """A connection of one's own to this broker and no other, to be closed."""
        return FlightTransport(url, self.api_key, self.tls, follows=True)

    def scan(self, ticket: dict[str, Any], url: str = "") -> Iterator[pa.RecordBatch]:
        """What a ticket says, batch by batch, over a connection of its own.

        Args:
            url: of this broker and no other; "" = whoever serves the topic.

        Raises:
            BadRequest, Refused, Unavailable: also on the way.
        """
        transport = self.transport_to(url) if url else self.transport()
        try:
            yield from transport.scan(ticket)
        finally:
            transport.close()

    def client(self, name: str) -> ClientCore:
        """A client of one's own, to be closed."""
        return ClientCore(self.transport(), name, RETRY_MS_MAX, None)


def _names_of(values: Mapping[str, str]) -> tuple[str, str]:
    """Topic and subscription, which may stand in one name or in two options. Raises BadRequest."""
    named = values.get("topic") or values.get("path")
    if not named:
        raise BadRequest("option topic", "the name of a topic", None)
    topic, subscription = parse_subscription(named)
    own = values.get("subscription", "")
    if own and subscription not in ("", own):
        raise BadRequest("option subscription", f"{subscription}, as in the option topic", own)
    if own or "@" in named:
        check_subscription_name(own or subscription, "option subscription")
    return check_topic_name(topic, "option topic"), own or subscription


def _choice(values: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of these words, the first by default."""
    word = values.get(name, words[0])
    if word not in words:
        raise BadRequest(f"option {name}", " or ".join(words), word)
    return word


def _drops_damaged(values: Mapping[str, str]) -> bool:
    """Whether the mode of the reader, which has no case as with Spark's own, is DROPS."""
    mode = values.get("mode", FAILS)
    if mode.upper() not in MODES:
        raise BadRequest("option mode", " or ".join(MODES), mode)
    if mode.upper() == FAILS:
        return False
    if values.get("view", "messages") != "messages":
        raise BadRequest("option mode", f"{FAILS} with another view than messages", mode)
    return True


def _label(text: str) -> str:
    if len(text.encode()) > limits.LABEL_BYTES_MAX:
        raise BadRequest("option label", f"at most {limits.LABEL_BYTES_MAX} bytes", text)
    return text


def _names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them, in backticks or not."""
    if text is None:
        return ()
    names = tuple(part.strip().strip("`") for part in text.split(","))
    if not all(names):
        raise BadRequest("option columns", "names of columns with commas between", text)
    return names


def _tls(values: Mapping[str, str]) -> Tls | None:
    files = {
        name: values[f"tls.{name}"]
        for name in ("ca", "certificate", "key", "server_name")
        if f"tls.{name}" in values
    }
    return Tls(**files) if files else None


def _whole(values: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    number = number_of(text)
    if number is None or not 1 <= number <= most:
        raise BadRequest(f"option {name}", f"a whole number from 1 to {most}", text)
    return number
