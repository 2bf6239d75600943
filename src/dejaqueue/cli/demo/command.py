"""`dejaq demo`: a year of departures in a minute.

Room: cli.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import click

EXIT_NOT_GOOD = 1


@click.command(
    epilog="Examples: `dejaq demo` · `dejaq demo --date 2013-07-01 --seconds 30` · "
    "`dejaq demo --kill` · `dejaq demo --console`",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=60,
    show_default=True,
    help="How long the replay takes, from the first departure to the last.",
)
@click.option(
    "--date", "day", type=click.DateTime(["%Y-%m-%d"]), help="One day of 2013 instead of the year."
)
@click.option(
    "--notice-minutes",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    help="Simulated minutes before departure at which a delay becomes known.",
)
@click.option(
    "--notice-ms",
    type=click.IntRange(50),
    default=250,
    show_default=True,
    help="At least this many real milliseconds before: in a year that passes in a minute, "
    "30 minutes are 3 ms.",
)
@click.option(
    "--kill", is_flag=True, help="Kill the broker with SIGKILL half way and start it again."
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Three brokers with copies of everything; the one that serves the topic is killed, the "
    "next one is put to sleep for ten seconds.",
)
@click.option(
    "--console",
    is_flag=True,
    help="Say where the console is, and leave it open for a minute at the end, with all flights to "
    "come within an hour.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Keep the broker's directory, here.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    default=Path("demo-out/report.html"),
    show_default=True,
    help="Where the page goes.",
)
def demo(
    *,
    seconds: float,
    day: datetime | None,
    notice_minutes: int,
    notice_ms: int,
    kill: bool,
    cluster: bool,
    console: bool,
    data: Path | None,
    html: Path,
) -> int:
    """Replay the 336,776 flights that left New York in 2013, and check every one.

    Starts a broker and two consumers as processes. Every flight is a message due at its scheduled
    departure; late ones are moved by key to their real departure, those that never left are
    cancelled. Prints a report, one `name value` a line, and writes a page with charts. Ends with
    status 1 if a message was lost, early, delivered twice or wrong.
    """
    from dejaqueue.cli.demo.progress import make_progress
    from dejaqueue.cli.demo.run import Options, run_demo
    from dejaqueue.clock import SystemClock

    sys.setswitchinterval(0.0005)
    options = Options(
        length_ms=round(seconds * 1_000),
        day=day.date() if day else None,
        notice_minutes=notice_minutes,
        notice_ms=notice_ms,
        data=data,
        html=html,
        kill=kill and not cluster,
        cluster=cluster,
        console=console and not cluster,
    )
    with make_progress(SystemClock()) as progress:
        verdict = run_demo(options, progress)
    for line in verdict.lines():
        click.echo(line)
    click.echo(f"report {html}")
    return 0 if verdict.is_good else EXIT_NOT_GOOD
