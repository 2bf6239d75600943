"""The shapes of bodies and answers, for the OpenAPI document.

Room: http. For readers and for programs that make clients; what comes in is checked by the house's
own checks, which say which field, which limit and which value (rule 15).
Holds: every model is a part of the document (openapi.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from dejaqueue import limits

Id = Field(pattern=r"^[0-9]{1,19}$", examples=["140737488355333"])
Instant: TypeAlias = (
    Annotated[int, Field(ge=0, le=limits.INSTANT_MS_MAX)]
    | Annotated[str, Field(json_schema_extra={"format": "date-time"})]
)
"""UTC milliseconds, or ISO 8601 with a zone."""


class Shape(BaseModel):
    """A part of the document. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = ""
    number: int = Field(default=0, description="Stable number of the error.")
    retry: bool = Field(default=False, description="The same call may succeed later.")


class NewMessage(Shape):
    """A message to send. One of payload, payload_base64 and json is needed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in ("payload", "payload_base64", "json")]
        },
    )

    payload: str | None = Field(None, description="The payload as text; kept as UTF-8.")
    payload_base64: str | None = Field(
        None, description="The payload's bytes in base64.", json_schema_extra={"format": "byte"}
    )
    json_: Any = Field(None, alias="json", description="Any JSON value; kept as compact JSON.")
    due: Instant | None = Field(
        None,
        description="Not before: UTC milliseconds, or ISO 8601 with a zone. Default: now.",
        examples=["2030-01-31T09:30:00Z", 1896082200000],
    )
    delay_ms: int | None = Field(
        None, ge=0, le=limits.INSTANT_MS_MAX, description="Instead of due: so long from now."
    )
    key: str | None = Field(
        None, max_length=limits.KEY_BYTES_MAX, description="Unique among live messages."
    )
    group: str | None = Field(None, max_length=limits.GROUP_BYTES_MAX)
    priority: int | None = Field(
        None, ge=0, le=limits.PRIORITY_MAX, description="0 is most urgent; default 32768."
    )
    tags: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    headers: dict[str, str] | None = Field(None, description="At most 4 KiB together.")
    expires: Instant | None = Field(None, description="Dead if not done by then; as due.")
    ttl_ms: int | None = Field(
        None, ge=0, le=limits.INSTANT_MS_MAX, description="Instead of expires: so long after due."
    )
    partition: int | None = Field(None, ge=0, lt=limits.PARTITIONS_MAX)


class NewMessages(Shape):
    """Many messages."""

    messages: list[NewMessage] = Field(min_length=1)


class Sent(Shape):
    """What became of a message."""

    id: str | None = Id
    status: Literal["OK", "DUPLICATE", "KEPT"]
    participants: list[str] | None = Field(None, description="In a transaction: for its commit.")


class SentMany(Shape):
    """What became of messages, in the order they were sent."""

    messages: list[Sent]
    participants: list[str] | None = Field(None, description="In a transaction: for its commit.")


class LeaseRequest(Shape):
    """Which messages, how many, and how long to wait for them."""

    max: int = Field(1, ge=1, le=limits.LEASE_ROWS_MAX, description="Messages at most.")
    wait_ms: int = Field(
        0,
        ge=0,
        le=limits.LEASE_WAIT_MS_MAX,
        description="Long poll: wait so long for the first message; 0 = do not wait.",
    )
    lease_ms: int | None = Field(
        None,
        ge=limits.LEASE_MS_MIN,
        le=limits.LEASE_MS_MAX,
        description="How long the messages are yours; default: the topic's lease.",
    )
    consumer: str | None = Field(
        None, max_length=limits.TOPIC_NAME_BYTES_MAX, description="A name for statistics."
    )
    tags_any: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_all: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_none: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    auto_ack: bool = Field(False, description="Acked before they are answered (at most once).")
    encoding: Literal["auto", "base64"] = Field(
        "auto",
        description="auto: a payload that is UTF-8 comes as `payload`, any other as "
        "`payload_base64`; base64: all come as `payload_base64`.",
    )


class Message(Shape):
    """A message as it is."""

    id: str = Id
    attempt: int = Field(description="Deliveries so far, this one counted.")
    due: int
    priority: int
    payload: str = ""
    payload_base64: str = ""
    payload_bytes: int = Field(
        default=0,
        description="Of a payload that is streamed, for which `payload_base64` is the voucher.",
    )
    key: str = ""
    group: str = ""
    tags: list[str] = []
    headers: dict[str, str] = {}


class LeasedMessage(Message):
    """A message that is yours until its lease ends."""

    lease_end_ms: int = Field(description="When the lease ends, UTC milliseconds.")


class Leased(Shape):
    """Leased messages; none if there was nothing to lease."""

    messages: list[LeasedMessage]


class Held(Shape):
    """A leased message, by what the lease answered."""

    id: str = Id
    attempt: int = Field(ge=0, le=limits.ATTEMPTS_MAX)


class AckRequest(Shape):
    """Messages that are done."""

    messages: list[Held] = Field(min_length=1)


class NackRequest(Shape):
    """Messages that could not be done."""

    messages: list[Held] = Field(min_length=1)
    delay_ms: int | None = Field(
        None,
        ge=0,
        le=limits.INSTANT_MS_MAX,
        description="Wait before the next delivery; default: as the topic's backoff says.",
    )
    reason: str = Field(
        "", max_length=limits.REASON_BYTES_MAX, description="Why, for the dead letter."
    )
    dead: bool = Field(False, description="They die now, however often they were delivered.")
    released: bool = Field(
        False, description="Nobody looked at them: this delivery is not counted."
    )


class ExtendRequest(Shape):
    """Messages that need more time."""

    messages: list[Held] = Field(min_length=1)
    lease_ms: int | None = Field(
        None,
        ge=limits.LEASE_MS_MIN,
        le=limits.LEASE_MS_MAX,
        description="Lease from now on; default: the topic's lease.",
    )


class Settled(Shape):
    """What became of a message."""

    id: str = Id
    status: Literal["OK", "NOT_FOUND", "LEASE_LOST"]


class SettledMany(Shape):
    """What became of messages, in the order they were named."""

    messages: list[Settled]
    participants: list[str] | None = Field(None, description="In a transaction: for its commit.")


class TopicSettings(Shape):
    """Settings of a topic (docs/reference/lifecycle.md)."""

    partitions: int | Literal["auto"] | None = Field(None)
    lease_ms: int | None = Field(None, ge=limits.LEASE_MS_MIN, le=limits.LEASE_MS_MAX)
    lease_ahead_ms: int | None = Field(None, ge=0, le=limits.LEASE_AHEAD_MS_MAX)
    spike_ahead_ms: int | None = Field(None, ge=0, le=limits.SPIKE_AHEAD_MS_MAX)
    max_payload_bytes: int | None = Field(None, ge=0, le=limits.STREAMED_BYTES_MAX)
    max_delay_ms: int | None = Field(None, ge=0, le=limits.INSTANT_MS_MAX)
    max_backlog_count: int | None = Field(None, ge=0)
    max_backlog_bytes: int | None = Field(None, ge=0)
    producer_rate_max: int | None = Field(None, ge=0)
    retention_ms: int | None = Field(None, ge=0, le=limits.INSTANT_MS_MAX)
    retention_bytes: int | None = Field(None, ge=0)
    retention_keys: bool | None = None
    cold_after_ms: int | None = Field(None, ge=0, le=limits.INSTANT_MS_MAX)
    weights: dict[str, int] | None = None
    group_in_flight_max: int | None = Field(None, ge=0, le=limits.CREDIT_MAX)
    group_runs: bool | None = None
    max_attempts: int | None = Field(None, ge=0, le=limits.ATTEMPTS_MAX)
    dead_letter: str | None = None
    backoff_ms: int | None = Field(None, ge=0, le=limits.BACKOFF_MS_MAX)
    backoff_factor: float | None = Field(None, ge=1, le=100)
    backoff_max_ms: int | None = Field(None, ge=0, le=limits.BACKOFF_MS_MAX)
    backoff_jitter: float | None = Field(None, ge=0, le=1)
    on_duplicate: Literal["reject", "keep", "replace"] | None = None
    assignment: Literal["shared", "exclusive"] | None = None
    paused: bool | None = None
    auto_partitions: bool | None = None
    history: bool | None = None
    subscriptions: dict[str, dict[str, Any] | None] | None = None
    labels: dict[str, str] | None = None


class NewTopic(TopicSettings):
    """A topic to make; what is not given keeps its default."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,255}$")
    kind: Literal["timeline", "priority", "fair", "cron"] | None = None
    ageing_ms: int | None = Field(None, ge=0)
    group_order: Literal["arrival", "priority", "priority_first"] | None = None
    spread: int | None = Field(None, ge=1, le=limits.SPREAD_MAX)
    unnamed: bool | None = None
    exist_ok: bool = Field(False, description="Fine if it exists already with these settings.")


class TopicShown(BaseModel):
    """A topic with all its settings."""

    model_config = ConfigDict(extra="allow")

    name: str
    kind: str
    partitions: int
    lease_ms: int
    paused: bool


class Topics(Shape):
    """Every topic, by name."""

    topics: list[TopicShown]


class Purged(Shape):
    """What was cancelled."""

    cancelled: int
    is_finished: bool = Field(description="False: call again, there is more.")


class SeekFilter(Shape):
    """Which messages: all that fit every field that is given."""

    due_from: Instant | None = Field(None, description="Due then or later; as due.")
    due_to: Instant | None = Field(None, description="Due before then; as due.")
    group: str | None = Field(None, max_length=limits.GROUP_BYTES_MAX)
    tags_any: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_all: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    tags_none: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    priority_from: int | None = Field(None, ge=0, le=limits.PRIORITY_MAX)
    priority_to: int | None = Field(None, ge=0, le=limits.PRIORITY_MAX)


class Filter(SeekFilter):
    """Which messages: all that fit every field that is given."""

    state: Literal["scheduled", "ready"] | None = None


IfDue: Any = Field(None, description="Only if it is due then; else it is CHANGED, and stays.")


class Moved(Shape):
    """A message by id or key, and what changes of it."""

    id: str | None = Id
    key: str | None = Field(None, max_length=limits.KEY_BYTES_MAX)
    due: Instant | None = None
    delay_ms: int | None = Field(None, ge=0, description="Instead of due: so long from now.")
    by_ms: int | None = Field(
        None, description="Instead of due: so much later than it is due; negative: earlier."
    )
    priority: int | None = Field(None, ge=0, le=limits.PRIORITY_MAX)
    group: str | None = Field(None, max_length=limits.GROUP_BYTES_MAX)
    if_due: Instant | None = IfDue


class MoveRequest(Shape):
    """Messages to move: `messages` by name, or `where` and what changes."""

    messages: list[Moved] | None = Field(None, description="All by id, or all by key.")
    where: Filter | None = Field(None, description="Instead of messages: all that fit.")
    due: Instant | None = Field(None, description="With where: the new due time.")
    by_ms: int | None = Field(None, description="With where: so much later; negative: earlier.")
    window_from: Instant | None = Field(
        None, description="With where: due evenly from then on, in the order that they have."
    )
    window_to: Instant | None = Field(None, description="With window_from: and before then.")
    set_priority: int | None = Field(None, ge=0, le=limits.PRIORITY_MAX)
    set_group: str | None = Field(None, max_length=limits.GROUP_BYTES_MAX)
    dry_run: bool = Field(False, description="With where: only count.")
    after: str | None = Field(None, description="With where: the `next` of the answer before.")


class Named(Shape):
    """A message by id or key."""

    id: str | None = Id
    key: str | None = Field(None, max_length=limits.KEY_BYTES_MAX)
    if_due: Instant | None = IfDue


class CancelRequest(Shape):
    """Messages to cancel: `messages` by name, or `where`."""

    messages: list[Named] | None = Field(None, description="All by id, or all by key.")
    where: Filter | None = Field(None, description="Instead of messages: all that fit.")
    dry_run: bool = Field(False, description="With where: only count.")
    after: str | None = Field(None, description="With where: the `next` of the answer before.")


class Changed(Shape):
    """What became of a message."""

    id: str | None = Id
    key: str | None = None
    status: Literal["OK", "NOT_FOUND", "LEASED", "CHANGED"]


class ChangedMany(Shape):
    """By name: the status of each. By filter: how many, and how to go on."""

    messages: list[Changed] | None = None
    count: int | None = None
    next: str | None = Field(None, description="Give it as `after` for the rest; null = done.")


class PeekedMessage(Message):
    """A message as it is now."""

    due: int = Field(description="When it is due; of a leased one when its lease ends.")
    state: str
    consumer: str = Field("", description="Of a leased one: who has it, where it is known.")
    unread: str = Field("", description="Why its payload, then left out, cannot be read now.")


class Page(Shape):
    """A page of messages."""

    messages: list[PeekedMessage]
    next: str | None = Field(description="Give it as `after` for the next page; null = the last.")


class MessageChange(BaseModel):
    """One thing that happened to a message (docs/guides/history.md); null fields are left out."""

    at_ms: int = Field(description="When, by the broker's clock.")
    change: str = Field(description="What: `enqueued`, `moved`, `delivered`, `nacked`, `acked` …")
    position: int = Field(description="In the partition's journal: the order of changes.")
    priority: int
    attempt: int
    due: int | None = None
    key: str | None = None
    group: str | None = None
    lateness_ms: int | None = None
    consumer: str | None = Field(None, description="Of a delivery: who got it.")
    reason: str | None = None


class HistoryGap(Shape):
    """Positions of which nobody recorded what happened."""

    first: int
    last: int
    at_ms: int
    reason: str | None = None
    missed: int | None = Field(None, description="How many changes; null = it is not known.")


class MessageHistory(Shape):
    """What happened to a message."""

    history: bool = Field(description="Whether the topic's history is on now.")
    changes: list[MessageChange] = Field(description="Oldest first.")
    gaps: list[HistoryGap] = Field(description="What is not known, of its time.")
    silent: list[str] = Field(description="Brokers that did not answer: what they have is missing.")
    next: int | None = Field(description="Give it as `after` for what came later; null = all told.")


class Counts(Shape):
    """How many messages, by what was asked for."""

    rows: list[dict[str, Any]]
    next: str | None = Field(description="Give it as `after` for more; null = all were told.")


class Histogram(Shape):
    """How many messages are due in each stretch of time."""

    due_from: int
    bucket_ms: int
    counts: list[int]
    error_max: int = Field(description="By how much the sum may be too high.")


class DueCount(Shape):
    """How much consumers will have to do within a time."""

    topic: str
    within_ms: int
    due: int = Field(description="`ready` and `scheduled`.")
    ready: int = Field(description="Due already, and not leased.")
    scheduled: int = Field(description="Fall due within the time.")
    leased: int = Field(description="Consumers have them now; `due` does not count them.")
    error_max: int = Field(description="By how much `due` may be too high.")


class Stats(BaseModel):
    """Numbers (docs/reference/metrics.md)."""

    model_config = ConfigDict(extra="allow")


class Consumers(Shape):
    """The consumers of a topic."""

    consumers: list[dict[str, Any]]


class Assignments(BaseModel):
    """Which consumer has which partition."""

    model_config = ConfigDict(extra="allow")


class NewCronEntry(Shape):
    """Something that fires again and again: `cron` or `every_ms` is needed."""

    cron: str | None = Field(None, max_length=limits.CRON_EXPRESSION_BYTES_MAX)
    every_ms: int | None = Field(None, ge=limits.CRON_EVERY_MS_MIN, le=limits.INSTANT_MS_MAX)
    zone: str | None = Field(None, description="IANA time zone; default: UTC.")
    start_ms: int | None = Field(None, ge=0, le=limits.INSTANT_MS_MAX)
    end_ms: int | None = Field(None, ge=0, le=limits.INSTANT_MS_MAX)
    jitter_ms: int | None = Field(None, ge=0, le=limits.CRON_JITTER_MS_MAX)
    misfire: Literal["skip", "once", "all"] | None = None
    overlap: Literal["allow", "skip"] | None = None
    payload: str | None = None
    payload_base64: str | None = Field(None, json_schema_extra={"format": "byte"})
    headers: dict[str, str] | None = None
    tags: list[str] | None = Field(None, max_length=limits.TAGS_MAX)
    group: str | None = Field(None, max_length=limits.GROUP_BYTES_MAX)
    priority: int | None = Field(None, ge=0, le=limits.PRIORITY_MAX)
    paused: bool | None = None


class NamedCronEntry(NewCronEntry):
    """An entry with its name."""

    name: str = Field(min_length=1, max_length=limits.KEY_BYTES_MAX)


class NewCronEntries(Shape):
    """Many entries."""

    entries: list[NamedCronEntry] = Field(min_length=1, max_length=limits.CRON_CALL_ENTRIES_MAX)


class CronEntryShown(BaseModel):
    """An entry as it is."""

    model_config = ConfigDict(extra="allow")

    name: str
    next_ms: int = Field(description="When it fires next; -1 = never.")
    last_id: str | None = Field(description="Id of the message that it made last.")


class CronEntries(Shape):
    """Entries, by name."""

    entries: list[CronEntryShown]
    next: str | None = None


class PreviewRequest(NewCronEntry):
    """An entry that need not exist, and how many of its firings to tell."""

    count: int = Field(10, ge=1, le=limits.CRON_PREVIEW_MAX)
    after_ms: int | None = Field(None, ge=0, lt=limits.INSTANT_MS_MAX)


class Firings(Shape):
    """When an entry fires, UTC milliseconds."""

    firings: list[int]


class Fired(Shape):
    """The message that was made."""

    id: str = Id


class DeadLetter(PeekedMessage):
    """A dead letter, and how it died."""

    death: dict[str, str] = Field(
        description="reason, attempts, origin (its topic), origin-id, at (when), key."
    )


class DeadLetters(Shape):
    """A page of dead letters."""

    messages: list[DeadLetter]
    next: str | None = None


class LetterChoice(Shape):
    """Which dead letters; none of the fields = all."""

    reason: str | None = Field(None, description="Only those that died of this.")
    group: str | None = None
    ids: list[str] | None = Field(None, max_length=limits.PEEK_ROWS_MAX)
    limit: int | None = Field(None, ge=0, description="So many at most.")
    after: str | None = Field(None, description="The `next` of the answer before.")


class RedriveRequest(LetterChoice):
    """Which dead letters to send back, and where to."""

    to: str | None = Field(None, description="A topic; default: where each came from.")


class Redriven(Shape):
    """How many went, and how many were meant but stay."""

    moved: int
    left: int
    next: str | None = Field(description="Give it as `after` for the rest; null = done.")


# --- API keys -------------------------------------------------------------------------------------


class NewKey(Shape):
    """What an API key is to be."""

    name: str = Field(description="Who will have it; no two keys have the same.")
    grants: list[str] = Field(
        min_length=1,
        max_length=limits.API_KEY_GRANTS_MAX,
        description="What it may do, as ROLE:PATTERN; roles are produce, consume, manage, admin.",
    )
    ends_ms: int | None = Field(
        default=None, description="It is refused from then on, UTC milliseconds; null = never."
    )
    start_token: str | None = Field(
        default=None, description="For the first key of a broker that others can reach."
    )


class KeyShown(Shape):
    """What is told of an API key."""

    id: str
    name: str
    grants: list[str]
    created_ms: int
    ends_ms: int | None


class KeyListed(KeyShown):
    """An API key in the list."""

    ended: bool
    used_ms: int | None = Field(
        None,
        description="When it was used last at any broker, to the minute below, at another than was "
        "asked up to five minutes too early; null: not since `uses_since_ms`.",
    )


class KeyMade(KeyShown):
    """An API key that was made."""

    api_key: str = Field(
        default="",
        description="The key itself, which is shown this once; absent for `cert:` and `oidc:`.",
    )


class Keys(Shape):
    """All API keys."""

    required: bool = Field(description="False while there was never a key: anybody may call.")
    uses_since_ms: int = Field(
        0, description="Uses are known from then on: since they are stored here."
    )
    keys: list[KeyListed]


class ClusterShown(Shape):
    """Brokers and servers as one broker knows them."""

    node: str = Field(description='The broker that was asked; "" = it is alone.')
    coordinator: str
    nodes: list[dict[str, Any]] = Field(description="Each broker, with its version and clock.")
    topics: list[dict[str, Any]] = Field(description="`topic` and the `node` that serves it.")
    servers: list[dict[str, Any]] = Field(
        default=[], description="Servers that keep the journals, if they were asked for."
    )


class NodeProgress(Shape):
    """How far a change of a node is."""

    node: str
    state: str = Field(description='`working`, `done`, `failed`; "" = nothing was begun here.')
    text: str


class AuditLines(Shape):
    """Lines of the audit log."""

    lines: list[dict[str, Any]] = Field(
        description="Each with `at_ms`, `principal`, `peer`, `action`, `topic` and `outcome`."
    )


class FindingShown(Shape):
    """One thing that will hurt."""

    check: str = Field(description="What was looked at, in a word or two.")
    level: Literal["look", "hurts"] = Field(description="look: it may be meant so.")
    text: str = Field(description="What was seen.")
    mend: str = Field(description="The command or setting that changes it.")


class Findings(Shape):
    """What will hurt, the worst first."""

    node: str = Field(description="The broker that was asked; empty: it is alone.")
    findings: list[FindingShown]


class NewTransaction(Shape):
    """A transaction to begin."""

    topic: str = Field(description="The topic that keeps its decision.")
    timeout_ms: int | None = Field(
        None,
        ge=1,
        le=limits.TRANSACTION_MS_MAX,
        description="Aborted if it is not decided by then; default: 60000.",
    )


class Transaction(Shape):
    """A transaction that was begun."""

    transaction: str
    until_ms: int = Field(description="When it is aborted, if nobody has decided.")


class Decision(Shape):
    """A transaction to decide."""

    transaction: str = Field(description="As it was answered when it was begun.")
    participants: list[str] = Field(
        [],
        max_length=limits.TRANSACTION_PARTICIPANTS_MAX,
        description="What sends and acks in it answered as participants, all of it.",
    )


class Decided(Shape):
    """It is decided, durably."""


class Undecided(Shape):
    """Transactions that are not decided."""

    transactions: list[dict[str, Any]]
