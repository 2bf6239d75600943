"""What a partition owes to transactions: asks about those that were left, tells what it decided.

Room: broker. Runs on the partition's worker; answers of other partitions come on any thread.
Holds: nothing is staged once the transaction's time is over; whoever has something staged longer
than that learns what became of it.
See: transactions.py for who is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dejaqueue import limits
from dejaqueue.access.quotas import TRANSACTIONS, Account
from dejaqueue.broker.branches import EPOCH_MARK, Record
from dejaqueue.broker.deciding import RETRY_MS
from dejaqueue.broker.transaction_names import TransactionName
from dejaqueue.broker.transactions import Transactions
from dejaqueue.engine.commands import Remember, Stage
from dejaqueue.errors import DejaQError, Refused, ResourceExhausted

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

# Decisions forgotten in one step, so that due messages are not kept.
FORGET_MAX = 256
# Principals whose transactions in one partition are counted before the list is looked through.
HOLDERS_MAX = 1_000
_UNDER_WAY = limits.INSTANT_MS_MAX


@dataclass(frozen=True, slots=True)
class StageOf(Stage):
    """A stage, and whose it is.

    Attributes:
        account: for whose quota it counts; None = nobody's. Not kept in the journal.
    """

    account: Account | None = None


def refusal(partition: Partition, stage: Stage) -> DejaQError | None:
    """Why nothing more can be staged; None if it can."""
    if partition.now_ms() >= stage.until_ms:
        return Refused(f"transaction {stage.transaction} was aborted: its time is over")
    engine = partition.engine
    if engine.has_staged(stage.transaction):
        return None
    if engine.staged_count >= limits.TRANSACTIONS_OPEN_MAX:
        return ResourceExhausted(
            f"{engine.staged_count} transactions are open in partition {partition.number} of topic "
            f"{partition.topic().name}, the limit",
            1_000,
        )
    account = stage.account if isinstance(stage, StageOf) else None
    if account is None or partition.staged_watch is None:
        return None
    return partition.staged_watch.refusal(partition, stage.transaction, account)


class StagedWatch:
    """Sees to it that no transaction of one partition stays undecided or untold."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._is_new = True
        self._ask_ms: dict[str, int] = {}
        self._tell_ms: dict[str, int] = {}
        # By holder, the transactions that it began to stage here; some may be decided by now.
        self._staged: dict[str, set[str]] = {}

    def refusal(
        self, partition: Partition, transaction: str, account: Account
    ) -> ResourceExhausted | None:
        """Why somebody cannot stage one more transaction; if it can, that is noted. Those from
        before a start count for nobody: they end within their time."""
        limit, has_staged = account.limit(TRANSACTIONS), partition.engine.has_staged
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

    def loaded(self) -> None:
        """The partition was read again: whom it asked or told is not known any more."""
        self._is_new = True
        self._ask_ms.clear()
        self._tell_ms.clear()

    def next_ms(self, partition: Partition) -> int | None:
        """When to be called though nothing happens; None = no need."""
        ends = partition.engine.staged_ends()
        asks = [max(end_ms, self._ask_ms.get(name, 0)) for name, end_ms in ends.items()]
        times = [ms for ms in (*asks, *list(self._tell_ms.values())) if ms < _UNDER_WAY]
        return min(times, default=None)

    def step(self, partition: Partition) -> None:
        """Ask and tell what is due. Does not block."""
        engine, now_ms = partition.engine, partition.now_ms()
        ends = engine.staged_ends()
        if self._is_new:
            self._is_new = False
            # A decision that was made before the stop need not wait for the end of its time.
            for name in list(ends):
                self._ask(partition, name)
            for name, (_, told) in engine.decisions.items():
                if Record.parse(told).places:
                    self._tell(partition, name)
        for name, end_ms in list(ends.items()):
            if max(end_ms, self._ask_ms.get(name, 0)) <= now_ms:
                self._ask(partition, name)
        for name, at_ms in list(self._tell_ms.items()):
            if at_ms <= now_ms:
                self._tell(partition, name)
        if engine.decisions:
            self._forget(partition, now_ms)

    def tell_later(self, partition: Partition, name: str) -> None:
        """Not everybody could be told."""
        self._tell_ms[name] = partition.now_ms() + RETRY_MS

    def _ask(self, partition: Partition, name: str) -> None:
        self._ask_ms[name] = _UNDER_WAY

        def answered(decided: bool) -> None:
            if decided:
                self._ask_ms.pop(name, None)
            else:
                self._ask_ms[name] = partition.now_ms() + RETRY_MS
                partition.ring()

        topic = partition.topic().name
        self._transactions.resolve(name, topic, partition.number, answered)

    def _tell(self, partition: Partition, name: str) -> None:
        self._tell_ms[name] = _UNDER_WAY

        def answered(told: bool) -> None:
            if told:
                self._tell_ms.pop(name, None)
            else:
                self.tell_later(partition, name)
                partition.ring()

        self._transactions.tell_again(name, answered)

    @staticmethod
    def _forget(partition: Partition, now_ms: int) -> None:
        """Let go of old decisions that everybody knows, oldest first."""
        decisions = partition.engine.decisions
        crowd = len(decisions) - limits.TRANSACTION_DECISIONS_MAX
        forgotten: list[str] = []
        for name, (commit, told) in decisions.items():
            if told.startswith(EPOCH_MARK):
                continue  # of a sink, which may ask for its last epoch after any time
            record = Record.parse(told)
            old_ms = TransactionName.parse(name).until_ms + limits.TRANSACTION_MEMORY_MS
            # An abort is kept while a late commit could still come.
            too_many = commit and len(forgotten) < crowd
            if record.places or len(forgotten) == FORGET_MAX or not (too_many or old_ms < now_ms):
                break
            forgotten.append(name)
        for name in forgotten:
            partition.apply(Remember(now_ms, name, commit=None))
