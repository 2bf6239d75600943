"""`dejaq worker`: runs the tasks of a program.

Room: cli.
See: tasks/worker/; docs/guides/tasks.md.
"""

from __future__ import annotations

import signal
from pathlib import Path

import click

POOLS = ("threads", "processes", "asyncio")
MEGABYTE = 1 << 20


@click.command()
@click.argument("application", metavar="MODULE:APP")
@click.option(
    "-c",
    "--concurrency",
    default=8,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="Tasks at the same time.",
)
@click.option(
    "--pool",
    type=click.Choice(POOLS),
    default="threads",
    show_default=True,
    help="What runs them: threads or a loop of each process, or a process for each.",
)
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 512),
    help="Processes, each with so many tasks at the same time.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only tasks of this topic; may be given again. All unless given.",
)
@click.option(
    "--prefetch",
    default=0,
    type=click.IntRange(0, 100_000),
    help="Messages that a process holds ahead; 0 = as many as it takes.",
)
@click.option(
    "--lease-ms",
    default=10_000,
    show_default=True,
    type=click.IntRange(100),
    help="After this, messages of a machine that is gone are another's.",
)
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds that tasks may take when the worker stops.",
)
@click.option(
    "--max-tasks",
    default=0,
    type=click.IntRange(0),
    help="Replace a process after so many tasks; 0 = never.",
)
@click.option(
    "--max-memory-mb",
    default=0,
    type=click.IntRange(0),
    help="Replace a process that has more memory; 0 = never.",
)
@click.option(
    "--health-port",
    default=None,
    type=click.IntRange(0, 65_535),
    help="Serve /livez, /readyz and /metrics here.",
)
@click.option(
    "--health-host", default="127.0.0.1", show_default=True, help="Address of the health port."
)
@click.option("--reload", is_flag=True, help="Start anew when a source file below here changes.")
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged.",
)
@click.option(
    "--log-format",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "text", "json"]),
    help="For people or programs.",
)
def worker(
    application: str,
    *,
    concurrency: int,
    pool: str,
    processes: int,
    topics: tuple[str, ...],
    prefetch: int,
    lease_ms: int,
    grace: float,
    max_tasks: int,
    max_memory_mb: int,
    health_port: int | None,
    health_host: str,
    reload: bool,
    log_level: str,
    log_format: str,
) -> int:
    """Run the tasks of MODULE:APP, a dejaqueue.tasks.Tasks.

    SIGTERM and Ctrl-C finish what is at work, for as long as --grace says; again: what is at work
    is given back now, and another worker runs it.
    """
    from dejaqueue.logs import set_up
    from dejaqueue.settings import LogSettings
    from dejaqueue.tasks.worker.health import WorkerHealth
    from dejaqueue.tasks.worker.loading import load
    from dejaqueue.tasks.worker.source_watch import SourceWatch
    from dejaqueue.tasks.worker.supervisor import Supervisor, WorkerOptions
    from dejaqueue.tasks.worker.worker_process import ProcessOptions

    log_words = {"level": log_level, "format": log_format}
    set_up(LogSettings.model_validate(log_words))
    each = 1 if pool == "processes" else concurrency
    process = ProcessOptions(
        app=application,
        board="",
        pool="asyncio" if pool == "asyncio" else "threads",
        concurrency=each,
        prefetch=prefetch or max(16 * each, 64) if pool != "processes" else prefetch or 4,
        lease_ms=lease_ms,
        topics=topics,
        log=log_words,
    )
    count = processes * concurrency if pool == "processes" else processes
    options = WorkerOptions(process, count, grace, max_tasks, max_memory_mb * MEGABYTE)
    supervisor = Supervisor(load(application), options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    health = None
    if health_port is not None:
        health = WorkerHealth(supervisor, health_host, health_port)
        health.start()
        click.echo(f"health at port {health.port}", err=True)
    watch = SourceWatch(Path.cwd()) if reload else None

    def beside() -> None:
        if watch is not None and watch.has_changed():
            supervisor.reload()

    try:
        return supervisor.run(beside)
    finally:
        if health is not None:
            health.stop()
