"""What is staged in a partition: for whom more is taken, and which keys siblings have.

Room: broker. Runs on the partition's worker.
Holds: nothing is staged once the transaction's time is over; no principal has more transactions
open here than its quota, as far as they began since the start.
See: rule 12; transactions.py for what becomes of it; access/quotas.py for the quota.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dejaqueue import limits
from dejaqueue.access.quotas import TRANSACTIONS, Account
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import DejaQError, Refused, ResourceExhausted

HOLDERS_MAX = 1_000
"""Principals whose transactions in one partition are counted before the list is looked through."""
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class StageOf(Stage):
    """A stage, and whose it is.

    Attributes:
        account: for whose quota it counts; None = nobody's. Not kept in the journal.
    """

    account: Account | None = None


class StageHolders:
    """Who began which transactions in one partition; some of them may be decided by now.

    Those from before a start count for nobody: they end within their time.
    """

    def __init__(self) -> None:
        self._staged: dict[str, set[str]] = {}

    def refusal(
        self, core: PartitionCore, transaction: str, account: Account
    ) -> ResourceExhausted | None:
        """Why somebody cannot stage one more transaction; if it can, that is noted."""
        limit, has_staged = account.limit(TRANSACTIONS), core.engine.has_staged
        own = self._staged.setdefault(account.holder, set())
        if (limit and len(own) >= limit) or len(own) >= limits.TRANSACTIONS_OPEN_MAX:
            own.intersection_update([name for name in own if has_staged(name)])
        if limit and len(own) >= limit:
            return account.refused(TRANSACTIONS, limit, len(own) + 1)
        own.add(transaction)
        if len(self._staged) > HOLDERS_MAX:
            open_ones = {
                one: {n for n in names if has_staged(n)} for one, names in self._staged.items()
            }
            self._staged = {one: names for one, names in open_ones.items() if names}
        return None


def stage_refusal(core: PartitionCore, stage: Stage, holders: StageHolders) -> DejaQError | None:
    """Why nothing more can be staged for a transaction; None if it can, which is noted."""
    if core.now_ms() >= stage.until_ms:
        return Refused(f"transaction {stage.transaction} was aborted: its time is over")
    engine = core.engine
    if engine.has_staged(stage.transaction):
        return None
    if engine.staged_count >= limits.TRANSACTIONS_OPEN_MAX:
        return ResourceExhausted(
            f"{engine.staged_count} transactions are open in partition {core.number} of topic "
            f"{core.topic().name}, the limit",
            1_000,
        )
    account = stage.account if isinstance(stage, StageOf) else None
    return None if account is None else holders.refusal(core, stage.transaction, account)


def sibling_sequences(core: PartitionCore, stage: Stage | None) -> Int64s:
    """Messages that other branches of the same task staged in this partition, ascending.

    They are the same work done again, so they do not take each other's keys away.
    """
    if stage is None or "~" not in stage.transaction:
        return _NONE
    base, _, branch = stage.transaction.partition("~")
    family = f"{base[base.rindex('-') :]}~{branch.partition('.')[0]}."
    siblings = [
        name for name in core.engine.staged_ends() if family in name and name != stage.transaction
    ]
    if not siblings:
        return _NONE
    return core.engine.staged_sequences(siblings)
