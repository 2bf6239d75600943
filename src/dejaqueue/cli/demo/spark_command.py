"""`dejaq demo-spark`: a campaign to a year of flights, by Spark, and a check of every message.

Room: cli.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

EXIT_NOT_GOOD = 1


@click.command(
    "demo-spark",
    epilog="Examples: `dejaq demo-spark` · `dejaq demo-spark --date 2013-07-01 --seconds 5`",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3_600),
    default=15,
    show_default=True,
    help="How long messages fall due, from the first to the last; starting Spark comes on top.",
)
@click.option(
    "--rate",
    type=click.IntRange(1, 1_000_000),
    default=25_000,
    show_default=True,
    help="Messages a second at most.",
)
@click.option(
    "--date", "day", type=click.DateTime(["%Y-%m-%d"]), help="One day of 2013 instead of the year."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out/spark"),
    show_default=True,
    help="Folder for what arrived, as Parquet, and the page.",
)
def demo_spark(*, seconds: float, rate: int, day: datetime | None, out: Path) -> int:
    """Schedule the flights of 2013 with Spark, by local time where they go, and check every one.

    Starts a broker and a local Spark. The pipeline `campaign` schedules a message for each flight
    in the time zone of its destination, a streaming query drains the topic into Parquet, and both
    are compared by key. Nothing is opened beyond loopback. Prints a report, one `name value` a
    line. Ends with status 1 if a message was lost, early, twice or wrong.
    """
    from dejaqueue.cli.demo.spark_page import write_page
    from dejaqueue.cli.demo.spark_run import Options, run_demo

    options = Options(round(seconds * 1_000), rate, day.date() if day else None, out)
    result = run_demo(options)
    figures = result.figures()
    page = out / "report.html"
    for name, value in figures.items():
        shown = f"{value:.3f}" if isinstance(value, float) else "-" if value is None else value
        click.echo(f"{name} {shown}")
    for socket in result.sockets or ():
        click.echo(f"open beyond loopback: {socket}", err=True)
    write_page(page, result, figures)
    click.echo(f"report {page}")
    return 0 if result.is_good else EXIT_NOT_GOOD
