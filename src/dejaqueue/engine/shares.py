"""Shares: which group is next, by virtual finish times.

Room: engine; pure, memory only. Whole numbers only.
Holds: over any stretch in which two groups always have a message, what they get differs from their
    weights by at most one message each (rule 8); ties go by code; the same changes give the same
    turns.
See: docs/adr/0007-fair-by-two-levels.md.

Self-clocked fair queuing: each group has a virtual time, and its next message finishes SCALE /
weight later. The smallest finish is served, and is the virtual time of all. A group that had
nothing begins at that time: it neither saves up turns nor pays for them. Finish times are made when
messages are handed out, not when they come in, so weights and caps hold at once and what is
cancelled leaves no gap.

A turn is one message or, by runs, all that a group may give: its time goes on by each of them, and
that of all to where the first one finishes, so that who comes while a run is out is not behind it.

`FlatShares` does this for a thousand turns at once, and `LevelShares` (level_shares.py) for groups
within groups; `NestedShares` does it turn by turn, which those with runs need: how long a run is
decides when the next one above comes. The first two may be asked for the turns of one priority
alone (priority_shares.py).
"""

from __future__ import annotations

import heapq
from typing import Any, TypeAlias

import numpy as np

from dejaqueue.engine.arrays import Int64s, Mask, sort_pairs
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.runs import SortedRuns

SCALE = 1 << 32
"""Virtual time that a message of weight 1 takes."""
KEY_MAX = (1 << 62) - 1
_TIME_MAX = 1 << 60
_LEAF = "\0"
UNLISTED = -1
"""The finish of a group that has nothing to give."""
_NONE = np.zeros(0, dtype=np.int64)
# Where all groups have a turn in a dispatch, and no more than this are known for each turn, it is
# faster to look at all that are known than to keep them in order.
_MOSTLY = 8

Starts: TypeAlias = list[list[Any]]
"""[name of the group or inner node, its time less that of all], in order of the names."""


class GroupNames:
    """Names and weights of groups, by code.

    Attributes:
        names: name by code, "" for codes that nobody has.
        steps: virtual time that a message takes, by code.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.steps: Int64s = _NONE

    def name(self, code: int, name: str, weight: int) -> None:
        """A code has this name from now on, and that weight."""
        if code >= self.steps.size:
            more = max(16, code + 1, 2 * self.steps.size) - self.steps.size
            self.steps = np.append(self.steps, np.full(more, SCALE, dtype=np.int64))
            self.names += [""] * more
        self.names[code] = name
        self.steps[code] = SCALE // weight


class Shares:
    """Turns of groups that are all on one level. Columns are by place, which may be the code."""

    def __init__(self, layout: Layout, groups: GroupNames | None = None) -> None:
        self._layout = layout
        self._index = SortedRuns(layout)
        self._now = 0
        self._groups = GroupNames() if groups is None else groups
        self._starts: Int64s = _NONE
        self._listed: Int64s = _NONE
        self._listed_count = 0

    def _places(self, codes: Int64s) -> Int64s:
        """Where these groups are in the columns."""
        return codes

    def _codes(self, places: Int64s) -> Int64s:
        """Which groups are there."""
        return places

    def changed(self, codes: Int64s, counts: Int64s) -> None:
        """These groups, each once, have so many messages to give now."""
        has_some = counts > 0
        places = self._places(codes)
        is_listed = self._listed[places] != UNLISTED
        gone = places[is_listed & ~has_some]
        self._listed[gone] = UNLISTED
        self._listed_count -= gone.size
        new_mask = has_some & ~is_listed
        new = places[new_mask]
        if new.size:
            self._starts[new] = np.maximum(self._starts[new], self._now)
            self._listed_count += new.size
            self._list(codes[new_mask])

    def _list(self, codes: Int64s) -> None:
        places = self._places(codes)
        finishes = self._starts[places] + self._groups.steps[codes]
        self._listed[places] = finishes
        self._index.insert(finishes, codes)

    def _is_listed(self, finishes: Int64s, codes: Int64s) -> Mask:
        mask: Mask = self._listed[self._places(codes)] == finishes
        return mask

    def share(self, count: int, counts: Int64s, *, by_runs: bool = False) -> Int64s:
        """The codes of the next `count` messages' groups, in order; fewer if there are no more.

        Args:
            counts: what each group has to give, by place.
            by_runs: a group gives all that it has at its turn.
        """
        if by_runs or self._listed_count > count or self._listed.size > _MOSTLY * count:
            finishes, codes = self._index.pop(count, KEY_MAX, self._is_listed)
        else:
            finishes, codes = self._all_listed()
        gives = np.minimum(counts[self._places(codes)], count)
        if by_runs:
            return self._serve_runs(finishes, codes, gives, count, counts)
        return self._serve(finishes, codes, gives, count, counts)

    def _all_listed(self) -> tuple[Int64s, Int64s]:
        """Take every group out of the index: its finish and its code, in no order of theirs."""
        places = np.flatnonzero(self._listed != UNLISTED)
        self._index = SortedRuns(self._layout)
        return self._listed[places], self._codes(places)

    def share_among(
        self,
        codes: Int64s,
        limits: Int64s,
        count: int,
        counts: Int64s,
        *,
        by_runs: bool = False,
    ) -> Int64s:
        """As `share`, among these groups only, which give no more than `limits`."""
        finishes = self._listed[self._places(codes)]
        finishes, codes, limits = (part[finishes != UNLISTED] for part in (finishes, codes, limits))
        order = np.lexsort((codes, finishes))
        limits = np.minimum(np.minimum(limits, counts[self._places(codes)]), count)
        serve = self._serve_runs if by_runs else self._serve
        return serve(finishes[order], codes[order], limits[order], count, counts, among=True)

    def _serve(
        self,
        finishes: Int64s,
        codes: Int64s,
        gives: Int64s,
        count: int,
        counts: Int64s,
        *,
        among: bool = False,
    ) -> Int64s:
        if not codes.size:
            return _NONE
        order = np.argsort(codes, kind="stable")
        last = int(finishes.max())  # of as many groups as there are turns nobody needs a later one
        finishes, codes, gives = finishes[order], codes[order], gives[order]
        steps = self._groups.steps[codes]
        turns = _turns(finishes, steps, gives, count, None if among else last)
        places: Int64s = np.repeat(np.arange(codes.size), turns)
        before: Int64s = np.cumsum(turns) - turns
        nth: Int64s = np.arange(places.size) - before[places]
        ends, places = sort_pairs(finishes[places] + nth * steps[places], places)
        ends, places = ends[:count], places[:count]
        served = np.bincount(places, minlength=codes.size)
        self._served(codes, served, int(ends[-1]), counts, among=among)
        return codes[places]

    def _serve_runs(
        self,
        finishes: Int64s,
        codes: Int64s,
        gives: Int64s,
        count: int,
        counts: Int64s,
        *,
        among: bool = False,
    ) -> Int64s:
        """As `_serve`, one group after the other. `finishes` ascend, and by code where equal."""
        if not codes.size:
            return _NONE
        served = np.clip(count - (np.cumsum(gives) - gives), 0, gives)
        last = int(finishes[np.flatnonzero(served)[-1]])
        self._served(codes, served, last, counts, among=among)
        return np.repeat(codes, served)

    def _served(
        self, codes: Int64s, served: Int64s, now: int, counts: Int64s, *, among: bool
    ) -> None:
        """So many messages of these groups, each named once, have their turns.

        Args:
            now: when the last turn began to count for all.
            among: the groups were not taken out of the index.
        """
        at = self._places(codes)
        self._now = max(self._now, now)
        self._starts[at] += served * self._groups.steps[codes]
        some_left = counts[at] > served
        # Those of the index were taken out of it, whether they got a turn or not.
        self._list(codes[some_left & (served > 0)] if among else codes[some_left])
        gone = at[~some_left]
        self._listed[gone] = UNLISTED
        self._listed_count -= gone.size
        if self._now > _TIME_MAX:
            self._begin_anew()
        self._index.sweep(self._is_listed, self._listed_count)
        self._gave(at, served)

    def _gave(self, places: Int64s, counts: Int64s) -> None:
        """So many messages of the groups at these places have their turns."""

    def _begin_anew(self) -> None:
        """Take the time of all off every time, before they are too large."""
        listed = np.flatnonzero(self._listed != UNLISTED)
        self._starts -= self._now
        unlisted_mask = self._listed == UNLISTED
        np.maximum(self._starts, 0, out=self._starts, where=unlisted_mask)
        # Times of listed groups may be before that of all; keys of the index may not be negative.
        self._now = SCALE - min(0, int(self._starts.min()))
        self._starts += self._now
        self._index = SortedRuns(self._layout)
        self._list(self._codes(listed))

    def starts(self) -> Starts:
        """What tells apart what comes: times less that of all."""
        times = self._starts - self._now
        is_listed = self._listed != UNLISTED
        places = np.flatnonzero((is_listed & (times != 0)) | (times > 0))
        pairs = zip(self._codes(places).tolist(), times[places].tolist(), strict=True)
        return sorted([self._groups.names[code], time] for code, time in pairs)

    def restore(self, starts: Starts, code_of: dict[str, int]) -> None:
        """Begin with these times; the groups are named and have their messages again."""
        self._now = headroom(starts)
        self._starts[:] = self._now
        for name, time in starts:
            self._starts[self._places(np.array([code_of[name]], dtype=np.int64))] += time
        self._index = SortedRuns(self._layout)
        self._list(self._codes(np.flatnonzero(self._listed != UNLISTED)))


class FlatShares(Shares):
    """Turns of all groups: a place is a code."""

    def name(self, code: int, name: str, weight: int) -> None:
        """A code has this name from now on, and that weight."""
        self._groups.name(code, name, weight)
        more = self._groups.steps.size - self._starts.size
        if more:
            self._starts = np.append(self._starts, np.zeros(more, dtype=np.int64))
            self._listed = np.append(self._listed, np.full(more, UNLISTED, dtype=np.int64))
        self._starts[code] = 0

    def weigh(self, codes: Int64s, weights: Int64s) -> None:
        """These groups have other weights from now on."""
        self._groups.steps[codes] = SCALE // weights
        self._list(codes[self._listed[self._places(codes)] != UNLISTED])

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, which have no messages, need not be remembered."""
        forgotten: Int64s = codes[self._starts[codes] <= self._now]
        for code in forgotten.tolist():
            self._groups.names[code] = ""
        return forgotten


def _turns(finishes: Int64s, steps: Int64s, gives: Int64s, count: int, last: int | None) -> Int64s:
    """How many turns of each group may be among the first `count`: at least as many as are."""
    time = int(finishes.min())
    if last is not None and finishes.size >= count:
        turns: Int64s = np.minimum(gives, (last - finishes) // steps + 1)
        if int(turns.sum()) <= 4 * count:
            return turns
    wanted = min(count, int(gives.sum()))
    step = max(1, SCALE * wanted // max(1, int((SCALE // steps).sum())))
    while True:
        time += step
        turns = np.clip((time - finishes) // steps + 1, 0, gives)
        if int(turns.sum()) >= wanted:
            return turns
        step *= 2


def headroom(starts: Starts) -> int:
    """A time of all with which no time is negative."""
    return SCALE - min([0, *(int(time) for _, time in starts)])


class Node:
    """A group, or what groups have in common up to a `.`."""

    __slots__ = (
        "children",
        "code",
        "count",
        "finish",
        "heap",
        "name",
        "now",
        "parent",
        "start",
        "step",
    )

    def __init__(self, name: str, parent: Node | None, step: int, code: int = -1) -> None:
        self.name, self.parent, self.step, self.code = name, parent, step, code
        self.start = self.now = self.count = 0
        self.finish = UNLISTED
        self.children: dict[str, Node] = {}
        self.heap: list[tuple[int, str, Node]] = []

    def __lt__(self, other: Node) -> bool:
        """For the heap, of two with one finish and one name: one of them was forgotten and named
        again since, and gives nothing, so either may be first."""
        return False

    def list(self) -> None:
        """It has something to give: take part in the parent's turns."""
        assert self.parent is not None
        self.finish = self.start + self.step
        heapq.heappush(self.parent.heap, (self.finish, self.name, self))

    def next(self) -> Node:
        """The child whose turn it is."""
        heap = self.heap
        while True:
            finish, _, child = heap[0]
            if child.finish == finish and child.count:
                return child
            heapq.heappop(heap)


class NestedShares:
    """Turns of groups within groups: names are joined by `.`, and each level shares its turns.

    A group that is also the beginning of others ("a" beside "a.x") shares with them, under the
    empty name.
    """

    def __init__(self, weights: dict[str, int]) -> None:
        self._root = Node("", None, SCALE)
        self._weights = weights
        self._leaves: dict[int, Node] = {}

    def name(self, code: int, name: str, weight: int) -> None:
        """A code has this name from now on."""
        leaf = self._node(name + _LEAF)
        leaf.code = code
        self._leaves[code] = leaf

    def _node(self, name: str) -> Node:
        """The node of this name, or the group itself if `_LEAF` is behind it; made if need be."""
        node, parts = self._root, name.removesuffix(_LEAF).split(".")
        for place, part in enumerate(parts):
            child = node.children.get(part)
            if child is None:
                step = SCALE // self._weights.get(".".join(parts[: place + 1]), 1)
                child = node.children[part] = Node(part, node, step)
            node = child
        if not name.endswith(_LEAF):
            return node
        leaf = node.children.get(_LEAF)
        if leaf is None:
            leaf = node.children[_LEAF] = Node(_LEAF, node, SCALE)
        return leaf

    def reweigh(self, weights: dict[str, int]) -> None:
        """All weights are these from now on."""
        self._weights = weights
        for path, node in self._walk():
            if node.parent is not None and node.name != _LEAF:
                node.step = SCALE // weights.get(path, 1)
                if node.count:
                    node.list()

    def _walk(self) -> list[tuple[str, Node]]:
        found, waiting = [], [("", self._root)]
        while waiting:
            path, node = waiting.pop()
            found.append((path, node))
            for name, child in node.children.items():
                below = path if name == _LEAF else f"{path}.{name}" if node.parent else name
                waiting.append((below, child))
        return found

    def changed(self, codes: Int64s, counts: Int64s) -> None:
        """These groups, each once, have so many messages to give now."""
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            node: Node | None = self._leaves[code]
            assert node is not None
            more = count - node.count
            while node is not None and more:
                had_some = node.count > 0
                node.count += more
                if node.parent is not None and node.count and not had_some:
                    node.start = max(node.start, node.parent.now)
                    node.list()
                elif not node.count:
                    node.finish = UNLISTED
                node = node.parent

    def share(self, count: int, counts: Int64s, *, by_runs: bool = False) -> Int64s:
        """The codes of the next `count` messages' groups, in order; fewer if there are no more."""
        count = min(count, self._root.count)
        turns: list[int] = []
        while len(turns) < count:
            code = self._serve(self._root)
            leaf = self._leaves[code]
            more = min(leaf.count, count - len(turns) - 1) if by_runs else 0
            self._go_on(leaf, more)
            turns += [code] * (1 + more)
        return np.array(turns, dtype=np.int64)

    @staticmethod
    def _go_on(leaf: Node, count: int) -> list[Node]:
        """A group gives so many more at its turn; the nodes from it up to the root."""
        path: list[Node] = []
        node: Node | None = leaf
        while node is not None and count:
            path.append(node)
            node.count -= count
            if node.parent is not None:
                node.start += count * node.step
                if node.count:
                    node.list()
                else:
                    node.finish = UNLISTED
            node = node.parent
        return path

    def _serve(self, node: Node) -> int:
        """One turn; the code of the group that has it."""
        node.count -= 1
        while node.code < 0:
            node = self._serve_child(node, node.next())
        return node.code

    @staticmethod
    def _serve_child(parent: Node, child: Node) -> Node:
        child.start = child.finish
        parent.now = max(parent.now, child.finish)
        child.count -= 1
        if child.count:
            child.list()
        else:
            child.finish = UNLISTED
        return child

    def share_among(
        self,
        codes: Int64s,
        limits: Int64s,
        count: int,
        counts: Int64s,
        *,
        by_runs: bool = False,
    ) -> Int64s:
        """As `share`, among these groups only, which give no more than `limits`."""
        rooms: dict[int, int] = {}
        for code, limit in zip(codes.tolist(), limits.tolist(), strict=True):
            node: Node | None = self._leaves[code]
            assert node is not None
            room = min(limit, node.count)
            while node is not None:
                rooms[id(node)] = rooms.get(id(node), 0) + room
                node = node.parent
        parts: list[int] = []
        count = min(count, rooms.get(id(self._root), 0))
        while len(parts) < count:
            node = self._root
            node.count -= 1
            rooms[id(node)] -= 1
            while node.code < 0:
                children = [c for c in node.children.values() if rooms.get(id(c), 0)]
                child = min(children, key=lambda c: (c.finish, c.name))
                rooms[id(child)] -= 1
                node = self._serve_child(node, child)
            more = min(rooms[id(node)], count - len(parts) - 1) if by_runs else 0
            for above in self._go_on(node, more):
                rooms[id(above)] -= more
            parts += [node.code] * (1 + more)
        return np.array(parts, dtype=np.int64)

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, which have no messages, need not be remembered."""
        forgotten = []
        for code in codes.tolist():
            node: Node | None = self._leaves[code]
            assert node is not None
            assert node.parent is not None
            if node.start > node.parent.now:
                continue
            forgotten.append(code)
            del self._leaves[code]
            while node is not None and node.parent is not None and not node.children:
                if node.start > node.parent.now:
                    break
                del node.parent.children[node.name]
                node = node.parent
        return np.array(forgotten, dtype=np.int64)

    def starts(self) -> Starts:
        """What tells apart what comes: times less that of the node above."""
        pairs: Starts = []
        for path, node in self._walk():
            if node.parent is not None:
                time = node.start - node.parent.now
                if time > 0 or (node.count and time):
                    pairs.append([path + _LEAF * (node.name == _LEAF), time])
        return sorted(pairs)

    def restore(self, starts: Starts, code_of: dict[str, int]) -> None:
        """Begin with these times; the groups are named and have their messages again."""
        times = {str(name): int(time) for name, time in starts}
        for name in times:
            self._node(name)  # which may have no group any more, and be ahead of its time
        now = headroom(starts)
        for _, node in self._walk():
            node.now = now
            node.heap = []
        for path, node in self._walk():
            if node.parent is not None:
                full = path + _LEAF * (node.name == _LEAF)
                node.start = now + times.get(full, 0)
                if node.count:
                    node.list()
