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
_LEFT_ALONE = ("paused", "partitions", "labels")
"""What operators, the broker and programs change: it stays as it is unless the file has it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that `dejaq apply` does.

    Attributes:
        action: create, alter or delete a topic; put or drop a subscription, or an entry of a cron
            topic.
        values: what a topic or an entry gets.
        before: what it has of that now; empty = it is made.
        loses: live messages that are deleted with a topic, or that a subscription still has.
        whole: the entry that is put.
    """

    action: str
    topic: str
    entry: str = ""
    subscription: str = ""
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
            "subscription": self.subscription,
            "changes": {
                name: {"before": _plain(self.before.get(name)), "after": _plain(value)}
                for name, value in self.values.items()
            },
            "loses": self.loses,
        }

    def __str__(self) -> str:
        what = f"topic {self.topic}"
        if self.entry or self.subscription:
            kind = "entry" if self.entry else "subscription"
            what = f"{kind} {self.entry or self.subscription} of {self.topic}"
        text = f"{_SIGNS[self.action]} {self.action} {what}"
        if self.action == "delete" or (self.action == "drop" and self.subscription):
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
    help="Delete topics, with their messages, subscriptions and cron entries that the file does "
    "not have. Dead-letter topics of topics and subscriptions that stay, stay too.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option("Print the plan as JSON lines.")
@url_option
def apply(file: Path, *, dry_run: bool, prune: bool, yes: bool, as_json: bool, url: str) -> None:
    """Make topics, subscriptions, settings and cron entries what a TOML FILE says.

    Shows what would change and asks before it does. A setting that the file does not have gets its
    default, but for `paused`, `partitions` and `labels`, which stay as they are.
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
    before = there.settings()
    for name, value in wanted.settings().items():
        if name not in CHANGEABLE and value != before[name]:
            yield _as_made(f"topics.{wanted.name}.{name}", before[name], value)
    for name, values in wanted.subscriptions.items():
        known = there.subscriptions.get(name, values)
        for fixed in ("order", "start"):
            # Where it began is past: it is compared only if the file says it.
            is_compared = fixed == "order" or f"subscriptions.{name}.start" in declared.said
            if is_compared and values[fixed] != known[fixed]:
                where = f"topics.{wanted.name}.subscriptions.{name}.{fixed}"
                yield _as_made(where, known[fixed], values[fixed])
    is_fewer = "partitions" in declared.said and wanted.partitions < there.partitions
    if is_fewer and not wanted.auto_partitions:
        limit = f"at least {there.partitions}: partitions are added and never taken away"
        yield BadRequest(f"topics.{wanted.name}.partitions", limit, wanted.partitions)


def _as_made(field: str, before: object, value: object) -> BadRequest:
    limit = f"{before!r}, as it was made (delete it, and make it again, to change that)"
    return BadRequest(field, limit, value)


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
    from dejaqueue.topic_names import subscription_name

    drops: list[Step] = []
    for one in declared:
        found = there.get(one.topic.name)
        if found is None:
            yield Step("create", one.topic.name, values=_settings(one))
        elif changes := _changes(one, found):
            before = {name: found.settings()[name] for name in changes}
            yield Step("alter", found.name, values=changes, before=before)
        if found is not None:
            yield from _subscribed(one, found)
            # One that ends by itself is somebody's who listens.
            gone = [
                name
                for name, own in found.subscriptions.items()
                if name not in one.topic.subscriptions and not own.get("ephemeral_ms")
            ]
            for name in gone if prune else ():
                loses = _live(client, subscription_name(found.name, name))
                drops.append(Step("drop", found.name, subscription=name, loses=loses))
        entries = {}
        if found is not None and found.kind == "cron":
            entries = {entry.name: entry for entry in client.cron(found.name).entries()}
        yield from _puts(one, entries)
        gone = [name for name in entries if name not in one.entries]
        drops += [Step("drop", one.topic.name, name) for name in gone]
    if not prune:
        return
    yield from drops
    kept = {name for one in declared for name in _needed(one.topic)}
    for name in there:
        if name not in kept:
            yield Step("delete", name, loses=_live(client, name))


def _needed(topic: Topic) -> Iterator[str]:
    """The topic's name, and those of the topics that its dead letters go to."""
    yield topic.name
    yield topic.dead_letter_name
    for name in topic.subscriptions:
        yield topic.subscribed(name).dead_letter_name


def _live(client: Client, name: str) -> int:
    """How many messages a topic or subscription has."""
    counts = client.stats(name)
    return counts.scheduled + counts.leased  # what is ready is scheduled, too


def _settings(declared: Declaration) -> dict[str, Any]:
    """What the file says of a topic that is to be made."""
    values = declared.topic.settings()
    return {name: values[name] for name in values if name in declared.said}


def _changes(declared: Declaration, there: Topic) -> dict[str, Any]:
    """Settings that differ, but for subscriptions; see _LEFT_ALONE."""
    before = there.settings()
    changes = {
        name: value
        for name, value in declared.topic.settings().items()
        if value != before[name] and (name in declared.said or name not in _LEFT_ALONE)
    }
    changes.pop("subscriptions", None)
    if changes.get("partitions", there.partitions) < there.partitions:
        del changes["partitions"]  # more were added by themselves since
    return changes


def _subscribed(declared: Declaration, there: Topic) -> Iterator[Step]:
    """Subscriptions that are new or differ; a value None = the topic's again."""
    from dejaqueue.subscriptions import EPHEMERAL, OWN_SETTINGS, SETTINGS, TAG_SETTINGS

    for name, wanted in declared.topic.subscriptions.items():
        before = there.subscriptions.get(name)
        if before is None:
            yield Step("put", there.name, subscription=name, values=wanted)
            continue
        fields = (EPHEMERAL, *TAG_SETTINGS, *OWN_SETTINGS)
        names = [field for field in fields if wanted.get(field) != before.get(field)]
        if f"subscriptions.{name}.paused" not in declared.said and "paused" in names:
            names.remove("paused")
        if names:
            values = {field: wanted.get(field) for field in names}
            known = {field: before[field] for field in SETTINGS if field in before}
            yield Step("put", there.name, subscription=name, values=values, before=known)


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
    elif step.subscription and step.action == "put":
        client.create_subscription(step.topic, step.subscription, **step.values)
    elif step.subscription:
        client.delete_subscription(step.topic, step.subscription)
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
