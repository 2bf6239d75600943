"""What is decided about a partition's messages from outside: settings, transactions, the dead.

Room: engine; pure. With apply.py the only writer of a PartitionState.
Holds: a decision about staged rows is applied whole, once; only dead messages are buried.
See: apply.py for a message's own life; rules 12 and 18.
"""

from __future__ import annotations

import numpy as np

from dejaqueue.engine import apply, commands
from dejaqueue.engine.effects import Effects
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import SCHEDULED
from dejaqueue.errors import InternalError
from dejaqueue.model import ChangeKind

_NONE = np.zeros(0, dtype=np.int64)


def configure(state: PartitionState, command: commands.Configure) -> Effects:
    """The topic's settings are these now."""
    apply.begin(state, command.now_ms)
    rules = Rules.from_text(command.rules)
    if state.counts.enqueued and rules.kind is not state.rules.kind:
        raise InternalError(f"kind {rules.kind} after {state.rules.kind}")
    if rules.ids_from != state.rules.ids_from:
        if state.counts.enqueued:
            raise InternalError(f"ids from {rules.ids_from} after {state.rules.ids_from}")
        state.table.begin_at(rules.ids_from)
    state.configure(rules)
    return Effects()


def forget_texts(state: PartitionState, command: commands.ForgetTexts) -> Effects:
    """Names that no live message has are forgotten now."""
    apply.begin(state, command.now_ms)
    state.forget_texts()
    return Effects()


def bury(state: PartitionState, command: commands.Bury) -> Effects:
    """Dead messages arrived in their dead-letter topic, and are gone here."""
    apply.begin(state, command.now_ms)
    group = state.dead.pop(command.group, None)
    if group is None:
        return Effects()
    freed = state.finish(state.table.places(group.sequences))
    state.counts.dead -= freed.size
    state.counts.buried += freed.size
    return Effects(freed_locators=freed)


def decide(state: PartitionState, command: commands.Decide) -> Effects:
    """What a transaction staged counts from now on, or never was (rule 12)."""
    apply.begin(state, command.now_ms)
    staged = state.staged.pop(command.transaction, None)
    if staged is None:
        return Effects()
    table, counts = state.table, state.counts
    places = table.places(np.concatenate([*staged.enqueued, _NONE]))
    acked = table.places(np.concatenate([*staged.acked, _NONE]))
    counts.staged -= places.size
    counts.staged_acks -= acked.size
    if not command.commit:
        counts.aborted += places.size
        if state.changes is not None:
            state.note(ChangeKind.ABORTED, places)
        freed = state.finish(places)
        dues_ms = np.full(acked.size, state.now_ms, dtype=np.int64)
        kind = ChangeKind.NACKED
        apply.come_back(state, acked, dues_ms, apply.ABORTED, kind, waits=False, wears_out=False)
        return Effects(freed_locators=freed)
    counts.acked += acked.size
    if state.changes is not None:
        state.note(ChangeKind.ACKED, acked, has_due=False)
    freed_parts = [state.finish(acked)]
    if staged.replaced:
        freed_parts.append(apply.replace(state, np.concatenate(staged.replaced)))
    table.will_write(places)
    table.states[places] = SCHEDULED
    counts.scheduled += places.size
    state.schedule(places, table.dues_ms[places])
    apply.will_die_of_age(state, places)
    if state.changes is not None:
        state.note(ChangeKind.ENQUEUED, places)
    return Effects(freed_locators=np.concatenate(freed_parts))


def remember(state: PartitionState, command: commands.Remember) -> Effects:
    """A transaction whose home is here is decided; or everybody knows it, and it is forgotten."""
    apply.begin(state, command.now_ms)
    if command.commit is None:
        state.decided.pop(command.transaction, None)
    else:
        state.decided[command.transaction] = command.commit, command.participants
    return Effects()
