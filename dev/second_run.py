"""Runs tests; a few that failed beside all others run once more, alone, and both runs are told.

    python -m dev.second_run -n 3 tests     what pytest is given

Three processes of tests, servers and JVMs on two processors make a machine that stands still for
seconds. A fault of ours fails again when the machine is quiet; a test that expected too much of a
busy machine does not. The first kind fails the run. The second is named with its first failure at
the end, as something to look into: a test that fails now and then has a reason.

Room: dev.
Holds: a test that nothing outside can disturb has no second run; nor have many, as then something
is broken; nor has a run that ended in another way than by failed tests.
See: tests/dev/test_second_run.py; docs/adr/0091-a-test-that-failed-runs-once-more-alone.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dev.reaper import start_reaper

CACHE = Path("build") / "second-run"
"""pytest's own list of what failed; of this run alone."""
FAILED = 1
"""Exit status of pytest: tests failed. What is left out and may not be has one of its own."""
TESTS_MAX = 8
REPEATABLE = tuple(f"tests/{name}/" for name in ("formal", "model", "tidy", "types"))
"""Folders whose tests compute: the machine makes them slow, and nothing else."""


def main(arguments: Sequence[str]) -> int:
    """Run tests, and those that failed once more; the exit status of the last run that counts."""
    start_reaper()
    shutil.rmtree(CACHE, ignore_errors=True)
    status = _pytest(*arguments)
    if status != FAILED:
        return status
    failed = failed_tests(CACHE)
    why = why_not_again(failed)
    if why:
        print(f"== no second run: {why}")
        return status
    print(f"== a second run of {len(failed)}, alone", flush=True)
    # The same seed, so that what is drawn is the same; without xdist.
    again = ("-n", "0", "--randomly-seed=last", "--last-failed", "--last-failed-no-failures=none")
    status = _pytest(*arguments, *again)
    if status == 0:
        for name in failed:
            print(f"== FAILED BESIDE OTHERS, passed alone; find out why: {name}")
    return status


def failed_tests(cache: Path) -> list[str]:
    """Which tests failed, by pytest's cache."""
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return []


def why_not_again(failed: Sequence[str]) -> str:
    """Why these have no second run; "" = they have one.

    >>> why_not_again(["tests/unit/a::b"])
    ''
    >>> why_not_again(["tests/model/a::b"])
    'tests/model/a::b fails on a quiet machine, too'
    >>> why_not_again([])
    'no test is named that failed'
    """
    if not failed:
        return "no test is named that failed"
    if len(failed) > TESTS_MAX:
        return f"{len(failed)} tests failed, more than the {TESTS_MAX} that a busy machine explains"
    repeatable = next((name for name in failed if name.startswith(REPEATABLE)), None)
    return f"{repeatable} fails on a quiet machine, too" if repeatable else ""


def _pytest(*arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={CACHE}", *arguments]
    with subprocess.Popen(command) as run:
        while True:
            try:
                return run.wait()
            except KeyboardInterrupt:
                continue  # pytest has it, too: it ends by itself, and says what it has seen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
