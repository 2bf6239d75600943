"""What `dejaq doctor` looks at on this machine: clock, open files, memory, installed packages.

Room: cli.
See: cli/memory.py, what `dejaq serve` makes of the memory; clock.py.
"""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dejaqueue.cli.memory import BYTES_MIN, memory_bytes
from dejaqueue.findings import Finding, fine, hurts, look
from dejaqueue.version import __version__

if TYPE_CHECKING:
    from dejaqueue.settings import BrokerSettings

FILES_BESIDE = 1_000
"""Open files that a broker may have beside HTTP connections: logs, streams, libraries."""
_COMFORT_BYTES = 1 << 30
"""A broker takes 160 MB before the first message, and its journal's files want a cache."""
_MIB = 1 << 20
_MODULES = {
    "nats": ("nats", "nats"),
    "etcd": ("httpx", "etcd"),
    "zookeeper": ("kazoo", "zookeeper"),
    "redis": ("redis", "redis"),
    "rediss": ("redis", "redis"),
    "valkey": ("redis", "redis"),
    "postgresql": ("psycopg", "postgresql"),
    "cockroachdb": ("psycopg", "postgresql"),
    "mysql": ("pymysql", "mysql"),
    "mariadb": ("pymysql", "mysql"),
    "cassandra": ("cassandra", "cassandra"),
}
"""By the scheme of a URL: the module that it takes, and the extra that brings it."""


def check_clock(is_kept: bool | None) -> Finding:
    """Whether time synchronisation keeps this machine's clock.

    Args:
        is_kept: as `clock.is_kept` says it.
    """
    if is_kept is None:
        text = "the kernel does not say whether anything keeps the clock: ask on the host"
        return look("clock", text, "timedatectl show -p NTPSynchronized")
    if is_kept:
        return fine("clock", "kept by time synchronisation, says the kernel")
    text = "no time synchronisation keeps the clock: due times are as wrong as it is"
    return hurts("clock", text, "apt-get install chrony, or timedatectl set-ntp true")


def check_files(settings: BrokerSettings, most: int | None = None) -> Finding:
    """Whether as many files can be open as the settings want connections.

    Args:
        most: open files at most; None = the hard limit of this process, which `dejaq serve` takes.
    """
    if most is None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY:
        return fine("open files", "no limit")
    needed = settings.server.http_connections_max + FILES_BESIDE
    if most >= needed:
        return fine("open files", f"{most} at most, {needed} may be needed")
    text = f"{most} at most, and {needed} may be needed: connections will be refused"
    return hurts("open files", text, f"LimitNOFILE={needed} in the unit, or ulimit -Hn {needed}")


def check_memory(settings: BrokerSettings, there_is: int | None = None) -> Finding:
    """Whether the memory is enough for a broker, and for what the settings let it take.

    Args:
        there_is: bytes; None = the machine's, or its control group's.
    """
    there_is = memory_bytes() if there_is is None else there_is
    shown, asked = f"{there_is // _MIB} MiB", settings.server.memory_bytes_max
    if there_is < BYTES_MIN:
        return hurts("memory", f"{shown}: no broker starts", f"at least {BYTES_MIN // _MIB} MiB")
    if asked > there_is:
        text = f"{shown}, and the broker may take {asked // _MIB} MiB: the system will kill it"
        return hurts("memory", text, "server.memory_bytes_max=-1")
    if there_is < _COMFORT_BYTES:
        text = f"{shown}: little beside the process itself for the cache of the journal's files"
        return look("memory", text, f"at least {_COMFORT_BYTES // _MIB} MiB")
    return fine("memory", shown)


def check_packages(settings: BrokerSettings) -> Iterator[Finding]:
    """What runs here, and which optional packages the settings need and are missing."""
    import pyarrow as pa

    yield fine(
        "versions",
        f"dejaq {__version__}, Python {platform.python_version()}, pyarrow {pa.__version__}, "
        f"{platform.system()} {platform.release()}",
    )
    missing = dict[str, str]()
    if find_spec("uvicorn") is None or find_spec("fastapi") is None:
        missing["http"] = "only health is served over HTTP"
    urls = (settings.journal.url, settings.cluster.coordinator)
    needed = {url.partition("://")[0].partition("+")[0] for url in urls if "://" in url}
    if settings.cluster.nodes:
        needed.add("nats")
    for scheme in sorted(needed & _MODULES.keys()):
        module, extra = _MODULES[scheme]
        if find_spec(module) is None:
            missing[extra] = f"a {scheme} URL cannot be opened"
    if settings.oidc.issuer and find_spec("jwt") is None:
        missing["oidc"] = "no token can be checked"
    for extra, effect in missing.items():
        tell = look if extra == "http" else hurts
        yield tell("packages", effect, f'pip install "dejaqueue[{extra}]"')
