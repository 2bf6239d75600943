"""Covers: the image that scripts/image.sh makes of this checkout: how large it is, that it is the
same twice, what is in it, and that it serves, with a root that is read-only, as a user that is not
root, healthy, and ends when it is told to.

Left out, with a word why, where containers cannot be made or run. Not covered: a base image of a
registry; a network between containers (`make chaos-containers`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.containers import ENVIRONMENT, ask, podman, run_words
from tests.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
BYTES_MAX = 150_000_000
FIRST_MESSAGE_SECONDS = 30
CANNOT = 3
"""What scripts/image.sh says where it is not its fault."""
PROGRAM = """
import os, dejaqueue
with dejaqueue.Client("dejaq://127.0.0.1:7464") as client:
    client.create_topic("mails")
    client.send("mails", "first", delay=0.05)
    for message in client.consume("mails", max_messages=1):
        print(message.payload.decode(), message.lateness_us >= 0, os.getuid())
        message.ack()
try:
    open("/opt/dejaq/new", "w")
except OSError as error:
    print(error.strerror)
"""
pytestmark = [pytest.mark.may_skip, pytest.mark.slow, pytest.mark.timeout(1_200)]


def call(*command: str, seconds: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )


def inside(image: str, program: str, *words: str) -> str:
    """What a program prints that is run in a new container."""
    done = ask(*run_words(), "--network", "none", "--entrypoint", program, image, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(tag: str) -> None:
    """Make the image."""
    done = call(str(ROOT / "scripts/image.sh"), tag, seconds=5 * PATIENCE_SECONDS)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-4_000:]


def content(tag: str) -> dict[str, Any]:
    """Layers by their digests, and all that is said of them.

    Docker's format notes which container it was built in, so the id of the whole differs.
    """
    done = call("buildah", "inspect", "--type", "image", tag)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(json.loads(done.stdout)["Config"])
    del said["container"], said["container_config"], said["config"]["Hostname"]
    assert len(said["rootfs"]["diff_ids"]) == 2
    return said


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Its name. DEJAQ_IMAGE names one that was made before."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed (scripts/install_containers.sh)")
    made = os.environ.get("DEJAQ_IMAGE")
    tag = made or f"localhost/dejaq-test-{os.getpid()}"
    if not made:
        build(tag)
    words = (*run_words(), "--network", "none", "--entrypoint", "/usr/bin/true", tag)
    tried = ask(*words)
    try:
        if tried.returncode:
            pytest.skip(f"containers cannot be run here: {tried.stderr.strip()[-200:]}")
        yield tag
    finally:
        if not made:
            call("buildah", "rmi", "--force", tag)


@contextmanager
def running(image: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A container that serves: its name, and the program that waits for its end."""
    name = f"dejaq-test-{os.getpid()}-{time.monotonic_ns()}"
    with subprocess.Popen(
        podman(*run_words(), "--network=none", *options, "--name", name, image, "serve", "--json"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert "url" in json.loads(child.stdout.readline())
            yield name, child
        finally:
            ask("rm", "--force", "--time", "5", name)


def test_it_is_small__and_the_same_when_it_is_made_again(image: str, tmp_path: Path) -> None:
    again = f"{image}-again"
    try:
        build(again)
        assert content(again) == content(image)
    finally:
        call("buildah", "rmi", "--force", again)
    # As it would go to a registry.
    done = call("buildah", "push", "--quiet", image, f"dir:{tmp_path}")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    byte_count = sum(layer["size"] for layer in manifest["layers"])
    print(f"{byte_count / 1e6:.1f} MB compressed")
    assert byte_count <= BYTES_MAX


def test_it_says_what_is_in_it(image: str, tmp_path: Path) -> None:
    listed = json.loads(inside(image, "cat", "/opt/dejaq/sbom.cdx.json"))
    made = call(
        *(sys.executable, str(ROOT / "scripts/lock_sbom.py"), "requirements/image.txt"),
        str(tmp_path / "sbom.json"),
    )
    assert made.returncode == 0, made.stderr
    assert listed == json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    # What is in it is what is listed, at that version.
    program = (
        "import json; from importlib.metadata import distributions; "
        "print(json.dumps({one.name.lower().replace('_', '-'): one.version "
        "for one in distributions()}))"
    )
    present: dict[str, str] = json.loads(inside(image, "/opt/dejaq/bin/python", "-c", program))
    del present["dejaqueue"]
    versions: dict[str, set[str]] = {}
    for one in listed["components"]:
        versions.setdefault(one["name"].replace("_", "-").replace(".", "-"), set()).add(
            one["version"]
        )
    for name, version in present.items():
        assert version in versions[name.replace(".", "-")], name


def test_everything_that_the_program_imports_is_there(image: str) -> None:
    """Modules that need an extra which the image does not have say so by their names."""
    program = """
import importlib, json, pkgutil, dejaqueue
missing = {}
for one in pkgutil.walk_packages(dejaqueue.__path__, "dejaqueue.", lambda name: None):
    if one.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(one.name)
    except ImportError as error:
        missing.setdefault((error.name or str(error)).split(".")[0], []).append(one.name)
    except dejaqueue.BadRequest as error:  # says it in words
        assert "pip install" in str(error), error
print(json.dumps(missing))
"""
    said = inside(image, "/opt/dejaq/bin/python", "-W", "ignore", "-c", program)
    assert set(json.loads(said.splitlines()[-1])) <= OF_OTHER_EXTRAS


OF_OTHER_EXTRAS = {
    *("pyspark", "celery", "kombu", "sqlalchemy", "django", "redis", "cassandra", "psycopg"),
    *("pymysql", "grpc", "google", "obstore", "pandas", "hypothesis", "pytest"),
}


@pytest.mark.timing
def test_the_first_message_comes_within_thirty_seconds(image: str) -> None:
    began = time.monotonic()
    with running(image) as (name, _):
        found = ask("exec", name, "python3", "-c", PROGRAM)
        took = time.monotonic() - began
    assert found.stdout.startswith("first True"), found.stderr
    print(f"{took:.1f} s from `podman run` to the first message")
    assert took <= FIRST_MESSAGE_SECONDS


def test_it_serves_without_rights__is_healthy__and_ends_when_told(image: str) -> None:
    with running(image) as (name, child):
        found = ask("exec", name, "python3", "-c", PROGRAM)
        assert found.stdout.splitlines() == ["first True 10001", "Read-only file system"], (
            found.stderr
        )
        until(
            lambda: ask("healthcheck", "run", name).returncode == 0,
            "the container is healthy",
        )
        ask("kill", "--signal", "TERM", name)
        assert child.wait(PATIENCE_SECONDS) == 0


def test_what_is_acknowledged_outlives_the_container(image: str) -> None:
    volume = f"dejaq-test-{os.getpid()}"
    program = (
        "import dejaqueue\n"
        "with dejaqueue.Client('dejaq://127.0.0.1:7464') as client:\n"
        "    if client.topics():\n"
        "        print(client.stats('kept').scheduled)\n"
        "    else:\n"
        "        client.create_topic('kept'); client.send('kept', 'for long', delay=3600)\n"
    )
    assert ask("volume", "create", volume).returncode == 0
    try:
        for number in range(2):
            with running(image, f"--volume={volume}:/var/lib/dejaq") as (name, child):
                found = ask("exec", name, "python3", "-c", program)
                assert (found.returncode, found.stdout) == (0, "1\n" if number else ""), (
                    found.stderr
                )
                if not number:
                    ask("kill", "--signal", str(int(signal.SIGKILL)), name)
                    child.wait(PATIENCE_SECONDS)
    finally:
        ask("volume", "rm", "--force", volume)
