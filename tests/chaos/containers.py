"""`python -m tests.chaos.containers`: what `make chaos-containers` runs. Needs root, and podman.

Three brokers of a cluster, each a container of the image that is deployed, in a network namespace
of its own: no rights, a root that is read-only. Under load one is killed, one is drained and comes
back, and all are replaced, one after the other, by containers of a newer image. The histories of
the clients are judged as those of every other chaos.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dev.reaper import start_reaper
from tests.chaos import network
from tests.chaos.faults import KINDS, OWNER, Fault, Kind, Mend, Step, others
from tests.chaos.machines import BrokerMachine, Embedded
from tests.chaos.network import NETNS, PREFIX
from tests.chaos.run import Chaos, run, say
from tests.containers import ENVIRONMENT, ask, podman, run_words

ROOT = Path(__file__).resolve().parents[2]
IMAGE, NEWER = "localhost/dejaq", "localhost/dejaq-newer"
USER = 10_001


class Container(BrokerMachine):
    """A broker in a container: its directory and its secret are mounted at their own paths.

    Attributes:
        image: of the next start.
        container: the name of the last one; podman takes its time to forget a name.
    """

    image = IMAGE
    container = ""
    _starts = 0

    def command(self, variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """See BrokerMachine.command."""
        own = [path for path in self.folder.rglob("*") if path != self.log]
        for path in (self.folder, *own):
            os.chown(path, USER, USER)
        secret = Path(variables["DEJAQ_CLUSTER__SECRET_FILE"])
        os.chown(secret, USER, USER)
        netns = self._network.netns(self.name)
        self._starts += 1
        self.container = f"{netns}-{self._starts}"
        words = [*run_words(), "--name", self.container]
        words += ["--network", f"ns:{NETNS / netns}"]
        words += ["--volume", f"{self.folder}:{self.folder}", "--volume", f"{secret}:{secret}:ro"]
        for name, value in variables.items():
            words += ["--env", f"{name}={value}"]
        return podman(*words, self.image), ENVIRONMENT

    def tell(self, number: int) -> None:
        """To the first process of the container. SIGKILL ends all of them."""
        ask("kill", "--signal", str(int(number)), self.container)


class Containers(Chaos):
    """A cluster of containers."""

    machine = Container


def drain(chaos: Chaos, whom: str, size: int) -> Mend:
    """It is told to stop, hands over what it serves, and is away for a while."""
    broker = chaos.brokers[whom]
    broker.end(signal.SIGTERM)
    return broker.start


def upgrade(chaos: Chaos, whom: str, size: int) -> Mend:
    """One after the other is told to stop, and a container of the newer image takes its place."""
    for name in (whom, *others(whom)):
        broker = chaos.brokers[name]
        assert isinstance(broker, Container)
        broker.end(signal.SIGTERM)
        broker.image = NEWER
        broker.start()
        chaos.wait_ready(name)
    return lambda: None


STEPS = [
    Step(3.0, 8.0, (Fault("kill", OWNER, 0, 0),)),
    Step(3.0, 8.0, (Fault("drain", OWNER, 1, 0),)),
    Step(3.0, 0.0, (Fault("upgrade", OWNER, 0, 0),)),
]


def images(*, is_made: bool) -> str:
    """Make both images; why they cannot be made or run here, "" = they can.

    Args:
        is_made: the first one is there.
    """
    if not is_made and subprocess.run([ROOT / "scripts/image.sh", IMAGE], check=False).returncode:
        return "the image cannot be made here"
    # There is one release, so the newer image has the same program; only what runs it is another.
    script = (
        f'set -e; c=$(buildah from {IMAGE}); buildah config --label "version=newer" "$c"; '
        f'buildah commit --quiet --format docker --rm "$c" {NEWER}'
    )
    subprocess.run(["bash", "-c", script], stdout=subprocess.DEVNULL, check=True)
    tried = ask(*run_words(), "--network", "none", "--entrypoint", "/usr/bin/true", NEWER)
    return tried.stderr.strip()[-300:] if tried.returncode else ""


def sweep() -> None:
    """Remove what a run that was killed has left."""
    found = ask("ps", "--all", "--format", "{{.Names}}")
    for name in found.stdout.split():
        pid = re.match(rf"{PREFIX}(\d+)[a-z]-\d+$", name)
        if pid and (int(pid[1]) == os.getpid() or not Path(f"/proc/{pid[1]}").exists()):
            ask("rm", "--force", "--time", "1", name)


def main() -> int:
    """Run; 1 if anything was promised and not kept, 2 if it cannot run here."""
    start_reaper()
    parser = argparse.ArgumentParser(prog="make chaos-containers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", action="store_true", help=f"{IMAGE} was made before")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    lacking = network.missing() or ("" if shutil.which("podman") else "podman is not installed")
    lacking = lacking or images(is_made=options.made)
    if lacking:
        print(lacking, file=sys.stderr)
        return 2
    sweep()
    KINDS["drain"], KINDS["upgrade"] = Kind("process", drain), Kind("process", upgrade)
    folder = Path(tempfile.mkdtemp(prefix="dejaq-chaos-"))
    folder.chmod(0o755)  # others than root look into it
    say(f"three containers, seed {options.seed}")
    try:
        report = run(
            Embedded.name, options.seed, STEPS, folder, patience=3.0, chaos_type=Containers
        )
    finally:
        sweep()
    print(report.text(), flush=True)
    if report.faults:
        print(f"logs of the brokers, stories of messages: {folder}", flush=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
