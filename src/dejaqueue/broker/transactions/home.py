"""What the home of a transaction decides, and what the partitions that take part do then.

Room: broker. Runs on the worker of the home, or of a participant.
Holds: one decision per transaction; a home commits nothing once the transaction's time is over; of
all branches of a family those that the decision names are committed, the others aborted, in every
partition, a bounded number of rows at a time; an epoch of a sink is committed once, however often
it is asked for.
See: transactions.py, which asks and tells; record.py; rule 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.transactions.names import Participant, TransactionName, family_of
from dejaqueue.broker.transactions.record import Record
from dejaqueue.engine.commands import Decide, Remember
from dejaqueue.errors import Unavailable
from dejaqueue.settings import ClockSettings

RETRY_MS = 1_000
"""Who could not be asked or told is asked or told again after this."""
DECIDE_ROWS_MAX = 200_000
"""Rows of branches that are decided in one step of a partition: some 30 milliseconds."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a home decided, now or before, and who has to be told."""

    commit: bool
    record: Record


# --- on the worker of the home ------------------------------------------------------------------


def remember(home: PartitionCore, name: TransactionName, record: Record, commit: bool) -> Decision:
    """Decide, unless that was done before."""
    known = home.engine.decisions.get(name.text)
    if known is not None:
        before = Record.parse(known[1])
        if not before.places:  # every branch is decided already; any still staged here lost
            before = replace(record, branches=())
        return Decision(known[0], replace(before, places=_joined(before, record)))
    outcome = commit and home.now_ms() < name.until_ms
    return _write_down(home, name.text, record, outcome)


def remember_epoch(
    home: PartitionCore, name: TransactionName, record: Record, until_ms: int
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


def _joined(before: Record, record: Record) -> tuple[Participant, ...]:
    return tuple(dict.fromkeys([*before.places, *record.places]))


def _write_down(home: PartitionCore, text: str, record: Record, commit: bool) -> Decision:
    """The decision is made: keep it, and do it in the home itself."""
    here = (home.topic().name, home.number)
    untold = record
    if not record.family:  # branches may be many: the home is told as the others are
        untold = replace(record, places=tuple(one for one in record.places if one != here))
    # What everybody knows at once is remembered as such.
    kept = untold if untold.places else record.when_all_know()
    home.apply(Remember(home.now_ms(), text, commit, kept.to_text()))
    if here in record.places and not record.family:
        do_decide(home, text, commit, record)
    return Decision(commit, untold)


def recall(home: PartitionCore, name: TransactionName) -> bool | None:
    """What was decided; what nobody decided in time is aborted from now on."""
    commit = said(home.engine.decisions, name)
    if commit is not None:
        return commit
    now_ms, clock = home.now_ms(), home.settings.clock
    # Begun by a clock that was ahead and is put right: its time would not be over for as long.
    is_foreign = name.began_ms > now_ms + clock.step_ms_max + clock.apart_ms_max
    if now_ms < name.until_ms and not is_foreign:
        return None
    home.apply(Remember(now_ms, name.text, commit=False))
    return False


def is_over(name: TransactionName, now_ms: int, clock: ClockSettings) -> bool:
    """Whether nobody commits a transaction any more, by the clock of any broker."""
    is_foreign = name.began_ms > now_ms + clock.step_ms_max + clock.apart_ms_max
    return now_ms >= name.until_ms + clock.apart_ms_max or is_foreign


def said(decisions: Mapping[str, tuple[bool, str]], name: TransactionName) -> bool | None:
    """What decisions say of a transaction, or of a branch of one; None = nothing."""
    known = decisions.get(name.text)
    if known is not None or not name.branch:
        return None if known is None else known[0]
    for commit, text in decisions.values():
        if f";{name.family};" in text:
            return commit and name.branch in Record.parse(text).branches
    # Everybody was told: whoever has it still, has a branch that does not count.
    return False if name.text.partition("~")[0] in decisions else None


def known_decision(home: PartitionCore, name: TransactionName) -> Decision | None:
    """What was decided, and who has to be told still."""
    known = home.engine.decisions.get(name.text)
    return None if known is None else Decision(known[0], Record.parse(known[1]))


def complete(home: PartitionCore, name: TransactionName) -> None:
    """All participants know it: nobody has to be told any more."""
    known = home.engine.decisions.get(name.text)
    if known is not None and (record := Record.parse(known[1])).places:
        home.apply(Remember(home.now_ms(), name.text, known[0], record.when_all_know().to_text()))


def is_committed(home: PartitionCore, text: str, epoch: int) -> bool:
    """Whether an epoch, or a later one, was committed under the name of its query."""
    known = home.engine.decisions.get(text)
    return known is not None and Record.parse(known[1]).epoch >= epoch


# --- on the worker of a participant -------------------------------------------------------------


def do_decide(core: PartitionCore, text: str, commit: bool, record: Record) -> bool:
    """Do what was decided; True if there is more to do."""
    if record.family:
        return decide_family(core, record, commit=commit)
    if core.engine.has_staged(text):
        core.apply(Decide(core.now_ms(), text, commit))
    return False


def decide_family(core: PartitionCore, record: Record, *, commit: bool) -> bool:
    """Commit those branches of the family that are staged here and count, abort its others.

    Returns:
        True if there are more: so many are decided in one step that others can go on.
    """
    mark, wanted = f"-{record.family}~", set(record.branches)
    rows = 0
    for name, (_, messages, _) in core.engine.staged().items():
        if mark not in name:
            continue
        if rows >= DECIDE_ROWS_MAX:
            return True
        counts = commit and name.rpartition("~")[2] in wanted
        core.apply(Decide(core.now_ms(), name, counts))
        rows += messages
    return False
