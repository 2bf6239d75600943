"""podman, as tests run containers: without rights, with a root that is read-only, on machines that
have no systemd, a mixture of control groups, or limits that cannot be raised."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

ENVIRONMENT = os.environ | {"DISABLE_HC_SYSTEMD": "true"}
"""podman asks systemd to look at health at intervals: not every machine has one."""
LIMIT = 4_096
"""Files and processes of a container."""
_MIXED = Path("/sys/fs/cgroup/unified")


def podman(*words: str) -> list[str]:
    """A command of podman.

    Where control groups of both versions are there, its runtime refuses to run. They are not used
    here, so it does not see those of the second version.
    """
    if not _MIXED.is_mount():
        return ["podman", *words]
    script = f'umount {_MIXED}; exec podman "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "podman", *words]


def run_words() -> list[str]:
    """Of `podman run`: what a container may do, which is nothing."""
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    # podman would raise them, or take them as they are, and neither is allowed everywhere.
    found = [(name, resource.getrlimit(number)[1]) for name, number in limits.items()]
    bounds = [(name, LIMIT if most < 0 else min(most, LIMIT)) for name, most in found]
    given = [f"--ulimit={name}={bound}:{bound}" for name, bound in bounds]
    return [
        *("run", "--rm", "--pull", "never", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--cgroups", "disabled", *given),
    ]


def ask(*words: str, seconds: float = 180) -> subprocess.CompletedProcess[str]:
    """What podman answers."""
    return subprocess.run(
        podman(*words),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
