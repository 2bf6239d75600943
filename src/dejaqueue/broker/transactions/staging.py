"""What a partition owes to transactions: asks about those that were left, tells what it decided.

Room: broker. A chore of the partition, on its worker; answers of others come on any thread.
Holds: whoever has something staged learns what became of it, at the latest when the transaction's
time is over, and soon if it was staged after the decision; every decision reaches all who take
part, however often it has to be told.
See: coordinator.py, which asks and tells; staged.py for what may be staged.
"""

from __future__ import annotations

from dejaqueue import limits
from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.home import RETRY_MS
from dejaqueue.broker.transactions.names import TransactionName
from dejaqueue.broker.transactions.record import EPOCH_MARK, Record
from dejaqueue.engine.commands import Remember

# What arrives after its transaction was decided is not known as such: the home knows. A task that
# went on when its job had failed would otherwise hold its keys for hours. Asked again after twice
# the time, as most transactions that are as old as this are long ones.
ASK_FIRST_MS = 5_000
# Decisions forgotten in one step, so that due messages are not kept.
FORGET_MAX = 256
# Somebody is being asked or told: not again before the answer.
_UNDER_WAY = limits.INSTANT_MS_MAX


class StagedWatch(Chore):
    """Sees to it that no transaction of one partition stays undecided or untold."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._is_new = True
        self._ask_ms: dict[str, int] = {}
        self._tell_ms: dict[str, int] = {}
        self._set_count = 0

    def loaded(self, core: PartitionCore) -> None:
        """The partition was read again: whom it asked or told is not known any more."""
        self._set_count = core.time.set_count
        self._is_new = True
        self._ask_ms.clear()
        self._tell_ms.clear()

    def next_us(self, core: PartitionCore) -> int | None:
        """When the next one is to be asked or told, clock µs; None = nobody is."""
        if not self._tell_ms and not core.engine.staged_count:
            return None
        return wake_us(core, self._next_ms(core))

    def _next_ms(self, core: PartitionCore) -> int | None:
        asks = self._asks(core).values()
        times = [ms for ms in (*asks, *list(self._tell_ms.values())) if ms < _UNDER_WAY]
        return min(times, default=None)

    def _asks(self, core: PartitionCore) -> dict[str, int]:
        """When to ask about each transaction that has something staged here."""
        ends, asks = core.engine.staged_ends(), self._ask_ms
        if len(asks) > len(ends):
            for name in [name for name in list(asks) if name not in ends]:
                asks.pop(name, None)
        first_ms = core.now_ms() + ASK_FIRST_MS
        return {name: asks.setdefault(name, min(end, first_ms)) for name, end in ends.items()}

    def step(self, core: PartitionCore) -> None:
        """Ask and tell what is due. Does not block."""
        engine, now_ms = core.engine, core.now_ms()
        if core.time.set_count != self._set_count:
            self.loaded(core)  # it noted when to ask again, by the former time
        for text in self._coordinator.take_untold(core.topic().name, core.number):
            self._tell_later(core, text)
        if self._is_new:
            self._is_new = False
            # A decision that was made before the stop need not wait for the end of its time.
            for name in engine.staged_ends():
                self._ask(core, name)
            for name, (_, text) in engine.decisions.items():
                if Record.parse(text).places:
                    self._tell(core, name)
        for name, at_ms in self._asks(core).items():
            if at_ms <= now_ms:
                self._ask(core, name)
        for name, at_ms in list(self._tell_ms.items()):
            if at_ms <= now_ms:
                self._tell(core, name)
        if engine.decisions:
            self._forget(core, now_ms)

    def _tell_later(self, core: PartitionCore, name: str) -> None:
        """Not everybody could be told."""
        self._tell_ms[name] = core.now_ms() + RETRY_MS

    def _ask(self, core: PartitionCore, name: str) -> None:
        self._ask_ms[name] = _UNDER_WAY
        end_ms = core.engine.staged_ends()[name]

        def answered(is_decided: bool) -> None:
            if is_decided:
                self._ask_ms.pop(name, None)
            else:
                self._ask_ms[name] = self._again_ms(core, name, end_ms)
                core.ring()

        topic = core.topic().name
        self._coordinator.resolve(name, topic, core.number, answered)

    @staticmethod
    def _again_ms(core: PartitionCore, name: str, end_ms: int) -> int:
        """When to ask again about what was not decided. Any thread."""
        now_ms = core.now_ms()
        age_ms = now_ms - TransactionName.parse(name).began_ms
        return max(min(now_ms + max(age_ms, ASK_FIRST_MS), end_ms), now_ms + RETRY_MS)

    def _tell(self, core: PartitionCore, name: str) -> None:
        self._tell_ms[name] = _UNDER_WAY

        def answered(is_told: bool) -> None:
            if is_told:
                self._tell_ms.pop(name, None)
            else:
                self._tell_later(core, name)
                core.ring()

        self._coordinator.tell_again(name, answered)

    @staticmethod
    def _forget(core: PartitionCore, now_ms: int) -> None:
        """Let go of old decisions that everybody knows, oldest first."""
        decisions = core.engine.decisions
        crowd = len(decisions) - limits.TRANSACTION_DECISIONS_MAX
        forgotten: list[str] = []
        for name, (commit, text) in decisions.items():
            if text.startswith(EPOCH_MARK):
                continue  # of a sink, which may ask for its last epoch after any time
            record = Record.parse(text)
            old_ms = TransactionName.parse(name).until_ms + limits.TRANSACTION_MEMORY_MS
            # An abort is kept while a late commit could still come.
            too_many = commit and len(forgotten) < crowd
            if record.places or len(forgotten) == FORGET_MAX or not (too_many or old_ms < now_ms):
                break
            forgotten.append(name)
        for name in forgotten:
            core.apply(Remember(now_ms, name, commit=None))
