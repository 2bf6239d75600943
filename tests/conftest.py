"""What holds for every test: no hypothesis deadline; nothing is left out where all must run.

With REQUIRE_ALL=1 (CI) a skipped test fails the run: a machine that lacks something must say so,
not look green. A test that may be left out anywhere says so by the mark `may_skip`.

A test that judges by the clock on the wall says so by the mark `timing`: it is left out where the
machine has other work, and `make test` runs it when all others are done.

Tests wait more than they compute, so `make test` runs them in several processes (pytest-xdist). A
file stays in one of them, a folder with costly fixtures too, and what takes long begins first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from dev.reaper import start_reaper
from tests.checker.internal import internal_errors

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"

# A loaded machine is not a bug: time is bounded by pytest's timeout, not per example.
settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")

_left_out: list[str] = []
_spent_seconds: defaultdict[str, float] = defaultdict(float)
"""File → how long its tests took, with their fixtures."""
_ended: dict[str, float] = {}
"""Process → when its last test ended: one that ends long before the others could have had more."""
LONG_RUN_SECONDS = 60
FILES_SHOWN = 12
_left_quiet: list[str] = []
QUIET = "logs were silenced"

TOGETHER = ("tests/spark/", "tests/cluster/")
"""Folders whose tests share what takes long to start: a JVM, servers."""
LONGEST = (
    *TOGETHER,
    "tests/chaos/",
    "tests/crash/",
    "tests/conformance/",
    "tests/dev/",
    "tests/clients/",
    "tests/hostile/",
    "tests/model/",
    "tests/simulation/",
    "tests/mutation/",
    "tests/corruption/",
    "tests/docs/",
    "tests/console/",
)
"""What takes long begins first, so that nothing is waited for at the end."""
WATCHED = ("tests/integration/", "tests/hostile/")
"""Tests that send what comes from outside to brokers in this process."""


def pytest_configure(config: pytest.Config) -> None:
    """What this run starts ends with it, even if it is killed; its workers bear its mark."""
    if not hasattr(config, "workerinput"):
        start_reaper()


@pytest.fixture(autouse=True)
def says_nothing_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a clock is kept differs by machine; what brokers in this process say does not."""
    monkeypatch.setattr("dejaqueue.operating_system._adjtimex", None)


BUSY_SHARE_MAX = 0.25
"""Of the processors, by whatever else runs, while a test may judge by the clock on the wall."""


@cache
def busy_share() -> float:
    """The share of the processors that others take, measured for a second."""
    idle, total = _processor_ticks()
    threading.Event().wait(1)
    idle_after, total_after = _processor_ticks()
    return 1 - (idle_after - idle) / (total_after - total)


def _processor_ticks() -> tuple[int, int]:
    """(idle, all) ticks of all processors since they were started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what judges by the clock where the machine is busy, unless all must run."""
    if item.get_closest_marker("timing") and not REQUIRE_ALL and busy_share() > BUSY_SHARE_MAX:
        pytest.skip(f"the machine is not quiet: {busy_share():.0%} busy; run `make timing` later")


class Together(LoadScopeScheduling):  # type: ignore[misc]  # it is of no type that mypy knows
    """Deals files, and folders of `TOGETHER`, to processes in the order of collection.

    pytest-xdist's own groups need an attribute that pytest no longer has (9.2): each test was dealt
    alone, and nothing said so.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        place = nodeid.partition("::")[0]
        return next((name for name in TOGETHER if place.startswith(name)), place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Say which tests stay together (pytest-xdist asks)."""
    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests come first; pytest-xdist keeps the order."""

    def rank(item: pytest.Item) -> int:
        found = (n for n, name in enumerate(LONGEST) if item.nodeid.startswith(name))
        return next(found, len(LONGEST))

    items.sort(key=rank)


@pytest.fixture(autouse=True, scope="session")
def _a_state_directory_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Secrets that clusters of this machine share are not those of who runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _no_internal_error(request: pytest.FixtureRequest) -> Iterator[None]:
    """What comes from outside never ends as a bug of ours: in these folders such a test fails.

    A test that plants a bug says so by the mark `plants_bugs`.
    """
    watched = request.node.nodeid.startswith(WATCHED)
    if not watched or request.node.get_closest_marker("plants_bugs"):
        yield
        return
    with internal_errors() as made:
        yield
    assert not made, f"an InternalError was made: {made[:3]}"


@pytest.fixture(autouse=True)
def _nobody_silenced_the_logs(request: pytest.FixtureRequest) -> None:
    """What a test before has done to the loggers is undone, and named at the end of the run."""
    if logging.root.manager.disable:
        found = f"before {request.node.nodeid}: logging is disabled"
        request.node.user_properties.append((QUIET, found))
        logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if not name.startswith("dejaqueue") or not isinstance(logger, logging.Logger):
            continue
        if logger.disabled or not logger.propagate or logger.level > logging.WARNING:
            state = f"disabled={logger.disabled} propagate={logger.propagate} {logger.level}"
            found = f"before {request.node.nodeid}: {name} {state}"
            request.node.user_properties.append((QUIET, found))
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what was skipped and may not be, in whichever process."""
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if REQUIRE_ALL and skipped and "may_skip" not in report.keywords:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        _left_out.append(f"{report.nodeid}: {reason}")
    _spent_seconds[report.nodeid.partition("::")[0]] += report.duration
    _ended[getattr(report, "worker_id", "the only process")] = report.stop
    if report.when == "call":
        _left_quiet.extend(str(found) for name, found in report.user_properties if name == QUIET)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out, and after a long run where the time went."""
    if sum(_spent_seconds.values()) > LONG_RUN_SECONDS:
        terminalreporter.section("longest files")
        ordered = sorted(_spent_seconds.items(), key=lambda spent: -spent[1])
        for path, seconds in ordered[:FILES_SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {path}")
        last = max(_ended.values())
        idle = ", ".join(f"{name} {last - at:.0f} s" for name, at in sorted(_ended.items()))
        terminalreporter.write_line(f"idle at the end: {idle}")
    for line in _left_quiet:
        terminalreporter.write_line(f"logs were silenced {line}", yellow=True)
    for line in _left_out:
        terminalreporter.write_line(f"left out, but REQUIRE_ALL=1: {line}", red=True)


LEFT_OUT = 8
"""Exit status of a run that left out what it may not; no second run of what failed mends that."""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if anything was left out."""
    alone = not hasattr(session.config, "workerinput")
    if alone and _left_out and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = LEFT_OUT
