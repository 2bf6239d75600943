"""Covers: what is built is the same bytes wherever it is built, and works where nothing else is.

The wheel is installed into an environment of its own, beside exactly those packages that its
metadata ask for without an extra: a requirement that nobody wrote down is missing there.
The README's two lines are run in a copy of what is tracked, as they are written; packages are those
that are installed here. Not covered: that a package index has these.
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
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import pytest

from dejaqueue import __version__
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


def copy(folder: Path, mask: int = 0o022, more: tuple[str, ...] = ()) -> None:
    """What is tracked of the source and of the root, made under another umask."""
    for path in house_rules.tracked_files():
        if path.startswith(("src/", "docs/pictures/", *more)) or "/" not in path:
            content = (ROOT / path).read_bytes()
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            runs = 0o111 if content.startswith(b"#!") else 0
            (folder / path).chmod((0o666 | runs) & ~mask)


def build(folder: Path, mask: int) -> tuple[Path, Path]:
    """Wheel and sdist of a copy."""
    copy(folder, mask)
    (folder / "lying-about.txt").write_text("not ours", encoding="utf-8")
    run([sys.executable, "-m", "hatchling", "build", "-d", "out"], cwd=folder)
    [wheel], [sdist] = (folder / "out").glob("*.whl"), (folder / "out").glob("*.tar.gz")
    return wheel, sdist


def run(command: list[str], cwd: Path, more: Mapping[str, str] = MappingProxyType({})) -> str:
    found = subprocess.run(
        command,
        cwd=cwd,
        env=BARE | marks() | dict(more),
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


def metadata_of(wheel: Path) -> tuple[str, str]:
    """Its fields, and its description."""
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith("/METADATA")]
        head, _, text = packed.read(name).decode().partition("\n\n")
    return head, text


def prose_of(text: str) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_an_index_shows_a_description_whose_links_lead_somewhere(built: tuple[Path, Path]) -> None:
    head, text = metadata_of(built[0])
    assert "Description-Content-Type: text/markdown" in head
    assert text.startswith("# DejaQ\n")
    prose = prose_of(text)
    assert re.findall(r"\]\((?!https:)[^)]*\)|<img|<picture|<!--", prose) == []
    # Nothing but links and pictures is missing.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("```") == readme.count("```")
    for line in ("## Use it", "**Celery with `eta`?**", 'client.create_topic("mails")'):
        assert line in text


def test_a_public_home_is_written_in_one_place(tmp_path: Path) -> None:
    home = "https://forge.example/queues/dejaq"
    copy(tmp_path)
    pyproject = tmp_path / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    assert len(re.findall('^home = "[^"]*"$', text, re.MULTILINE)) == 1
    changed = re.sub('^home = "[^"]*"$', f'home = "{home}"', text, flags=re.MULTILINE)
    pyproject.write_text(changed, encoding="utf-8")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"], cwd=tmp_path)
    [wheel] = (tmp_path / "out").iterdir()
    head, described = metadata_of(wheel)
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", head, re.MULTILINE))
    assert urls["Source"] == home
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    links = re.findall(r"(!?)\[[^\[\]]*\]\(([^)]*)\)", prose_of(described))
    pictures = [target for picture, target in links if picture]
    assert len(pictures) == 3
    places = [*urls.values(), *(target for _, target in links)]
    assert all(place.startswith("https:") for place in places)
    # Each leads to a file that is in the repository.
    ours = [place.removeprefix(home) for place in places if place.startswith(f"{home}/")]
    paths = [one.split("/", 3)[3] for one in ours if one != "/issues"]
    assert len(paths) > len(pictures)
    for path in paths:
        assert (ROOT / path.partition("#")[0]).exists(), path
    assert all(f"{home}/raw/main/docs/pictures/" in one for one in pictures)


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


def environment_of_its_own(place: Path) -> None:
    """An environment that sees the packages of this one, and its pip, but not what runs here."""
    venv.create(place, with_pip=False, symlinks=True)
    variables = {"base": str(place), "platbase": str(place)}
    here = sysconfig.get_path("purelib")
    Path(sysconfig.get_path("purelib", vars=variables), "packages.pth").write_text(f"{here}\n")
    pip = place / "bin" / "pip"
    pip.write_text(f"#!{place}/bin/python\nimport pip._internal as p\nraise SystemExit(p.main())\n")
    pip.chmod(0o755)


def test_the_two_lines_of_the_readme_work_as_written(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## See it\n\n((?:    .*\n)+)", readme, re.MULTILINE)
    assert block is not None
    lines = [line.partition("#")[0].strip() for line in block[1].splitlines()]
    assert lines == ["make demo", "pip install ."]
    copy(tmp_path, more=("scripts/", "requirements/"))
    place = tmp_path / ".venv"
    environment_of_its_own(place)
    for name in ("build", "run"):  # these are installed, by the other environment
        shutil.copy(tmp_path / f"requirements/{name}.txt", place / f".installed-{name}")
    given = {
        "PATH": f"{place}/bin:{BARE['PATH']}",
        "ARGS": "--date 2013-01-01 --seconds 3",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # so it is switched off
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    said = [run(["bash", "-ec", line], cwd=tmp_path, more=given) for line in lines]
    assert "lost 0" in said[0], said[0]
    assert "scheduled 842" in said[0], said[0]
    found = run(["dejaq", "--version"], cwd=place, more=given)
    itself = run(
        [f"{place}/bin/python", "-I", "-c", "import dejaqueue as d; print(d.__file__)"], place
    )
    assert found == f"dejaq, version {__version__}\n"
    assert itself.startswith(str(place / "lib"))
