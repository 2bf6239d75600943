"""The check of the demo on Spark: what came, against what the flights say should have come.

Room: cli. Spark reads both sides and joins them by key; no broker is asked.
Holds: what is expected is computed from the flights alone, by Spark's own clocks of time zones; the
pipeline under test uses Python's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECOND_MS = 1_000
COUNTS = (
    "sent", "delivered", "lost", "twice", "early", "unknown", "wrong_payload", "over_rate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """Counts of messages, unless a unit is named.

    Attributes:
        sent: rows of the audience.
        delivered: different keys that arrived.
        lost: are in the audience and did not arrive.
        twice: arrived more than once.
        early: arrived before their due time, or were due before the time that was asked for.
        unknown: arrived and are not in the audience.
        wrong_payload: arrived with other words than the template's.
        over_rate: messages more than the rate in the fullest second, wherever it begins.
        latenesses_ms: of each that arrived, int64 array, shape (delivered,).
        dues_ms: when each was due, the same shape.
    """

    sent: int
    delivered: int
    lost: int
    twice: int
    early: int
    unknown: int
    wrong_payload: int
    over_rate: int
    latenesses_ms: npt.NDArray[np.int64]
    dues_ms: npt.NDArray[np.int64]

    @property
    def is_good(self) -> bool:
        """True if each came once, at its time, as it should."""
        wrong = (self.lost, self.twice, self.early, self.unknown, self.wrong_payload)
        return not any(wrong) and not self.over_rate

    def figures(self) -> dict[str, int | float]:
        """Each figure by its printed name."""
        figures: dict[str, int | float] = {name: getattr(self, name) for name in COUNTS}
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            late = np.quantile(self.latenesses_ms, share) if len(self.latenesses_ms) else 0.0
            figures[f"lateness_{name}_ms"] = float(late)
        return figures


def check(
    expected: DataFrame, scheduled: DataFrame, arrived: DataFrame, campaign: str, rate: int
) -> Check:
    """Compare by key.

    Args:
        expected: columns user, asked_ms (UTC) and words (the payload).
        scheduled: columns key and due, as the broker had it before anything was due.
        arrived: columns key, payload and received_ms.
    """
    from pyspark.sql import functions as sql

    by_key = arrived.groupBy("key").agg(
        sql.count("*").alias("times"),
        sql.min("received_ms").alias("received_ms"),
        sql.min(sql.col("payload").cast("string")).alias("payload"),
    )
    keyed = expected.select(
        sql.concat(sql.lit(f"{campaign}:"), sql.col("user")).alias("key"), "asked_ms", "words"
    )
    both_sides = keyed.join(by_key, "key", "full_outer").join(scheduled, "key", "left")
    joined = both_sides.select(
        sql.col("asked_ms").isNotNull().alias("known"),
        sql.coalesce(sql.col("times"), sql.lit(0)).cast("bigint").alias("times"),
        "asked_ms",
        "due",
        "received_ms",
        (sql.col("payload") != sql.col("words")).alias("is_wrong"),
    )
    table = joined.toArrow()
    known = np.asarray(table["known"])
    times = table["times"].to_numpy()
    came = times > 0
    both = known & came
    asked, due, received = (
        table[name].fill_null(0).to_numpy()[both] for name in ("asked_ms", "due", "received_ms")
    )
    return Check(
        sent=int(known.sum()),
        delivered=int(both.sum()),
        lost=int((known & ~came).sum()),
        twice=int((times > 1).sum()),
        early=int(((received < due) | (due < asked)).sum()),
        unknown=int((~known).sum()),
        wrong_payload=int(np.asarray(table["is_wrong"].fill_null(False)).sum()),
        over_rate=over_rate(due, rate),
        latenesses_ms=(received - due).astype(np.int64),
        dues_ms=due.astype(np.int64),
    )


def over_rate(dues_ms: npt.NDArray[np.int64], rate: int) -> int:
    """By how much the fullest second, wherever it begins, has more messages than the rate.

    >>> over_rate(np.array([0, 500, 999, 1000]), 2)
    1
    """
    ordered = np.sort(dues_ms)
    counts = np.searchsorted(ordered, ordered + SECOND_MS, side="left") - np.arange(len(ordered))
    return max(int(counts.max(initial=0)) - rate, 0)
