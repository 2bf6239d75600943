"""The last will of a broker: a small process that says at once that it is dead.

    witness = Witness("etcd://10.0.0.7:2379")
    witness.start()
    witness.saw_join("members/a", "5f0b7c61aa12d3ff")       at each join
    witness.close()                                         it has left by itself

Room: cluster. The file is run as a program as well: until its broker dies it needs the standard
library alone.
Holds: the fact of a membership is deleted only when the kernel says that the whole process is dead
(a pidfd): then it can send, append and deliver nothing any more, and nobody need wait for the end
of its lease. Only the fact of that very life is deleted. Whatever goes wrong here, the lease ends.
See: node.py; docs/adr/0039; members.py.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

TRIES_SECONDS = 30.0
"""The coordinator may just be electing a leader; after this the lease is over, too."""
AGAIN_SECONDS = 0.1


class Witness:
    """The process beside a broker. Does nothing where the kernel has no pidfd.

    Args:
        url: of the coordinator.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Raises OSError."""
        if not hasattr(os, "pidfd_open"):
            return
        broker = os.pidfd_open(os.getpid())
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(broker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                pass_fds=[broker],
                start_new_session=True,  # what ends the broker's group must not end it first
            )
        finally:
            os.close(broker)

    def saw_join(self, key: str, session: str) -> None:
        """This life of the broker has this fact."""
        self._say({"path": sys.path, "url": self._url, "key": key, "session": session})

    def close(self) -> None:
        """The broker leaves by itself. Twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.kill()
        process.stdin.close()
        process.wait()  # SIGKILL ends it at once; a bound would poll

    def _say(self, values: dict[str, object]) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(values).encode() + b"\n")
            process.stdin.flush()
        except OSError:  # it is dead: the lease is there, too
            return


# --- the program ----------------------------------------------------------------------------------


def main(broker: int) -> None:
    """Wait for the end of a process, by its pidfd, and delete the last fact that was named."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    text = b""
    told = os.fdopen(0, "rb", buffering=0)
    watched = [broker, told.fileno()]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if told.fileno() in ready:
            read = told.read(1 << 16)
            text += read or b""
            if not read:
                watched = [broker]
        elif broker in ready:
            break
    lines = text.splitlines()
    if lines:
        values = json.loads(lines[-1])
        sys.path[:] = values["path"]
        bear_witness(values["url"], values["key"], values["session"])


def bear_witness(url: str, key: str, session: str) -> None:
    """Delete the fact of a membership, if it is of this life; try until the coordinator answers."""
    from dejaqueue.coordinator.interface import Conflict
    from dejaqueue.coordinator.registry import open_coordinator
    from dejaqueue.errors import DejaQError

    until = time.monotonic() + TRIES_SECONDS
    while time.monotonic() < until:
        try:
            coordinator = open_coordinator(url)
            try:
                fact = coordinator.get(key)
                if fact is not None and json.loads(fact.value).get("session") == session:
                    coordinator.delete(key, fact.revision)
                return
            finally:
                coordinator.close()
        except (DejaQError, Conflict):
            select.select([], [], [], AGAIN_SECONDS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
