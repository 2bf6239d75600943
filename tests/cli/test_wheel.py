"""Covers: what is built is the same bytes wherever it is built, and works where nothing else is.

The wheel is installed into an environment of its own, beside exactly those packages that its
metadata ask for without an extra: a requirement that nobody wrote down is missing there.
Not covered: that a package index has these; `pip install .` asks one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from dev.reaper import marks
from tests.patience import PATIENCE_SECONDS
from tests.tidy import house_rules

ROOT = Path(__file__).resolve().parents[2]
BARE = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
PROGRAM = """
import sys
from importlib.util import find_spec

import dejaqueue

assert dejaqueue.__file__.startswith(sys.prefix), dejaqueue.__file__
assert find_spec("pyspark_dejaq"), sys.path
for name in ("pyspark", "fastapi", "pytest"):
    assert not find_spec(name), find_spec(name)
with dejaqueue.Client(sys.argv[1]) as client:
    client.create_topic("mails")
    client.send("mails", "first", delay=0.05)
    for message in client.consume("mails", max_messages=1):
        print(message.payload.decode(), message.lateness_us >= 0)
        message.ack()
"""


def build(copy: Path, mask: int) -> tuple[Path, Path]:
    """Wheel and sdist of a copy of what is tracked, made under another umask."""
    for path in house_rules.tracked_files():
        if path.startswith(("src/", "docs/pictures/")) or "/" not in path:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes((ROOT / path).read_bytes())
            (copy / path).chmod(0o666 & ~mask)
    (copy / "lying-about.txt").write_text("not ours", encoding="utf-8")
    run([sys.executable, "-m", "hatchling", "build", "-d", "out"], cwd=copy)
    [wheel], [sdist] = (copy / "out").glob("*.whl"), (copy / "out").glob("*.tar.gz")
    return wheel, sdist


def run(command: list[str], cwd: Path) -> str:
    found = subprocess.run(
        command,
        cwd=cwd,
        env=BARE | marks(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("one"), 0o022)


def needed(lines: list[str], extras: set[str], seen: set[str]) -> Iterator[metadata.Distribution]:
    """What requirements ask for, and what that asks for, as installed here.

    Args:
        extras: of the package that has these requirements.
    """
    from packaging.requirements import Requirement

    for one in map(Requirement, lines):
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if one.marker is not None and not any(one.marker.evaluate(extra) for extra in wanted):
            continue
        if one.name not in seen:
            seen.add(one.name)
            yield metadata.distribution(one.name)
            yield from needed(metadata.requires(one.name) or [], one.extras, seen)


def test_the_same_bytes_from_another_place(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path / "a second" / "deeper", 0o077)
    for one, other in zip(built, again, strict=True):
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, other)]
        assert digests[0] == digests[1], one.name
    # A wheel of the sdist is the wheel.
    with tarfile.open(again[1]) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    [source] = (tmp_path / "unpacked").iterdir()
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"], cwd=source)
    [wheel] = (source / "out").iterdir()
    assert wheel.read_bytes() == built[0].read_bytes()


def test_what_is_in_it(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        [about] = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "dejaqueue",
        "pyspark_dejaq",
    }
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", about, re.MULTILINE))
    assert {"server", "cluster", "all", "spark"} <= extras
    assert not {"dev", "bench"} & extras
    assert "pytest" not in about.partition("\n\n")[0]
    with tarfile.open(built[1]) as sdist:
        assert not [name for name in sdist.getnames() if "lying-about" in name]


def test_it_sends_a_message_from_an_environment_of_its_own(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    place = tmp_path / "empty"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    packages = Path(
        sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    )
    run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python)),
            *("--disable-pip-version-check", "--no-input", "install", "--quiet"),
            *("--no-index", "--no-deps", "--root-user-action=ignore", str(built[0])),
        ],
        cwd=tmp_path,
    )
    [itself] = metadata.distributions(path=[str(packages)])
    for one in needed(itself.requires or [], set(), {"dejaqueue"}):
        tops = {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "")}
        for top in tops - {"__pycache__"}:
            if not (packages / top).exists():
                os.symlink(Path(str(one.locate_file(top))), packages / top)
    assert shutil.which("dejaq", path=str(place / "bin")) is not None
    served = subprocess.Popen(
        [place / "bin" / "dejaq", "serve", "--data", "data", "--port", "0", "--json"],
        cwd=tmp_path,
        env=BARE | marks(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None
        [url] = re.findall(r'"url": ?"(dejaq://[^"]+)"', served.stdout.readline())
        assert run([str(python), "-I", "-c", PROGRAM, url], cwd=tmp_path) == "first True\n"
    finally:
        served.terminate()
        served.wait(PATIENCE_SECONDS)
        if served.stdout is not None:
            served.stdout.close()
    assert served.returncode == 0
