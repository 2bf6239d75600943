"""Snapshots of all views of a partition as one: that of the unnamed view, and in it the others.

Room: engine; pure.
Holds: what is restored has the hash of what was planned; without named views a snapshot is what it
    was before there were any.
See: snapshot.py, which has the snapshot of one; views.py.
"""

from __future__ import annotations

import json

from dejaqueue.engine.arrivals import Arrivals
from dejaqueue.engine.layout import STANDARD, Layout
from dejaqueue.engine.retention import Retention
from dejaqueue.engine.seeding import Seeding
from dejaqueue.engine.snapshot import (
    PlannedFile,
    Read,
    SnapshotPlan,
    abandon_snapshot,
    begin_snapshot,
    restore,
)
from dejaqueue.engine.views import NamedView, PartitionViews
from dejaqueue.errors import JournalDamaged


class ViewsPlan:
    """A snapshot of several views on its way; as `SnapshotPlan`.

    Attributes:
        meta: what `restore_views` wants, JSON.
    """

    def __init__(self, meta: str, plans: list[SnapshotPlan]) -> None:
        self.meta = meta
        self._plans = plans

    def copy_some(self, slab_count: int | None = None) -> bool:
        """Copy up to `slab_count` slabs, None = all; True if all are copied."""
        # Where one copied its share, the next ones come in the next step.
        return all(plan.copy_some(slab_count) for plan in self._plans)

    def files(self) -> list[PlannedFile]:
        """The files; once all slabs are copied, and once only."""
        return [file for plan in self._plans for file in plan.files()]


def begin_views_snapshot(views: PartitionViews) -> SnapshotPlan | ViewsPlan:
    """What to store so that `restore_views` gives views of this state; as `begin_snapshot`."""
    plan = begin_snapshot(views.unnamed)
    if views.next_number == 1:
        return plan
    plans, named = [plan], []
    for view in views.named.values():
        own = begin_snapshot(view.engine, f"v{view.number}")
        plans.append(own)
        about = [view.number, view.name, view.born, view.by_arrival]
        seeding = [] if view.seeding is None else [view.seeding.to_values()]
        named.append([*about, json.loads(own.meta), *seeding])
    if views.retained is not None:
        kept = views.retained
        own = begin_snapshot(kept.engine, f"v{kept.number}")
        plans.append(own)
        # Among the views, as its rows are to be found by whoever asks for those of all.
        named.append([kept.number, "", 0, kept.arrivals.to_values(), json.loads(own.meta)])
    meta = json.loads(plan.meta) | {"next_view": views.next_number, "views": named}
    return ViewsPlan(json.dumps(meta, separators=(",", ":")), plans)


def plan_views_snapshot(views: PartitionViews) -> tuple[str, list[PlannedFile]]:
    """As `begin_views_snapshot`, with all slabs copied at once."""
    plan = begin_views_snapshot(views)
    plan.copy_some()
    return plan.meta, plan.files()


def abandon_views_snapshot(views: PartitionViews) -> None:
    """The last planned snapshot was not stored: the next plan writes everything anew."""
    for engine in views.holders():
        abandon_snapshot(engine)


def restore_views(meta: str, read: Read, layout: Layout = STANDARD) -> PartitionViews:
    """The views that a snapshot was planned from. Raises JournalDamaged, as `restore`."""
    views = PartitionViews(restore(meta, read, layout))
    try:
        values = json.loads(meta)
        for number, name, born, by_arrival, inner, *seeding in values.get("views", []):
            engine = restore(json.dumps(inner), read, layout)
            if not name:
                arrivals = Arrivals.from_values(by_arrival)
                views.retained = Retention(int(number), engine, arrivals)
                continue
            view = NamedView(int(number), str(name), int(born), bool(by_arrival), engine)
            view.seeding = Seeding.from_values(seeding[0]) if seeding else None
            views.named[view.number] = view
        views.next_number = int(values.get("next_view", 1))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalDamaged(f"snapshot: not what was planned ({error!r})") from error
    views.settle()
    return views
