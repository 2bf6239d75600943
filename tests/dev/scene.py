"""Not a test of anything: what test_reaper.py runs in a pytest of its own, and kills.

It starts one of everything that tests start, writes down who runs, and waits to be killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from dev.services import NAMES, missing, start
from tests.crash.broker_process import BrokerProcess

SHELL = "sleep 300 & trap '' TERM; sleep 300"
"""A program that does not end when it is asked to, with a child of its own."""


def family(pid: int) -> dict[int, str]:
    """A process and all below it, with their commands; what a reaper thinks is not asked."""
    ps = ["ps", "-eo", "pid=,ppid=,args="]
    found = subprocess.run(ps, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in found.stdout.splitlines()]
    members = {pid: " ".join(sys.argv)}
    for one, parent, command in sorted(rows, key=lambda row: int(row[0])):
        if int(parent) in members and command.split()[0] != "ps":
            members[int(one)] = command
    return members


def test_everything_is_started__and_the_run_is_killed(tmp_path: Path) -> None:
    wanted = os.environ["SCENE_STARTS"].split(",")
    started: list[object] = []
    if "broker" in wanted:
        broker = BrokerProcess(tmp_path / "broker", tmp_path / "log")
        broker.start()
        started.append(broker)
    if "shell" in wanted:
        started.append(subprocess.Popen(["sh", "-c", SHELL], start_new_session=True))
    if "paused" in wanted:
        started.append(subprocess.Popen(["sh", "-c", "kill -STOP $$"], start_new_session=True))
    if "jvm" in wanted:
        from pyspark.java_gateway import launch_gateway

        started.append(launch_gateway())  # type: ignore[no-untyped-call]
    started += [start(name) for name in wanted if name in NAMES and missing(name) is None]
    running = family(os.getpid())
    result = Path(os.environ["SCENE_RESULT"])
    (result.parent / "unfinished").write_text(json.dumps(running))
    (result.parent / "unfinished").rename(result)
    threading.Event().wait(300)
