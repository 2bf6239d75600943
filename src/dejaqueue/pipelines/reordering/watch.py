"""How many rows the queries of a run have done.

Room: pipelines. Spark's own figures of each batch.
Holds: a batch is counted once; a query that failed raises here what was wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Tally:
    """Counts rows of queries.

    Attributes:
        figures: rows by name, and `batches`.
    """

    def __init__(self) -> None:
        self.figures: dict[str, int] = {"records_in": 0, "records_out": 0, "batches": 0}
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, int] = {}

    def add(self, name: str, query: StreamingQuery) -> None:
        """Count the rows of this query under a name."""
        self._queries[name] = query
        self._seen[name] = -1

    def finish(self, name: str, query: StreamingQuery) -> None:
        """Wait for a query that ends by itself. Raises what it failed with."""
        self.add(name, query)
        # Spark keeps the figures of the last hundred batches.
        while not query.awaitTermination(1):
            self._count(name)
        self._count(name)

    def poll(self, seconds: int) -> None:
        """Wait a while for any query to end. Raises what it failed with."""
        for name, query in self._queries.items():
            query.awaitTermination(seconds)
            self._count(name)

    def text(self) -> str:
        """All figures in a line."""
        return ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in self.figures.items())

    def stop(self) -> None:
        """End the queries that run."""
        for name, query in self._queries.items():
            query.stop()
            self._count(name)

    def _count(self, name: str) -> None:
        for batch in self._queries[name].recentProgress:
            # A batch without rows is one that was not, and its number is that of the next one.
            if batch.numInputRows > 0 and batch.batchId > self._seen[name]:
                self._seen[name] = batch.batchId
                self.figures[name] += batch.numInputRows
                self.figures["batches"] += 1
