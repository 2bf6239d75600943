"""Rows that were refused, written where a user asked for them.

Room: spark. Files are written by executors and kept or dropped by the driver.
Holds: after a job there is a file for each task that counts and had refused rows, and no other.
See: docs/guides/spark.md.

A file is Parquet with the columns that were sent, `status` and `live_id`, the id of the message
that has the row's key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import fs

from dejaqueue.client.branch import Refused
from dejaqueue.model import RowStatus

_NAMES = np.array([status.name for status in RowStatus])


def write(path: str, branch: str, refused: list[Refused]) -> str:
    """Write the refused rows of an attempt; returns the file's name, "" = there is none."""
    if not path or not refused:
        return ""
    tables = []
    for part in refused:
        table = pa.table(part.batch)
        table = table.append_column("status", pa.array(_NAMES[part.statuses], pa.utf8()))
        tables.append(table.append_column("live_id", pa.array(part.ids)))
    system, folder = _open(path)
    system.create_dir(folder, recursive=True)
    name = f"_staged-{branch}.parquet"
    parquet.write_table(
        pa.concat_tables(tables, promote_options="default"), f"{folder}/{name}", filesystem=system
    )
    return name


def keep(path: str, names: list[str]) -> None:
    """These files count: give them their names."""
    if not path:
        return
    system, folder = _open(path)
    for name in names:
        if name:
            system.move(f"{folder}/{name}", f"{folder}/refused-{name.removeprefix('_staged-')}")


def _open(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path:
        system, folder = fs.FileSystem.from_uri(path)
        return system, folder
    return fs.LocalFileSystem(), path.rstrip("/")
