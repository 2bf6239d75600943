"""The command `dejaq doctor`: everything at once, what hurts first, each with what mends it.

Room: cli.
Holds: it changes nothing; a check that fails for a reason of its own is a finding, not the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.config import read_settings, settings_options
from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json
from dejaqueue.findings import Finding, Level, fine, hurts, look

if TYPE_CHECKING:
    from dejaqueue.configuration import Loaded

RETRY_MS_MAX = 500
"""A broker that is there answers at once."""
_ORDER = (Level.HURTS, Level.LOOK, Level.FINE)
_READ_BY_COMMANDS = ("DEJAQ_URL", "DEJAQ_CONFIG", "DEJAQ_API_KEY", "DEJAQ_TLS_")


@click.command(
    epilog="Examples: `dejaq doctor` · `dejaq doctor --config /etc/dejaq/dejaq.toml` · "
    "`dejaq doctor --data /var/lib/dejaq --host 0.0.0.0 --json`",
)
@settings_options
@click.option("--quiet", is_flag=True, help="Only what hurts or should be looked at.")
@json_option("Print one JSON object a line.")
@url_option
@click.pass_context
def doctor(
    context: click.Context, /, *, quiet: bool, as_json: bool, url: str, **chosen: Any
) -> None:
    """Say what hurts on this machine, in the settings and at the broker, and what mends it.

    The options are those of `dejaq serve`, so that it looks at what that would take. Nothing is
    changed; a file of 4 KiB is written where messages are kept, and removed. Exit status: 0 unless
    something hurts, then 1.
    """
    found = list(_findings(chosen, url))
    shown = [one for level in _ORDER for one in found if one.level is level]
    for one in shown:
        if quiet and one.level is Level.FINE:
            continue
        if as_json:
            print_json(one.to_dict())
            continue
        click.echo(f"{one.level:5}  {one.check}: {one.text}")
        if one.mend:
            click.echo(f"       -> {one.mend}")
    if any(one.level is Level.HURTS for one in found):
        context.exit(1)


def _findings(chosen: dict[str, Any], url: str) -> Iterator[Finding]:
    from dejaqueue.broker.watching import check_backups, check_stored
    from dejaqueue.cli.doctor.disk import check_disk
    from dejaqueue.cli.doctor.machine import (
        check_clock,
        check_files,
        check_memory,
        check_packages,
    )
    from dejaqueue.cli.doctor.tls import check_certificates
    from dejaqueue.clock import SystemClock, is_kept
    from dejaqueue.errors import BadRequest

    yield check_clock(is_kept())
    yield from check_environment(list(os.environ))
    try:
        loaded = read_settings(chosen)
    except BadRequest as error:
        yield hurts("settings", str(error), "dejaq config check FILE")
        return
    settings = loaded.settings
    yield fine("settings", f"{len(loaded.sources)} given, from {loaded.file or 'no file'}")
    yield check_files(settings)
    yield check_memory(settings)
    yield from check_packages(settings)
    try:
        yield from check_disk(settings)
    except OSError as error:
        yield hurts("disk", str(error), f"df -h {settings.journal.url}")
    yield from check_certificates(settings, SystemClock().utc_ms())
    yield from check_stored(settings)
    if not settings.cluster.coordinator and not settings.cluster.nodes:
        yield from check_backups(settings, 0, 0)
    yield from _broker(loaded, url)


def check_environment(names: list[str]) -> Iterator[Finding]:
    """Variables that look like settings and are none: a group and a field have `__` between."""
    from dejaqueue.configuration import ENVIRONMENT_PREFIX, GROUP_DELIMITER
    from dejaqueue.settings import known_settings

    known = {
        f"{ENVIRONMENT_PREFIX}{group}_{name}".upper(): f"{group}{GROUP_DELIMITER}{name}"
        for group, name, _ in known_settings()
    }
    for name in sorted(names):
        if name in known and not name.startswith(_READ_BY_COMMANDS):
            mend = f"{ENVIRONMENT_PREFIX}{known[name].upper()}, with two underscores"
            yield look("settings", f"{name} is in the environment and is not read", mend)


def _broker(loaded: Loaded, url: str) -> Iterator[Finding]:
    """What the broker says, or whether one could start."""
    from dejaqueue.cli.doctor.broker import check_broker, check_ports
    from dejaqueue.errors import DejaQError, Unavailable

    try:
        with connect(url, retry_ms_max=RETRY_MS_MAX) as client:
            yield from check_broker(client, url)
    except Unavailable:
        yield look("broker", f"none answers at {url}", "dejaq serve, or --url of another one")
        yield from check_ports(loaded.settings)
    except DejaQError as error:
        yield hurts("broker", str(error), "dejaq stats --url URL")
