"""A named view in a partition's step: what is due in it goes to the consumers of its subscription.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: views begin and end as the topic's settings say, before the step takes a request: what comes
after a subscription was made is in it.
See: partition.py, whose step calls it; shard/view_core.py; topic/subscription.py, which makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.partition.leasing import dispatch, outlook
from dejaqueue.broker.shard.chore import Chore, Chores
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.view_core import ViewCore
from dejaqueue.engine.commands import Configure, DropView, InView, OpenView
from dejaqueue.engine.rules import Rules
from dejaqueue.model import TagFilter, Topic
from dejaqueue.subscriptions import BORN, TAG_SETTINGS, Order, Start


class PartitionView:
    """What a partition does for one subscription.

    Args:
        dispatcher: the subscription's consumers.
        chores: what is done in the view beside leasing.

    Attributes:
        waits: it has something, now or later, for which nobody has credit.
    """

    def __init__(self, core: ViewCore, dispatcher: Dispatcher, chores: Sequence[Chore]) -> None:
        self.core = core
        self.waits = False
        self._dispatcher = dispatcher
        self._chores = Chores(chores)
        self._is_attached = False
        self._seen = 0

    def attach(self) -> None:
        """Follow what the partition's views are now."""
        core = self.core
        named = core.main.views.find(core.name)
        if named is None:
            self.detach()
            return
        is_new = not self._is_attached or core.engine is not named.engine
        core.attach(named)
        core.main.seen_as[core.name] = core
        self._is_attached = True
        if is_new:
            self._chores.loaded(core)
        self._chores.configured(core)

    def show(self) -> None:
        """Let looks see what an archive that is followed has made of the view; nothing is done in
        it."""
        core = self.core
        named = core.main.views.find(core.name)
        if named is None:
            self.detach()
        elif core.main.seen_as.get(core.name) is not core or core.engine is not named.engine:
            core.attach(named)
            core.main.seen_as[core.name] = core

    def detach(self) -> None:
        """There is no such view."""
        self._is_attached = False
        self.core.main.seen_as.pop(self.core.name, None)

    def begin(self, *, is_asked: bool) -> None:
        """The partition's step begins; `is_asked`: with requests."""
        self._seen, self.waits = self._dispatcher.waiting.round, False
        if is_asked:
            self._dispatcher.waiting.occupy(self.core.number)

    def end(self) -> None:
        """The step is over."""
        self._dispatcher.looked(self.core.number, self._seen, waits=self.waits)

    def step(self) -> None:
        """Lease what is due to whoever has credit."""
        if self._is_attached:
            self._chores.step(self.core)
            dispatch(self.core, self._dispatcher)

    def before_append(self) -> None:
        """The group is about to be appended."""
        if self._is_attached:
            self._chores.before_append(self.core)

    def after_append(self, *, is_idle: bool) -> bool:
        """The group was appended, or is on its way; True if there is more to do at once."""
        return self._is_attached and self._chores.after_append(self.core, is_idle=is_idle)

    def next_us(self) -> int | None:
        """When there is something to lease, or a chore to do, clock µs; None = when rung."""
        if not self._is_attached:
            return None
        found = outlook(self.core, self._dispatcher)
        self.waits = found.waits
        if found.is_empty:
            self._dispatcher.waiting.leave(self.core.number)
        else:
            self._dispatcher.waiting.occupy(self.core.number)
        wakes_us = (found.wake_us, self._chores.next_us(self.core))
        return min((wake_us for wake_us in wakes_us if wake_us is not None), default=None)


def follow_subscriptions(core: PartitionCore, topic: Topic) -> None:
    """Have views begin, change and end as the topic says; of what is retained, too."""
    views = core.views
    _follow_retention(core, topic)
    for named in list(views.named.values()):
        wanted = topic.subscriptions.get(named.name)
        if wanted is None or wanted[BORN] != named.born:
            core.apply(DropView(core.now_ms(), named.number))
    piece = core.settings.dispatch.take_over_rows_max
    for name, settings in topic.subscriptions.items():
        now_ms = core.now_ms()
        rules = Rules.of(topic.subscribed(name), take_over_rows_max=piece)
        takes = TagFilter(*(tuple(settings.get(name, ())) for name in TAG_SETTINGS))
        rules = replace(rules, takes=None if takes == TagFilter() else takes)
        known = views.find(name)
        if known is None:
            start = settings["start"]
            kept_from_ms = 0 if start == Start.BEGINNING else start
            opened = OpenView(
                now_ms,
                views.next_number,
                name,
                settings[BORN],
                rules.to_text(),
                start != Start.NEW,
                settings["order"] == Order.ARRIVAL,
                now_ms + _ahead_ms_max(topic),
                kept_from_ms if isinstance(kept_from_ms, int) else None,
                in_pieces=True,
            )
            core.apply(opened)
        elif replace(rules, ids_from=known.engine.rules.ids_from) != known.engine.rules:
            core.apply(InView(now_ms, known.number, Configure(now_ms, rules.to_text())))


def _ahead_ms_max(topic: Topic) -> int:
    """How far ahead of its time anything may be leased in any of its views."""
    views = topic, *map(topic.subscribed, topic.subscriptions)
    return max(max(view.lease_ahead_ms, view.spike_ahead_ms) for view in views)


def _follow_retention(core: PartitionCore, topic: Topic) -> None:
    """Begin to retain, or end it, as the topic says."""
    kept, now_ms = core.views.retained, core.now_ms()
    if kept is not None and not topic.retains:
        core.apply(DropView(now_ms, kept.number))
    elif kept is None and topic.retains:
        rules, number = Rules(keeps=True).to_text(), core.views.next_number
        begins = OpenView(
            now_ms, number, "", 0, rules, from_start=False, by_arrival=False, held_due_ms=now_ms
        )
        core.apply(begins)


def follows(core: PartitionCore) -> bool:
    """Whether the partition has the views that its topic says by now, with all that they begin
    with, and retains what it says."""
    topic = core.topic()
    if topic.retains != (core.views.retained is not None):
        return False
    if any(view.seeding is not None for view in core.views.named.values()):
        return False
    wanted = {name: values[BORN] for name, values in topic.subscriptions.items()}
    return wanted == {view.name: view.born for view in core.views.named.values()}
