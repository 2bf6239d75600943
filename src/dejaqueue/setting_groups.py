"""What a group of settings is; and those that say who may do how much: quotas, tokens.

Room: vocabulary. Of what settings.py is made; the same holds here.
See: access/quotas.py and access/oidc.py, which go by them.
"""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dejaqueue import limits

OIDC_ALGORITHMS = frozenset(
    f"{kind}{size}" for kind in ("RS", "PS", "ES") for size in (256, 384, 512)
) | {"EdDSA"}
"""Ways of signing that a token can be believed by."""


class Group(BaseModel):
    """Settings of one meaning. Unknown fields are refused, built values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_as_number(cls, value: object, field: ValidationInfo) -> object:
        """`true` is no number, though Python takes it for one."""
        if isinstance(value, bool) and cls.model_fields[field.field_name or ""].annotation is int:
            raise ValueError("true and false are no numbers")
        return value


class QuotaSettings(Group):
    """How much of the broker one principal may have: an API key, or an address without one."""

    percent: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Share of the whole that each principal may have, in percent, where nothing "
        "else is said below. 10: nine others still find room beside one that takes all it gets. "
        "Programs on the broker's own machine that need no key may have all of it. "
        "Can change live.",
    )
    percents: dict[str, int] = Field(
        default={},
        description="Shares of single principals by the name of their key, or by address, which "
        'win over all others: `"campaign" = 50`. 100 = all of it. Can change live.',
    )
    streams_max: int = Field(
        default=0,
        ge=0,
        le=limits.FLIGHT_STREAMS_MAX,
        description="Streams over Flight that one principal has open. 0 = its share of "
        "4,096: 409. Can change live.",
    )
    openings_per_s: int = Field(
        default=0,
        ge=0,
        description="Streams that one principal opens in a second, and as many at once; those "
        "beyond wait up to five seconds, then they are refused. 0 = its share of what a broker "
        "does when it does nothing else, 1,000: 100. Can change live.",
    )
    connections_max: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="HTTP connections from one address; a proxy in front of the broker needs more, "
        "or a share in `percents`. 0 = its share of `server.http_connections_max`: 409. "
        "Can change live.",
    )
    transactions_max: int = Field(
        default=0,
        ge=0,
        le=limits.TRANSACTIONS_OPEN_MAX,
        description="Undecided transactions of one principal in one partition. 0 = its share of "
        "10,000, what a partition takes: 1,000. Can change live.",
    )
    bytes_in_flight_max: int = Field(
        default=0,
        ge=0,
        description="Bytes of one principal's batches over Flight that are not answered yet, and "
        "of bodies over HTTP from one address. What goes beyond waits up to five seconds, over "
        "HTTP not at all, then it is refused; a larger batch is let in alone. 0 = its share of "
        "`dispatch.inbox_bytes_max` for each worker: 51 MiB. Can change live.",
    )
    rows_per_s: int = Field(
        default=0,
        ge=0,
        description="Messages that one principal sends in a second; it may be ahead by one "
        "second's worth. 0 = its share of `dispatch.partition_rows_per_s` for each worker: "
        "100,000. "
        "Can change live.",
    )
    bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Bytes that one principal sends in a second; it may be ahead by one second's "
        "worth. What goes beyond waits up to five seconds, over HTTP not at all, then it is "
        "refused. 0 = its share of 256 MiB: 26 MB. Can change live.",
    )

    @model_validator(mode="after")
    def _check_percents(self) -> Self:
        for name, percent in self.percents.items():
            if not 1 <= percent <= 100:
                raise ValueError(f"percents: from 1 to 100 percent, got: {name} = {percent}")
        return self


class BackupSettings(Group):
    """Backups that the broker takes by itself; of a cluster one of its brokers at a time."""

    url: str = Field(
        default="",
        description="Where backups are stored by themselves: a directory of this machine, or an "
        "object store (`s3://bucket/prefix`); of a cluster one place for all brokers. Empty: none "
        "are taken but those that are asked for. "
        "Cannot change live.",
    )
    interval_ms: int = Field(
        default=60_000,
        ge=1_000,
        description="How long from the begin of one backup to that of the next. What is done in "
        "between is lost if the broker's disk is. A minute: each backup lists all partitions "
        "again, some 500 bytes for each, and 100 for each piece of it: one for each MiB that is "
        "live, and up to 64 smaller ones. Can change live.",
    )
    archive_interval_ms: int = Field(
        default=0,
        ge=0,
        le=60_000,
        description="How often what is new in the journals is stored besides, between two backups, "
        "in one object for all topics; none while nothing is done. 100: at most a fifth of a "
        "second is lost with the broker's disk, if the store answers within 100 ms; a third, of "
        "several processes or brokers. 0 = not at all. For journals in a directory or on "
        "a server; of a cluster, in the settings of all brokers. Cannot change live.",
    )
    backups_max: int = Field(
        default=0,
        ge=0,
        description="How many backups of this broker are kept. 0 = any number. Can change live.",
    )
    keep_ms: int = Field(
        default=7 * 86_400_000,
        ge=0,
        description="Backups that are older than this are deleted, but for the newest one. A "
        "week: somebody has noticed by then. 0 = however old. Can change live.",
    )
    payloads: bool = Field(
        default=False,
        description="Each backup, also one by command, copies what its messages have in the "
        "payload store (`payloads.url`), once for all backups that need it, so that a restore has "
        "it whatever became of that store. Can change live.",
    )
    verify_interval_ms: int = Field(
        default=86_400_000,
        ge=0,
        description="How often the newest backup is read back and compared with what was stored; "
        "the log names what is damaged. A day: it reads all of it. 0 = never. "
        "Can change live.",
    )


class StandbySettings(Group):
    """Whose standby a broker is."""

    url: str = Field(
        default="",
        description="Follow the archive at this place, as a standby: fill an empty data directory "
        "with the newest backup there, then apply what is archived behind it "
        "(`backup.archive_interval_ms` of the other broker, or of all brokers of a cluster), until "
        "`dejaq promote`. From then on it has no effect. Empty: this broker is no standby. Cannot "
        "change live.",
    )
    poll_ms: int = Field(
        default=100,
        ge=10,
        le=60_000,
        description="How often a standby asks whether something new was archived. Each time is a "
        "request to the object store, for each process or broker that archives: 100 ms are 26 "
        "million a month. Can change live.",
    )


class PayloadSettings(Group):
    """Where large payloads are kept, apart from their messages."""

    url: str = Field(
        default="",
        description="Where large payloads are kept: a directory of this machine, or an object "
        "store (`s3://bucket/prefix`). Empty: with their messages. Whoever had one keeps it while "
        "messages refer to it: without it those wait. Cannot change live.",
    )
    inline_bytes_max: int = Field(
        default=256 << 10,
        ge=1 << 10,
        le=limits.PAYLOAD_BYTES_MAX,
        description="Payloads of more bytes go to `url`. 256 KiB: a journal writes that in less "
        "time than an object store takes to answer, and copies little of it when it makes room. "
        "Can change live.",
    )
    keep_ms: int = Field(
        default=0,
        ge=0,
        description="Payloads stay so long after their message is done, in milliseconds, so that "
        "a backup that has the message finds them: as long as backups are kept (`backup.keep_ms`). "
        "0 = a minute: nobody restores backups of these topics. Can change live.",
    )
    direct: bool = Field(
        default=True,
        description="Streamed payloads may go between clients and an object store directly, by "
        "URLs that the broker signs for one part and an hour each. True: those that reach the "
        "store spare the broker the bytes, others go through it as ever. Set False where clients "
        "are not to see the store or its address. Can change live.",
    )


class EncryptionSettings(Group):
    """Whether what is stored is encrypted, and with whose key."""

    master_key: str = Field(
        default="",
        description="Where the key is that wraps all others: `file:PATH`, readable for the "
        "broker's user alone; `env:NAME`, a variable of the environment; "
        "`vault:MOUNT/KEY`, of Vault's transit engine (extra `vault`); `aws-kms:KEY` (extra "
        "`kms`); or `plugin:MODULE:FUNCTION`, another key service. Several with commas: the first "
        "wraps. From then on what is written is encrypted. Needs the extra `encryption`. Empty = "
        "nothing is encrypted, and what was cannot be read. Cannot change live.",
    )
    clear_bytes_max: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="Memory for payloads that are stored encrypted and were decrypted, in bytes, "
        "about; what was read longest ago is decrypted again when it is needed. 256 MiB: what a "
        "broker at full rate writes and delivers within seconds. Cannot change live.",
    )


class DoqSettings(Group):
    """The gRPC API of DOQ, beside its HTTP API."""

    enabled: bool = Field(
        default=False,
        description="Serve the gRPC API of DOQ, at a port of its own: its clients move by their "
        "address. Needs the extra `doq`. Cannot change live.",
    )
    port: int = Field(
        default=7466,
        ge=0,
        le=65_535,
        description="Port of that API, at the address and with the certificate of the server. The "
        "one after the HTTP port. 0 = any free port, which is printed. Cannot change live.",
    )


class SqsSettings(Group):
    """The API of Amazon SQS, beside ours."""

    enabled: bool = Field(
        default=False,
        description="Serve the API of Amazon SQS under `/sqs` of the HTTP port: its clients move "
        "by their endpoint. API keys that are made meanwhile can sign its requests: for that the "
        "broker keeps what verifies signatures, with which requests to this API can be signed, "
        "too. Cannot change live.",
    )


class OidcSettings(Group):
    """Bearer tokens of an OpenID Connect issuer, beside API keys."""

    issuer: str = Field(
        default="",
        description="The issuer whose tokens are believed, as their claim `iss` has it: "
        "`https://…`. From then on every call needs an API key or a token, also while there are no "
        "keys. Needs the extra `oidc`. Empty = none. Cannot change live.",
    )
    audience: str = Field(
        default="",
        description="What the claim `aud` of a token has to name: this broker, as the issuer knows "
        "it. Cannot change live.",
    )
    keys: str = Field(
        default="",
        description="Where the issuer's public keys are (a JSON Web Key Set): a URL, or a file. "
        "Empty = where the issuer's `/.well-known/openid-configuration` says. "
        "Cannot change live.",
    )
    ca: str = Field(
        default="",
        description="PEM file with the certificates that sign the issuer's. Empty = the system's. "
        "Cannot change live.",
    )
    roles_claim: str = Field(
        default="roles",
        description="Claim with the caller's roles: a list, or a text with spaces between; dots "
        "lead inwards, as in `realm_access.roles`. What a role may do is said by the key "
        "`oidc:ROLE`. Cannot change live.",
    )
    name_claim: str = Field(
        default="sub",
        description="Claim with the caller's name, for logs and the audit log. Cannot change live.",
    )
    algorithms: str = Field(
        default="RS256,PS256,ES256,ES384,EdDSA",
        description="Algorithms that a token may be signed with; none that shares a secret, "
        "with which whoever checks could sign. Cannot change live.",
    )
    leeway_ms: int = Field(
        default=30_000,
        ge=0,
        le=300_000,
        description="So much may the issuer's clock differ, in milliseconds; a token counts for so "
        "much longer. Cannot change live.",
    )

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        if self.issuer and not self.audience:
            raise ValueError("issuer needs audience: tokens for others would count here")
        names = set(self.algorithms.split(","))
        if not names or not names <= OIDC_ALGORITHMS:
            raise ValueError(f"algorithms: of {', '.join(sorted(OIDC_ALGORITHMS))}")
        return self


_TRACE_URL = re.compile(r"https?://[^\s\"'<>\\/?#{}@]+([/?#][^\s\"'<>\\]*)?")
"""No script, nothing that a link does not carry, and no host that a header of a message makes."""


class ConsoleSettings(Group):
    """The pages for people, at /console of the HTTP port."""

    enabled: bool = Field(
        default=True,
        description="Whether the HTTP port has the console. true: it asks for the same API keys as "
        "the API and does nothing while nobody looks; without keys it answers this machine alone. "
        "Cannot change live.",
    )
    trace_url: str = Field(
        default="",
        description="Where traces are looked at, to which the page of a message that has a "
        "`traceparent` leads: a URL with {trace_id} in it, "
        "`https://tracing.example/trace/{trace_id}`. Empty: no link. Cannot change live.",
    )

    @field_validator("trace_url")
    @classmethod
    def _check_trace_url(cls, value: str) -> str:
        if value and (not _TRACE_URL.fullmatch(value) or "{trace_id}" not in value):
            raise ValueError("an http:// or https:// URL with {trace_id} in it")
        return value
