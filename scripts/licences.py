"""Under which licences the packages are that DejaQ runs with, as a table of the documentation.

Room: scripts. Reads requirements/*.txt, the metadata of what is installed, and the page itself;
asks nobody. Holds: each package of a release's locks is in the table, and no other; each licence is
allowed, or writing and checking fail.

A package that is not installed where the table is checked (an extra, another Python) keeps its row
while the lock keeps its version. `make licences` installs all that this Python takes.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/licences.md"
LOCKS = {
    "run": "the library, the broker, `http`, `opentelemetry`, `demo`",
    "cluster": "`backup`, `dns`, `etcd`, `zookeeper`, `nats`, `redis`, `cassandra`, `postgresql`, "
    "`mysql`, `oidc`",
    "spark": "`spark`",
    "connect": "`connect`",
}
"""Locks of what a user of DejaQ may install -> the extras in them; tests and benches are not."""

ALLOWED = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
        "PSF-2.0", "Zlib",
        # Weak copyleft: for changes to that package itself, which is not part of DejaQ's own files.
        "LGPL-3.0-only", "MPL-2.0",
    }
)  # fmt: skip
"""SPDX names that a package may have."""

READ = {
    "async-timeout": "Apache-2.0",
    "cronsim": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    "uvloop": "Apache-2.0 OR MIT",
}
"""What stands in their files, where metadata say nothing that is exact, or nobody installs them."""

WORDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "CC0": "CC0-1.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""How packages call a licence otherwise -> its SPDX name."""

_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^ ;\\]+)", re.MULTILINE)
_ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


def locked() -> dict[str, tuple[set[str], list[str]]]:
    """Name -> its versions (one for each range of Pythons) and the locks that it is in."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for lock in LOCKS:
        text = (ROOT / f"requirements/{lock}.txt").read_text(encoding="utf-8")
        for name, version in _LOCKED.findall(text):
            versions, locks = found.setdefault(name, (set(), []))
            versions.add(version)
            if lock not in locks:
                locks.append(lock)
    return found


def installed_licence(name: str, versions: set[str]) -> str | None:
    """As an SPDX expression; None if the package is not installed in a locked version.

    Raises:
        SystemExit: its metadata are not exact, and nobody has read its files.
    """
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if told["Version"] not in versions:
        return None
    if "License-Expression" in told:
        return str(told["License-Expression"])
    if name in READ:
        return READ[name]
    classifiers = [one.split(" :: ")[-1] for one in told.get_all("Classifier") or []]
    said = [
        str(told["License"] or "") if "License" in told else "",
        *(one for one in classifiers if one in WORDS),
    ]
    for one in said:
        word = WORDS.get(one.strip(), one.strip())
        if word in ALLOWED:
            return str(word)
    raise SystemExit(f"licences: {name} says {said}: read its files, and put it into READ")


def is_allowed(expression: str) -> bool:
    """True if one may use it by the allowed licences alone; AND binds closer than OR.

    Raises:
        ValueError: it is no SPDX expression.
    """
    tokens = _TOKEN.findall(expression)
    place = 0

    def peek() -> str:
        return tokens[place] if place < len(tokens) else ""

    def take() -> str:
        nonlocal place
        place += 1
        return tokens[place - 1] if place <= len(tokens) else ""

    def one() -> bool:
        token = take()
        if token == "(":
            found = either()
            if take() != ")":
                raise ValueError(expression)
            return found
        if token in ("", ")", "AND", "OR"):
            raise ValueError(expression)
        return token in ALLOWED

    def both() -> bool:
        found = one()
        while peek() == "AND":
            take()
            found = one() and found
        return found

    def either() -> bool:
        found = both()
        while peek() == "OR":
            take()
            found = both() or found
        return found

    answer = either()
    if place != len(tokens):
        raise ValueError(expression)
    return answer


def rows(page: str) -> list[tuple[str, str, str, str]]:
    """(package, versions, licence, locks) of each package, sorted.

    Args:
        page: what it says now, for what is not installed.

    Raises:
        SystemExit: a licence is not allowed, or not known.
    """
    written = {name: (versions, licence) for name, versions, licence in _ROW.findall(page)}
    found = []
    for name, (versions, locks) in sorted(locked().items()):
        spelled = ", ".join(sorted(versions))
        licence = installed_licence(name, versions) or READ.get(name)
        if licence is None:
            before, licence = written.get(name, ("", ""))
            if before != spelled:
                raise SystemExit(f"licences: {name} {spelled} is not installed; run: make licences")
        if not is_allowed(licence):
            raise SystemExit(f"licences: {name} has {licence}, which is not allowed")
        found.append((f"`{name}`", spelled, licence, ", ".join(f"`{lock}`" for lock in locks)))
    return found
