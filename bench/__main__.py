"""The command `python -m bench`: measures, prints, plots, keeps.

Room: bench. Reads arguments, calls the questions, writes files; decides nothing else.
"""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench import against as against_commit
from bench import machine, page, plots, results
from bench.registry import NAMES, available
from bench.results import QUESTIONS, Outcome
from bench.systems import peers
from bench.systems.system import Plan
from dev.reaper import start_reaper

ROOT = Path(__file__).resolve().parent
KEPT = ROOT / "results"
PAGE = ROOT.parent / "docs" / "benchmarks.md"
OTHER_WORK_PERCENT_MAX = 20.0
"""Above this a run says more about the other programs."""
DEFAULT_QUESTIONS = tuple(
    question
    for question in QUESTIONS
    if question
    not in {
        "subscriptions",
        "doq",
        "scale",
        "spark_lateness",
        "journals",
        "beside",
        "bytes",
        "cluster",
        "many",
        "processes",
        "workers",
        "peers",
        "sqs",
        "console",
        "scaling",
        "sizes",
        "spike",
        "starting",
    }
)


def _kept(arguments: list[str]) -> list[str]:
    """Arguments as they are kept: without where this machine had its files.

    >>> _kept(["scaling", "--out", "/somewhere/out", "--keep", "--out=/elsewhere"])
    ['scaling', '--keep']
    """
    pairs = zip(["", *arguments], arguments, strict=False)
    return [
        one
        for before, one in pairs
        if before != "--out" and one != "--out" and not one.startswith("--out=")
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("questions", nargs=-1, type=click.Choice(QUESTIONS))
@click.option("-q", "--question", "more", multiple=True, type=click.Choice(QUESTIONS))
@click.option("--rows", default=1_000_000, show_default=True, help="Messages of a case at most.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of a case at most.")
@click.option("--rounds", default=5, show_default=True, help="Turns of every system.")
@click.option("--senders", default=64, show_default=True, help="Producers of the case `single`.")
@click.option("--messages", default=100_000_000, show_default=True, help="Where it takes many.")
@click.option("--systems", default="all", show_default=True, help="Which, by name.")
@click.option("--quick", is_flag=True, help="A run of seconds that shows that everything works.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=ROOT / "out", help="Plots, servers."
)
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep results, whatever else ran; by default if the machine was quiet and not --quick.",
)
@click.option("--page", "page_only", is_flag=True, help="Only write the page from what is kept.")
@click.option("--against", default="", metavar="COMMIT", help="This tree and that one in turns.")
def main(
    questions: tuple[str, ...],
    more: tuple[str, ...],
    rows: int,
    seconds: float,
    rounds: int,
    senders: int,
    messages: int,
    systems: str,
    quick: bool,
    out: Path,
    keep: bool | None,
    page_only: bool,
    against: str,
) -> None:
    """Measure DejaQ and its peers, in turn, on this machine.

    QUESTIONS: throughput, kinds, lateness, pollers, hot_instant, fair, http, topics, spark, parts
    (all by default); and subscriptions, doq, scale, spark_lateness, journals, bytes, cluster,
    many, processes, workers, peers, sqs, console, scaling, sizes, spike, starting.
    """
    start_reaper()
    known = tuple(dict.fromkeys((*NAMES, *peers.NAMES)))
    names = known if systems == "all" else tuple(name.strip() for name in systems.split(","))
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"one of {', '.join(known)}, got: {name}", param_hint="systems"
            )
    if quick:
        rows, seconds, rounds, messages = min(rows, 20_000), min(seconds, 1.0), 1, 200_000
    plan = Plan(rows, seconds, rounds, senders, out / "servers", names, messages, quick)
    asked = dict.fromkeys((*questions, *more)) or DEFAULT_QUESTIONS
    if against:
        size = ["--rows", str(rows), "--seconds", str(seconds), "--senders", str(senders)]
        for question in asked:
            compare(question, against, rounds, out, size)
        return
    for question in () if page_only else asked:
        answer(question, plan, out, keep=not quick if keep is None else keep, force=bool(keep))
    if page_only or keep is not False:
        page.update(PAGE, *results.load(KEPT))


def compare(question: str, commit: str, rounds: int, out: Path, size: list[str]) -> None:
    """Measure a question with this tree and another commit, in turns; print the ratios."""
    console = Console()
    other = machine.OtherWork()
    try:
        ratios = against_commit.measure(
            question, commit, rounds, out, size, lambda text: console.print(text, style="dim")
        )
    except ValueError as wrong:
        raise click.BadParameter(str(wrong), param_hint="against") from None
    against_commit.show(question, commit, ratios, console)
    console.print(f"other programs used {other.percent()} % of the machine's cores")


def answer(question: str, plan: Plan, out: Path, *, keep: bool, force: bool) -> None:
    """Measure one question; print it, plot it, keep it if the machine was quiet or by force."""
    console = Console()
    plan.folder.mkdir(parents=True, exist_ok=True)
    facts = machine.facts(plan.folder)
    if facts["file_system"] in {"tmpfs", "ramfs"}:
        console.print(f"[yellow]{plan.folder} is in memory: nothing is durable there[/yellow]")
    other = machine.OtherWork()
    asked = importlib.import_module(f"bench.questions.{question}")
    outcome: Outcome = asked.measure(plan, lambda text: console.print(text, style="dim"))
    facts["versions"] |= {kind.name: kind.version() for kind in available(plan.systems)[0]}
    facts["versions"] |= outcome.versions
    facts["other_work_percent"] = other.percent()
    command = shlex.join(["python", "-m", "bench", *_kept(sys.argv[1:])])
    busy = facts["other_work_percent"] > OTHER_WORK_PERCENT_MAX
    kept = KEPT if keep and (force or not busy) else out / "results"
    results.store(kept, question, outcome, {"machine": facts, "command": command})
    (out / f"{question}.json").write_text(json.dumps(outcome.series))
    show(question, outcome, console)
    console.print(f"other programs used {facts['other_work_percent']} % of the machine's cores")
    if keep and busy and not force:
        console.print(
            f"not kept: over {OTHER_WORK_PERCENT_MAX:.0f} %; --keep keeps it", style="yellow"
        )
    for path in plots.draw(question, outcome, out) if outcome.rows else []:
        console.print(f"plot: {path}", style="dim")


def show(question: str, outcome: Outcome, console: Console) -> None:
    """Print the rows as a table, and what was left out."""
    table = Table(title=question, title_justify="left")
    for name in ("case", "system", "value", "unit", "least – most", "ratio"):
        table.add_column(name, justify="right" if name in ("value", "least – most") else "left")
    for row in outcome.rows:
        found = outcome.spreads.get(f"{row.system}/{row.case}")
        between = f"{page.number(found['low'])} – {page.number(found['high'])}" if found else ""
        ratio = f"{row.ratio:.2f} × {row.ratio_to}" if row.ratio is not None else ""
        table.add_row(row.case, row.system, page.number(row.value), row.unit, between, ratio)
    console.print(table)
    for reason in outcome.left_out:
        console.print(f"left out: {reason}", style="yellow")


if __name__ == "__main__":
    main()
