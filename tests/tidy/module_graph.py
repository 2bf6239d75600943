"""The graph of imports of a package, read from its source: types and imports in functions count.

A module depends on another if its text names it in an import, wherever that stands: under
`TYPE_CHECKING` and inside a function too. To read or change one of two modules that name each
other, one has to know both; that the interpreter can load them in some order does not help.

An import of a name from a package depends on the package's `__init__.py`, unless the name is a
module of the package. What a package's `__init__.py` imports of its own modules is left out: it is
their door, and a module that imports the package for another name does not know its neighbours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

Graph = Mapping[str, frozenset[str]]


def module_sources(folder: Path, package: str) -> dict[str, str]:
    """The text of each module of a package, by its dotted name; `a/__init__.py` is `a`."""
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        sources[".".join(parts)] = path.read_text(encoding="utf-8")
    return sources


def import_graph(sources: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each module the modules among `sources` that it imports, but for a door's own ones."""
    return {name: frozenset(_imported(name, text, sources)) for name, text in sources.items()}


def _imported(name: str, text: str, modules: Mapping[str, str]) -> set[str]:
    named = {module if module in modules else module.rpartition(".")[0] for module in _named(text)}
    inside = f"{name}."
    return {module for module in named if module in modules and not f"{module}.".startswith(inside)}


@cache
def _named(text: str) -> frozenset[str]:
    """What a module's text imports, by dotted name, as far as it says. Reading 480 takes a second:
    checks that plant one line read one file again."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(named)


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first.

    Tarjan's algorithm, with a stack of its own instead of recursion.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    circles_found: list[list[str]] = []
    for root in sorted(graph):
        if root in order:
            continue
        work = [(root, iter(sorted(graph[root])))]
        order[root] = low[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            module, successors = work[-1]
            for successor in successors:
                if successor not in order:
                    order[successor] = low[successor] = len(order)
                    path.append(successor)
                    on_path.add(successor)
                    work.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in on_path:
                    low[module] = min(low[module], order[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == order[module]:
                    cut = path.index(module)
                    members = path[cut:]
                    del path[cut:]
                    on_path.difference_update(members)
                    if len(members) > 1:
                        circles_found.append(sorted(members))
    return sorted(circles_found, key=lambda members: (-len(members), members))


def folded(graph: Graph, room: str) -> dict[str, frozenset[str]]:
    """The graph of the folders and files directly in a room: a folder stands for all in it.

    The room's own `__init__.py` is left out: it is the door, and may name anything inside.
    """
    prefix = f"{room}."
    whole: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if not module.startswith(prefix):
            continue
        source = module.removeprefix(prefix).partition(".")[0]
        inside = {
            target.removeprefix(prefix).partition(".")[0]
            for target in targets
            if target.startswith(prefix)
        }
        whole.setdefault(source, set()).update(inside - {source})
    return {name: frozenset(targets) for name, targets in whole.items()}


def rooms(modules: Iterable[str]) -> list[str]:
    """Every package among these modules that has modules in it."""
    names = set(modules)
    return sorted({name.rpartition(".")[0] for name in names} & names)
