"""Findings: what of a broker's machine and settings will hurt one day, each with what mends it.

Room: broker. Looks at files and settings, changes nothing.
Holds: what is as it should be is no finding of a running broker; a file that cannot be looked at is
a finding, not an end.
See: dejaqueue/findings.py; cli/doctor, which asks the same before a broker starts; health.py for
what hurts already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dejaqueue.access.certificates import check_end, check_key_file
from dejaqueue.broker.broker import Broker
from dejaqueue.findings import Finding, Level, fine, hurts, look
from dejaqueue.journal.interface import store_path
from dejaqueue.settings import BrokerSettings

BACKUP_AGE_MS = 7 * 86_400_000
"""Where none are taken by themselves: one that is older is as good as none."""
_MIB = 1 << 20


def findings_of(broker: Broker) -> list[Finding]:
    """What will hurt, the worst first. Cost: some small files are read."""
    settings, now_ms = broker.settings, broker.clock.utc_ms()
    found = [*check_papers(settings, now_ms), *check_stored(settings)]
    path = directory_of(settings)
    if path is not None:
        try:
            found.append(check_room(path, path, settings.journal.reserve_bytes))
        except OSError as error:
            found.append(hurts("room", str(error), f"df -h {path}"))
    trouble = broker.backups.trouble()
    if trouble:
        found.append(
            hurts("backups", trouble, f"dejaq backup to {settings.backup.url or 'DIRECTORY'}")
        )
    elif broker.alone is not None:  # a broker of a cluster takes none yet
        found += check_backups(settings, broker.backups.counts.last_ms, now_ms)
    wrong = [one for one in found if one.level is not Level.FINE]
    return sorted(wrong, key=lambda one: one.level is not Level.HURTS)


def check_papers(settings: BrokerSettings, now_ms: int) -> Iterator[Finding]:
    """Certificates that end, and keys that others may read."""
    server, cluster = settings.server, settings.cluster
    try:
        for path in dict.fromkeys((server.tls_certificate, cluster.tls_certificate)):
            if path:
                yield check_end(path, now_ms)
        for path in dict.fromkeys((server.tls_key, cluster.tls_key)):
            if path:
                yield from check_key_file(path)
    except (OSError, ValueError) as error:
        text = f"a file of the certificates cannot be read: {error}"
        yield hurts("certificates", text, "dejaq doctor")


def check_stored(settings: BrokerSettings) -> Iterator[Finding]:
    """Whether what is protected on the way is protected where it is kept."""
    has_tls = bool(settings.server.tls_certificate)
    if has_tls and not settings.encryption.master_key and directory_of(settings) is not None:
        text = "messages are encrypted on the way (TLS), but not where they are stored"
        yield look("encryption", text, "DEJAQ_ENCRYPTION__MASTER_KEY=file:/etc/dejaq/master.key")


def check_backups(settings: BrokerSettings, last_ms: int, now_ms: int) -> Iterator[Finding]:
    """Whether there are backups to come back to.

    Args:
        last_ms: as of when the last one is that the broker knows of; 0 = of none.
    """
    if settings.backup.url or directory_of(settings) is None:
        return
    mend = "DEJAQ_BACKUP__URL=/var/backups/dejaq"
    if not last_ms:
        text = "no backups are taken by themselves: what is stored is lost with its disk"
        yield look("backups", text, mend)
    elif now_ms - last_ms > BACKUP_AGE_MS:
        text = f"the last backup is {(now_ms - last_ms) // 86_400_000} days old, and none are taken"
        yield look("backups", f"{text} by themselves", mend)


def check_room(path: Path, there: Path, reserve_bytes: int) -> Finding:
    """Whether there is room beside the reserve."""
    facts = os.statvfs(there)
    free = facts.f_bavail * facts.f_frsize
    shown = f"{free // _MIB} MiB free at {path}"
    if free <= reserve_bytes:
        text = f"{shown}, and {reserve_bytes // _MIB} are kept back: producers are refused"
        return hurts("room", text, f"df -h {there}")
    if free < 4 * reserve_bytes or facts.f_favail == 0:
        return look("room", f"{shown}: little for a backlog", f"df -h {there}")
    return fine("room", shown)


def directory_of(settings: BrokerSettings) -> Path | None:
    """Where messages are kept on this machine; None = in memory, or on servers."""
    url = settings.journal.url
    if "://" in url.removeprefix("segment://"):
        return None
    path = store_path(url)
    return None if path is None else path.absolute()
