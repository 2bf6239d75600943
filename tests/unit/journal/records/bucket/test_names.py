"""Covers: names of objects as paths, and back."""

from __future__ import annotations

import itertools

import pytest

from dejaqueue.journal.records.bucket.names import (
    PART_CHARACTERS,
    folder_of,
    name_of,
    path_of,
)

NAMES = sorted(
    {
        "/".join(parts)
        for count in (1, 2, 3)
        for parts in itertools.product(["", "a", "."], repeat=count)
    }
    | {"x" * PART_CHARACTERS, "x" * (PART_CHARACTERS + 1), "x" * 500, "x" * 300 + "/" + "y" * 300}
)


@pytest.mark.parametrize("name", NAMES)
def test_a_path_gives_its_name_back(name: str) -> None:
    path = path_of(name)
    assert name_of(path) == name
    assert all(0 < len(part) <= PART_CHARACTERS + 1 for part in path.split("/"))


def test_no_path_lies_in_another() -> None:
    paths = [path_of(name) for name in NAMES]
    assert len(set(paths)) == len(NAMES)
    folders = {path.rpartition("/")[0] for path in paths}
    above = {folder[:at] for folder in folders for at, one in enumerate(folder) if one == "/"}
    assert not (folders | above) & set(paths)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a//", "x" * 300, "x" * 300 + "/y"])
def test_what_begins_so_lies_in_its_folder(prefix: str) -> None:
    folder = folder_of(prefix)
    assert folder == "" or folder.endswith("/")
    for rest in ("", "z", "z/z", "/z"):
        assert path_of(prefix + rest).startswith(folder)
