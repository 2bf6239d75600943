"""Turns: whose turn it is among the groups of a fair topic, slow and obvious, turn by turn.

Room: testing; pure. Dictionaries and sets only, nothing shared with the engine but a scale.
Holds: the same changes give the same turns as the engine's shares (rule 8).
See: reference_model.py, which has one for each priority where that comes first.
"""

from __future__ import annotations

from typing import TypeAlias

from dejaqueue.engine.shares import SCALE

Path: TypeAlias = tuple[str, ...]
"""A node in the tree of groups; its last part is "\\0" for a group itself."""


class Turns:
    """Whose turn it is, told obviously: a tree of groups, each node with its own virtual time.

    Attributes:
        starts: time of each node below that of all its siblings, by path.
        nows: time of all children of a node, by its path.
        listed: nodes that take part.
        codes: groups in the order they came; ties go by it until there are levels.
    """

    def __init__(self) -> None:
        self.weights: dict[str, int] = {}
        self.starts: dict[Path, int] = {}
        self.nows: dict[Path, int] = {}
        self.listed: set[Path] = set()
        self.codes: dict[str, int] = {"": 0}
        self.has_levels = False

    @staticmethod
    def paths(group: str) -> list[Path]:
        """The nodes from the top down to the group itself."""
        parts = (*group.split("."), "\0")
        return [parts[:length] for length in range(1, len(parts) + 1)]

    def name(self, group: str) -> None:
        """A group that may be new."""
        self.codes.setdefault(group, len(self.codes))
        self.has_levels |= "." in group

    def finish(self, path: Path) -> int:
        """When the next message of this node ends, in virtual time."""
        weight = 1 if path[-1] == "\0" else self.weights.get(".".join(path), 1)
        return self.starts.get(path, 0) + SCALE // weight

    def relist(self, gives: dict[str, int]) -> None:
        """Nodes with something to give take part."""
        active = {path for group, give in gives.items() if give for path in self.paths(group)}
        self.listed &= active
        for path in active - self.listed:
            self.starts[path] = max(self.starts.get(path, 0), self.nows.get(path[:-1], 0))
        self.listed |= active

    def next(self, groups: set[str]) -> str:
        """The group among these whose turn it is; it is taken."""
        node: Path = ()
        while not node or node[-1] != "\0":
            below = {paths[len(node)] for g in groups if len(paths := self.paths(g)) > len(node)}
            children = [path for path in below if path[:-1] == node]
            node = min(children, key=lambda path: (self.finish(path), self.tie(path)))
            self.starts[node] = self.finish(node)
            self.nows[node[:-1]] = max(self.nows.get(node[:-1], 0), self.starts[node])
        return ".".join(node[:-1])

    def go_on(self, group: str, count: int) -> None:
        """So many more messages of the group come at the turn that it just had."""
        for path in self.paths(group):
            self.starts[path] += count * (self.finish(path) - self.starts[path])

    def tie(self, path: Path) -> tuple[int, str]:
        """Who comes first of two that are equal."""
        return (0, path[-1]) if self.has_levels else (self.codes.get(path[0], 0), "")
