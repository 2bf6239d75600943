"""`python -m tests.simulation.coverage --kind KIND --seeds N`: which statements simulated seeds
run, by room; what `make sim-coverage` prints.

The code of the product is loaded with a mark before each statement. A tracer would not do: it slows
a seed down tenfold, and loses its way where fibers take turns.

Counted is every statement but docstrings, `...` and what stands under `if TYPE_CHECKING`. Of these,
what stands in functions is counted apart: the rest runs when a module is loaded.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

import dejaqueue

ROOT = Path(dejaqueue.__file__).parent
MARKS = "__marks__"


@dataclass
class File:
    """A file of the product.

    Attributes:
        lines: of each statement.
        in_function: whether each stands in one.
        ran: 1 where it ran.
    """

    lines: list[int]
    in_function: list[bool]
    ran: bytearray


class _Marking(ast.NodeTransformer):
    """Puts a mark before each statement."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.in_function: list[bool] = []
        self._depth = 0

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        marked: list[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                marked.append(statement)
                continue
            is_constant = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            if not is_constant:
                place = len(self.lines)
                self.lines.append(statement.lineno)
                self.in_function.append(self._depth > 0)
                mark = ast.parse(f"{MARKS}[{place}] = 1").body[0]
                marked.append(ast.copy_location(ast.fix_missing_locations(mark), statement))
            marked.append(self.visit(statement))
        return marked

    def generic_visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._depth += is_function
        for name, value in ast.iter_fields(node):
            if not isinstance(value, list) or not value:
                continue
            if name in {"body", "orelse", "finalbody"} and isinstance(value[0], ast.stmt):
                setattr(node, name, self._block(value))
            elif name in {"handlers", "cases"}:
                for one in value:
                    self.visit(one)
        self._depth -= is_function
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """What is there for types alone is not counted."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """The docstring stays first."""
        return self.generic_visit(node)


class Counter(importlib.abc.MetaPathFinder):
    """Loads the product with marks.

    Attributes:
        files: what was loaded, by path in the product.
    """

    def __init__(self) -> None:
        self.files: dict[str, File] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See MetaPathFinder.find_spec."""
        if not name.startswith("dejaqueue"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, counter: Counter) -> None:
        super().__init__(name, path)
        self._counter = counter

    def get_code(self, fullname: str) -> CodeType | None:
        """Compiled anew: what lies on the disk has no marks."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        """With marks."""
        file, tree = marked(data)
        self._counter.files[str(Path(path).relative_to(ROOT))] = file
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Its marks are there before its first statement."""
        code = self.get_code(module.__name__)
        assert code is not None
        vars(module)[MARKS] = self._counter.files[str(Path(self.path).relative_to(ROOT))].ran
        exec(code, vars(module))


def marked(source: bytes) -> tuple[File, ast.Module]:
    """A file's statements, and its tree with a mark before each."""
    marking = _Marking()
    tree = marking.visit(ast.parse(source))
    return File(marking.lines, marking.in_function, bytearray(len(marking.lines))), tree


def rooms(counter: Counter, shown: Collection[str]) -> list[str]:
    """A line for each room; of some, a line for each file."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for path in sorted(ROOT.rglob("*.py")):
        inside = str(path.relative_to(ROOT))
        file = counter.files.get(inside) or marked(path.read_bytes())[0]
        room = inside.partition("/")[0] if "/" in inside else "(vocabulary)"
        names = [room, "(all)"] + ([inside] if room in shown else [])
        for name in names:
            numbers = sums[name]
            numbers[0] += sum(file.ran)
            numbers[1] += len(file.ran)
            ran = zip(file.ran, file.in_function, strict=True)
            numbers[2] += sum(one for one, inner in ran if inner)
            numbers[3] += sum(file.in_function)
    lines = [f"{'room':32} {'statements':>11} {'run':>7} {'in functions':>13} {'run':>7}"]
    for name, (ran_count, count, inner_ran, inner) in sorted(sums.items()):
        share, inner_share = 100 * ran_count / max(count, 1), 100 * inner_ran / max(inner, 1)
        lines.append(f"{name:32} {count:11,} {share:6.1f}% {inner:13,} {inner_share:6.1f}%")
    return lines


def main() -> int:
    """Run seeds; 1 if any broke a rule."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="clients", help="several are separated by commas")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--haste", type=int, default=1, help="as of the simulation, but for keys")
    parser.add_argument("--files", default="", help="show each file of these rooms")
    options = parser.parse_args()
    counter = Counter()
    for name in [n for n in sys.modules if n == "dejaqueue" or n.startswith("dejaqueue.")]:
        del sys.modules[name]  # loaded again, with marks
    sys.meta_path.insert(0, counter)
    from tests.simulation.report import run_one  # imported late, through the counter

    failed = 0
    for kind in options.kind.split(","):
        for seed in range(options.first, options.first + options.seeds):
            report = run_one(seed, kind=kind, haste=1 if kind == "keys" else options.haste)
            failed += report.failed
            for line in report.lines:
                print(line)
    print(f"{options.kind}: {options.seeds} seeds from {options.first}, {failed} failed")
    print("\n".join(rooms(counter, options.files.split(","))))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
