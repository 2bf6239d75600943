"""`dejaq config`: what a broker's settings are, where they came from, and whether a file is right.

Room: cli. Also holds the options that choose settings, which `dejaq serve` takes too.
Holds: nothing is started or changed; no password is printed.
See: configuration.py; docs/guides/configuration.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dejaqueue.cli.connection import json_option
from dejaqueue.cli.output import print_rows

if TYPE_CHECKING:
    from dejaqueue.configuration import Loaded

Function = TypeVar("Function", bound=Callable[..., Any])

FLAGS = {
    "data": "journal.url",
    "host": "server.host",
    "port": "server.port",
    "http_port": "server.http_port",
    "processes": "server.processes",
    "standby": "standby.url",
    "cluster": "cluster.nodes",
    "coordinator": "cluster.coordinator",
    "node": "cluster.node",
    "advertise": "cluster.advertise",
}
"""Options that are settings, by the name click has for them."""


def settings_options(function: Function) -> Function:
    """The options that choose settings."""
    for option in reversed(
        (
            click.option(
                "--data",
                "--journal",
                "data",
                metavar="DIR|URL",
                help="Where messages are kept: a directory, a server's URL, or `memory:`.  "
                "[default: dejaq-data]",
            ),
            click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
            click.option("--port", type=int, help="Port; 0 = any free one.  [default: 7464]"),
            click.option(
                "--http-port",
                type=int,
                help="Port of the HTTP API; 0 = any free one.  [default: 7465]",
            ),
            click.option(
                "--processes",
                metavar="N|auto",
                help="So many processes divide the data directory; auto = one for each core.",
            ),
            click.option(
                "--standby",
                metavar="URL",
                help="Follow the archive there until `dejaq promote`.",
            ),
            click.option(
                "--cluster",
                metavar="NODE=HOST:PORT,…",
                help="Brokers that keep their journals themselves, this one included.",
            ),
            click.option(
                "--coordinator",
                metavar="URL",
                help="Server on which brokers of a cluster agree, e.g. etcd://host:2379.",
            ),
            click.option("--node", metavar="NAME", help="Name of this broker in its cluster."),
            click.option(
                "--advertise", metavar="HOST", help="Where others reach this broker, by name."
            ),
            click.option(
                "--set",
                "assignments",
                multiple=True,
                metavar="GROUP.FIELD=VALUE",
                help="Any other setting; may be repeated.",
            ),
            click.option(
                "--config",
                "file",
                type=click.Path(path_type=Path),
                envvar="DEJAQ_CONFIG",
                show_envvar=True,
                help="A TOML file with settings.  [default: dejaq.toml, else "
                "/etc/dejaq/dejaq.toml, if there is one]",
            ),
        )
    ):
        function = option(function)
    return function


def read_settings(chosen: dict[str, Any], overruling: Mapping[str, object] | None = None) -> Loaded:
    """The settings that `settings_options` chose, the environment and the file.

    A port of 0 also frees the other port from its default, unless it is given.

    Args:
        overruling: settings that win over all that, by name: of one of several processes.

    Raises:
        BadRequest: see configuration.load; a setting is given twice.
    """
    from dejaqueue.configuration import load, parse_assignment, usual_file
    from dejaqueue.errors import BadRequest

    flags = {
        FLAGS[option]: (f"--{option.replace('_', '-')}", chosen[option])
        for option in FLAGS
        if chosen[option] is not None
    }
    for text in chosen["assignments"]:
        name, value = parse_assignment(text)
        if name in flags:
            raise BadRequest(f"--set {name}", f"not together with {flags[name][0]}", text)
        flags[name] = (f"--set {name}", value)
    if chosen["port"] == 0:
        for name in ("server.http_port", "doq.port"):
            flags.setdefault(name, ("--port", 0))
    for name, value in (overruling or {}).items():
        flags[name] = ("the parent process", value)
    return load(chosen["file"] or usual_file(), flags)


@click.group()
def config() -> None:
    """Settings of a broker: shown, checked, explained."""


@config.command(
    epilog="Examples: `dejaq config show` · `dejaq config show --changed` · "
    "`dejaq config show --config dejaq.toml --set log.level=debug --json`"
)
@settings_options
@click.option("--changed", is_flag=True, help="Only those that are not defaults.")
@json_option("Print JSON lines.")
def show(*, changed: bool, as_json: bool, **chosen: Any) -> None:
    """Show each value that `dejaq serve` would take with these options, and where it comes from.

    Passwords are masked.
    """
    from dejaqueue.configuration import DEFAULT
    from dejaqueue.setting_secrets import masked
    from dejaqueue.settings import changes_live, known_settings

    loaded = read_settings(chosen)
    rows = []
    for group, field, known in known_settings():
        name = f"{group}.{field}"
        source = loaded.source_of(name)
        if changed and source == DEFAULT:
            continue
        value = masked(name, getattr(getattr(loaded.settings, group), field))
        rows.append(
            {"setting": name, "value": value, "source": source, "live": changes_live(known)}
        )
    print_rows(rows, as_json=as_json)


@config.command(
    epilog="Example: `dejaq config check /etc/dejaq/dejaq.toml && systemctl reload dejaq`"
)
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Say whether a settings file is right; if not, everything that is wrong with it.

    Neither the environment nor the defaults of a shell play a part. Exit status: 0 right, 2 wrong.
    """
    from dejaqueue.configuration import look

    loaded, problems = look(file, environment=False)
    for problem in problems[1:]:
        click.echo(f"error: {problem}", err=True)
    if loaded is None:
        raise problems[0]
    count = len(loaded.sources)
    click.echo(f"{file}: {count} setting{'' if count == 1 else 's'}, nothing wrong")


@config.command(epilog="Example: `dejaq config example > dejaq.toml`")
def example() -> None:
    """Print a settings file with every setting, its default, its range and its reason."""
    from dejaqueue.setting_words import example as text

    click.echo(text(), nl=False)
