"""`dejaq restore`: a backup into journals that no broker has open, or a cluster without topics.

Room: cli. Opens the store itself: its broker is stopped, or was never started; of a cluster they
may run.
See: backup.py beside; docs/guides/backup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dejaqueue.cli.archive_options import chosen_settings, payload_store_of, settings_options
from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_json
from dejaqueue.cli.times import Instant, show_instant

if TYPE_CHECKING:
    from dejaqueue.backup.archive import Archive
    from dejaqueue.journal.interface import JournalStore
    from dejaqueue.settings import BrokerSettings


@click.command(
    epilog="Examples: `dejaq restore /var/backups/dejaq --data /var/lib/dejaq` · "
    "`dejaq restore s3://bucket/dejaq --data new --topic orders --as orders-before`"
)
@click.argument("where", metavar="URL")
@click.option(
    "--data",
    "--journal",
    "target",
    required=True,
    metavar="DIR|URL",
    help="Where to: the data directory of a broker that is stopped, a new one, or a server's URL; "
    "of brokers with JetStream beside them the directory of one, with its settings.",
)
@click.option("--backup", "name", metavar="BACKUP", help="Which one.  [default: the newest]")
@click.option(
    "--to",
    "until_ms",
    type=Instant(),
    help="As of this instant, between two backups or behind the last one, as `dejaq backup list` "
    "says: 2026-11-22T14:03:07.250Z, to the millisecond.",
)
@click.option("--topic", "topics", multiple=True, help="This topic alone; may be repeated.")
@click.option("--as", "new_name", default="", metavar="NAME", help="Call the one topic so.")
@click.option(
    "--skip-damaged", is_flag=True, help="Restore the topics that are whole, and name the others."
)
@settings_options
@json_option("Print JSON.")
def restore(
    where: str,
    *,
    target: str,
    name: str | None,
    until_ms: int | None,
    topics: tuple[str, ...],
    new_name: str,
    skip_damaged: bool,
    assignments: tuple[str, ...],
    file: Path | None,
    as_json: bool,
) -> None:
    """Restore a backup at URL, all of it or some topics.

    Messages are as they were: what was acked stays acked, due times stay, what was leased comes at
    once. A restore that was broken off goes on when it is run again; until then no broker starts
    there. Of a cluster, which has no topics yet, brokers may be running; several processes, which
    have none yet either (server.processes), may not.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.backup.instants import chosen
    from dejaqueue.broker.backup.restoring import Restore, RestorePlan, keys_of
    from dejaqueue.cli.divided_directory import divided_of
    from dejaqueue.cli.restored_place import RestoredPlace
    from dejaqueue.errors import BadRequest
    from dejaqueue.journal.encryption.master_keys import load_master_keys
    from dejaqueue.journal.registry import encrypt

    settings = chosen_settings(assignments, file, target)
    plan = RestorePlan(topics, new_name, until_ms, skip_damaged)
    plan.check()
    if name is not None and until_ms is not None:
        raise BadRequest("to", "not together with --backup", show_instant(until_ms))
    archive = Archive.open(where)
    manifest, follows = chosen(archive, name or "", until_ms)
    plan = replace(plan, follows=follows)
    source = settings.encryption.master_key
    masters = load_master_keys(source) if source else ()
    # Before the journals are opened: what is written there first is a data key, by a master key
    # that may be the wrong one.
    keys_of(manifest, masters)
    say = (lambda _: None) if as_json else (lambda line: click.echo(line, err=True))
    divided = divided_of(settings)
    store = _opened(settings) if divided is None else divided.store
    try:
        if divided is None:
            encrypt(store, settings.encryption)
        _put_back(archive, manifest.id, settings, say)
        place = RestoredPlace(store, divided)
        found = Restore(archive, manifest, store, masters, say, place).run(plan)
    finally:
        (divided or store).close()
    if as_json:
        print_json(found.to_dict())
        return
    for text in found.damaged:
        click.echo(f"left out: {text}")
    click.echo(
        f"backup {found.backup}: {len(found.topics)} topics with {found.messages:,} messages in "
        f"{found.partitions} partitions are restored, as of {show_instant(found.cut_ms)}; "
        f"{found.voided:,} of them were leased"
    )


def _put_back(
    archive: Archive, backup: str, settings: BrokerSettings, say: Callable[[str], None]
) -> None:
    """Have the payload store of the settings have what was copied beside the backup; before the
    messages, which refer to it."""
    from dejaqueue.backup.payload_copies import PayloadCopies
    from dejaqueue.broker.backup.backed_payloads import put_back

    if PayloadCopies(archive.bucket).needed(backup) is None:
        return
    if not settings.payloads.url:
        say("there are copies of large payloads: to have them put back, give payloads.url")
        return
    counts = put_back(archive, backup, payload_store_of(settings))
    say(f"{counts.new_objects} of {counts.objects} objects of large payloads were put back")


def _opened(settings: BrokerSettings) -> JournalStore:
    """The journals that the settings name: those of the server beside a broker, if it has one."""
    from dejaqueue.journal.registry import store_of

    if settings.cluster.nodes:
        from dejaqueue.cluster.embedded import server_of, settings_beside

        server = server_of(settings)
        assert server is not None
        settings = settings_beside(settings, server)
        # Without a copy here: the broker, which may be running, has that directory.
        journal = settings.journal.model_copy(update={"mirror": ""})
        settings = settings.model_copy(update={"journal": journal})
    return store_of(settings)
