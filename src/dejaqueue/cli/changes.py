"""`dejaq move`, `cancel`, `topic purge`: changing messages, by name or by filter.

Room: cli.
See: browse.py for looking before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, name_argument, topic_argument, url_option
from dejaqueue.cli.filters import WAITING_STATES, where_of, where_options
from dejaqueue.cli.output import print_fields, print_rows
from dejaqueue.cli.times import Instant, SignedSpan, Span
from dejaqueue.limits import PRIORITY_MAX

if TYPE_CHECKING:
    from dejaqueue.client import Settled

EXIT_ROWS_REFUSED = 3
WINDOW = "By filter: evenly from then on, in the order that they have."
IF_DUE = "By name: only what is due then; the rest is CHANGED, and stays."


def _is_by_name(keys: tuple[str, ...], ids: tuple[int, ...], where: dict[str, Any]) -> bool:
    """True if messages are named; False if they are selected by a filter."""
    if bool(keys) + bool(ids) + bool(where) != 1:
        raise click.UsageError(
            "name the messages by --key or by --id, or select them by a filter as --group"
        )
    return not where


def _check_choices(*, by_name: bool, dry_run: bool, if_due_ms: int | None) -> None:
    if by_name and dry_run:
        raise click.UsageError("--dry-run is for messages selected by a filter")
    if not by_name and if_due_ms is not None:
        raise click.UsageError("--if-due is for messages that are named by --key or --id")


def _window(from_ms: int | None, to_ms: int | None, *, by_name: bool) -> tuple[int, int] | None:
    """Where to, evenly; None = nowhere."""
    if from_ms is None and to_ms is None:
        return None
    if from_ms is None or to_ms is None:
        raise click.UsageError("--window-from and --window-to go together")
    if by_name:
        raise click.UsageError("--window-from is for messages selected by a filter")
    return from_ms, to_ms


def _print_statuses(names: tuple[object, ...], settled: Settled, *, as_json: bool) -> int:
    """One line per message; status 3 if any was not OK."""
    from dejaqueue.model import RowStatus

    statuses = [RowStatus(int(status)).name for status in settled.statuses]
    print_rows(
        [
            {"message": str(name), "status": status}
            for name, status in zip(names, statuses, strict=True)
        ],
        as_json=as_json,
    )
    return 0 if settled.ok else EXIT_ROWS_REFUSED


@click.command(
    epilog="Examples: `dejaq move reminders --key alice-1 --delay 1h` · "
    "`dejaq move reminders --key alice-1 --by -10m --if-due 2026-12-24T18:00:00Z` · "
    "`dejaq move reminders --group acme --to 2026-12-24T18:00:00Z --by 1h` · "
    "`dejaq move reminders --group acme --window-from 2026-12-24T18:00:00Z "
    "--window-to 2026-12-24T20:00:00Z`",
)
@topic_argument
@click.option("--key", "keys", multiple=True, help="Key of a message; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="Id of a message; may be repeated.")
@where_options(*WAITING_STATES)
@click.option("--due", "due_ms", type=Instant(), help="The new time.")
@click.option("--delay", "delay_ms", type=Span(), help="The new time, from now.")
@click.option("--by", "by_ms", type=SignedSpan(), help="So much later, or -1h earlier.")
@click.option("--window-from", "window_from_ms", type=Instant(), help=WINDOW)
@click.option("--window-to", "window_to_ms", type=Instant(), help="And before then.")
@click.option("--set-priority", type=click.IntRange(0, PRIORITY_MAX), help="The new priority.")
@click.option("--set-group", help='The new group; "" = none.')
@click.option("--if-due", "if_due_ms", type=Instant(), help=IF_DUE)
@click.option("--dry-run", is_flag=True, help="By filter: only count.")
@json_option("Print JSON lines: message, status; by filter: moved.")
@url_option
def move(
    *,
    topic: str,
    keys: tuple[str, ...],
    ids: tuple[int, ...],
    due_ms: int | None,
    delay_ms: int | None,
    by_ms: int | None,
    window_from_ms: int | None,
    window_to_ms: int | None,
    set_priority: int | None,
    set_group: str | None,
    if_due_ms: int | None,
    dry_run: bool,
    as_json: bool,
    url: str,
    **where: Any,
) -> int:
    """Move messages of TOPIC to another time, priority or group.

    They are named by --key or --id, or selected by a filter. Ends with status 3 if one of those
    that are named could not be moved.
    """
    selected = where_of(where)
    by_name = _is_by_name(keys, ids, selected)
    window = _window(window_from_ms, window_to_ms, by_name=by_name)
    if [due_ms, delay_ms, by_ms, window].count(None) < 3:
        raise click.UsageError(
            "say the new time with --due, --delay, --by or a window: one of them"
        )
    if (due_ms, delay_ms, by_ms, window, set_priority, set_group) == (None,) * 6:
        raise click.UsageError("say the new time, --set-priority or --set-group")
    _check_choices(by_name=by_name, dry_run=dry_run, if_due_ms=if_due_ms)
    by = None if by_ms is None else by_ms / 1_000
    if delay_ms is not None:
        from dejaqueue.clock import SystemClock

        due_ms = SystemClock().now_ms() + delay_ms
    with connect(url) as client:
        if not by_name:
            count = client.move_where(
                topic,
                due=due_ms,
                by=by,
                window=window,
                set_priority=set_priority,
                set_group=set_group,
                dry_run=dry_run,
                **selected,
            )
            print_fields({"would_move" if dry_run else "moved": count}, as_json=as_json)
            return 0
        settled = client.move(
            topic,
            keys=list(keys) or None,
            ids=list(ids) or None,
            due=due_ms,
            by=by,
            priority=set_priority,
            group=set_group,
            if_due=if_due_ms,
        )
    return _print_statuses(keys or ids, settled, as_json=as_json)


@click.command(
    epilog="Examples: `dejaq cancel reminders --key alice-1` · "
    "`dejaq cancel reminders --group acme --dry-run`",
)
@topic_argument
@click.option("--key", "keys", multiple=True, help="Key of a message; may be repeated.")
@click.option("--id", "ids", type=int, multiple=True, help="Id of a message; may be repeated.")
@where_options(*WAITING_STATES)
@click.option("--if-due", "if_due_ms", type=Instant(), help=IF_DUE)
@click.option("--dry-run", is_flag=True, help="By filter: only count.")
@json_option("Print JSON lines: message, status; by filter: cancelled.")
@url_option
def cancel(
    *,
    topic: str,
    keys: tuple[str, ...],
    ids: tuple[int, ...],
    if_due_ms: int | None,
    dry_run: bool,
    as_json: bool,
    url: str,
    **where: Any,
) -> int:
    """Cancel messages of TOPIC, named by --key or --id, or selected by a filter.

    Ends with status 3 if one of those that are named could not be cancelled.
    """
    selected = where_of(where)
    by_name = _is_by_name(keys, ids, selected)
    _check_choices(by_name=by_name, dry_run=dry_run, if_due_ms=if_due_ms)
    with connect(url) as client:
        if not by_name:
            count = client.cancel_where(topic, dry_run=dry_run, **selected)
            print_fields({"would_cancel" if dry_run else "cancelled": count}, as_json=as_json)
            return 0
        settled = client.cancel(
            topic, keys=list(keys) or None, ids=list(ids) or None, if_due=if_due_ms
        )
    return _print_statuses(keys or ids, settled, as_json=as_json)


@click.command(epilog="Example: `dejaq topic purge reminders --yes`")
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print JSON: cancelled.")
@url_option
def purge(*, name: str, yes: bool, as_json: bool, url: str) -> None:
    """Cancel every message of a topic that is not leased. The topic stays."""
    if not yes:
        click.confirm(f"Cancel every message of topic {name}?", abort=True, err=True)
    with connect(url) as client:
        print_fields({"cancelled": client.purge(name)}, as_json=as_json)
