"""`dejaq backup payloads`: what a backup needs of the payload store, and what is missing there.

Room: cli. Reads the archive, and lists the payload store; changes nothing.
See: backup.py; broker/backup/backed_payloads.py; docs/guides/large-payloads.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dejaqueue.cli.config import FLAGS, read_settings
from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_fields, print_json
from dejaqueue.errors import BadRequest, JournalDamaged


@click.command(
    "payloads",
    epilog="Examples: `dejaq backup payloads /var/backups/dejaq --config dejaq.toml` · "
    "`dejaq backup payloads s3://bucket/dejaq --set payloads.url=s3://bucket/payloads`",
)
@click.argument("where", metavar="URL")
@click.argument("name", metavar="BACKUP", required=False)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="GROUP.FIELD=VALUE",
    help="A setting, as `payloads.url` and `encryption.master_key`; may be repeated.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="DEJAQ_CONFIG",
    show_envvar=True,
    help="A TOML file with settings.",
)
@json_option("Print JSON.")
def backed_payloads(
    where: str,
    name: str | None,
    *,
    assignments: tuple[str, ...],
    file: Path | None,
    as_json: bool,
) -> None:
    """Say what BACKUP at URL, or the newest, needs of the payload store that the settings name.

    A backup has messages, and of large payloads what refers to them. What is missing from the
    store is named; the exit status is 5 then.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.broker.backup.backed_payloads import check_payloads
    from dejaqueue.broker.backup.restoring import cipher_of
    from dejaqueue.journal.encryption.master_keys import load_master_keys
    from dejaqueue.payloads.payload_store import open_payload_store

    chosen: dict[str, Any] = dict.fromkeys(FLAGS)
    settings = read_settings(chosen | {"assignments": assignments, "file": file}).settings
    if not settings.payloads.url:
        raise BadRequest("payloads.url", "where the payloads are", "")
    archive = Archive.open(where)
    manifest = archive.newest() if name is None else archive.manifest(name)
    if manifest is None:
        raise BadRequest("url", "a place with backups", where)
    source = settings.encryption.master_key
    cipher = cipher_of(manifest, load_master_keys(source) if source else ())
    store = open_payload_store(settings.payloads.url, lambda: 0)
    found = check_payloads(archive, manifest, cipher, store)
    if as_json:
        print_json(found.to_dict())
    else:
        for one in found.missing:
            click.echo(f"missing: {one}")
        facts = {"backup": found.backup, "payloads": found.payloads, "bytes": found.bytes}
        print_fields(facts, as_json=False)
    if found.missing:
        raise JournalDamaged(f"{len(found.missing)} objects are missing from the payload store")
