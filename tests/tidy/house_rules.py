"""The house rules that a machine can check: source text in, findings out.

Each rule is one function that answers with lines `place: what is wrong; what to do`. What a rule
must let pass carries its own reason, on the line: `# tidy: allow NAME, because …`, or stands in
`exceptions.py`.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

FILE_LINES_MAX = 600
TEST_FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 8

BANNED_PARTS = {
    "helper", "helpers", "job", "jobs", "manager", "handler", "tube", "util", "utils", "visibility",
}  # fmt: skip
BANNED_WHOLE = {
    "common", "data", "event", "events", "info", "item", "items", "job", "misc", "stuff",
}  # fmt: skip
# A thread may have a queue, and a test a process; no function, class or argument is called so.
BANNED_CALLABLE = {"queue", "queues", "process"}
FLIGHT_ROOMS = ("src/dejaqueue/flight/", "src/dejaqueue/client/")
ENGINE = "src/dejaqueue/engine/"
PARTITION_ROOM = "src/dejaqueue/broker/partition/"
# Written in pieces, so that this file does not find itself.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:" + "wor" + "k|roo" + r"t|Users|home/[a-z]\w+)/\w")
REGISTRY_HOSTS = re.compile(
    "|".join(re.escape(a + "." + b) for a, b in (
        ("pypi", "org"), ("pythonhosted", "org"),
        ("registry", "npmjs.org"), ("deb", "debian.org"), ("repo1", "maven.org"),
    ))
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, and its text."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @property
    def tree(self) -> ast.Module:
        """Its syntax tree; the file must be Python."""
        return ast.parse(self.text)

    def allows(self, line: int, rule: str) -> bool:
        """True if the line, or the one above it, lets the rule pass and says why."""
        near = self.lines[max(0, line - 2) : line]
        return any(re.search(rf"# tidy: allow {rule}, because \w", text) for text in near)


def tracked_files() -> list[str]:
    """Every file of the project, by its path from the root; those that git ignores left out."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return sorted(path for path in found.stdout.splitlines() if (ROOT / path).is_file())


def read(path: str) -> Source:
    """A file of the project; bytes that are no text give an empty one."""
    try:
        return Source(path, (ROOT / path).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return Source(path, "")


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield (qualified name, function), nested ones too."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for below in ast.iter_child_nodes(node):
            if isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{below.name}"
                stack.append((f"{name}.", below))
                if not isinstance(below, ast.ClassDef):
                    yield name, below
            else:
                stack.append((prefix, below))


def too_long_file(source: Source, listed: dict[str, str]) -> list[str]:
    """A file of more than 600 lines, or of 800 of tests, has a sentence that says why it is one."""
    most = TEST_FILE_LINES_MAX if source.path.startswith("tests/") else FILE_LINES_MAX
    count = len(source.lines)
    if count <= most:
        return _stale(source.path, listed, f"{count} lines now")
    if not _is_sentence(listed.get(source.path, "")):
        return [
            f"{source.path}: {count} lines; split it if it has two nouns, "
            "or say in exceptions.py why it is one"
        ]
    return []


def too_many_parameters(source: Source, listed: dict[str, str]) -> list[str]:
    """A function with more than 8 parameters, `self` not counted, has a sentence that says why."""
    found = []
    for name, node in functions(source.tree):
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = len([one for one in every if one.arg not in ("self", "cls")])
        place = f"{source.path}::{name}"
        if count <= PARAMETERS_MAX:
            found += _stale(place, listed, f"{count} parameters now")
        elif not _is_sentence(listed.get(place, "")):
            found.append(
                f"{place}: {count} parameters; find the record that they are, "
                "or say in exceptions.py why there is none"
            )
    return found


def _stale(place: str, listed: Collection[str], now: str) -> list[str]:
    return [f"{place}: {now}; take it off the list in exceptions.py"] if place in listed else []


def _is_sentence(text: str) -> bool:
    return len(text.split()) > 3 and text.endswith(".")


def takes_a_partition(source: Source, listed: Collection[str]) -> list[str]:
    """Only the room of the partition itself takes one as a whole; others take what they need."""
    if source.path.startswith((PARTITION_ROOM, *listed)):
        return []
    return [
        f"{source.path}::{name}: takes a whole Partition; take its core, or ask through a session"
        for name, node in functions(source.tree)
        for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if one.annotation and re.search(r"\bPartition\b", ast.unparse(one.annotation))
    ]


def odd_rulers(source: Source) -> list[str]:
    """A comment that heads a section is `# --- its name`, dashes behind it or not."""
    return [
        f"{source.path}:{number}: a section is headed by `# --- its name`"
        for number, line in enumerate(source.lines, 1)
        if re.match(r"\s*#\s?([-─═=~*])\1+", line) and not re.match(r"\s*# --- \w[^─═]*$", line)
    ]


def too_long_functions(source: Source, listed: dict[str, int]) -> list[str]:
    """A function has at most 70 lines, its docstring not counted."""
    found = []
    for name, node in functions(source.tree):
        start = node.lineno
        first = node.body[0]
        if ast.get_docstring(node) is not None and first.end_lineno is not None:
            start = first.end_lineno
        count = (node.end_lineno or start) - start
        place = f"{source.path}::{name}"
        allowed = listed.get(place, FUNCTION_LINES_MAX)
        if place in listed and count <= FUNCTION_LINES_MAX:
            found.append(f"{place}: {count} lines now; take it off the list in exceptions.py")
        elif count > allowed:
            found.append(f"{place}: {count} lines, at most {allowed}")
    return found


def missing_plate(source: Source) -> list[str]:
    """A module begins with its door plate: what it is, then which room."""
    doc = ast.get_docstring(source.tree)
    if doc is None:
        return [f"{source.path}: no door plate (the module's docstring)"]
    if not doc.splitlines()[0].rstrip().endswith((".", ":")):
        return [f"{source.path}: the first line of the door plate is not a sentence"]
    if not re.search(r"^(Room|\*Room:\*)", doc, re.MULTILINE):
        return [f"{source.path}: the door plate does not say `Room:`"]
    return []


def defined_names(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield (name, line, is it one that others see) of every name that the file itself chooses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno, True
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno, False


def banned_names(source: Source, listed: Collection[str] = ()) -> list[str]:
    """Names use the words of the glossary, not those of other systems or of nothing at all."""
    found = []
    stem = PurePosixPath(source.path).stem
    for name, line, is_seen in [(stem, 1, True), *defined_names(source.tree)]:
        spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        words = [word for word in spread.split("_") if word]
        whole = BANNED_WHOLE | BANNED_CALLABLE if is_seen else BANNED_WHOLE
        wrong = BANNED_PARTS.intersection(words) or whole.intersection(["_".join(words)])
        if f"{source.path}::{name}" in listed:
            continue
        if wrong and not source.allows(line, "name"):
            found.append(f"{source.path}:{line}: the name {name!r}; see docs/reference/glossary.md")
    return found


def glossary_words(page: str) -> set[str]:
    """The words that the glossary explains: those of the first column of its tables."""
    words: set[str] = set()
    for line in page.partition("## Words that are not used")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| word", "| ---")):
            entry = re.sub(r"\(.*?\)", "", line.split("|")[1])
            words.update(re.findall(r"[a-z]+", entry.lower()))
    return words


def explained_twice(page: str) -> list[str]:
    """One word, one meaning: two lines about one entry, without a word that tells them apart."""
    lines = page.partition("## Words that are not used")[0].splitlines()
    entries = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    return sorted({one for one in entries if entries.count(one) > 1} - {"word", "---"})


def strange_nouns(source: Source, words: Collection[str]) -> list[tuple[str, str]]:
    """(word, place) of each module and class whose last word, its noun, nobody has explained."""
    path = PurePosixPath(source.path)
    name = path.parent.name if path.stem in ("__init__", "__main__") else path.stem
    named = [(name, 1)]
    named += [(n.name, n.lineno) for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef)]
    found = []
    for name, line in named:
        spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        noun = [word for word in spread.split("_") if word][-1]
        if not set(_singular_or_verb(noun)).intersection(words):
            found.append((noun, f"{source.path}:{line}: the noun {noun!r} of {name!r}"))
    return found


def _singular_or_verb(word: str) -> set[str]:
    """The word, and what it may come from: leases and leasing from lease, dispatcher from dispatch.

    >>> sorted(_singular_or_verb("entries"))
    ['entri', 'entrie', 'entries', 'entry']
    """
    forms = {word}
    if word.endswith("ies"):
        forms.add(f"{word[:-3]}y")
    for ending in ("es", "s", "ing", "ings", "er", "ers", "ship"):
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            forms |= {stem, f"{stem}e"}
            if len(stem) > 2 and stem[-1] == stem[-2]:
                forms.add(stem[:-1])
    forms.discard("")
    return forms


def engine_is_random(source: Source) -> list[str]:
    """What could make two replays of one journal differ is not in the engine."""
    found = []
    for node in ast.walk(source.tree):
        wrong = _wrong_call(node) if isinstance(node, ast.Call) else _wrong_node(node)
        line = getattr(node, "lineno", 1)
        if wrong and not source.allows(line, "determinism"):
            found.append(f"{source.path}:{line}: {wrong}")
    return found


def _wrong_call(node: ast.Call) -> str:
    called = node.func
    name = getattr(called, "attr", getattr(called, "id", ""))
    if name in {"sort", "argsort"}:
        kinds = [k.value for k in node.keywords if k.arg == "kind"]
        if any(isinstance(k, ast.Constant) and k.value == "stable" for k in kinds):
            return ""
        if name == "sort" and any(k.arg in {"key", "reverse"} for k in node.keywords):
            return ""  # a list's sort, which is stable
        return f'{name} without kind="stable": ties come in another order elsewhere'
    if name == "argpartition" or (name == "partition" and _is_numpy(called)):
        return f"{name}: the order of what it leaves is not defined"
    if isinstance(called, ast.Name) and name == "hash":
        return "hash(): differs from process to process"
    if isinstance(called, ast.Name) and name == "float":
        return "float(): no floating point in keys or state"
    if isinstance(called, ast.Name) and name in {"list", "tuple", "enumerate"}:
        return _set_order(node.args[0]) if node.args else ""
    return ""


def _wrong_node(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute) and re.fullmatch(r"float(16|32|64|_)?|double", node.attr):
        return f"{node.attr}: no floating point in keys or state"
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        return f"{node.value}: no floating point in keys or state"
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
        return "/ gives floating point: use //"
    if isinstance(node, ast.For | ast.comprehension):
        return _set_order(node.iter)
    return ""


def _is_numpy(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and getattr(called.value, "id", "") in {"np", "numpy"}


def _set_order(iterated: ast.expr) -> str:
    is_set = isinstance(iterated, ast.Set | ast.SetComp) or (
        isinstance(iterated, ast.Call) and getattr(iterated.func, "id", "") in {"set", "frozenset"}
    )
    return "walks through a set: sort it first" if is_set else ""


def imports_flight(source: Source) -> list[str]:
    """`pyarrow.flight` (gRPC) is for the server and the client alone."""
    if source.path.startswith(FLIGHT_ROOMS):
        return []
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names.append(node.module or "")
        else:
            continue
        if any(name.startswith("pyarrow.flight") for name in names):
            found.append(f"{source.path}:{node.lineno}: pyarrow.flight outside of flight/, client/")
    return found


def sleeps(source: Source) -> list[str]:
    """Nothing sleeps: wait on a bell, or move the virtual clock."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = getattr(called, "attr", getattr(called, "id", ""))
        yields = (
            bool(node.args) and isinstance(node.args[0], ast.Constant) and not node.args[0].value
        )
        if name == "sleep" and not yields and not source.allows(node.lineno, "sleep"):
            found.append(f"{source.path}:{node.lineno}: sleep; wait on a bell or a clock")
    return found


def loop_leftovers(source: Source) -> list[str]:
    """What only loops name is read inside them: behind them it is what came last, or nothing.

    A judge that read the delivery of an earlier loop instead of its own called fair brokers unfair,
    and types do not tell the two apart.
    """
    found = []
    for _, function in functions(source.tree):
        nodes = list(_of_scope(function))
        insides: dict[str, set[ast.AST]] = {}
        targets: set[ast.AST] = set()
        for loop in nodes:
            if isinstance(loop, ast.For | ast.AsyncFor):
                named = [one for one in ast.walk(loop.target) if isinstance(one, ast.Name)]
                targets.update(named)
                for one in named:
                    insides.setdefault(one.id, set()).update(_of_scope(loop))
        names = [node for node in nodes if isinstance(node, ast.Name) and node not in targets]
        assigned = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
        assigned.update(node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg))
        found += [
            f"{source.path}:{one.lineno}: {one.id!r} is read behind its loop; "
            "read it inside, or assign it before"
            for one in names
            if one.id in insides and one.id not in assigned and one not in insides[one.id]
            if not source.allows(one.lineno, "leftover")
        ]
    return found


def _of_scope(root: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below, but not what has names of its own: functions, comprehensions."""
    for node in ast.iter_child_nodes(root):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _of_scope(node)


_SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def names_a_machine(source: Source) -> list[str]:
    """No path of somebody's machine and no host of a package index is written down."""
    found = []
    for number, line in enumerate(source.lines, 1):
        for pattern, what in ((MACHINE_PATHS, "path of a machine"), (REGISTRY_HOSTS, "index host")):
            if seen := pattern.search(line):
                found.append(f"{source.path}:{number}: {what} {seen[0]!r}")
    return found


def loose_requirements(source: Source) -> list[str]:
    """A locked file has exact versions with hashes, and no address."""
    found = []
    joined = source.text.replace("\\\n", " ")
    for line in joined.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if re.search(r"--(extra-)?index|--find-links|https?:|file:", line):
            found.append(f"{source.path}: an address: {line[:60]}")
        elif not re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+", line):
            found.append(f"{source.path}: not an exact version: {line[:60]}")
        elif "--hash=sha256:" not in line:
            found.append(f"{source.path}: without a hash: {line[:60]}")
    return found


def template_of(source: Source) -> str | None:
    """The module that this one is generated from, as its plate says; None = it is written."""
    said = re.search(r"Generated by scripts/\S+: change (\S+\.py)", source.text)
    return str(PurePosixPath(source.path).parents[1] / said[1]) if said else None


def unmirrored(
    modules: list[str],
    tests: list[str],
    listed: set[str],
    templates: Mapping[str, str] | None = None,
) -> list[str]:
    """Every module has its unit test file at the mirrored place, and no such file is an orphan.

    Args:
        templates: of a generated module the one that it comes from: its test is the test of both.
    """
    expected: dict[str, str] = {}
    for module in modules:
        path = PurePosixPath(module).relative_to("src/dejaqueue")
        if path.name == "__init__.py":
            continue
        name = path.stem.strip("_")
        expected[str(PurePosixPath("tests/unit") / path.parent / f"test_{name}.py")] = module
    template_tests = {module: test for test, module in expected.items()}
    found = []
    for test, module in sorted(expected.items()):
        template = (templates or {}).get(module)
        if template is not None:
            if module in listed:
                found.append(f"{module}: is generated; take it off the list in exceptions.py")
            if template_tests.get(template) not in tests:
                found.append(f"{module}: is generated, and {template} has no test")
            continue
        if test in tests and module in listed:
            found.append(f"{module}: has its test now; take it off the list in exceptions.py")
        elif test not in tests and module not in listed:
            found.append(f"{module}: {test} is missing")
    folders = {str(PurePosixPath(test).with_suffix("")) for test in expected}
    for test in tests:
        if test.startswith("tests/unit/bench/"):
            continue  # not a part of the package
        # A second file may take one side of a module: test_table_growth.py beside test_table.py.
        stem = str(PurePosixPath(test).with_suffix(""))
        if not any(stem == known or stem.startswith(f"{known}_") for known in folders):
            found.append(f"{test}: no module of that name in src")
    found += [
        f"{module}: listed in exceptions.py, but is no module" for module in listed - set(modules)
    ]
    return found


CHECKS = re.compile(
    r"^_?(assert|check|expect|verify|prove|must|refuse|fail|wait_|run_state_machine)"
)


def proves_nothing(source: Source) -> list[str]:
    """A test asserts something, itself or through a function that says so by its name."""
    found = []
    for name, node in functions(source.tree):
        if not name.split(".")[-1].startswith("test_"):
            continue
        proves = False
        for below in ast.walk(node):
            if isinstance(below, ast.Assert):
                proves = True
            elif isinstance(below, ast.Call):
                called = getattr(below.func, "attr", getattr(below.func, "id", ""))
                proves = proves or called in {"raises", "warns"} or bool(CHECKS.match(called))
        if not proves and not source.allows(node.lineno, "no-assert"):
            found.append(f"{source.path}:{node.lineno}: {name} asserts nothing")
    return found


def loose_ends(source: Source) -> list[str]:
    """What is left to do names its issue."""
    found = []
    for number, line in enumerate(source.lines, 1):
        words = re.search(r"#.*\b(TO" r"DO(?!\(#\d+\))|FIX" r"ME|XX" r"X|HA" r"CK)\b", line)
        if words:
            found.append(f"{source.path}:{number}: {words[1]}; name its issue, or do it")
    return found
