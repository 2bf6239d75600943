"""LevelShares: whose turn it is among groups within groups, many turns at once.

Room: engine; pure, memory only. Whole numbers only.
Holds: the turns are those of `NestedShares`, one by one, and so is what a snapshot stores; ties go
    by name; nothing loops over turns, but for a few (`_FEW`) and for nodes with very many children.
See: shares.py, whose tree it puts into columns; fair.py, which takes that tree where groups give
    runs; docs/adr/0081-turns-of-levels-in-columns.md.

Within a node, which child has the next turn depends on its children alone, and not on when the node
itself has its turns. So a dispatch goes down level by level: it knows in which order the nodes of a
level have their turns, and finds the order of the children of all of them with one sort.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import TypeAlias

import numpy as np

from dejaqueue.engine.arrays import Int64s, by_code
from dejaqueue.engine.group_run import ranges
from dejaqueue.engine.shares import SCALE, Starts, headroom

_ROOT = 0
_NO_NODE = -1
_LEAF = "\0"
# Up to so many turns or groups a loop is faster than two dozen calls of numpy for each level.
_FEW = 32
# A node with so many times as many children as it gives has them in a heap: to look at a child in a
# column takes a fiftieth of what a step of the heap takes. It has it no more at half of that.
_CHILDREN_PER_TURN = 48
# Unless all children that are to be looked at are so few.
_CHILDREN_MIN = 2_048
# A heap is dropped, and made anew when it is asked for, if it has more entries that are dead.
_DEAD_MIN = 64
_INDEX_BITS = 63
_LOOKED_MAX = 8
_TIME_MAX = 1 << 60
_NONE = np.zeros(0, dtype=np.int64)

Heap: TypeAlias = list[tuple[int, str, int]]
"""(finish, name, node) of children; dead where the node has nothing to give or another finish."""


class _ChildGroups:
    """The children of a node, two at least: ids by name, and both in order of the names."""

    __slots__ = ("_fresh", "_names", "_nodes", "by_name")

    def __init__(self, by_name: dict[str, int]) -> None:
        self.by_name = by_name
        self._fresh: list[str] = []
        self._names: list[str] | None = None
        self._nodes: Int64s = _NONE

    def add(self, name: str, node: int) -> None:
        self.by_name[name] = node
        self._fresh.append(name)

    def remove(self, name: str) -> None:
        del self.by_name[name]
        self._names = None

    def in_order(self) -> tuple[list[str], Int64s]:
        """Names ascending, and the node of each. Cost: O(those that came since)."""
        names, fresh = self._names, self._fresh
        if names is None or 8 * len(fresh) > len(names):
            names = self._names = sorted(self.by_name)
            self._nodes = np.array([self.by_name[name] for name in names], dtype=np.int64)
        elif fresh:
            fresh = sorted(fresh)
            places = [bisect_left(names, name) for name in fresh]
            new = [self.by_name[name] for name in fresh]
            self._nodes = np.insert(self._nodes, places, new)
            for name in fresh:
                insort(names, name)
        self._fresh = []
        return names, self._nodes


class LevelShares:
    """As `NestedShares`, for turns of one message each. Columns are by node.

    A node is a group, or what groups have in common up to a `.`. It takes part in the turns of the
    node above while it has something to give; its finish is then its start and its step.
    """

    def __init__(self, weights: dict[str, int]) -> None:
        self._weights = weights
        self._names: list[str] = [""]
        self._free: list[int] = []
        self._latest = 0
        # What `_candidates` found, by whose children they are: mostly those of the next time, too.
        self._looked: dict[bytes, tuple[Int64s, Int64s]] = {}
        self._children: dict[int, _ChildGroups] = {}
        self._heaps: dict[int, Heap] = {}
        self._leaves: Int64s = np.full(16, _NO_NODE, dtype=np.int64)
        self._parents: Int64s = np.full(16, _NO_NODE, dtype=np.int64)
        self._codes: Int64s = np.full(16, _NO_NODE, dtype=np.int64)
        self._only_children: Int64s = np.full(16, _NO_NODE, dtype=np.int64)
        self._steps: Int64s = np.full(16, SCALE, dtype=np.int64)
        self._starts: Int64s = np.zeros(16, dtype=np.int64)
        self._nows: Int64s = np.zeros(16, dtype=np.int64)
        self._counts: Int64s = np.zeros(16, dtype=np.int64)

    # --- nodes

    def name(self, code: int, name: str, weight: int) -> None:
        """A code has this name from now on; the weight of each level is known by its name."""
        leaf = self._child(self._node(name), _LEAF, 1)
        self._codes[leaf] = code
        if code >= self._leaves.size:
            self._leaves = _longer(self._leaves, code + 1, _NO_NODE)
        self._leaves[code] = leaf

    def _node(self, name: str) -> int:
        """The node of this name, made if there is none."""
        node, parts = _ROOT, name.split(".")
        for place, part in enumerate(parts):
            path = name if place + 1 == len(parts) else ".".join(parts[: place + 1])
            node = self._child(node, part, self._weights.get(path, 1))
        return node

    def _find_child(self, parent: int, name: str) -> int:
        only = self._only_children.item(parent)
        if only != _NO_NODE:
            return only if self._names[only] == name else _NO_NODE
        children = self._children.get(parent)
        return _NO_NODE if children is None else children.by_name.get(name, _NO_NODE)

    def _child(self, parent: int, name: str, weight: int) -> int:
        """The child of this name, made with this weight if there is none."""
        node = self._find_child(parent, name)
        if node != _NO_NODE:
            return node
        self._looked.clear()
        node = self._new_node(name)
        self._parents[node] = parent
        self._steps[node] = SCALE // weight
        self._starts[node] = self._nows[node] = self._counts[node] = 0
        self._codes[node] = self._only_children[node] = _NO_NODE
        only = self._only_children.item(parent)
        if parent in self._children:
            self._children[parent].add(name, node)
        elif only == _NO_NODE:
            self._only_children[parent] = node
        else:
            self._only_children[parent] = _NO_NODE
            self._children[parent] = _ChildGroups({self._names[only]: only, name: node})
        return node

    def _new_node(self, name: str) -> int:
        if self._free:
            node = self._free.pop()
            self._names[node] = name
            return node
        node = len(self._names)
        self._names.append(name)
        if node >= self._parents.size:
            self._parents = _longer(self._parents, node + 1, _NO_NODE)
            self._codes = _longer(self._codes, node + 1, _NO_NODE)
            self._only_children = _longer(self._only_children, node + 1, _NO_NODE)
            self._steps = _longer(self._steps, node + 1, SCALE)
            self._starts = _longer(self._starts, node + 1, 0)
            self._nows = _longer(self._nows, node + 1, 0)
            self._counts = _longer(self._counts, node + 1, 0)
        return node

    def _remove(self, node: int) -> None:
        """Forget a node that has no children."""
        self._looked.clear()
        parent = self._parents.item(node)
        self._heaps.pop(parent, None)  # the number of the node may be used again
        self._heaps.pop(node, None)
        children = self._children.get(parent)
        if children is None:
            self._only_children[parent] = _NO_NODE
        else:
            children.remove(self._names[node])
            if len(children.by_name) == 1:
                del self._children[parent]
                (self._only_children[parent],) = children.by_name.values()
        self._parents[node] = self._codes[node] = _NO_NODE
        self._names[node] = ""
        self._free.append(node)

    def _has_children(self, node: int) -> bool:
        return node in self._children or self._only_children.item(node) != _NO_NODE

    def reweigh(self, weights: dict[str, int]) -> None:
        """All weights are these from now on."""
        self._weights = weights
        self._steps[:] = SCALE
        for name, weight in weights.items():
            node = _ROOT
            for part in name.split("."):
                node = self._find_child(node, part)
                if node == _NO_NODE:
                    break
            else:
                self._steps[node] = SCALE // weight
        self._heaps.clear()

    def forget(self, codes: Int64s) -> Int64s:
        """Which of these groups, which have no messages, need not be remembered."""
        forgotten = []
        for code in codes.tolist():
            node = self._leaves.item(code)
            if self._is_ahead(node):
                continue
            forgotten.append(code)
            self._leaves[code] = _NO_NODE
            while node != _ROOT and not self._has_children(node) and not self._is_ahead(node):
                above = self._parents.item(node)
                self._remove(node)
                node = above
        return np.array(forgotten, dtype=np.int64)

    def _is_ahead(self, node: int) -> bool:
        """True if it has had more than what is over by the time of the node above."""
        return self._starts.item(node) > self._nows.item(self._parents.item(node))

    # --- what there is to give

    def changed(self, codes: Int64s, counts: Int64s) -> None:
        """These groups, each once, have so many messages to give now: none of them fewer than
        before, or none of them more."""
        nodes = self._leaves[codes]
        more = counts - self._counts[nodes]
        changed_mask = more != 0
        nodes, more = nodes[changed_mask], more[changed_mask]
        if nodes.size <= _FEW:
            for node, count in zip(nodes.tolist(), more.tolist(), strict=True):
                self._change(node, count)
            return
        while nodes.size:
            before = self._counts[nodes]
            self._counts[nodes] = before + more
            below_mask = nodes != _ROOT
            new = nodes[below_mask & (before == 0)]
            parents = self._parents[new]
            self._starts[new] = np.maximum(self._starts[new], self._nows[parents])
            self._list(new, parents)
            nodes, more = nodes[below_mask], more[below_mask]
            order, nodes, sizes = by_code(self._parents[nodes])
            if nodes.size:
                more = np.add.reduceat(more[order], np.cumsum(sizes) - sizes)

    def _change(self, node: int, more: int) -> None:
        """As `changed`, of one group: it has so many more to give."""
        counts, starts = self._counts, self._starts
        while node != _ROOT:
            before = counts.item(node)
            counts[node] = before + more
            parent = self._parents.item(node)
            if not before:
                starts[node] = max(starts.item(node), self._nows.item(parent))
                self._push(parent, node)
            node = parent
        counts[_ROOT] += more

    def _list(self, nodes: Int64s, parents: Int64s) -> None:
        """These have something to give now: put them into the heaps that there are."""
        if not self._heaps:
            return
        for node, parent in zip(nodes.tolist(), parents.tolist(), strict=True):
            self._push(parent, node)

    def _push(self, parent: int, node: int) -> None:
        heap = self._heaps.get(parent)
        if heap is None:
            return
        if len(heap) > 2 * len(self._children[parent].by_name) + _DEAD_MIN:
            del self._heaps[parent]
            return
        finish = self._starts.item(node) + self._steps.item(node)
        heapq.heappush(heap, (finish, self._names[node], node))

    def _heap(self, parent: int) -> Heap:
        """The heap of a node with several children, made if there is none."""
        heap = self._heaps.get(parent)
        if heap is None:
            names, nodes = self._children[parent].in_order()
            places = np.flatnonzero(self._counts[nodes])
            nodes = nodes[places]
            finishes = (self._starts[nodes] + self._steps[nodes]).tolist()
            listed = [names[place] for place in places.tolist()]
            heap = self._heaps[parent] = list(zip(finishes, listed, nodes.tolist(), strict=True))
            heapq.heapify(heap)
        return heap

    def _is_alive(self, finish: int, node: int) -> bool:
        return (
            self._counts.item(node) > 0
            and self._starts.item(node) + self._steps.item(node) == finish
        )

    # --- turns

    def share(self, count: int, counts: Int64s, *, by_runs: bool = False) -> Int64s:
        """The codes of the next `count` messages' groups, in order; fewer if there are no more."""
        assert not by_runs, "groups that give runs have a tree"
        count = min(count, self._counts.item(_ROOT))
        if count <= _FEW:
            turns: Int64s = np.array([self._serve_one() for _ in range(count)], dtype=np.int64)
        else:
            turns = self._serve(count, None)
        self._begin_anew()
        return turns

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
        assert not by_runs, "groups that give runs have a tree"
        nodes = self._leaves[codes]
        more = np.minimum(limits, self._counts[nodes])
        rooms = np.zeros(len(self._names), dtype=np.int64)
        while nodes.size:
            np.add.at(rooms, nodes, more)
            below_mask = nodes != _ROOT
            nodes, more = self._parents[nodes[below_mask]], more[below_mask]
        turns = self._serve(min(count, int(rooms[_ROOT])), rooms)
        self._begin_anew()
        return turns

    def _serve_one(self) -> int:
        """One turn; the code of the group that has it."""
        counts, starts, nows = self._counts, self._starts, self._nows
        node = _ROOT
        counts[node] -= 1
        while (code := self._codes.item(node)) < 0:
            child = self._only_children.item(node)
            left = counts.item(child) - 1 if child >= 0 else 0
            if child >= 0:
                finish = starts.item(child) + self._steps.item(child)
            else:
                heap = self._heap(node)
                while not self._is_alive(heap[0][0], heap[0][2]):
                    heapq.heappop(heap)
                finish, name, child = heap[0]
                left = counts.item(child) - 1
                if left:
                    heapq.heapreplace(heap, (finish + self._steps.item(child), name, child))
                else:
                    heapq.heappop(heap)
            starts[child] = finish
            counts[child] = left
            if finish > nows.item(node):
                nows[node] = finish
                self._latest = max(self._latest, finish)
            node = child
        return code

    def _serve(self, count: int, rooms: Int64s | None) -> Int64s:
        """The next `count` turns, of which there are so many, in columns.

        Args:
            rooms: what each node may give, by node; None = all that it has.
        """
        codes: Int64s = np.empty(count, dtype=np.int64)
        turns: Int64s = np.arange(count)
        nodes: Int64s = np.full(count, _ROOT, dtype=np.int64)
        self._counts[_ROOT] -= count
        while turns.size:
            nodes = self._go_down(nodes, rooms)
            found = self._codes[nodes]
            leaf_mask = found >= 0
            codes[turns[leaf_mask]] = found[leaf_mask]
            turns, nodes = turns[~leaf_mask], nodes[~leaf_mask]
        return codes

    def _go_down(self, nodes: Int64s, rooms: Int64s | None) -> Int64s:
        """For each turn of a node of one level, in order, the child that has it."""
        children: Int64s = self._only_children[nodes]
        several = np.flatnonzero(children < 0)
        if several.size < nodes.size:
            alone = children if not several.size else children[children >= 0]
            np.add.at(self._starts, alone, self._steps[alone])
            np.subtract.at(self._counts, alone, 1)
            self._pass(self._parents[alone], self._starts[alone])
        if several.size:
            order, parents, demands = by_code(nodes[several])
            chosen = self._choose(parents, demands, rooms)
            children[several[order]] = chosen
        return children

    def _pass(self, parents: Int64s, times: Int64s) -> None:
        """The last turns below these nodes, which may be named several times, end then."""
        self._nows[parents] = np.maximum(self._nows[parents], times)
        self._latest = max(self._latest, int(times.max()))

    def _choose(self, parents: Int64s, demands: Int64s, rooms: Int64s | None) -> Int64s:
        """The children that have the next `demands` turns of each of these nodes, in order."""
        nodes, sizes, popped = self._candidates(parents, demands, rooms is not None)
        gives = self._counts[nodes] if rooms is None else rooms[nodes]
        mask = gives > 0
        if not mask.all():
            owners: Int64s = np.repeat(np.arange(parents.size), sizes)
            nodes, gives = nodes[mask], gives[mask]
            sizes = np.bincount(owners[mask], minlength=parents.size)
        steps = self._steps[nodes] if self._weights else None
        finishes = self._starts[nodes] + (SCALE if steps is None else steps)
        rows, lasts = _turns(finishes, steps, gives, sizes, demands)
        chosen: Int64s = nodes[rows]
        np.add.at(self._starts, chosen, SCALE if steps is None else steps[rows])
        np.subtract.at(self._counts, chosen, 1)
        self._pass(parents, lasts)
        for parent, taken in popped:
            self._push_again(parent, taken)
        return chosen

    def _candidates(
        self, parents: Int64s, demands: Int64s, is_among: bool
    ) -> tuple[Int64s, Int64s, list[tuple[int, Heap]]]:
        """Children, by name, that hold those that have the next turns of each node; how many
        there are of each; and what was popped of heaps, to be pushed again.

        Args:
            is_among: not all children take part, so that a heap is of no use.
        """
        looked = self._looked.get(key := parents.tobytes())
        if looked is not None:
            if self._heaps:
                for parent in parents.tolist():
                    self._heaps.pop(parent, None)
            return (*looked, [])
        found: list[Int64s] = []
        popped: list[tuple[int, Heap]] = []
        children = [self._children[parent] for parent in parents.tolist()]
        is_small = is_among or sum(len(one.by_name) for one in children) <= _CHILDREN_MIN
        for parent, demand, one in zip(parents.tolist(), demands.tolist(), children, strict=True):
            size = len(one.by_name)
            is_heaped = parent in self._heaps and 2 * size > _CHILDREN_PER_TURN * demand
            if not is_small and (is_heaped or size > _CHILDREN_PER_TURN * demand):
                taken = self._pop(parent, demand)
                popped.append((parent, taken))
                by_name = sorted(taken, key=lambda entry: entry[1])
                found.append(np.array([node for _, _, node in by_name], dtype=np.int64))
            else:
                self._heaps.pop(parent, None)
                found.append(one.in_order()[1])
        nodes = np.concatenate(found)
        sizes = np.array([part.size for part in found], dtype=np.int64)
        if not popped:
            if len(self._looked) >= _LOOKED_MAX:
                self._looked.clear()
            self._looked[key] = nodes, sizes
        return nodes, sizes, popped

    def _pop(self, parent: int, count: int) -> Heap:
        """The first `count` children of the heap, each once; fewer if there are no more."""
        heap = self._heap(parent)
        taken: Heap = []
        while heap and len(taken) < count:
            entry = heapq.heappop(heap)
            if self._is_alive(entry[0], entry[2]) and not (taken and taken[-1] == entry):
                taken.append(entry)
        return taken

    def _push_again(self, parent: int, taken: Heap) -> None:
        """Those that were popped have had their turns."""
        heap = self._heaps[parent]
        nodes = np.array([node for _, _, node in taken], dtype=np.int64)
        finishes = (self._starts[nodes] + self._steps[nodes]).tolist()
        lefts = self._counts[nodes].tolist()
        for (_, name, node), finish, left in zip(taken, finishes, lefts, strict=True):
            if left:
                heapq.heappush(heap, (finish, name, node))

    # --- state

    def _begin_anew(self) -> None:
        """If times are too large soon, take the time of each node off those below it."""
        if self._latest <= _TIME_MAX:
            return
        times = self._starts - self._nows[self._parents]
        np.maximum(times, 0, out=times, where=self._counts == 0)
        times[self._parents == _NO_NODE] = 0
        self._latest = now = -min(0, int(times.min()))
        self._nows[:] = now
        self._starts = times + now
        self._heaps.clear()

    def _path(self, node: int) -> str:
        parts = []
        while node != _ROOT:
            parts.append(self._names[node])
            node = self._parents.item(node)
        if parts[0] == _LEAF:
            return ".".join(reversed(parts[1:])) + _LEAF
        return ".".join(reversed(parts))

    def starts(self) -> Starts:
        """What tells apart what comes: times less that of the node above."""
        times = self._starts - self._nows[self._parents]
        kept = (times > 0) | ((times != 0) & (self._counts > 0))
        kept &= self._parents != _NO_NODE
        nodes = np.flatnonzero(kept)
        return sorted(
            [self._path(node), time]
            for node, time in zip(nodes.tolist(), times[nodes].tolist(), strict=True)
        )

    def restore(self, starts: Starts, code_of: dict[str, int]) -> None:
        """Begin with these times; the groups are named and have their messages again."""
        now = headroom(starts)
        times = []
        for name, time in starts:
            text = str(name)
            node = self._node(text.removesuffix(_LEAF))
            if text.endswith(_LEAF):
                node = self._child(node, _LEAF, 1)
            times.append((node, int(time)))
        self._nows[:] = self._latest = now
        self._starts[:] = now
        for node, time in times:
            self._starts[node] += time
        self._heaps.clear()


def _longer(column: Int64s, size: int, value: int) -> Int64s:
    """The column with room for so many, and as many again."""
    return np.append(column, np.full(2 * size - column.size, value, dtype=np.int64))


def _turns(
    finishes: Int64s, steps: Int64s | None, gives: Int64s, sizes: Int64s, demands: Int64s
) -> tuple[Int64s, Int64s]:
    """Share out the turns of several nodes among the children of each.

    Args:
        finishes: of the next turn of each child; those of each node stand together, in the order
            in which they come if they are equal.
        steps: how long a turn of each child takes; None = `SCALE`.
        gives: how many turns it may have.
        sizes: how many children each node has here, 1 at least.
        demands: how many turns of each node are shared; all its children may have so many at least.

    Returns:
        Whose turn it is, as a place in `finishes`, those of each node together and in order; and
        when the last turn of each node ends.
    """
    begins = np.cumsum(sizes) - sizes
    owners: Int64s = np.repeat(np.arange(sizes.size), sizes)
    lows = np.minimum.reduceat(finishes, begins)
    above = finishes - lows[owners]
    weights = sizes if steps is None else np.add.reduceat(SCALE // steps, begins)
    until = np.maximum(SCALE * demands // weights, 1)
    while True:
        counts = until[owners] - above
        counts //= SCALE if steps is None else steps
        counts += 1
        np.maximum(counts, 0, out=counts)
        np.minimum(counts, gives, out=counts)
        sums = np.add.reduceat(counts, begins)
        short_mask = sums < demands
        if not short_mask.any():
            break
        until = np.where(short_mask, 2 * until, until)
    rows: Int64s = np.repeat(np.arange(finishes.size), counts)
    nths = ranges(np.zeros(counts.size, dtype=np.int64), counts)
    ends = above[rows] + nths * (SCALE if steps is None else steps[rows])
    order = _order(owners[rows], ends)[ranges(np.cumsum(sums) - sums, demands)]
    return rows[order], ends[order[np.cumsum(demands) - 1]] + lows


def _order(owners: Int64s, ends: Int64s) -> Int64s:
    """Places in order of both columns, then of the place. No value is negative."""
    place_bits = (ends.size - 1).bit_length()
    end_bits = int(ends.max()).bit_length()
    if int(owners[-1]).bit_length() + end_bits + place_bits > _INDEX_BITS:
        return np.lexsort((ends, owners))
    packed = owners << (end_bits + place_bits)
    packed |= ends << place_bits
    packed |= np.arange(ends.size, dtype=np.int64)
    packed.sort()  # tidy: allow determinism, because places make every value unique
    packed &= (1 << place_bits) - 1
    return packed
