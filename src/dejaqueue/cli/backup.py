"""`dejaq backup`: backups of a running broker; what there is of them, and whether it is whole.

Room: cli. `to` asks a broker, which writes by itself; the others read the archive here.
See: restore.py beside; docs/guides/backup.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.backed_payloads import backed_payloads
from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_fields, print_json, print_rows
from dejaqueue.cli.times import Span
from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.errors import JournalDamaged, Refused, Unavailable
from dejaqueue.times import show_instant

if TYPE_CHECKING:
    from dejaqueue import Client
    from dejaqueue.backup.manifest import Manifest

LOOK_MS = 50
LOOK_MS_MAX = 1_000


@click.group()
def backup() -> None:
    """Take backups of a running broker; list and verify those that there are."""


backup.add_command(backed_payloads)


@backup.command(
    epilog="Examples: `dejaq backup to /var/backups/dejaq` · `dejaq backup to s3://bucket/dejaq`"
)
@click.argument("where", metavar="URL")
@click.option("--full", is_flag=True, help="Store all of it, whatever earlier backups have.")
@json_option("Print JSON.")
@url_option
def to(where: str, *, full: bool, as_json: bool, url: str) -> None:
    """Back up all topics to URL, a directory of the broker's machine or an object store.

    The broker goes on meanwhile. What was acknowledged before is in the backup. If URL has a backup
    of this broker, only what is new is stored; the backup is whole all the same.
    """
    with connect(url) as client:
        found = client.backup(where, full=full)
        pause_ms = LOOK_MS
        while found["state"] == "running":
            _pause(pause_ms)
            pause_ms = min(2 * pause_ms, LOOK_MS_MAX)
            found = _progress(client)
    if found["state"] != "done":
        raise Refused(f"the backup failed: {found.get('error', found['state'])}")
    found = {name: value for name, value in found.items() if name not in {"state", "done"}}
    if as_json:
        print_json(found)
        return
    click.echo(
        f"backup {found['id']} at {found['url'].partition('?')[0]} of {found['topics']} topics, "
        f"{found['partitions']} partitions: "
        f"{found['bytes']:,} bytes, {found['new_bytes']:,} of them new, in {found['took_ms']:,} ms"
    )


def _progress(client: Client) -> dict[str, Any]:
    found = client.backup_progress()
    if found["state"] == "none":
        raise Unavailable("the broker was started anew during the backup: take it again")
    return found


def _pause(pause_ms: int) -> None:
    clock = SteadyClock()
    clock.wait_until(clock.now_us() + pause_ms * 1_000, Wake())


@backup.command("list")
@click.argument("where", metavar="URL")
@json_option("Print JSON lines.")
def list_backups(where: str, *, as_json: bool) -> None:
    """List the backups at URL, the oldest first: each can be restored by itself.

    `restored to` is the last instant that can be restored: where a broker archives what it does
    between two backups, it is behind the newest one. `payloads` says whether large payloads were
    copied beside it.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.backup.payload_copies import PayloadCopies

    archive = Archive.open(where)
    copied = set(PayloadCopies(archive.bucket).backups())
    rows: list[dict[str, Any]] = []
    newest: dict[str, tuple[Manifest, dict[str, Any]]] = {}
    for name in archive.ids():
        try:
            manifest = archive.manifest(name)
            found = manifest.describe() | {"reach_ms": manifest.cut_ms, "payloads": name in copied}
            newest[manifest.store] = manifest, found
        except JournalDamaged as damage:
            found = {"id": name, "damage": str(damage)}
        rows.append(found)
    for manifest, row in newest.values():  # what is behind older ones is given up
        try:
            row["reach_ms"] = archive.reach_ms(manifest)
        except JournalDamaged as damage:
            row["damage"] = str(damage)
    if as_json:
        print_rows(rows, as_json=True)
        return
    if not rows:
        click.echo("there are no backups yet")
        return
    print_rows(
        [
            {
                "backup": row["id"],
                "of": show_instant(row["cut_ms"]) if "cut_ms" in row else "?",
                "restored to": show_instant(row["reach_ms"]) if "reach_ms" in row else "?",
                "store": row.get("store", "?"),
                "topics": row.get("topics", "?"),
                "bytes": row.get("bytes", "?"),
                "new bytes": row.get("new_bytes", "?"),
                "encrypted": row.get("encrypted", "?"),
                "payloads": "copied" if row.get("payloads") else "",
                "": "DAMAGED" if "damage" in row else "",
            }
            for row in rows
        ],
        as_json=False,
    )


@backup.command()
@click.argument("where", metavar="URL")
@click.argument("name", metavar="BACKUP", required=False)
@json_option("Print JSON.")
def verify(where: str, name: str | None, *, as_json: bool) -> None:
    """Read everything that BACKUP at URL is made of, or all backups and what was archived behind
    the newest of each broker, and compare it with its name.

    Needs no keys. What is missing or damaged is named; the exit status is 5 then.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.backup.payload_copies import PayloadCopies

    archive = Archive.open(where)
    copies, copied = PayloadCopies(archive.bucket), set[str]()
    checked: set[str] = set()
    damage: list[str] = []
    newest: dict[str, Manifest] = {}
    names = archive.ids() if name is None else [name]
    for one in names:
        try:
            manifest = archive.manifest(one)
            damage += archive.damage(manifest, checked)
            damage += copies.damage(one, copied)
            newest[manifest.store] = manifest
        except JournalDamaged as wrong:
            damage.append(str(wrong))
    log_pieces = 0
    for manifest in newest.values() if name is None else ():
        found_damage, count = archive.chain_damage(manifest)
        damage += found_damage
        log_pieces += count
    found = {
        "backups": len(names),
        "pieces": len(checked),
        "log_pieces": log_pieces,
        "payload_objects": len(copied),
        "damage": damage,
    }
    if as_json:
        print_json(found)
    else:
        for text in damage:
            click.echo(text)
    if damage:
        raise JournalDamaged(f"{len(damage)} pieces or backups are damaged")
    if not as_json:
        del found["damage"]
        print_fields(found, as_json=False)


@backup.command(
    epilog="Examples: `dejaq backup forget /var/backups/dejaq --keep 30` · "
    "`dejaq backup forget s3://bucket/dejaq --keep-for 90d`"
)
@click.argument("where", metavar="URL")
@click.argument("names", metavar="[BACKUP]...", nargs=-1)
@click.option("--keep", type=click.IntRange(min=1), help="Keep so many backups of each broker.")
@click.option("--keep-for", "age_ms", type=Span(), help="Keep backups that are younger, like 90d.")
@json_option("Print JSON.")
def forget(
    where: str, names: tuple[str, ...], keep: int | None, age_ms: int | None, *, as_json: bool
) -> None:
    """Delete backups at URL: those named, or those that --keep and --keep-for do not keep.

    Each backup is whole by itself, so any may go; with the newest of a broker goes what was
    archived behind it. Pieces that no other backup has are deleted when
    they are a day old. The newest backup of a broker is deleted only by its name.
    """
    from dejaqueue.backup.archive import Archive
    from dejaqueue.errors import BadRequest

    if bool(names) == (keep is not None or bool(age_ms)):
        raise BadRequest("backup", "names of backups, or else --keep or --keep-for", names)
    archive, now_ms = Archive.open(where), SteadyClock().utc_ms()
    gone = list(names)
    if not names:
        gone = archive.outlived("", now_ms, count=keep or 0, age_ms=age_ms or 0)
    known = set(archive.ids())
    for name in gone:
        if name not in known:
            raise BadRequest("backup", f"one of those at {archive.bucket.url}", name)
    archive.forget(gone)
    found = {"backups": gone, "pieces": archive.sweep(now_ms)}
    if as_json:
        print_json(found)
    else:
        click.echo(f"{len(gone)} backups and {found['pieces']} pieces are deleted")
