"""`dejaq pipeline`: programs for Spark around a broker.

Room: cli.
See: pipelines/, where every one is a file with its options; docs/guides/pipelines.md.
"""

from __future__ import annotations

import click


class Pipelines(click.Group):
    """Finds pipelines where they are; there is no list to keep."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        from dejaqueue import pipelines

        return pipelines.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one; None if there is none of that name."""
        from dejaqueue import pipelines
        from dejaqueue.pipelines.frame import make_command

        if cmd_name not in pipelines.names():
            return None
        return make_command(pipelines.find(cmd_name))


@click.group(
    cls=Pipelines,
    epilog="Needs PySpark and Java 17 or newer: `pip install 'dejaqueue[spark]'`. "
    "On a cluster: --master, or spark-submit.",
)
def pipeline() -> None:
    """Programs for Apache Spark: schedule tables, look ahead, and what comes after."""
