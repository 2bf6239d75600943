"""A Spark cluster on one machine: a master and two workers, each a process of its own.

The workers have different addresses: Spark runs a second attempt of a task beside the first one on
another host only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.scenarios import wait_for

STARTED = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
}
"""What executors inherit from the workers that start them."""
HOSTS = ("127.0.0.1", "127.0.0.2")


class Standalone:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self) -> None:
        """Return when both workers have joined."""
        folder = self._folder
        folder.mkdir()
        self._run("master", "Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        wait_for(lambda: STARTED.search(self._log("master")) is not None)
        found = STARTED.search(self._log("master"))
        assert found is not None
        self.url = found[1]
        for number, host in enumerate(HOSTS):
            self._run(
                f"worker{number}", "Worker", "--host", host, "--webui-port", "0", "--cores", "1",
                "--memory", "1G", "--work-dir", str(folder / f"work{number}"), self.url,
            )  # fmt: skip
        wait_for(lambda: self._log("master").count("Registering worker") >= len(HOSTS))

    def stop(self) -> None:
        """End them, and the executors that they started."""
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait(30)

    def _run(self, name: str, kind: str, *arguments: str) -> None:
        import pyspark

        program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
        place = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        with (self._folder / name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(program), place, *arguments],
                    stdout=log,
                    stderr=log,
                    env=os.environ | ENVIRONMENT,
                    start_new_session=True,
                )
            )

    def _log(self, name: str) -> str:
        return (self._folder / name).read_text(errors="replace")
