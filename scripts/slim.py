"""Takes from an environment what no broker loads: tests, headers, static libraries, sources of
compiled modules, file systems of clouds, second copies of libraries, symbols.

    python scripts/slim.py /opt/dejaq

Room: scripts. Needs nothing but Python, so that any base image will do.
Holds: what is left is imported and works as before; what a debugger alone reads of a library is
gone; the same environment becomes the same bytes.
See: Dockerfile; tests/cli/test_slim.py, tests/cli/test_image.py.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".pyx", ".pxd", ".pxi", ".pyi", ".a", ".h", ".hpp")
FOLDERS = (
    *("numpy/f2py", "numpy/tests", "numpy/*/tests", "numpy/_pyinstaller"),
    *("pyarrow/tests", "pyarrow/include", "pyarrow/includes", "pyarrow/src"),
)
# Arrow has these in modules of their own, and does without them if they are not there.
MODULES = ("_s3fs", "_gcsfs", "_azurefs", "_hdfs", "_orc", "_dataset_orc", "_substrait")
LIBRARIES = ("libarrow_s3.so.*", "_pyarrow_cpp_tests.*.so")

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOADED = 1


def slim(environment: Path) -> int:
    """Do all of it.

    Returns:
        How many bytes it is smaller.
    """
    before = _byte_count(environment)
    [packages] = environment.glob("lib/python3*/site-packages")
    for pattern in FOLDERS:
        for folder in packages.glob(pattern):
            shutil.rmtree(folder)
    for folder in list(packages.rglob("__pycache__")):
        shutil.rmtree(folder)
    arrow = packages / "pyarrow"
    patterns = (*LIBRARIES, *(f"{name}.*.so" for name in MODULES))
    for path in [path for pattern in patterns for path in arrow.glob(pattern)]:
        path.unlink()
    for path in _second_copies(arrow):
        path.unlink()
    for path in sorted(packages.rglob("*")):
        if path.suffix in SUFFIXES:
            path.unlink()
        elif ".so" in path.suffixes:
            strip(path)
    for path in sorted((environment / "bin").iterdir()):
        if not path.is_symlink():
            strip(path)
    return before - _byte_count(environment)


def _second_copies(arrow: Path) -> Iterator[Path]:
    """Libraries that are there under three names, since a wheel has no links.

    The system's loader asks for `lib*.so.MAJOR` alone.
    """
    for longest in sorted(arrow.glob("lib*.so.*.*.*")):
        asked = longest.with_suffix("").with_suffix("")
        if asked.exists():
            yield longest
            yield asked.with_suffix("")


def strip(path: Path) -> None:
    """Cut off what follows the parts of a library or program that are loaded: symbols for a
    debugger, and the table that says where those are.

    `strip` of binutils does more, needs to be installed, and spoils some libraries that were
    changed after they were linked. What the system loads it does not touch either.
    """
    content = path.read_bytes()
    if content[:6] != _ELF_64_LITTLE:
        return
    fields = list(_HEADER.unpack_from(content))
    start, size, count = fields[4], fields[8], fields[9]
    end = start + size * count
    for number in range(count):
        kind, _, offset, _, _, byte_count, _, _ = _SEGMENT.unpack_from(
            content, start + number * size
        )
        # Others lie within these; but for sections that are kept for debuggers.
        if kind == _LOADED:
            end = max(end, offset + byte_count)
    if end >= len(content):
        return
    fields[5] = fields[11] = fields[12] = 0  # of the table of sections: place, entries, names
    header = bytearray(content[: _HEADER.size])
    _HEADER.pack_into(header, 0, *fields)
    header[:16] = content[:16]
    path.write_bytes(bytes(header) + content[_HEADER.size : end])


def _byte_count(folder: Path) -> int:
    found = (path.lstat() for path in folder.rglob("*") if path.is_file())
    return sum(facts.st_size for facts in found)


def main(arguments: list[str]) -> None:
    """Slim the environment that the argument names."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    saved = slim(Path(arguments[0]))
    sys.stdout.write(f"{saved / 1e6:.0f} MB smaller\n")


if __name__ == "__main__":
    main(sys.argv[1:])
