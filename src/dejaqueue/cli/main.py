"""The command `dejaq`: finds the command that is meant, and turns errors into one line and a code.

Room: cli. Talks to a broker through the public client, as any user does.
Holds: no traceback reaches the user but for a bug of ours; `--help` loads neither pyarrow nor the
broker (each command's file imports them when it runs).
See: errors.py for the exit codes; docs/reference/cli.md is generated from the commands.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from dejaqueue.errors import DejaQError, Locked, TopicUnknown, Unauthenticated, Unavailable
from dejaqueue.operating_system import refuse_broker, runs_brokers
from dejaqueue.version import __version__

COMMANDS = {
    "serve": "dejaqueue.cli.serve:serve",
    "config": "dejaqueue.cli.config:config",
    "doctor": "dejaqueue.cli.doctor.command:doctor",
    "plan": "dejaqueue.cli.plan:plan",
    "demo": "dejaqueue.cli.demo.command:demo",
    "demo-spark": "dejaqueue.cli.demo.spark_command:demo_spark",
    "topic": "dejaqueue.cli.topics:topic",
    "subscription": "dejaqueue.cli.subscriptions:subscription",
    "apply": "dejaqueue.cli.apply:apply",
    "cron": "dejaqueue.cli.cron:cron",
    "send": "dejaqueue.cli.send:send",
    "consume": "dejaqueue.cli.messages:consume",
    "peek": "dejaqueue.cli.browse:peek",
    "counts": "dejaqueue.cli.browse:counts",
    "histogram": "dejaqueue.cli.browse:histogram",
    "history": "dejaqueue.cli.browse:history",
    "move": "dejaqueue.cli.changes:move",
    "cancel": "dejaqueue.cli.changes:cancel",
    "erase": "dejaqueue.cli.erasure:erase",
    "dead": "dejaqueue.cli.dead:dead",
    "stats": "dejaqueue.cli.stats:stats",
    "top": "dejaqueue.cli.top:top",
    "cluster": "dejaqueue.cli.cluster:cluster",
    "repair": "dejaqueue.cli.repair:repair",
    "backup": "dejaqueue.cli.backup:backup",
    "restore": "dejaqueue.cli.restore:restore",
    "standby": "dejaqueue.cli.standby:standby",
    "promote": "dejaqueue.cli.standby:promote",
    "transactions": "dejaqueue.cli.transactions:transactions",
    "key": "dejaqueue.cli.keys:key",
    "pipeline": "dejaqueue.cli.pipeline:pipeline",
    "worker": "dejaqueue.cli.worker:worker",
    "bench": "dejaqueue.cli.bench:bench",
    "completion": "dejaqueue.cli.completion:completion",
}
"""Name of each command, in the order of the help, and where it is."""

NEXT_STEPS: tuple[tuple[type[DejaQError], str], ...] = (
    (TopicUnknown, "see `dejaq topic list`, or make it with `dejaq topic create`"),
    (Unavailable, "is a broker there? start one with `dejaq serve`, or name another with --url"),
    (Unauthenticated, "give a key with DEJAQ_API_KEY or --api-key; see `dejaq key create --help`"),
    (Locked, "another broker has this directory; stop it, or give --data another one"),
)
"""What to do next, by error; the first that fits."""

_STARTS_A_BROKER = ("serve", "demo", "demo-spark", "bench")
_OF_A_BROKER = ("serve", "demo", "demo-spark", "doctor", "restore", "repair")
"""What starts a broker, or looks at its machine or into its directory."""

EXIT_INTERRUPTED = 130
"""As the shell says it for SIGINT."""
EXIT_BROKEN_PIPE = 141
"""As the shell says it for SIGPIPE: whoever read our output has enough."""


class CommandLine(click.Group):
    """The root command; loads the others when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's file and give the command; None if there is none of that name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        if cmd_name in _OF_A_BROKER and not runs_brokers():
            return _refusing(cmd_name)
        module, name = place.split(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it; it would look for near names among the commands that are loaded."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, COMMANDS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit with its status."""
        extra.pop("standalone_mode", None)
        given = sys.argv[1:] if args is None else args
        command = next((word for word in given if word in COMMANDS), "")
        try:
            status = super().main(args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.ClickException as error:
            status = _fail(_usage_text(error), error.exit_code)
        except DejaQError as error:
            status = _fail(_error_text(error, command), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            status = EXIT_INTERRUPTED
        except BrokenPipeError:
            # Python would complain once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = EXIT_BROKEN_PIPE
        sys.exit(status if isinstance(status, int) else 0)


def _refusing(name: str) -> click.Command:
    """A command that says why it does not run here, whatever it is given."""
    return click.Command(
        name,
        callback=refuse_broker,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help="Needs Linux, as brokers do.",
    )


def _usage_text(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    return f"{text.rstrip('.')} (see `{context.command_path} --help`)"


def _error_text(error: DejaQError, command: str) -> str:
    """The error in one line, with what to do next."""
    text = " ".join(str(error).split())
    if command in _STARTS_A_BROKER and isinstance(error, Unavailable):
        return text  # it was on the way to start one
    for kind, step in NEXT_STEPS:
        if isinstance(error, kind):
            return f"{text} ({step})"
    return text


def _fail(text: str, status: int) -> int:
    click.echo(f"error: {text}", err=True)
    return status


@click.group(
    cls=CommandLine,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="To see it work: `dejaq serve`, and in another window `dejaq topic create reminders`, "
    '`dejaq send reminders --text "stretch your legs" --delay 10s`, `dejaq consume reminders`. '
    "Exit status: 0 done, 2 wrong call, 3 refused, 4 try later or no broker, "
    "5 damaged journal, 6 directory in use, 7 not allowed, 8 replaced by a standby, "
    "1 anything else.",
)
@click.version_option(__version__, prog_name="dejaq")
@click.pass_context
def main(context: click.Context) -> None:
    """DejaQ delivers messages at their time, to the millisecond."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
