"""Covers: the project keeps its house rules, and every rule can fail.

Not covered: format, lint and types (ruff, mypy); who imports whom (test_import_contracts.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tidy import exceptions
from tests.tidy import house_rules as house
from tests.tidy.house_rules import Source

FILES = house.tracked_files()
PYTHON = [path for path in FILES if path.endswith(".py")]
SOURCES = [house.read(path) for path in PYTHON]
SRC = [source for source in SOURCES if source.path.startswith("src/")]
TESTS = [source for source in SOURCES if source.path.startswith("tests/")]
TEST_FILES = [source for source in TESTS if source.path.split("/")[-1].startswith("test_")]


GLOSSARY = house.read("docs/reference/glossary.md").text


def found_in(rule: Callable[[Source], list[str]], sources: list[Source]) -> list[str]:
    """What a rule finds in all of these."""
    return [line for source in sources for line in rule(source)]


def assert_none(found: list[str]) -> None:
    """Fail with one finding a line."""
    assert not found, "\n" + "\n".join(found)


def test_there_is_something_to_check() -> None:
    assert len(SRC) > 15
    assert len(TEST_FILES) >= 2


def test_files_are_short() -> None:
    listed = exceptions.LONG_FILES
    assert_none(found_in(lambda source: house.too_long_file(source, listed), SOURCES))
    assert_none([path for path in listed if path not in FILES])


def test_functions_have_few_parameters() -> None:
    listed = exceptions.MANY_PARAMETERS
    assert_none(found_in(lambda source: house.too_many_parameters(source, listed), SRC))
    defined = {
        f"{source.path}::{name}" for source in SRC for name, _ in house.functions(source.tree)
    }
    assert_none(sorted(set(listed) - defined))


def test_a_whole_partition_is_taken_by_its_own_room_only() -> None:
    listed = exceptions.TAKES_A_PARTITION
    assert_none(found_in(lambda source: house.takes_a_partition(source, listed), SRC))
    for path in listed:
        others = [one for one in listed if one != path]
        inside = [source for source in SRC if source.path.startswith(path)]
        assert found_in(lambda source: house.takes_a_partition(source, others), inside), path  # noqa: B023


def test_sections_are_headed_alike() -> None:
    assert_none(found_in(house.odd_rulers, SOURCES))


def test_functions_are_short() -> None:
    listed = exceptions.LONG_FUNCTIONS
    assert_none(found_in(lambda source: house.too_long_functions(source, listed), SRC))
    assert_none([place for place in listed if place.split("::")[0] not in FILES])


def test_every_module_has_a_door_plate() -> None:
    rooms = [source for source in SRC if source.path not in exceptions.WITHOUT_PLATE]
    assert_none(found_in(house.missing_plate, rooms))


def test_names_are_words_of_the_glossary() -> None:
    listed = exceptions.NAMES
    assert_none(found_in(lambda source: house.banned_names(source, listed), SRC))


def test_the_nouns_of_modules_and_classes_are_in_the_glossary() -> None:
    # errors.py names what went wrong, one class for each row of docs/reference/errors.md.
    named = [source for source in SRC if source.path != "src/dejaqueue/errors.py"]
    words = house.glossary_words(GLOSSARY) | exceptions.ORDINARY_NOUNS | exceptions.FOREIGN_NOUNS
    strange = [pair for source in named for pair in house.strange_nouns(source, words)]
    assert_none([place for noun, place in strange if noun not in exceptions.STRANGE_NOUNS])
    assert sorted(exceptions.STRANGE_NOUNS - {noun for noun, _ in strange}) == []


def test_the_glossary_explains_each_word_once() -> None:
    assert house.explained_twice(GLOSSARY) == []
    assert sorted(house.glossary_words(GLOSSARY) & exceptions.STRANGE_NOUNS) == []


def test_the_engine_has_nothing_that_differs_between_replays() -> None:
    engine = [source for source in SRC if source.path.startswith(house.ENGINE)]
    assert engine
    assert_none(found_in(house.engine_is_random, engine))


def test_flight_is_imported_by_server_and_client_only() -> None:
    assert_none(found_in(house.imports_flight, SRC))


def test_nothing_sleeps() -> None:
    assert_none(found_in(house.sleeps, [*SRC, *TESTS]))


def test_what_a_loop_names_is_read_inside_it() -> None:
    assert_none(found_in(house.loop_leftovers, SOURCES))


def test_no_machine_is_named() -> None:
    assert_none(found_in(house.names_a_machine, [house.read(path) for path in FILES]))


def test_requirements_are_locked() -> None:
    locked = [path for path in FILES if path.startswith("requirements/") and path.endswith(".txt")]
    assert len(locked) >= 4
    assert_none(found_in(house.loose_requirements, [house.read(path) for path in locked]))


def test_unit_tests_mirror_the_modules() -> None:
    # The other package is a door that Spark looks for: tests/spark/test_found.py opens it.
    modules = [source.path for source in SRC if source.path.startswith("src/dejaqueue/")]
    tests = [source.path for source in TEST_FILES if source.path.startswith("tests/unit/")]
    templates = {source.path: house.template_of(source) for source in SRC}
    named = {path: template for path, template in templates.items() if template is not None}
    assert len(named) > 5
    assert_none(house.unmirrored(modules, tests, set(exceptions.WITHOUT_UNIT_TEST), named))


def test_every_test_proves_something() -> None:
    assert_none(found_in(house.proves_nothing, TEST_FILES))


def test_what_is_left_to_do_names_its_issue() -> None:
    assert_none(found_in(house.loose_ends, SOURCES))


# Every rule shown a text that breaks it, and where it matters one that only looks like it.

ENGINE_FILE = "src/dejaqueue/engine/planted.py"
LOOPS = "def f():\n    for a in bs:\n        use(a)\n"
PLATE = '"""A planted file.\n\nRoom: engine.\n"""\n'

BROKEN: list[tuple[Callable[[Source], list[str]], str, str]] = [
    (house.missing_plate, "src/a.py", "x = 1\n"),
    (house.missing_plate, "src/a.py", '"""A thing without a room."""\n'),
    (house.missing_plate, "src/a.py", '"""No full stop\n\nRoom: engine.\n"""\n'),
    (house.banned_names, "src/a.py", "def handle(job): ...\n"),
    (house.banned_names, "src/a.py", "class TopicManager: ...\n"),
    (house.banned_names, "src/a.py", "data = 1\n"),
    (house.banned_names, "src/a.py", "def close(queue): ...\n"),
    (house.banned_names, "src/a.py", "self.visibility_ms = 1\n"),
    (house.banned_names, "src/utils.py", "x = 1\n"),
    (house.engine_is_random, ENGINE_FILE, "order = np.argsort(keys)\n"),
    (house.engine_is_random, ENGINE_FILE, "keys.sort(kind='quicksort')\n"),
    (house.engine_is_random, ENGINE_FILE, "np.argpartition(keys, 3)\n"),
    (house.engine_is_random, ENGINE_FILE, "np.partition(keys, 3)\n"),
    (house.engine_is_random, ENGINE_FILE, "x = hash(text)\n"),
    (house.engine_is_random, ENGINE_FILE, "for x in {1, 2}: ...\n"),
    (house.engine_is_random, ENGINE_FILE, "y = [x for x in set(xs)]\n"),
    (house.engine_is_random, ENGINE_FILE, "y = list(set(xs))\n"),
    (house.engine_is_random, ENGINE_FILE, "dtype = np.float64\n"),
    (house.engine_is_random, ENGINE_FILE, "x = 0.5\n"),
    (house.engine_is_random, ENGINE_FILE, "x = a / b\n"),
    (house.engine_is_random, ENGINE_FILE, "x = float(a)\n"),
    (house.engine_is_random, ENGINE_FILE, "x = a / b  # tidy: allow determinism\n"),
    (house.imports_flight, "src/dejaqueue/broker/a.py", "import pyarrow.flight as flight\n"),
    (house.imports_flight, "src/dejaqueue/broker/a.py", "from pyarrow import flight\n"),
    (house.sleeps, "tests/a.py", "time.sleep(0.1)\n"),
    (house.sleeps, "tests/a.py", "await asyncio.sleep(delay)\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    for b in bs:\n        use(a)\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    return a\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    return a  # tidy: allow leftover\n"),
    (house.names_a_machine, "docs/a.md", "see /ro" + "ot/x\n"),
    (house.names_a_machine, "docs/a.md", "see https://py" + "pi.org/simple\n"),
    (house.loose_requirements, "r.txt", "numpy>=2 --hash=sha256:00\n"),
    (house.loose_requirements, "r.txt", "numpy==2.0\n"),
    (house.loose_requirements, "r.txt", "--index-url x\nnumpy==2.0 --hash=sha256:00\n"),
    (house.proves_nothing, "tests/test_a.py", "def test_a():\n    print(1)\n"),
    (house.loose_ends, "src/a.py", "x = 1  # TO" + "DO later\n"),
    (house.odd_rulers, "src/a.py", "# " + "── topics ──────\n"),
    (house.odd_rulers, "src/a.py", "    # " + "---- topics ----\n"),
    (house.odd_rulers, "src/a.py", "# " + "--- topics ────\n"),
    (house.odd_rulers, "src/a.py", "#" + "======\n"),
]

WHOLE: list[tuple[Callable[[Source], list[str]], str, str]] = [
    (house.missing_plate, "src/a.py", PLATE),
    (house.banned_names, "src/a.py", "row = columns.items()\n_queue = 1\n"),
    (house.banned_names, "src/a.py", "data = 1  # tidy: allow name, because Arrow calls it so\n"),
    (house.engine_is_random, ENGINE_FILE, "order = np.argsort(keys, kind='stable')\n"),
    (house.engine_is_random, ENGINE_FILE, "runs.sort(key=len)\n"),
    (house.engine_is_random, ENGINE_FILE, "x = a // b\nhead, _, tail = text.partition(',')\n"),
    (house.engine_is_random, ENGINE_FILE, "for x in sorted({1, 2}): ...\n"),
    (
        house.engine_is_random,
        ENGINE_FILE,
        "# tidy: allow determinism, because sequences are unique\nkeys.sort()\n",
    ),
    (house.imports_flight, "src/dejaqueue/flight/server.py", "import pyarrow.flight\n"),
    (house.sleeps, "tests/a.py", "await asyncio.sleep(0)\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    for a in bs:\n        use(a)\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    return [a for a in bs]\n"),
    (house.loop_leftovers, "a.py", f"{LOOPS}    a = 1\n    return a\n"),
    (house.loop_leftovers, "a.py", LOOPS.replace("()", "(a)") + "    return a\n"),
    (house.names_a_machine, "docs/a.md", "a network/root/cause and ./work/x\n"),
    (house.loose_requirements, "r.txt", "numpy==2.0 ; x < '3' \\\n    --hash=sha256:00\n"),
    (house.proves_nothing, "tests/test_a.py", "def test_a():\n    check_state(1)\n"),
    (house.loose_ends, "src/a.py", "x = 1  # TODO(#12) later\n"),
    (house.odd_rulers, "src/a.py", "# --- topics\n# --- more -----\nx = 1  # - one\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_broken_rule_is_found(rule: Callable[[Source], list[str]], path: str, text: str) -> None:
    assert rule(Source(path, text)) != []


@pytest.mark.parametrize(("rule", "path", "text"), WHOLE)
def test_what_keeps_the_rule_passes(
    rule: Callable[[Source], list[str]], path: str, text: str
) -> None:
    assert rule(Source(path, text)) == []


def test_a_noun_that_nobody_explained_is_found() -> None:
    page = "| word | meaning |\n| --- | --- |\n| lease | … |\n| home (of a key) | … |\n"
    words = house.glossary_words(page)
    assert words == {"lease", "home"}
    text = "class LeaseWizard: ...\nclass _Leased: ...\nclass Homes: ...\n"
    strange = house.strange_nouns(Source("src/dejaqueue/a/leasing.py", text), words)
    assert [noun for noun, _ in strange] == ["wizard", "leased"]
    assert house.strange_nouns(Source("src/dejaqueue/a/shelf.py", ""), words) != []
    assert house.explained_twice(page) == []
    assert house.explained_twice(page + "| lease | another thing |\n") == ["lease"]


def test_a_long_file_needs_a_sentence__and_a_stale_one_is_found() -> None:
    long = Source("src/a.py", "x = 1\n" * 601)
    assert house.too_long_file(long, {}) != []
    assert house.too_long_file(long, {"src/a.py": "It is one list of names."}) == []
    assert house.too_long_file(long, {"src/a.py": "later"}) != []
    short = Source("src/a.py", "x = 1\n")
    assert house.too_long_file(short, {"src/a.py": "It is one list of names."}) != []
    assert house.too_long_file(Source("tests/a.py", "x = 1\n" * 601), {}) == []


def test_many_parameters_need_a_sentence__and_a_stale_one_is_found() -> None:
    text = "class A:\n  def f(self, a, b, c, d, e, f, g, h{}): ...\n"
    eight, nine = (Source("src/a.py", text.format(more)) for more in ("", ", *, i=0"))
    place = "src/a.py::A.f"
    assert house.too_many_parameters(eight, {}) == []
    assert house.too_many_parameters(nine, {}) != []
    assert house.too_many_parameters(nine, {place: "Users give each by its name."}) == []
    assert house.too_many_parameters(nine, {place: "later"}) != []
    assert house.too_many_parameters(eight, {place: "Users give each by its name."}) != []


def test_a_whole_partition_taken_elsewhere_is_found() -> None:
    text = "def f(partition: Partition | None) -> None: ...\n"
    assert house.takes_a_partition(Source("src/dejaqueue/http/a.py", text), ()) != []
    assert (
        house.takes_a_partition(Source("src/dejaqueue/http/a.py", text), ["src/dejaqueue/http/"])
        == []
    )
    assert house.takes_a_partition(Source("src/dejaqueue/broker/partition/a.py", text), ()) == []
    core = "def f(core: PartitionCore) -> None: ...\n"
    assert house.takes_a_partition(Source("src/dejaqueue/http/a.py", core), ()) == []


def test_a_long_function_is_found__and_a_stale_exception_too() -> None:
    body = "    x = 1\n" * 71
    long = Source("src/a.py", f"class A:\n  def f(self):\n{body}")
    place = "src/a.py::A.f"
    assert house.too_long_functions(long, {}) != []
    assert house.too_long_functions(long, {place: 71}) == []
    assert house.too_long_functions(Source("src/a.py", "def f(): ...\n"), {"src/a.py::f": 71}) != []
    doc = "    more\n" * 71
    documented = Source("src/a.py", f'def f():\n    """Words.\n{doc}    """\n    x = 1\n')
    assert house.too_long_functions(documented, {}) == []


def test_the_mirror_finds_what_is_missing_and_what_is_orphaned() -> None:
    modules = ["src/dejaqueue/engine/__init__.py", "src/dejaqueue/engine/table.py"]
    assert house.unmirrored(modules, ["tests/unit/engine/test_table.py"], set()) == []
    beside = ["tests/unit/engine/test_table.py", "tests/unit/engine/test_table_growth.py"]
    assert house.unmirrored(modules, beside, set()) == []
    assert house.unmirrored(modules, [], set()) != []
    assert house.unmirrored(modules, [], {"src/dejaqueue/engine/table.py"}) == []
    listed = {"src/dejaqueue/engine/table.py"}
    assert house.unmirrored(modules, ["tests/unit/engine/test_table.py"], listed) != []
    assert house.unmirrored(modules, [*beside, "tests/unit/test_gone.py"], set()) != []
    assert house.unmirrored(modules, beside, {"src/dejaqueue/gone.py"}) != []


def test_what_is_generated_is_tested_where_it_comes_from() -> None:
    made = Source("src/dejaqueue/client/_sync/keys.py", "")
    assert house.template_of(made) is None
    plate = '"""Keys.\n\nRoom: client. Generated by scripts/a.py: change _aio/keys.py.\n"""\n'
    made = Source(made.path, plate)
    written = "src/dejaqueue/client/_aio/keys.py"
    templates = {made.path: written}
    assert house.template_of(made) == written
    test = "tests/unit/client/_aio/test_keys.py"
    assert house.unmirrored([made.path, written], [test], set(), templates) == []
    assert len(house.unmirrored([made.path, written], [], {written}, templates)) == 1
    # Listed all the same: it need not be.
    assert house.unmirrored([made.path, written], [test], {made.path}, templates) != []
