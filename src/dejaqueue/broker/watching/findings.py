"""Findings: what of a broker's machine and settings will hurt one day, each with what mends it.

Room: broker. Looks at files and settings, changes nothing.
Holds: what is as it should be is no finding of a running broker; a file that cannot be looked at is
a finding, not an end.
See: dejaqueue/findings.py; cli/doctor, which asks the same before a broker starts; health.py for
what hurts already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dejaqueue.access import certificates
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard.allotment import has_limit
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.findings import Finding, Level, fine, hurts, look
from dejaqueue.journal.interface import store_path
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.topic_names import subscription_name

BACKUP_AGE_MS = 7 * 86_400_000
"""Where none are taken by themselves: one that is older is as good as none."""
NEARLY_FULL = 0.8
"""The part of a topic's limit from which on a subscription is told of."""
_MIB = 1 << 20


def findings_of(broker: Broker) -> list[Finding]:
    """What will hurt, the worst first. Cost: some small files are read."""
    settings, now_ms = broker.settings, broker.clock.utc_ms()
    found = [*check_papers(settings, now_ms), *check_stored(settings), *check_payloads(settings)]
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
    for served in broker.runtimes():
        if has_limit(served.topic):
            found += check_subscriptions(served.topic, served.subscription_backlogs())
    wrong = [one for one in found if one.level is not Level.FINE]
    return sorted(wrong, key=lambda one: one.level is not Level.HURTS)


def check_papers(settings: BrokerSettings, now_ms: int) -> Iterator[Finding]:
    """Certificates that end, and keys that others may read."""
    try:
        yield from certificates.check_papers(settings, now_ms)
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


def check_payloads(settings: BrokerSettings) -> Iterator[Finding]:
    """Whether a message that is restored from a backup finds its payload."""
    payloads, backup = settings.payloads, settings.backup
    if not payloads.url or not backup.url or backup.payloads:
        return
    if not backup.keep_ms or payloads.keep_ms < backup.keep_ms:
        text = "backups are kept for longer than payloads of messages that are done (keep_ms): what"
        mend = f"DEJAQ_PAYLOADS__KEEP_MS={backup.keep_ms or 'MILLISECONDS'}"
        yield look("payloads", f"{text} is restored from an old one may lack its payload", mend)


def check_subscriptions(topic: Topic, backlogs: Mapping[str, Backlog]) -> Iterator[Finding]:
    """Subscriptions that have most of what their topic may hold: whether or not somebody consumes
    them, producers are refused when it is all."""
    for name, held in backlogs.items():
        for limit, count, what in (
            (topic.max_backlog_count, held.count, "messages"),
            (topic.max_backlog_bytes, held.byte_count, "bytes"),
        ):
            if not limit or count < limit * NEARLY_FULL:
                continue
            called = subscription_name(topic.name, name)
            text = f"{called} has {count} of the {limit} {what} that {topic.name} may hold"
            mend = f"dejaq consume {topic.name} --subscription {name}"
            if count < limit:
                yield look("subscriptions", f"{text}: its producers will be refused", mend)
            else:
                yield hurts("subscriptions", f"{text}: its producers are refused", mend)


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
