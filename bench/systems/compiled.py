"""Clients in other languages: where their programs are, what they lack here, and their versions.

Room: bench. The programs are bench/clients/go, which is built here when it is asked for, and
bench/clients/node, whose packages scripts/install_peers.sh installs.
Holds: what is built or installed is what is pinned: go.mod with go.sum, package-lock.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache

from bench.systems.servers import ROOT

GO_SOURCE, NODE_SOURCE = ROOT / "bench/clients/go", ROOT / "bench/clients/node"
GO_PROGRAM = ROOT / "build/clients/bench/load"
NODE_PROGRAM = NODE_SOURCE / "bullmq.mjs"
NODE_FOLDER = ROOT / "bench/out/bullmq"
NODE_ENVIRONMENT = {"BULLMQ_FOLDER": str(NODE_FOLDER)}
OTHER_PLACES = ("/usr/local/go/bin",)
BUILD_SECONDS_MAX = 900.0


@cache
def lack_of_go() -> str:
    """Build the program of the Go clients, unless it is; why that cannot be, "" = it can."""
    places = os.pathsep.join((os.environ.get("PATH", ""), *OTHER_PLACES))
    if shutil.which("go", path=places) is None:
        return "the program go is not installed"
    build = [str(ROOT / "scripts/install_clients.sh"), "bench"]
    done = subprocess.run(
        build, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    if done.returncode:
        return f"Go did not build its client: {(done.stdout + done.stderr).strip()[-300:]}"
    return ""


def lack_of_node() -> str:
    """What BullMQ's client lacks here; "" = nothing."""
    if shutil.which("node") is None:
        return "the program node is not installed"
    if not (NODE_FOLDER / ".installed").exists():
        return "scripts/install_peers.sh has not installed bullmq"
    return ""


def go_version(module: str) -> str:
    """A Go module as it is pinned; "" is DejaQ's own.

    >>> go_version("github.com/redis/go-redis/v9").rpartition(".")[0].rpartition(".")[0]
    'go-redis 9'
    """
    if not module:
        return "clients/go"
    text = (GO_SOURCE / "go.mod").read_text(encoding="utf-8")
    pinned = re.search(rf"^\t{re.escape(module)} v(\S+)$", text, re.MULTILINE)
    assert pinned is not None
    name = re.sub(r"/v\d+$", "", module).rpartition("/")[2]
    return f"{name} {pinned[1]}"


def node_version(package: str) -> str:
    """A package of Node as it is pinned."""
    pinned = json.loads((NODE_SOURCE / "package.json").read_text(encoding="utf-8"))
    return f"{package} {pinned['dependencies'][package]}"
