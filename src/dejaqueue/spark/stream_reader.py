"""Streaming read: what is due, batch by batch; a batch that is done again is the same.

Room: spark. Claims are made, held and acked on the driver, and read on the executors.
Holds: a batch is the claims that its offset names; they are acked when the next batch is planned,
which Spark does when this one is in the checkpoint, and not before.
See: broker/calls/claims.py for the other end; docs/adr/0009; docs/guides/spark.md.

An offset: {"batch": 7, "rows": 250, "claims": {"0": [[81, 125]], "1": [[77, 125]]}}: of each
partition the claims of this batch with their rows. The offset before it is not needed to read it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dejaqueue import limits
from dejaqueue.client.core import ClientCore
from dejaqueue.errors import DejaQError, Refused, Unavailable
from dejaqueue.spark.columns import Shaper
from dejaqueue.spark.options import Options

log = logging.getLogger("dejaqueue.spark")

STRETCH_ROWS = 65_536
"""Rows of one input partition at most."""

Claims = dict[str, list[list[int]]]
"""Numbers and rows of claims, by partition."""


@dataclass
class ClaimStretch(InputPartition):
    """A stretch of a claim, as a ticket."""

    ticket: dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is due in a topic."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None
        self._ends = False
        self._rows_left: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What executors get: nothing of the driver's."""
        return self.__dict__ | {"_driver": None}

    @property
    def _here(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    # --- what Spark calls on the driver -----------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Before the first batch."""
        return {"batch": 0, "rows": 0, "claims": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the options say."""
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends when it has read as many rows as are due at its first batch."""
        self._ends, self._rows_left = True, None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Ack the batch before, which is done, and claim the next one; `start` = nothing is due."""
        here = self._here
        here.ack(start["claims"])
        rows, byte_count = _limits_of(limit)
        if self._rows_left is not None:
            rows = min(rows, self._rows_left)
        claims = here.claim(rows, byte_count) if rows > 0 else {}
        if not claims:
            return start
        count = sum(rows for numbers in claims.values() for _, rows in numbers)
        if self._ends:
            left = count + here.ready if self._rows_left is None else self._rows_left
            self._rows_left = left - count
        return {"batch": start["batch"] + 1, "rows": count, "claims": claims}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The backlog, for the query's progress: how many messages were due beside the batch."""
        return {"ready": self._here.ready}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The claims of a batch, in stretches; from now on they are held."""
        if start == end:
            return []
        self._here.hold(end["claims"])
        stretches: list[InputPartition] = []
        for partition, claims in end["claims"].items():
            for number, rows in claims:
                ticket = {
                    "op": "claim",
                    "topic": self._options.served,
                    "partition": int(partition),
                    "claim": number,
                }
                edges = [*range(0, rows, STRETCH_ROWS), rows]
                stretches += [
                    ClaimStretch(ticket | {"first": low, "end": high})
                    for low, high in pairwise(edges)
                ]
        return stretches

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to this offset is done: ack it."""
        self._here.ack(end["claims"])

    def stop(self) -> None:
        """The query ends; what it claimed and did not finish waits for its restart."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    # --- what Spark calls on executors ------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a stretch."""
        assert isinstance(partition, ClaimStretch)
        shaper = Shaper(self._schema, self._options.topic)
        try:
            for batch in self._options.scan(partition.ticket | {"columns": shaper.wanted}):
                yield shaper.shape(batch)
        except Refused as over:
            if not self._options.skips_lost:
                raise
            log.warning("left out, as it is somebody else's now: %s", over)


def _limits_of(limit: ReadLimit) -> tuple[int, int]:
    """Rows and bytes of a batch at most; 0 bytes = as rows say."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows, 0
    # A batch of everything is bounded, too: the next one follows at once.
    return limits.CLAIM_ROWS_MAX, limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0


class _Driver:
    """The driver's connection: claims, and a thread that holds those of the batch on its way.

    Attributes:
        ready: how many more messages were due when it claimed last.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._core: ClientCore = options.client("spark-stream")
        self.ready = 0
        self._mutex = threading.Lock()
        self._held: Claims = {}
        self._acked: list[Claims] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, rows: int, byte_count: int) -> Claims:
        """Claim up to so many rows, and about so many bytes (0 = any), of all partitions alike."""
        named = {"name": self._options.topic}
        count = int(self._core.call("describe_topic", named)["partitions"])
        claims: Claims = {}
        ready: dict[int, int] = {}
        left, partitions = rows, list(range(count))
        while left > 0 and partitions:
            share, full = -(-left // len(partitions)), []
            for partition, wanted, got in self._asked(partitions, share, left, byte_count):
                ready[partition] = got["ready"]
                if got["claim"] is not None:
                    claims.setdefault(str(partition), []).append([got["claim"], got["rows"]])
                    left -= got["rows"]
                if got["rows"] == wanted:
                    full.append(partition)
            partitions = full
        self.ready = sum(ready.values())
        self._keep(claims)
        return claims

    def _asked(
        self, partitions: list[int], share: int, left: int, byte_count: int
    ) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Ask partitions for a share each, all at once: partition, rows, and the answer."""
        asked: list[tuple[int, dict[str, Any], Future[dict[str, Any]]]] = []
        for partition in partitions:
            wanted = min(share, left, limits.CLAIM_ROWS_MAX)
            if wanted <= 0:
                break
            left -= wanted
            body: dict[str, Any] = {"topic": self._options.served, "partition": partition}
            body |= {"rows": wanted, "lease_ms": self._options.claim_ms}
            if byte_count:
                body["bytes"] = -(-byte_count // len(partitions))
            asked.append((partition, body, self._core.transport.action("claim", body)))
        for partition, body, answer in asked:
            try:
                got = answer.result()
            except Unavailable:
                # A broker died, which is no reason for a query to end. If it had claimed something,
                # that is in no batch, and comes back when the time of the claim is over.
                got = self._core.call("claim", body)
            yield partition, body["rows"], got

    def ack(self, claims: Claims) -> None:
        """Ack claims, once."""
        if not claims or claims in self._acked:
            return
        with self._mutex:
            if self._held == claims:
                self._held = {}
        lost = self._core.call("ack_claims", self._body(claims))["lost"]
        self._acked = [*self._acked[-1:], claims]
        if lost:
            # After a restart it may have been acked before.
            log.info("topic %s: claims that were over already: %s", self._options.served, lost)

    def hold(self, claims: Claims) -> None:
        """Extend these claims from now on, until they are acked or the query ends."""
        if self._keep(claims) and claims:
            self._extend(claims)

    def _keep(self, claims: Claims) -> bool:
        """As `hold`, of claims whose time has just begun; True if they are others than before."""
        with self._mutex:
            is_new, self._held = self._held != claims, claims
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dejaq-claims", daemon=True)
            self._thread.start()
        return is_new

    def close(self) -> None:
        """End the thread and the connection."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._core.close()

    def _run(self) -> None:
        while not self._over.wait(self._options.claim_ms / 3000):
            with self._mutex:
                claims = self._held
            if claims:
                try:
                    self._extend(claims)
                except DejaQError as wrong:
                    log.warning("topic %s: claims not extended: %s", self._options.served, wrong)

    def _extend(self, claims: Claims) -> None:
        body = self._body(claims) | {"lease_ms": self._options.claim_ms}
        lost = self._core.call("extend_claims", body)["lost"]
        if lost:
            log.warning("topic %s: claims that returned: %s", self._options.served, lost)

    def _body(self, claims: Claims) -> dict[str, Any]:
        numbers = {name: [number for number, _ in rows] for name, rows in claims.items()}
        return {"topic": self._options.served, "claims": numbers}
