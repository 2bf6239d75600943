"""Write the generated parts of the documentation, or check that they are what they should be.

    python scripts/generate_reference.py            write
    python scripts/generate_reference.py --check    exit status 1 if a page is stale

A page holds its text by hand and what a list can say between two markers:

    <!-- generated: errors -->  …  <!-- end of generated -->

Room: scripts. Reads src, bench/results and the pages; writes nothing outside of docs and README.md.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"(?P<open><!-- generated: (?P<name>[a-z_.-]+) -->\n).*?(?P<close><!-- end of generated -->)",
    re.DOTALL,
)
WRAPPED = re.compile(r"\s*\n\s*")


def cell(text: object) -> str:
    """A text that fits into one cell of a Markdown table."""
    return WRAPPED.sub(" ", str(text)).replace("|", "\\|").strip()


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def sentence(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return cell((doc or "").strip().split("\n\n")[0])


def spelled(number: int) -> str:
    """A number with thousands apart; powers of two from 64 Ki on also by their unit."""
    shown = f"{number:,}"
    for bits, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if number >= 1 << 16 and number % (1 << bits) == 0 and number >> bits < 1 << 14:
            return f"{shown} ({number >> bits} {unit})"
    return shown


# One function per block, in the order of the pages.


def errors_block() -> str:
    """Every error, by number."""
    from dejaqueue.errors import all_errors

    rows: list[tuple[object, ...]] = []
    for kind in all_errors():
        parent = kind.__mro__[1].__name__
        name = f"`{kind.__name__}`" if parent == "Exception" else f"`{kind.__name__}` ({parent})"
        retry = "yes" if kind.retry else "no"
        status = f"{kind.http_status} / `{kind.flight_status}`"
        rows.append((kind.number, name, retry, status, kind.exit_code, sentence(kind.__doc__)))
    head = ("number", "error (kind of)", "retry", "HTTP / Flight", "exit status", "when")
    return table(head, rows)


def row_statuses_block() -> str:
    """Every row status, in order of precedence."""
    source = (ROOT / "src/dejaqueue/model.py").read_text(encoding="utf-8")
    rows = list(enum_rows(source, "RowStatus"))
    return table(("number", "status", "when"), rows)


def enum_rows(source: str, class_name: str) -> Iterator[tuple[object, ...]]:
    """(value, name, the text below it) of each member of an enum."""
    tree = ast.parse(source)
    body = next(
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
            yield ast.literal_eval(node.value), f"`{node.targets[0].id}`", sentence(text)


def limits_block() -> str:
    """Every hard limit: the comment above a name is its reason."""
    from dejaqueue import limits

    rows: list[tuple[object, ...]] = []
    reason: list[str] = []
    fresh = False
    for line in (ROOT / "src/dejaqueue/limits.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = [*reason, line[2:]] if fresh else [line[2:]]
            fresh = True
        elif named := re.match(r"([A-Z][A-Z0-9_]*): Final", line):
            name = named[1]
            rows.append((f"`{name}`", spelled(getattr(limits, name)), " ".join(reason)))
            fresh = False  # a name right below shares the reason
    return table(("limit", "value", "reason"), rows)


def settings_block() -> str | None:
    """Every setting, with its default, its bounds and its reason."""
    if importlib.util.find_spec("dejaqueue.settings") is None:
        return None
    from dejaqueue.setting_words import range_words
    from dejaqueue.settings import BrokerSettings, known_settings

    parts: list[str] = []
    rows: dict[str, list[tuple[object, ...]]] = {}
    for group, name, field in known_settings():
        shown = field.default
        default = spelled(shown) if isinstance(shown, int) else f"{shown}"
        bounds = ", ".join(bound_words(item) for item in field.metadata)
        bounds = bounds or ("" if field.annotation is str else range_words(field))
        rows.setdefault(group, []).append((f"`{name}`", default, bounds, field.description))
    for group, found in rows.items():
        kind = BrokerSettings.model_fields[group].annotation
        parts.append(f"## {group}\n\n{sentence(kind.__doc__)}\n\n")
        parts.append(table(("setting", "default", "bounds", "meaning"), found) + "\n")
    return "".join(parts).rstrip("\n") + "\n"


def bound_words(bound: Any) -> str:
    """One bound of a setting, as words."""
    for attribute, word in (("ge", "at least"), ("gt", "over"), ("le", "at most"), ("lt", "below")):
        if hasattr(bound, attribute):
            return f"{word} {spelled(getattr(bound, attribute))}"
    return "not empty" if hasattr(bound, "min_length") else str(bound)


def topic_block() -> str:
    """Every setting of a topic."""
    from dejaqueue.model import CHANGEABLE, Topic

    source = (ROOT / "src/dejaqueue/model.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Topic")
    rows: list[tuple[object, ...]] = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = str(after.value.value)
        default = getattr(Topic("x"), name) if node.value is not None else "required"
        default = spelled(default) if isinstance(default, int) else str(default)
        text = {"name": "1 to 255 characters of `A-Z a-z 0-9 . _ -`.", "kind": KIND_TEXT}.get(
            name, text
        )
        later = "yes" if name in CHANGEABLE else "no"
        rows.append((f"`{name}`", default, later, text))
    return table(("setting", "default", "can change later", "meaning"), rows)


KIND_TEXT = (
    "What decides the order of ready messages: due time, priority, turns of groups; or a schedule."
)


def cli_block() -> str | None:
    """The help of every command of `dejaq`."""
    if importlib.util.find_spec("dejaqueue.cli.main") is None:
        return None
    from dejaqueue.cli import main as cli

    return "\n".join(command_help(cli.main, "dejaq", None))


def command_help(command: Any, path: str, parent: Any) -> Iterator[str]:
    """The help of a command and of what is below it, as Markdown."""
    import click

    context = click.Context(command, info_name=path.split()[-1], parent=parent)
    context.terminal_width = context.max_content_width = 100
    text = re.sub(r"\033\[[0-9;]*m", "", command.get_help(context)).rstrip()
    yield f"## {path}\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from command_help(below, f"{path} {name}", context)


def lifecycle_block() -> str | None:
    """What each command does in each state, as the engine's table has it."""
    if importlib.util.find_spec("dejaqueue.engine.transitions") is None:
        return None
    from dejaqueue.engine.transitions import REFUSALS, TRANSITIONS
    from dejaqueue.model import MessageState

    commands = list(dict.fromkeys(command for _, command in TRANSITIONS))
    # The one that has no row in the table is where each message begins and ends.
    states = [*(state for state in MessageState if state), MessageState.DONE]
    rows: list[tuple[object, ...]] = []
    for command in commands:
        row: list[object] = [command]
        for state in states:
            after, refused = TRANSITIONS.get((state, command)), REFUSALS.get((state, command))
            if after is not None:
                row.append(f"→ {after.name.lower()}")
            else:
                row.append("" if refused is None else f"`{refused.name}`")
        rows.append(tuple(row))
    return table(("command", *(state.name.lower() for state in states)), rows)


def plate_block(module: str) -> str:
    """The drawings of a module's door plate: what is indented in its docstring."""
    path = ROOT / "src/dejaqueue" / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = ROOT / "src/dejaqueue" / module.replace(".", "/") / "__init__.py"
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    drawn = [
        block for block in re.split(r"\n\s*\n", doc) if block.startswith("    ") and "\n" in block
    ]
    if not drawn:
        raise ValueError(f"{path}: nothing is drawn on the door plate")
    return "\n\n".join("```text\n" + textwrap.dedent(block) + "\n```" for block in drawn) + "\n"


FIGURES = (
    ("throughput", "enqueue", "send, batches of 1,000, one producer"),
    ("throughput", "lease_ack", "lease and ack, 1,000 at a time"),
    ("throughput", "single", "send, 64 producers, one message for each call"),
    ("lateness", "p50", "lateness at 10,000 messages/s, half within"),
    ("lateness", "p99", "lateness at 10,000 messages/s, 99 % within"),
    ("hot_instant", "drained", "a million messages due in one millisecond, all acked"),
    ("scale", "memory_per_message", "memory of each of 100 million scheduled messages"),
    ("scale", "restart", "start with 100 million scheduled messages"),
)
PEERS = ("redis", "beanstalkd")


def figures_block() -> str:
    """The figures that matter most, of the last benchmark; says plainly when there are none."""
    latest = ROOT / "bench" / "results" / "latest.json"
    if not latest.exists():
        return "No figures yet: `make bench` measures and writes them.\n"
    found = {
        (row["question"], row["case"], row["system"]): row
        for row in json.loads(latest.read_text(encoding="utf-8"))
    }
    rows: list[tuple[object, ...]] = []
    for question, case, words in FIGURES:
        ours = found.get((question, case, "dejaq"))
        if ours is None:
            continue
        peers = [found.get((question, case, peer)) for peer in PEERS]
        shown = [measured(row) for row in (ours, *peers)]
        ratio = f"{ours['ratio']:.1f} × {ours['ratio_to']}" if ours["ratio_to"] in PEERS else ""
        rows.append((words, *shown, ratio))
    asked = dict.fromkeys(question for question, _, _ in FIGURES)
    made = table(("what", "DejaQ", "Redis", "beanstalkd", "ratio"), rows)
    return f"{made}\n{measured_at(*asked)}\n"


PEERS_CASES = (
    ("deliver_p50", "send to delivered, 100 messages/s: half within"),
    ("deliver_p99", "the same: 99 % within"),
    ("send_1", "one connection, one send after the other"),
    ("send_64", "64 connections, one message a call each"),
    ("send_64_server_us", "the same: the server's processor time of a message"),
    ("take_1", "consume and ack one by one"),
    ("delay_p50", "delays of 0.2 to 2 s: half within"),
    ("delay_p99", "the same: 99 % within"),
)
PEERS_SYSTEMS = {
    "DejaQ, Python": ("dejaq",),
    "DejaQ, Go": ("dejaq_go",),
    # A stream has no delays.
    "Redis, Go": ("redis_streams_go", "redis_sorted_set_go"),
    "JetStream, Go": ("jetstream_go",),
    "RabbitMQ quorum, Go": ("rabbitmq_quorum_go",),
    "PostgreSQL, Go": ("postgresql_go",),
}


def peers_figures_block() -> str:
    """One message a call beside others, won or lost; says plainly when there are none."""
    kept = json.loads((ROOT / "bench" / "results" / "latest.json").read_text(encoding="utf-8"))
    found = {(row["case"], row["system"]): row for row in kept if row["question"] == "peers"}
    if not found:
        return "No figures yet: `make bench-peers` measures and writes them.\n"
    rows: list[tuple[object, ...]] = []
    for case, words in PEERS_CASES:
        shown = [
            next((measured(found[case, one]) for one in systems if (case, one) in found), "")
            for systems in PEERS_SYSTEMS.values()
        ]
        rows.append((words, *shown))
    return f"{table(('what', *PEERS_SYSTEMS), rows)}\n{measured_at('peers')}\n"


CLUSTER = (
    "enqueue_jetstream",
    "enqueue_postgresql",
    "failover_jetstream",
    "failover_postgresql",
    "failover_jetstream_leader",
)


def cluster_figures_block() -> str:
    """The same of a cluster, in a sentence."""
    kept = json.loads((ROOT / "bench" / "results" / "latest.json").read_text(encoding="utf-8"))
    found = {row["case"]: row for row in kept if row["question"] == "cluster"}
    copies, table_rows, beside, on_server, leader = (measured(found[case]) for case in CLUSTER)
    return (
        f"`make bench-cluster`, all of it on one machine with two processors: {copies} with three "
        f"copies, each on disk; {table_rows} into PostgreSQL; a broker with a million scheduled "
        f"messages is killed, and others deliver all of them after {beside} with JetStream beside "
        f"each, after {on_server} with PostgreSQL, and after {leader} if the server that leads "
        f"JetStream dies with it.\n\n{measured_at('cluster')}\n"
    )


def kept_cases(question: str) -> dict[str, dict[str, Any]]:
    """The rows of a question, by case."""
    kept = json.loads((ROOT / "bench" / "results" / "latest.json").read_text(encoding="utf-8"))
    return {row["case"]: row for row in kept if row["question"] == question}


TRIGGERS = (
    ("as_fast", "none, or `processingTime` of 0"),
    ("every_second", '`processingTime="1 second"`'),
    ("available_now", "`availableNow`, started again and again"),
)


def spark_lateness_block() -> str:
    """How late a streaming read is by its trigger."""
    found = kept_cases("spark_lateness")
    if not found:
        return "No figures yet: `make bench-spark` measures and writes them.\n"
    rows: list[tuple[object, ...]] = []
    for case, words in TRIGGERS:
        names = (f"{case}_p50", f"{case}_p99", f"{case}_ceiling_p50", f"{case}_ceiling_p99")
        rows.append((words, *(measured(found[name]) for name in names)))
    head = ("trigger", "half within", "99 % within", "a source without a broker: half", "99 %")
    return f"{table(head, rows)}\n{measured_at('spark_lateness')}\n"


SCALERS = (
    ("backlog", "what is ready: `within=0`"),
    ("due_60s", "what is due within a minute: `within=60s`"),
    ("due_60s_unbounded", "the same, with `behavior` as below"),
    ("due_5m", "what is due within five minutes: `within=5m`"),
    ("all_there", "200 consumers from the beginning"),
)


def scaling_block() -> str:
    """How late messages are by what their consumers are scaled by."""
    found = kept_cases("scaling")
    rows: list[tuple[object, ...]] = []
    for case, words in SCALERS:
        names = [f"{when}_{case}_{part}" for when in ("at_once", "spread") for part in SCALED]
        rows.append((words, *(measured(found[name]) for name in names)))
    head = ("scaled by", "at nine sharp: p99", "cost", "within ten minutes: p99", "cost")
    return f"{table(head, rows)}\n{measured_at('scaling')}\n"


SCALED = ("p99", "consumers")


def measured_at(*questions: str) -> str:
    """Of which commits the figures of these questions are, and of which days."""
    runs = json.loads((ROOT / "bench" / "results" / "runs.json").read_text(encoding="utf-8"))
    places: dict[str, set[str]] = {}
    for question in questions:
        machine = runs[question]["machine"]
        places.setdefault(machine["commit"], set()).add(machine["date"].split()[0])
    shown = [f"`{commit}` ({', '.join(sorted(days))})" for commit, days in places.items()]
    return f"Measured at commit{'s' * (len(shown) > 1)} {', '.join(shown)}."


def measured(row: dict[str, Any] | None) -> str:
    """A figure with its unit, three digits that count; empty if it was not measured."""
    if row is None:
        return ""
    value = float(row["value"])
    if value >= 1_000:
        magnitude = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / magnitude) * magnitude:,} {row['unit']}"
    return f"{value:.3g} {row['unit']}"


def metrics_block() -> str:
    """Every metric of /metrics, by what it is about."""
    from dejaqueue.http.catalogue import GROUPS

    parts = []
    for title, metrics in GROUPS.items():
        rows = [metric_row(metric.shown_name, metric) for metric in metrics]
        head = ("metric", "type", "unit", "labels", "meaning")
        parts.append(f"### {title}\n\n{table(head, rows)}")
    return "\n".join(parts)


def metric_row(name: str, metric: Any) -> tuple[object, ...]:
    """The row of a metric, of the broker's or of a worker's page."""
    labels = " ".join(f"`{label}`" for label in metric.labels)
    return f"`{name}`", metric.type, metric.unit, labels, metric.meaning


def worker_metrics_block() -> str:
    """Every metric of a worker's page."""
    from dejaqueue.tasks.worker.metrics_page import METRICS

    rows = [metric_row(f"dejaq_worker_{metric.name}", metric) for metric in METRICS]
    return table(("metric", "type", "unit", "labels", "meaning"), rows)


def schemas_block() -> str:
    """The columns of every batch that crosses the wire."""
    from dejaqueue.schema import messages

    parts = []
    for name in ("SEND", "DELIVERY", "MOVE", "CANCEL", "SETTLE", "PEEK"):
        rows: list[tuple[object, ...]] = [
            (f"`{field.name}`", f"`{field.type}`", "" if field.nullable else "not null")
            for field in getattr(messages, name)
        ]
        parts.append(f"**{name}**\n\n{table(('column', 'Arrow type', 'nulls'), rows)}")
    return "\n".join(parts)


def actions_block() -> str:
    """Every action of the server: what it does, and what its body holds."""
    from dejaqueue.access.calls import ACTIONS, Call

    def fields(call: Call) -> str:
        named = [f"**`{n}`**" if n in call.required else f"`{n}`" for n in call.fields]
        return ", ".join([*named, *([call.more] if call.more else [])])

    rows: list[tuple[object, ...]] = [
        (f"`{call.name}`", call.sentence, fields(call)) for call in ACTIONS.values()
    ]
    return table(("action", "what it does", "fields of the body"), rows)


def rules_block() -> str:
    """What every call needs: actions and streams of Flight, routes of HTTP."""
    from dejaqueue.access import rules
    from dejaqueue.access.calls import ACTIONS, TICKETS
    from dejaqueue.access.roles import Role
    from dejaqueue.access.routes import ROUTES

    def words(rule: rules.Rule) -> str:
        if rule is rules.PUBLIC:
            return "open"
        if rule.peers:
            return "brokers of the cluster alone"
        if not rule.roles:
            return "—" if rule.also is None else "by what it names"
        if set(rule.roles) == set(Role):
            return "any"
        where = "" if rule.field else " on `*`"
        return ", ".join(f"`{role.value}`" for role in rule.roles) + where

    rows: list[tuple[object, ...]] = [
        *((f"stream `{name}`", f"`{role.value}`") for name, role in rules.WRITES.items()),
        ("stream of a consumer", "`consume`"),
        *((f"ticket `{call.name}`", words(call.rule)) for call in TICKETS.values()),
        *((f"action `{call.name}`", words(call.rule)) for call in ACTIONS.values()),
    ]
    routes: list[tuple[object, ...]] = [
        (f"`{route.method} {route.path}`", f"`{route.name}`", words(route.rule), route.sentence)
        for route in ROUTES.values()
    ]
    flight = table(("over Flight", "role"), rows)
    return flight + "\n" + table(("over HTTP", "operation", "role", "what it does"), routes)


def licences_block() -> str:
    """Every package that DejaQ runs with, and its licence."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import licences

    found = licences.rows(licences.PAGE.read_text(encoding="utf-8"))
    return table(("package", "versions", "licence", "locked in"), list(found))


BLOCKS: dict[str, Callable[[], str | None]] = {
    "errors": errors_block,
    "row-statuses": row_statuses_block,
    "limits": limits_block,
    "settings": settings_block,
    "topic": topic_block,
    "cli": cli_block,
    "lifecycle": lifecycle_block,
    "schemas": schemas_block,
    "actions": actions_block,
    "rules": rules_block,
    "figures": figures_block,
    "peers-figures": peers_figures_block,
    "cluster-figures": cluster_figures_block,
    "spark-lateness": spark_lateness_block,
    "scaling": scaling_block,
    "metrics": metrics_block,
    "worker-metrics": worker_metrics_block,
    "licences": licences_block,
}


def example_file() -> str | None:
    """A settings file with every setting."""
    if importlib.util.find_spec("dejaqueue.setting_words") is None:
        return None
    from dejaqueue.setting_words import example

    return example()


FILES: dict[str, Callable[[], str | None]] = {"docs/reference/dejaq.toml": example_file}
"""Files that are generated whole."""


def pages() -> list[Path]:
    """Every page that may hold a generated block."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regenerated(text: str) -> str:
    """The page with every generated block as it should be now.

    Raises:
        KeyError: a block has a name that nothing generates.
    """

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if name.startswith("plate."):
            made: str | None = plate_block(name.removeprefix("plate."))
        else:
            made = BLOCKS[name]()
        return found[0] if made is None else f"{found['open']}\n{made}\n{found['close']}"

    return BLOCK.sub(replace, text)


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    check = parser.parse_args().check
    stale = []
    for page in pages():
        if not page.exists():
            continue
        before = page.read_text(encoding="utf-8")
        after = regenerated(before)
        if after != before:
            stale.append(page.relative_to(ROOT))
            if not check:
                page.write_text(after, encoding="utf-8")
    for name, make in FILES.items():
        place, made = ROOT / name, make()
        before = place.read_text(encoding="utf-8") if place.exists() else ""
        if made is not None and made != before:
            stale.append(Path(name))
            if not check:
                place.write_text(made, encoding="utf-8")
    for path in stale:
        print(f"stale: {path} (make docs writes it)" if check else f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
