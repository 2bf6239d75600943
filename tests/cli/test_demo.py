"""`dejaq demo` from end to end: real processes, one day of flights, once with a kill on the way.

Covered: the exit status, the report, the page, what is left behind. What the verdict makes of wrong
deliveries: tests/unit/cli/demo/test_verdict.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS


def demo(tmp_path: Path, *options: str) -> tuple[dict[str, str], str]:
    """The report by name, and what was said meanwhile."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEJAQ_")}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = subprocess.run(
        [sys.executable, "-m", "dejaqueue", "demo", "--html", "out/report.html", *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(scratch)},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert list(scratch.iterdir()) == []
    return dict(line.split(" ") for line in found.stdout.splitlines()), found.stderr


GOOD = ["lost", "early", "duplicate", "resurrected", "wrong_due", "wrong_payload", "unknown"]


def test_a_day_in_five_seconds_delivers_every_flight_once(tmp_path: Path) -> None:
    report, said = demo(tmp_path, "--date", "2013-01-01", "--seconds", "5")
    assert report["scheduled"] == "842"
    changed = sum(int(report[n]) for n in ("moved", "moved_too_late"))
    cancelled = sum(int(report[n]) for n in ("cancelled", "cancelled_too_late"))
    assert (changed, cancelled) == (779, 4)
    assert int(report["delivered"]) == 842 - int(report["cancelled"])
    assert [report[name] for name in GOOD] == ["0"] * len(GOOD)
    assert report["redelivered"] == "0"
    assert float(report["lateness_p50_ms"]) > 0
    assert report["report"] == "out/report.html"
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "Every message came once" in page
    assert "842 flights" in said


@pytest.mark.crash
def test_a_broker_killed_half_way_loses_nothing(tmp_path: Path) -> None:
    options = ["--date", "2013-02-09", "--seconds", "5", "--kill", "--data", "kept"]
    report, said = demo(tmp_path, *options)
    assert [report[name] for name in GOOD] == ["0"] * len(GOOD)
    assert int(report["delivered"]) == int(report["scheduled"]) - int(report["cancelled"])
    assert "SIGKILL" in said
    assert (tmp_path / "kept").is_dir()
    assert "broker killed" in (tmp_path / "out/report.html").read_text(encoding="utf-8")
