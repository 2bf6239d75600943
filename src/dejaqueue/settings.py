"""Settings: what an operator may change, grouped by meaning, each with its unit and its reason.

Room: vocabulary. Building `BrokerSettings` in code reads nothing, so that a library never changes
with the shell it was started from; configuration.py reads files and the environment.
Holds: relations between settings are checked when they are built; each description ends by saying
whether the setting can change live, and `adopt` is what changes it.
See: docs/reference/settings.md, generated from this file; what nobody may change is `limits.py`.

In a file:          [journal]
                    segment_bytes = 67_108_864
In the environment: DEJAQ_JOURNAL__SEGMENT_BYTES=67108864
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from dejaqueue import limits
from dejaqueue.setting_groups import (
    BackupSettings,
    ConsoleSettings,
    DoqSettings,
    EncryptionSettings,
    Group,
    OidcSettings,
    PayloadSettings,
    QuotaSettings,
    SqsSettings,
    StandbySettings,
)

LIVE_WORDS = "Can change live."
FIXED_WORDS = "Cannot change live."
"""One of them ends the description of every setting."""


class JournalSettings(Group):
    """Where messages are kept, and how."""

    url: str = Field(
        default="dejaq-data",
        min_length=1,
        description="Where messages are kept: a directory; the URL of a server, as "
        "`postgresql://user@host/database`; a bucket, `s3://bucket/prefix`; or `memory:` to keep "
        "nothing when the broker ends. The default is a directory under the current one, because a "
        "broker that forgets must be asked for. Cannot change live.",
    )
    mirror: str = Field(
        default="",
        description="With messages on a server: the directory for this broker's copy of them, from "
        "which payloads are read. It is a cache: it may be deleted, and two brokers never share "
        "one. Empty = in memory, at most 256 MiB for a partition; the rest is read from the server "
        "when it is due. Cannot change live.",
    )
    mirror_bytes_max: int = Field(
        default=0,
        ge=0,
        description="Size of a partition's copy at most, in bytes; its oldest files go first. "
        "0 = 256 MiB in memory, as large as the journal in a directory. Cannot change live.",
    )
    patience_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="With messages on a server: how long it is asked what became of an append "
        "whose answer was lost, in milliseconds; then the partition stops and is read again. Ten "
        "seconds: a server that elects another leader or starts again is waited for. Meanwhile "
        "others on the same worker wait, too. Cannot change live.",
    )
    segment_bytes: int = Field(
        default=64 << 20,
        ge=4 << 10,
        le=1 << 30,
        description="Size at which a segment file is closed and the next one begun, in bytes. "
        "64 MiB: small enough that a segment of done messages soon gives its room back, large "
        "enough that files stay few. Cannot change live.",
    )
    reserve_bytes: int = Field(
        default=64 << 20,
        ge=0,
        description="Room on the disk that producers may not use, in bytes, kept so that leases "
        "and acks can still be written when the disk is full (rule 14). 64 MiB: some 250,000 acks "
        "of single messages. 0 = nothing is kept back. Cannot change live.",
    )
    snapshot_entries: int = Field(
        default=10_000,
        ge=0,
        description="Journal entries that a start, or whoever takes over, has to read again at "
        "most, about: partitions take snapshots when all of a broker have more together, but for "
        "those that have few themselves. 10,000: half a second of replay. 0 = not by count. "
        "Can change live.",
    )
    snapshot_interval_ms: int = Field(
        default=300_000,
        ge=0,
        description="A partition that changed takes a snapshot this long after the last one, in "
        "milliseconds. Five minutes: a quiet partition's segments are given back, at next to no "
        "cost. 0 = not by time. Can change live.",
    )
    erase_ms_max: int = Field(
        default=0,
        ge=0,
        description="How long the bytes of messages that are done, cancelled or not retained any "
        "more stay in the journals at most, in milliseconds. What is live beside them, or before "
        "them where journals are on a server, is copied forward, once in half of that time, and "
        "after each start. Not in a bucket. 0 = until nothing beside them is live: room is what "
        "storage is given back for. Cannot change live.",
    )


class DispatchSettings(Group):
    """How messages move through the broker: threads, group commit, bounds."""

    workers: int = Field(
        default=2,
        ge=1,
        le=256,
        description="Threads that own partitions. 2: while one waits for the disk the other works; "
        "more helps only with more disks, as Python runs one thread at a time. Cannot change live.",
    )
    group_rows_max: int = Field(
        default=65_536,
        ge=1,
        le=limits.BATCH_ROWS_MAX,
        description="Messages made durable with one sync at most (group commit). 65,536: where the "
        "sync is no longer what costs; larger groups only make the first of them wait. "
        "Can change live.",
    )
    group_bytes_max: int = Field(
        default=64 << 20,
        ge=1 << 20,
        description="Bytes of batches made durable with one sync at most. One group is written "
        "while the next one gathers, so a partition holds twice as much beside what waits "
        "(`inbox_bytes_max`). 64 MiB: takes a disk longer to write than to sync. Can change live.",
    )
    take_over_rows_max: int = Field(
        default=8_192,
        ge=0,
        le=limits.BATCH_ROWS_MAX,
        description="Due messages of a fair or priority topic that are put into its order in one "
        "stretch, between which the worker does other things (rule 7). 8,192: about two "
        "milliseconds. 0 = all at once: a million due at one instant keeps the other topics of the "
        "worker waiting for half a second. Cannot change live.",
    )
    partition_rows_per_s: int = Field(
        default=500_000,
        ge=1,
        description="Messages that one partition is expected to deliver in a second: topics with "
        "`auto_partitions` get more partitions when the forecast has more in one second. 500,000: "
        "a third of what one was measured to lease and ack. Can change live.",
    )
    auto_partitions_max: int = Field(
        default=16,
        ge=1,
        le=1_024,
        description="Partitions that a topic with `auto_partitions` gets by itself at most. 16: "
        "more do not help one machine. Can change live.",
    )
    inbox_bytes_max: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="Bytes of batches that wait in memory to be written, in one partition, "
        "before producers get RESOURCE_EXHAUSTED (rule 14). 256 MiB: a tenth of a second at a "
        "million messages a second leaves it nearly empty. Can change live.",
    )
    consumer_silence_ms_max: int = Field(
        default=15_000,
        ge=1,
        description="A consumer that was not heard of for this long gets nothing new, in "
        "milliseconds. 15 s: three of the client's pings missed. Can change live.",
    )


class ClockSettings(Group):
    """When a clock is trusted (rule 16)."""

    offset_us_max: int = Field(
        default=50_000,
        ge=0,
        description="A client whose clock differs from the broker's by more than this, or is not "
        "known this well, gets messages only when they are due, in microseconds. 50 ms: twice what "
        "a machine without time synchronisation drifts in half an hour. 0 = never lease ahead. "
        "Can change live.",
    )
    step_ms_max: int = Field(
        default=500,
        ge=10,
        le=3_600_000,
        description="The machine's wall clock is followed up to this difference from elapsed time, "
        "in milliseconds; what is further off is a jump. In a cluster, a broker whose clock "
        "differs from the others' by more than this takes no topics. 500 ms: time synchronisation "
        "steps a clock by less, and slews it by no more. Cannot change live.",
    )
    apart_ms_max: int = Field(
        default=2_000,
        ge=10,
        le=3_600_000,
        description="In a cluster, a broker whose clock differs from the others' by more than this "
        "hands its topics over to them, in milliseconds. Two seconds: what is due comes so much "
        "early or late, which is worse than a hand-over. Cannot change live.",
    )
    grace_ms: int = Field(
        default=30_000,
        ge=0,
        le=86_400_000,
        description="A jump of the wall clock is believed once it has lasted for so long, in "
        "milliseconds; until then time goes on as it elapses. 30 s: a clock that was wrong for a "
        "moment changes nothing, one that is put right is followed soon. Cannot change live.",
    )


class ServerSettings(Group):
    """Where the broker listens."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. This machine alone, because a broker has neither "
        "keys nor a certificate at first; `0.0.0.0` = every address. Cannot change live.",
    )
    port: int = Field(
        default=7464,
        ge=0,
        le=65_535,
        description="Port of the Arrow Flight server. 7464 spells PING on a telephone. 0 = any "
        "free port, which is printed. Cannot change live.",
    )
    http_port: int = Field(
        default=7465,
        ge=0,
        le=65_535,
        description="Port of the HTTP server: the API, /docs, /metrics, /livez, /readyz, /stats. "
        "The one after the Flight port. 0 = any free port, which is printed. Cannot change live.",
    )
    processes: str = Field(
        default="",
        pattern=r"^(|auto|[1-9]|[1-9][0-9])$",
        description="So many broker processes divide the shards of a data directory, which is "
        "made for that and stays so: a process is one Python interpreter, so as much as one core. "
        "`auto` = as many as there are cores. Each listens at two ports of its own, too: the "
        "k-th at `port` + 2 k and `http_port` + 2 k; where one of those is 0, at any. Empty = one "
        "process, which has a directory to itself. Cannot change live.",
    )
    http_names: str = Field(
        default="",
        description="Names by which programs may call the HTTP port while there are no API keys, "
        "as `dejaq,queue.example`: a web page can have any name resolved to this machine. Loopback "
        "names, addresses, `server.host` and `cluster.advertise` always may, and any name over "
        "TLS. Cannot change live.",
    )
    http_connections_max: int = Field(
        default=4_096,
        ge=1,
        le=100_000,
        description="HTTP connections at once; those beyond get 503 and are closed. 4,096: some "
        "hundred megabytes if each sends a request, and as many files as Linux lets a service "
        "open. Cannot change live.",
    )
    http_body_bytes_max: int = Field(
        default=limits.BODY_BYTES_MAX,
        ge=1 << 10,
        le=limits.BODY_BYTES_MAX,
        description="Bytes of one body of an HTTP request; larger ones get 413. 192 MiB: the "
        "largest batch, as base64 in JSON. Cannot change live.",
    )
    http_bodies_bytes_max: int = Field(
        default=512 << 20,
        ge=1 << 10,
        description="Bytes of all bodies of HTTP requests that are being received or answered; "
        "what goes beyond gets 503. 512 MiB: a few of the largest. Cannot change live.",
    )
    http_head_ms_max: int = Field(
        default=10_000,
        ge=1,
        description="The headers of an HTTP request have come so long after its first byte, in "
        "milliseconds, or it gets 408; so has a TLS handshake, or it is closed. 10 s: headers are "
        "one packet, and a lost one is sent again within seconds. Cannot change live.",
    )
    http_body_ms_max: int = Field(
        default=30_000,
        ge=1,
        description="The body of an HTTP request may take so long, in milliseconds, and a second "
        "more for each 4 KiB; a client that takes nothing of its answer for so long is closed. "
        "30 s: a connection that stands still for longer is broken. Cannot change live.",
    )
    http_idle_ms_max: int = Field(
        default=75_000,
        ge=1,
        description="An HTTP connection without a request is closed after this, in milliseconds. "
        "75 s: longer than most proxies keep theirs, so that it is they who close. "
        "Cannot change live.",
    )
    memory_bytes_max: int = Field(
        default=-1,
        ge=-1,
        description="Memory of its own that `dejaq serve` may take, in bytes, as the system counts "
        "it (RLIMIT_DATA: what is reserved, 1 MiB for each thread too); at least 512 MiB. A batch "
        "that does not fit, however small it was packed, is refused with RESOURCE_EXHAUSTED. A "
        "quarter of it, 8 GiB at most, is for what Flight unpacks. -1 = 0.8 of the memory of the "
        "control group or machine, because the rest is the cache of the journal's files. 0 = no "
        "bound but the machine's. Cannot change live.",
    )
    tls_certificate: str = Field(
        default="",
        description="PEM file with the server's certificate and those that sign it, for both "
        "ports. Empty = no TLS: everybody on the way can read and change what is sent. "
        "Cannot change live.",
    )
    tls_key: str = Field(
        default="",
        description="PEM file with the private key of `tls_certificate`, not encrypted, readable "
        "for the broker alone. Cannot change live.",
    )
    tls_client_ca: str = Field(
        default="",
        description="PEM file with the certificates that sign clients' certificates. If it is set, "
        "both ports refuse clients without one (mutual TLS). Empty = clients need none. "
        "Cannot change live.",
    )
    observers_read: bool = Field(
        default=False,
        description="Whether the role `observe` sees payloads when it peeks. False: it is for "
        "those who watch a broker; payloads concern those who send and take them. "
        "Cannot change live.",
    )
    tls_check_ms: int = Field(
        default=10_000,
        ge=0,
        description="How often the broker looks whether TLS files hold something new, its own and "
        "those towards other brokers, in milliseconds; streams that are open stay. 10 s: reading a "
        "few small files costs nothing. 0 = only at SIGHUP. Cannot change live.",
    )

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        if 0 < self.memory_bytes_max < 512 << 20:
            raise ValueError("memory_bytes_max must be -1, 0, or at least 512 MiB (536870912)")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither")
        if self.tls_client_ca and not self.tls_certificate:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        if self.port and self.port == self.http_port:
            raise ValueError("port and http_port must differ")
        return self


class HistorySettings(Group):
    """Where the history of topics that keep one goes, and for how long."""

    directory: str = Field(
        default="",
        description="Directory of the files; no other broker may write there. Empty = `history` in "
        "the journal's directory, which is where a disk is known to be. Cannot change live.",
    )
    retention_ms: int = Field(
        default=604_800_000,
        ge=0,
        description="An hour's files are deleted when the hour has been over for this long, in "
        "milliseconds. A week: what went wrong on a Friday is seen on a Monday. 0 = never. "
        "Can change live.",
    )
    roll_bytes: int = Field(
        default=64 << 20,
        ge=1 << 16,
        description="Size at which a file is finished, and can be read, in bytes. 64 MiB: some 20 "
        "million changes, and one task's work for Spark. Can change live.",
    )
    roll_ms: int = Field(
        default=60_000,
        ge=100,
        description="A file is finished this long after the first change in it, in milliseconds, "
        "however small. A minute: 60 files an hour for a partition that is always busy. "
        "Can change live.",
    )
    waiting_rows_max: int = Field(
        default=1_000_000,
        ge=1_000,
        description="Changes that wait in memory to be written, in all partitions together; those "
        "that find no room are not recorded, which is counted and leaves a gap in the history. "
        "A million: about 60 MB. Can change live.",
    )


Level = Literal["debug", "info", "warning", "error"]


class LogSettings(Group):
    """What is written to standard error, and how."""

    level: Level = Field(
        default="info",
        description="What is logged at least. info: start, stop, recovery and what administrators "
        "do; nothing for single messages. Can change live.",
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="text is for people, json for programs: one object a line. auto: text if "
        "standard error is a terminal, else json. Can change live.",
    )
    levels: dict[str, Level] = Field(
        default={},
        description="Levels of single loggers by name, which win over `level`: "
        '`"dejaqueue.audit" = "warning"`. Other libraries log from warning on unless named here. '
        "Can change live.",
    )


class Change(NamedTuple):
    """A setting that differs from what it was."""

    name: str
    before: Any
    after: Any


class ClusterSettings(Group):
    """How brokers that share one journal server know of each other."""

    coordinator: str = Field(
        default="",
        description="Server on which brokers agree who serves which topic: `etcd://host:2379`, "
        "`zookeeper://…`, `nats://…`, `postgresql://…`, `mysql://…`, `redis://…`, or a bucket, "
        "`s3://bucket/prefix`, `gs://…`, `az://…`. `journal` = where the journals are. "
        "Empty = this broker is alone. Cannot change live.",
    )
    node: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._-]{0,200}$",
        description="Name of this broker, unique in the cluster and the same after a restart. "
        "Empty = the name of the machine. Cannot change live.",
    )
    nodes: str = Field(
        default="",
        description="Brokers that keep their journals themselves, `a=host:7470,b=host:7480,…`: a "
        "JetStream server runs beside each of one, or of three and more, on this port and the next "
        "one. Who joins later names itself and those that are there. Empty = no such server. "
        "Cannot change live.",
    )
    reserve_bytes: int = Field(
        default=512 << 20,
        ge=0,
        description="With `nodes`: while less is free on the disk of any of their servers, in "
        "bytes, producers of the whole cluster are refused and consumers go on (rule 14), since a "
        "server that meets the end of its disk switches itself off. 512 MiB: some seconds of fast "
        "producers until all brokers know, the servers' own files, and acks. 0 = nothing is kept "
        "back. Cannot change live.",
    )
    slots: int = Field(
        default=64,
        ge=1,
        le=4_096,
        description="Into how many slots the topics of a cluster are dealt; each slot is served by "
        "one broker at a time. Several for each broker that there will ever be: only the broker "
        "that makes the cluster asks, and it stays so for its life. Cannot change live.",
    )
    secret_file: str = Field(
        default="",
        description="File with the secret of the cluster, the same on all brokers, of at least 16 "
        "characters: passwords of the servers of `nodes` come from it, and API keys are sealed "
        "with it. Empty = with `nodes` that are all on this machine one is made and kept for its "
        "user; without `nodes` API keys are not sealed. Cannot change live.",
    )
    seal_keys: bool = Field(
        default=False,
        description="Take over the API keys as they are stored, whatever their seal, and seal them "
        "with the secret: for one start of one broker, while the others are stopped, after the "
        "secret was changed. Cannot change live.",
    )
    adopt: bool = Field(
        default=False,
        description="Let a coordinator that knows no cluster take over that of the journals, with "
        "its topics: for one start of one broker, after the coordinator was lost or replaced. "
        "Otherwise such a broker does not start. Cannot change live.",
    )
    tls_ca: str = Field(
        default="",
        description="PEM file with the certificates that sign other brokers', where those listen "
        "with TLS; with `nodes` it also has their servers speak TLS with one another. Empty = the "
        "system's. Cannot change live.",
    )
    tls_certificate: str = Field(
        default="",
        description="PEM file with the certificate that this broker shows other brokers, for "
        "clients and servers both. Empty = `server.tls_certificate`. Cannot change live.",
    )
    tls_key: str = Field(
        default="",
        description="PEM file with the private key of `cluster.tls_certificate`, not encrypted. "
        "Empty = `server.tls_key`. Cannot change live.",
    )
    advertise: str = Field(
        default="",
        description="Host name or address at which clients and other brokers reach this broker. "
        "Empty = `server.host`, which does not do where that is 0.0.0.0. Cannot change live.",
    )
    lease_ms: int = Field(
        default=5_000,
        ge=1_000,
        le=120_000,
        description="A broker that was not heard of for this long has lost its topics to others, "
        "in milliseconds. Five seconds: shorter is a quicker failover when a machine dies, longer "
        "rides out pauses of one; a broker whose process ends is known to be gone at once. It "
        "stops serving at four fifths of it. Cannot change live.",
    )

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither")
        return self


class BrokerSettings(BaseSettings):
    """All settings of a broker.

    >>> BrokerSettings(journal=JournalSettings(url="memory:")).server.port
    7464
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=True)

    journal: JournalSettings = Field(default_factory=JournalSettings)
    dispatch: DispatchSettings = Field(default_factory=DispatchSettings)
    clock: ClockSettings = Field(default_factory=ClockSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    quotas: QuotaSettings = Field(default_factory=QuotaSettings)
    history: HistorySettings = Field(default_factory=HistorySettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    encryption: EncryptionSettings = Field(default_factory=EncryptionSettings)
    backup: BackupSettings = Field(default_factory=BackupSettings)
    standby: StandbySettings = Field(default_factory=StandbySettings)
    payloads: PayloadSettings = Field(default_factory=PayloadSettings)
    sqs: SqsSettings = Field(default_factory=SqsSettings)
    doq: DoqSettings = Field(default_factory=DoqSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Code alone; configuration.py reads the rest."""
        return (init_settings,)

    def adopt(self, other: BrokerSettings) -> tuple[list[Change], list[Change]]:
        """Take over what can change live from `other`. The one way that built settings change.

        Whoever holds these settings, or a group of them, sees the new values at once.

        Returns:
            What has changed, and what differs but needs a new start.
        """
        changed: list[Change] = []
        refused: list[Change] = []
        for group, name, field in known_settings():
            mine = getattr(self, group)
            before, after = getattr(mine, name), getattr(getattr(other, group), name)
            if before == after:
                continue
            change = Change(f"{group}.{name}", before, after)
            if changes_live(field):
                mine.__dict__[name] = after  # frozen for everybody else
                changed.append(change)
            else:
                refused.append(change)
        return changed, refused


def changes_live(field: FieldInfo) -> bool:
    """True if a running broker takes a new value of this setting."""
    return (field.description or "").endswith(LIVE_WORDS)


def known_settings() -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield (group, field, description and bounds) of every setting, in the order of this file."""
    for group, outer in BrokerSettings.model_fields.items():
        kind = outer.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Group)
        for name, field in kind.model_fields.items():
            yield group, name, field
