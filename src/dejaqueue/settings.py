"""Settings: what an operator may change, grouped by meaning, each with its unit and its reason.

Room: vocabulary. Reads a file and the environment only in `load`; building `BrokerSettings` in code
reads nothing, so that a library never changes with the shell it was started from.
Holds: later wins: code < TOML file < environment < command line; a key nobody knows is refused with
the nearest one that is known; relations between settings are checked when they are built.
See: docs/reference/settings.md, generated from this file; what nobody may change is `limits.py`.

In a file:          [journal]
                    segment_bytes = 67_108_864
In the environment: DEJAQ_JOURNAL__SEGMENT_BYTES=67108864
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from dejaqueue import limits
from dejaqueue.errors import BadRequest

ENVIRONMENT_PREFIX = "DEJAQ_"
GROUP_DELIMITER = "__"
"""Between group and field in the environment. Names without it are no settings and are left alone:
DEJAQ_URL is the client's, and Kubernetes sets DEJAQ_PORT and the like for a service of that name.
"""


class Group(BaseModel):
    """Settings of one meaning. Unknown fields are refused, built values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class JournalSettings(Group):
    """Where messages are kept, and how."""

    url: str = Field(
        default="dejaq-data",
        min_length=1,
        description="Where messages are kept: a directory, or `memory:` to keep nothing when the "
        "broker ends. The default is a directory under the current one, because a broker that "
        "forgets must be asked for. Cannot change live.",
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
        "of single messages. 0 = nothing is kept back. Can change live.",
    )
    snapshot_entries: int = Field(
        default=20_000,
        ge=0,
        description="A partition takes a snapshot after this many journal entries, so that a start "
        "has few to read again. 20,000: about a second of replay. 0 = not by count. "
        "Can change live.",
    )
    snapshot_interval_ms: int = Field(
        default=300_000,
        ge=0,
        description="A partition that changed takes a snapshot this long after the last one, in "
        "milliseconds. Five minutes: a quiet partition's segments are given back, at next to no "
        "cost. 0 = not by time. Can change live.",
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
        description="Bytes of batches that wait in memory to be written, in the whole broker, "
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
        description="Port of the HTTP server: /livez, /readyz, /stats. The one after the Flight "
        "port. 0 = any free port, which is printed. Cannot change live.",
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
        "milliseconds, or it gets 408. 10 s: headers are one packet, and a lost one is sent again "
        "within seconds. Cannot change live.",
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

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key belong together: set both, or neither")
        if self.tls_client_ca and not self.tls_certificate:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        if self.port and self.port == self.http_port:
            raise ValueError("port and http_port must differ")
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Code alone; `load` reads the rest."""
        return (init_settings,)


def known_settings() -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield (group, field, description and bounds) of every setting, in the order of this file."""
    for group, outer in BrokerSettings.model_fields.items():
        kind = outer.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Group)
        for name, field in kind.model_fields.items():
            yield group, name, field


def load(
    file: Path | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> BrokerSettings:
    """The settings of a broker that is started: file, then environment, then `overrides`.

    Args:
        file: a TOML file; None = no file.
        overrides: what the command line says, by group and field; a value of None is left out.

    Raises:
        BadRequest: the file cannot be read, a key is not known, or a value is out of bounds; names
            the setting, the limit and the value.
    """
    chosen: dict[str, Any] = {
        group: {name: value for name, value in fields.items() if value is not None}
        for group, fields in (overrides or {}).items()
    }
    _check_names(_names_of(_read_file(file)), "the settings file")
    _check_names(_names_in_environment(), "the environment")
    try:
        loaded = _reader(file)(**chosen)
    except ValidationError as error:
        raise _to_bad_request(error) from error
    return BrokerSettings(
        journal=loaded.journal,
        dispatch=loaded.dispatch,
        clock=loaded.clock,
        server=loaded.server,
    )


def _reader(file: Path | None) -> type[BrokerSettings]:
    """A `BrokerSettings` that also reads this file and the environment."""

    class LoadedSettings(BrokerSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            *_: PydanticBaseSettingsSource,
            **__: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            environment = EnvSettingsSource(
                settings_cls,
                env_prefix=ENVIRONMENT_PREFIX,
                env_nested_delimiter=GROUP_DELIMITER,
            )
            if file is None:
                return (init_settings, environment)
            return (init_settings, environment, TomlConfigSettingsSource(settings_cls, file))

    return LoadedSettings


def _read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest("settings file", "a file that can be read", str(file)) from error
    except ValueError as error:
        raise BadRequest("settings file", f"TOML ({error})", str(file)) from error


def _names_of(values: dict[str, Any]) -> list[str]:
    """`group.field` of every value; a value outside of any group gives its bare name."""
    names = []
    for group, fields in values.items():
        if isinstance(fields, dict):
            names += [f"{group}.{name}" for name in fields] or [group]
        else:
            names.append(group)
    return names


def _names_in_environment() -> list[str]:
    return [
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace(GROUP_DELIMITER, ".", 1)
        for name in sorted(os.environ)
        if name.startswith(ENVIRONMENT_PREFIX) and GROUP_DELIMITER in name
    ]


def _check_names(names: list[str], source: str) -> None:
    """Raise BadRequest for a name that is no setting, with the nearest that is one."""
    known = [f"{group}.{name}" for group, name, _ in known_settings()]
    groups = list(BrokerSettings.model_fields)
    for name in names:
        if name in known or name in groups:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise BadRequest(source, f"known settings; the nearest is {near[0]}", name)


def _to_bad_request(error: ValidationError) -> BadRequest:
    """The first complaint, in our words."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "settings"
    text = first["msg"].removeprefix("Value error, ")
    return BadRequest(field, text[:1].lower() + text[1:], first["input"])
