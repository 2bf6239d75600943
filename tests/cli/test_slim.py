"""Covers: what scripts/slim.py takes from an environment, and that what is left still runs.

Not covered: that nothing is missing in the image (test_image.py).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from slim import slim, strip  # noqa: E402 - a program, not a package


def environment(folder: Path, files: dict[str, str]) -> Path:
    packages = folder / "lib/python3.11/site-packages"
    for name, text in files.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text, encoding="utf-8")
    (packages / "pyarrow").mkdir(exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    return packages


def test_what_no_broker_loads_goes(tmp_path: Path) -> None:
    gone = [
        *("numpy/tests/all.txt", "numpy/linalg/tests/all.txt", "numpy/f2py/f2py.py"),
        *("pyarrow/src/a.cc", "pyarrow/_fs.pyx", "pyarrow/_s3fs.cpython-311.so", "uvloop/loop.pyi"),
        *("pyarrow/libarrow_s3.so.2600", "numpy/_core/lib/libnpymath.a", "pkg/__pycache__/a.pyc"),
        *("pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.2600.1.0"),
    ]
    kept = [
        *("numpy/linalg/linalg.py", "pyarrow/_fs.cpython-311.so", "pyarrow/libarrow.so.2600"),
        *("pyarrow/libarrow_python.so.2600", "pkg/tests.py", "dejaqueue/py.typed"),
    ]
    packages = environment(tmp_path, dict.fromkeys([*gone, *kept], "text"))
    assert slim(tmp_path) == len("text") * len(gone)
    assert sorted(
        str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()
    ) == sorted(kept)


def compiled() -> Path:
    """A library of a package that is installed here, with more than what is loaded."""
    import uvloop.loop

    return Path(uvloop.loop.__file__)


@pytest.mark.skipif(sys.platform != "linux", reason="libraries have another form there")
def test_a_library_without_its_symbols_works(tmp_path: Path) -> None:
    whole = compiled()
    package = tmp_path / "uvloop"
    shutil.copytree(whole.parent, package)
    copy = package / whole.name
    strip(copy)
    assert copy.stat().st_size < whole.stat().st_size
    program = (
        "import uvloop; assert uvloop.__file__.startswith('%s'); loop = uvloop.new_event_loop(); "
        "print(loop.time() > 0); loop.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program % tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
    # Once more changes nothing.
    content = copy.read_bytes()
    strip(copy)
    assert copy.read_bytes() == content


def test_other_files_are_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "script.so"
    path.write_bytes(b"GROUP ( libc.so.6 )")
    strip(path)
    assert path.read_bytes() == b"GROUP ( libc.so.6 )"
