"""What holds for every test: no hypothesis deadline; nothing is left out where all must run.

With REQUIRE_ALL=1 (CI) a skipped test fails the run: a machine that lacks something must say so,
not look green. A test that may be left out anywhere says so by the mark `may_skip`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"

# A loaded machine is not a bug: time is bounded by pytest's timeout, not per example.
settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")

_left_out: list[str] = []
_left_quiet: list[str] = []


@pytest.fixture(autouse=True)
def _nobody_silenced_the_logs(request: pytest.FixtureRequest) -> None:
    """What a test before has done to the loggers is undone, and named at the end of the run."""
    if logging.root.manager.disable:
        _left_quiet.append(f"before {request.node.nodeid}: logging is disabled")
        logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if not name.startswith("dejaqueue") or not isinstance(logger, logging.Logger):
            continue
        if logger.disabled or not logger.propagate or logger.level > logging.WARNING:
            state = f"disabled={logger.disabled} propagate={logger.propagate} {logger.level}"
            _left_quiet.append(f"before {request.node.nodeid}: {name} {state}")
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note what was skipped and may not be."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if REQUIRE_ALL and skipped and item.get_closest_marker("may_skip") is None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        _left_out.append(f"{item.nodeid}: {reason}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out."""
    for line in _left_quiet:
        terminalreporter.write_line(f"logs were silenced {line}", yellow=True)
    for line in _left_out:
        terminalreporter.write_line(f"left out, but REQUIRE_ALL=1: {line}", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if anything was left out."""
    if _left_out and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
