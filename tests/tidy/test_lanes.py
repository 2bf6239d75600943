"""The page of tests says what there is: folders, lanes, and targets that prove something."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from dev.reaper import marks
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "tests/README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(tests/\w+)` \| (.+?) \|", re.MULTILINE)


def explained() -> dict[str, str]:
    """Folder → what the page says of it."""
    return {found[1]: found[2] for found in ROW.finditer(PAGE)}


def targets(section: str) -> set[str]:
    """Targets of a section of the Makefile that are listed by `make`."""
    text = MAKEFILE.partition(f"##@ {section}")[2].partition("\n##@ ")[0]
    return set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))


def test_every_folder_of_tests_is_explained__and_no_other() -> None:
    folders = {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/*.py")}
    assert sorted(explained()) == sorted(folders)


def test_the_quick_lane_is_what_the_page_says() -> None:
    quick = [folder for folder, text in explained().items() if text.startswith("**quick**")]
    line = re.search(r"^QUICK := (.+)$", MAKEFILE, re.MULTILINE)
    assert line is not None
    assert line[1].split() == quick


def test_every_target_that_proves_something_is_named() -> None:
    named = set(re.findall(r"`make ([a-z-]+)", PAGE))
    assert len(targets("Prove")) > 8
    assert targets("Prove") - named == set()
    listed = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert named - listed == set(), "the page names a target that there is none of"


def test_the_tests_of_a_file_stay_in_one_process() -> None:
    # What a file shares is made once then: a JVM, servers, the documentation's site.
    files = [f"tests/unit/test_{name}.py" for name in ("clock", "limits", "settings", "times")]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-n", "2", "--dist", "loadscope", "-v"],
        cwd=ROOT,
        env=marks() | {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    processes: defaultdict[str, list[str]] = defaultdict(list)
    for process, path in re.findall(r"^\[(gw\d)\] .* (tests/\S+?\.py)::", run.stdout, re.MULTILINE):
        processes[path].append(process)
    assert sorted(processes) == files
    assert all(len(found) > 1 and len(set(found)) == 1 for found in processes.values()), processes
