"""`dejaq apply`: the topics of a broker become what a file says, after showing what that changes.

Room: cli.
Holds: nothing is changed before the whole plan is known to be possible; what is deleted is named
with what would be lost, and only if `--prune` asks for it; applying a file twice changes nothing.
See: declaration.py, which reads the file; docs/guides/declaring-topics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json
from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from dejaqueue import Client

    # tidy: allow type-import, because help works without pyarrow and time zones
    from dejaqueue.cli.declaration import Declaration
    from dejaqueue.model import Topic
    from dejaqueue.schema.cron import CronEntry

_SIGNS = {"create": "+", "alter": "~", "put": "~", "delete": "-", "drop": "-"}
_LEFT_ALONE = ("paused", "partitions")
"""Settings that change while a broker runs: they stay as they are unless the file has them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that `dejaq apply` does.

    Attributes:
        action: create, alter or delete a topic; put or drop an entry of a cron topic.
        values: what a topic or an entry gets.
        before: what it has of that now; empty = it is made.
        loses: live messages that are deleted with a topic.
        whole: the entry that is put.
    """

    action: str
    topic: str
    entry: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    loses: int = 0
    whole: CronEntry | None = None

    def to_dict(self) -> dict[str, Any]:
        """As one line of JSON."""
        return {
            "action": self.action,
            "topic": self.topic,
            "entry": self.entry,
            "changes": {
                name: {"before": _plain(self.before.get(name)), "after": _plain(value)}
                for name, value in self.values.items()
            },
            "loses": self.loses,
        }

    def __str__(self) -> str:
        what = f"entry {self.entry} of {self.topic}" if self.entry else f"topic {self.topic}"
        text = f"{_SIGNS[self.action]} {self.action} {what}"
        if self.action == "delete":
            return f"{text} and its {self.loses} messages"
        changes = [
            f"{name} {_shown(self.before[name])} -> {_shown(value)}"
            if name in self.before
            else f"{name} {_shown(value)}"
            for name, value in self.values.items()
        ]
        return f"{text}: {', '.join(changes)}" if changes else text


@click.command(
    epilog="Examples: `dejaq apply topics.toml --dry-run` · `dejaq apply topics.toml --yes` · "
    "`dejaq apply topics.toml --prune`",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option(
    "--prune",
    is_flag=True,
    help="Delete topics, with their messages, and cron entries that the file does not have. "
    "Dead-letter topics of topics that it has stay.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print the plan as JSON lines.")
@url_option
def apply(file: Path, *, dry_run: bool, prune: bool, yes: bool, as_json: bool, url: str) -> None:
    """Make topics, settings and cron entries what a TOML FILE says.

    Shows what would change and asks before it does. A setting that the file does not have gets its
    default, but for `paused` and `partitions`, which stay as they are.
    """
    from dejaqueue.cli.declaration import read_declarations

    declared, problems = read_declarations(file)
    with connect(url) as client:
        there = {topic.name: topic for topic in client.topics()}
        for one in declared:
            problems += _impossible(one, there.get(one.topic.name))
        for problem in problems[1:]:
            click.echo(f"error: {problem}", err=True)
        if problems:
            raise problems[0]
        steps = list(plan_steps(client, declared, there, prune=prune))
        for step in steps:
            if as_json:
                print_json(step.to_dict())
            else:
                click.echo(str(step))
        if not steps:
            click.echo("nothing to change", err=True)
        if dry_run or not steps:
            return
        if not yes:
            click.confirm(f"Do these {len(steps)} steps?", abort=True, err=True)
        for step in steps:
            _do(client, step)
        click.echo(f"done: {len(steps)} step{'' if len(steps) == 1 else 's'}", err=True)


def _impossible(declared: Declaration, there: Topic | None) -> Iterator[BadRequest]:
    """What no call can change."""
    from dejaqueue.model import CHANGEABLE

    if there is None:
        return
    wanted = declared.topic
    for name, value in wanted.to_dict().items():
        before = there.to_dict()[name]
        if name not in CHANGEABLE and value != before:
            limit = f"{before!r}, as the topic was made with it (delete the topic to change it)"
            yield BadRequest(f"topics.{wanted.name}.{name}", limit, value)
    is_fewer = "partitions" in declared.said and wanted.partitions < there.partitions
    if is_fewer and not wanted.auto_partitions:
        limit = f"at least {there.partitions}: partitions are added and never taken away"
        yield BadRequest(f"topics.{wanted.name}.partitions", limit, wanted.partitions)


def plan_steps(
    client: Client, declared: list[Declaration], there: dict[str, Topic], *, prune: bool
) -> Iterator[Step]:
    """What has to be done, deletions last.

    Args:
        client: asked for cron entries and for what a deletion would lose.
        declared: what should be; `_impossible` finds nothing in it.
        there: the topics that there are, by name.
        prune: whether what is not declared goes.
    """
    drops: list[Step] = []
    for one in declared:
        found = there.get(one.topic.name)
        if found is None:
            yield Step("create", one.topic.name, values=_settings(one))
        elif changes := _changes(one, found):
            before = {name: found.to_dict()[name] for name in changes}
            yield Step("alter", found.name, values=changes, before=before)
        entries = {}
        if found is not None and found.kind == "cron":
            entries = {entry.name: entry for entry in client.cron(found.name).entries()}
        yield from _puts(one, entries)
        gone = [name for name in entries if name not in one.entries]
        drops += [Step("drop", one.topic.name, name) for name in gone]
    if not prune:
        return
    yield from drops
    kept = {name for one in declared for name in (one.topic.name, one.topic.dead_letter_name)}
    for name in there:
        if name not in kept:
            counts = client.stats(name)
            loses = counts.scheduled + counts.ready + counts.leased
            yield Step("delete", name, loses=loses)


def _settings(declared: Declaration) -> dict[str, Any]:
    """What the file says of a topic that is to be made."""
    values = declared.topic.to_dict()
    return {name: values[name] for name in values if name in declared.said}


def _changes(declared: Declaration, there: Topic) -> dict[str, Any]:
    """Settings that differ; see _LEFT_ALONE."""
    before = there.to_dict()
    changes = {
        name: value
        for name, value in declared.topic.to_dict().items()
        if value != before[name] and (name in declared.said or name not in _LEFT_ALONE)
    }
    if changes.get("partitions", there.partitions) < there.partitions:
        del changes["partitions"]  # more were added by themselves since
    return changes


def _puts(declared: Declaration, there: dict[str, CronEntry]) -> Iterator[Step]:
    """Entries that are new or differ."""
    from dejaqueue.schema.cron import FIELDS, CronEntry

    for name, entry in declared.entries.items():
        found = there.get(name)
        compared = found or CronEntry(name)
        wanted = replace(entry, next_ms=compared.next_ms, last_id=compared.last_id)
        if f"entries.{name}.paused" not in declared.said:
            wanted = replace(wanted, paused=compared.paused)
        if wanted.every_ms and not wanted.start_ms:
            # It begins when it is made, and the broker says since then when that was.
            wanted = replace(wanted, start_ms=compared.start_ms)
        values = {
            field: getattr(wanted, field)
            for field in FIELDS
            if getattr(wanted, field) != getattr(compared, field)
        }
        if values:
            before = {field: getattr(compared, field) for field in values} if found else {}
            yield Step("put", declared.topic.name, name, values=values, before=before, whole=wanted)


def _do(client: Client, step: Step) -> None:
    if step.action == "create":
        client.create_topic(step.topic, exist_ok=False, **step.values)
    elif step.action == "alter":
        client.alter_topic(step.topic, **step.values)
    elif step.action == "put":
        assert step.whole is not None
        client.cron(step.topic).put_all([step.whole])
    elif step.action == "drop":
        client.cron(step.topic).drop(step.entry)
    else:
        client.delete_topic(step.topic)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    """A value as a file has it."""
    import json

    return json.dumps(_plain(value), ensure_ascii=False, default=str)
