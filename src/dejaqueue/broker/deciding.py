"""What the home of a transaction decides, and what the partitions that take part do then.

Room: broker. Runs on the worker of the home, or of a participant.
Holds: one decision per transaction; a home commits nothing once the transaction's time is over.
See: transactions.py, which asks and tells; branches.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.broker.branches import Place, Record, decide_family
from dejaqueue.broker.transaction_names import TransactionName, family_of
from dejaqueue.engine.commands import Decide, Remember
from dejaqueue.errors import Unavailable

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

RETRY_MS = 1_000
"""Who could not be asked or told is asked or told again after this."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a home decided, now or before, and who has to be told."""

    commit: bool
    record: Record


# --- on the worker of the home, or of a participant -------------------------------------------


def remember(home: Partition, name: TransactionName, record: Record, commit: bool) -> Decision:
    """Decide, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        before = Record.parse(known[1])
        if not before.places:  # its branches are decided: what is there still lost
            before = replace(record, branches=())
        return Decision(known[0], replace(before, places=_joined(before, record)))
    outcome = commit and home.now_ms() < name.until_ms
    return _write_down(home, name.text, record, outcome)


def remember_epoch(
    home: Partition, name: TransactionName, record: Record, until_ms: int
) -> Decision:
    """Commit an epoch, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    before = Record() if known is None else Record.parse(known[1])
    if before.epoch >= record.epoch:
        is_same = before.family == record.family
        branches = before.branches if is_same else ()
        places = _joined(before, record) if is_same else record.places
        return Decision(True, replace(record, branches=branches, places=places))
    if before.places:
        raise Unavailable(f"epoch {before.epoch} is being committed still", RETRY_MS)
    if home.now_ms() >= until_ms:
        return Decision(False, replace(record, branches=()))
    return _write_down(home, name.text, record, True)


def epochs_of(topic: str, query: str, sender: Sender) -> TransactionName:
    """Under which name its home remembers the last epoch of a sender's query."""
    family = family_of(sender, query)
    return TransactionName.parse(f"{topic}/0/{limits.INSTANT_MS_MAX}-1-{family}")


def _joined(before: Record, record: Record) -> tuple[Place, ...]:
    return tuple(dict.fromkeys([*before.places, *record.places]))


def _write_down(home: Partition, text: str, record: Record, commit: bool) -> Decision:
    """The decision is made: keep it, and do it in the home itself."""
    here = (home.topic().name, home.number)
    left = record
    if not record.family:  # branches may be many: the home is told as the others are
        left = replace(record, places=tuple(place for place in record.places if place != here))
    # What everybody knows at once is remembered as such.
    kept = left if left.places else record.told()
    home.apply(Remember(home.now_ms(), text, commit, kept.to_text()))
    if here in record.places and not record.family:
        do_decide(home, text, commit, record)
    return Decision(commit, left)


def recall(home: Partition, name: TransactionName) -> bool | None:
    """What was decided; what nobody decided in time is aborted from now on."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        return known[0]
    if name.branch:
        commit = _recall_branch(home, name)
        if commit is not None:
            return commit
    now_ms, clock = home.now_ms(), home.settings.clock
    # Begun by a clock that was ahead and is put right: its time would not be over for as long.
    is_foreign = name.began_ms > now_ms + clock.step_ms_max + clock.apart_ms_max
    if now_ms < name.until_ms and not is_foreign:
        return None
    home.apply(Remember(now_ms, name.text, commit=False))
    return False


def _recall_branch(home: Partition, name: TransactionName) -> bool | None:
    """As `recall`, of what was decided for its family."""
    decisions = home.engine.decisions
    for commit, told in decisions.values():
        if f";{name.family};" in told:
            return commit and name.branch in Record.parse(told).branches
    # Everybody was told: whoever has it still, has a branch that does not count.
    return False if name.text.partition("~")[0] in decisions else None


def known_decision(home: Partition, name: TransactionName) -> Decision | None:
    """What was decided, and who has to be told still."""
    known = home.engine.decisions.get(name.text)
    return None if known is None else Decision(known[0], Record.parse(known[1]))


def complete(home: Partition, name: TransactionName) -> None:
    """All participants know it: nobody has to be told any more."""
    known = home.engine.decisions.get(name.text)
    if known is not None and (record := Record.parse(known[1])).places:
        home.apply(Remember(home.now_ms(), name.text, known[0], record.told().to_text()))


def do_decide(place: Partition, text: str, commit: bool, record: Record) -> bool:
    """Do what was decided; True if there is more to do."""
    if record.family:
        return decide_family(place, record, commit=commit)
    if place.engine.has_staged(text):
        place.apply(Decide(place.now_ms(), text, commit))
    return False
