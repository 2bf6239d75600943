"""`dejaq backup payloads`: what a backup needs of the payload store, what is missing there, copies.

Room: cli. Reads the archive and the payload store; changes the archive with `--copy` alone.
See: backup.py; broker/backup/backed_payloads.py; docs/guides/large-payloads.md.
"""

from __future__ import annotations

from pathlib import Path

import click

from dejaqueue.cli.archive_options import (
    chosen_settings,
    cipher_for,
    named_backup,
    payload_store_of,
    settings_options,
)
from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_fields, print_json
from dejaqueue.errors import JournalDamaged


@click.command(
    "payloads",
    epilog="Examples: `dejaq backup payloads /var/backups/dejaq --config dejaq.toml` · "
    "`dejaq backup payloads s3://bucket/dejaq --copy --set payloads.url=s3://bucket/payloads`",
)
@click.argument("where", metavar="URL")
@click.argument("name", metavar="BACKUP", required=False)
@click.option("--copy", is_flag=True, help="Copy them beside the backup; a restore has them then.")
@settings_options
@json_option("Print JSON.")
def backed_payloads(
    where: str,
    name: str | None,
    *,
    copy: bool,
    assignments: tuple[str, ...],
    file: Path | None,
    as_json: bool,
) -> None:
    """Say what BACKUP at URL, or the newest, needs of the payload store that the settings name.

    A backup has messages, and of large payloads what refers to them. What is missing from the
    store is named; the exit status is 5 then. With --copy each is compared with its hash, and
    copied if no earlier backup has it.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.broker.backup.backed_payloads import check_payloads, copy_payloads

    settings = chosen_settings(assignments, file)
    store = payload_store_of(settings)
    archive = Archive.open(where)
    manifest = named_backup(archive, where, name)
    cipher = cipher_for(manifest, settings)
    new = copy_payloads(archive, manifest, cipher, store) if copy else None
    found = check_payloads(archive, manifest, cipher, store)
    facts = {"backup": found.backup, "payloads": found.payloads, "bytes": found.bytes}
    if new is not None:
        facts |= {"new_objects": new.new_objects, "new_bytes": new.new_bytes}
    if as_json:
        print_json(found.to_dict() | facts)
    else:
        for one in found.missing:
            click.echo(f"missing: {one}")
        copies = "none" if found.copies is None else found.copies
        print_fields(facts | {"copies": copies}, as_json=False)
    if found.missing:
        raise JournalDamaged(f"{len(found.missing)} objects are missing from the payload store")
