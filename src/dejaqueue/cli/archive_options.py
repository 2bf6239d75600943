"""What commands that read backups by themselves have in common: settings, and which backup.

Room: cli. Reads settings and an archive; opens no journals.
See: restore.py, backed_payloads.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dejaqueue.cli.config import FLAGS, read_settings
from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from dejaqueue.backup.archive import Archive
    from dejaqueue.backup.manifest import Manifest
    from dejaqueue.journal.encryption.cipher import Cipher
    from dejaqueue.payloads.payload_store import PayloadStore
    from dejaqueue.settings import BrokerSettings

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_options(command: Command) -> Command:
    """Options `--set` and `--config`, as the arguments `assignments` and `file`."""
    by_name = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="GROUP.FIELD=VALUE",
        help="A setting, as `payloads.url` or `encryption.master_key`; may be repeated.",
    )
    by_file = click.option(
        "--config",
        "file",
        type=click.Path(path_type=Path),
        envvar="DEJAQ_CONFIG",
        show_envvar=True,
        help="A TOML file with settings.",
    )
    return by_name(by_file(command))


def chosen_settings(
    assignments: tuple[str, ...], file: Path | None, journal_url: str | None = None
) -> BrokerSettings:
    """The settings that these options say."""
    flags: dict[str, Any] = {**dict.fromkeys(FLAGS), "data": journal_url}
    return read_settings(flags | {"assignments": assignments, "file": file}).settings


def named_backup(archive: Archive, where: str, name: str | None) -> Manifest:
    """A backup by its name; None = the newest. Raises BadRequest: there is none."""
    manifest = archive.newest() if name is None else archive.manifest(name)
    if manifest is None:
        raise BadRequest("url", "a place with backups", where)
    return manifest


def cipher_for(manifest: Manifest, settings: BrokerSettings) -> Cipher | None:
    """What decrypts a backup; None = it is not encrypted."""
    from dejaqueue.broker.backup.restoring import cipher_of
    from dejaqueue.journal.encryption.master_keys import load_master_keys

    source = settings.encryption.master_key
    return cipher_of(manifest, load_master_keys(source) if source else ())


def payload_store_of(settings: BrokerSettings) -> PayloadStore:
    """The payload store that the settings name. Raises BadRequest: they name none."""
    from dejaqueue.payloads.payload_store import open_payload_store

    if not settings.payloads.url:
        raise BadRequest("payloads.url", "where the payloads are", "")
    return open_payload_store(settings.payloads.url, lambda: 0)
