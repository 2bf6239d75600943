"""Covers: the light client's wheel is the same bytes wherever it is built, is small with all that
it needs, and works in an environment that has nothing else.

Not covered: that a package index has it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.test_wheel import needed, run
from tests.integration.access_fixture import running
from tests.tidy import house_rules

ROOT = Path(__file__).resolve().parents[2]
PLACE = "clients/python/"
BYTES_MAX = 5 << 20
"""With what pip compiles; without it, it is half of that."""
PROGRAM = """
import sys, time

began = time.perf_counter()
import dejaqueue_client
took_ms = (time.perf_counter() - began) * 1000
from importlib.util import find_spec

assert dejaqueue_client.__file__.startswith(sys.prefix), dejaqueue_client.__file__
for name in ("dejaqueue", "numpy", "pyarrow", "xxhash", "pytest"):
    assert not find_spec(name), find_spec(name)
with dejaqueue_client.Client(sys.argv[1]) as client:
    client.create_topic("mails")
    client.send("mails", "first", delay=0.05)
    for message in client.consume("mails", max_messages=1):
        print(message.payload.decode(), message.lateness_us >= 0)
        message.ack()
print(round(took_ms))
"""


def build(copy: Path, mask: int) -> tuple[Path, Path]:
    """Wheel and sdist of a copy of what is tracked, made under another umask."""
    for path in house_rules.tracked_files():
        if path.startswith(PLACE):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes((ROOT / path).read_bytes())
            (copy / path).chmod(0o666 & ~mask)
    place = copy / PLACE
    (place / "lying-about.txt").write_text("not ours", encoding="utf-8")
    run([sys.executable, "-m", "hatchling", "build", "-d", "out"], cwd=place)
    [wheel], [sdist] = (place / "out").glob("*.whl"), (place / "out").glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("one"), 0o022)


def test_the_same_bytes_from_another_place(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path / "a second" / "deeper", 0o077)
    for one, other in zip(built, again, strict=True):
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, other)]
        assert digests[0] == digests[1], one.name
    # A wheel of the sdist is the wheel.
    with tarfile.open(again[1]) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
        assert not [name for name in packed.getnames() if "lying-about" in name]
    [source] = (tmp_path / "unpacked").iterdir()
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"], cwd=source)
    [wheel] = (source / "out").iterdir()
    assert wheel.read_bytes() == built[0].read_bytes()


def test_it_asks_for_httpx_alone_and_is_for_every_system(built: tuple[Path, Path]) -> None:
    assert built[0].name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        [about] = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
        assert "dejaqueue_client/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "dejaqueue_client"
    }
    asked = [line for line in about.splitlines() if line.startswith("Requires-Dist")]
    assert asked == ["Requires-Dist: httpx>=0.28"]
    assert (ROOT / PLACE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_it_works_alone_and_is_small(
    built: tuple[Path, Path],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    place = tmp_path / "empty"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    variables = {"base": str(place), "platbase": str(place)}
    packages = Path(sysconfig.get_path("purelib", vars=variables))
    run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python)),
            *("--disable-pip-version-check", "--no-input", "install", "--quiet"),
            *("--no-index", "--no-deps", "--root-user-action=ignore", str(built[0])),
        ],
        cwd=tmp_path,
    )
    [itself] = metadata.distributions(path=[str(packages)])
    for one in needed(itself.requires or [], set(), {"dejaqueue-client"}):
        tops = {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", "")}
        for top in tops - {"__pycache__"}:
            source = Path(str(one.locate_file(top)))
            leave = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, packages / top, ignore=leave)
            elif not (packages / top).exists():
                shutil.copy(source, packages / top)
    # As pip leaves it behind.
    run([str(python), "-I", "-m", "compileall", "-q", str(packages)], cwd=tmp_path)
    byte_count = sum(
        (Path(folder) / name).stat().st_size
        for folder, _, names in os.walk(packages)
        for name in names
    )
    with running() as site:
        answered = run([str(python), "-I", "-c", PROGRAM, site.http_url], cwd=tmp_path)
    *printed, import_ms = answered.splitlines()
    record_property("installed_bytes", byte_count)
    record_property("import_ms", int(import_ms))
    print(f"\nthe light client: {byte_count:,} bytes installed, imported in {import_ms} ms")
    assert printed == ["first True"]
    assert byte_count <= BYTES_MAX


def test_the_example_of_its_page_runs(tmp_path: Path) -> None:
    page = (ROOT / PLACE / "README.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    with running() as site:
        program = example.replace("http://localhost:7465", site.http_url)
        found = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(ROOT / PLACE / "src"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert (found.stdout, found.returncode) == ("stand up\n", 0), found.stderr
