"""Rows that were refused, written where a user asked for them.

Room: spark. Files are written by executors and kept or dropped by the driver.
Holds: after a job there is a file for each task that counts and had refused rows, and no other.
See: docs/guides/spark.md.

A file is Parquet with the columns that were sent, `status` and `live_id`, the id of the message
that has the row's key. Beside them each job, or epoch of a query, leaves counts by status; those
names begin with `_`, so that whoever reads the folder as a table does not see them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import fs

from dejaqueue.client.branch import Refused
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus

_NAMES = np.array([status.name for status in RowStatus])
_STAGED = "_staged-"
_COUNTS = re.compile(r"_counts-.*\.json")


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
    name = f"{_STAGED}{branch}.parquet"
    parquet.write_table(
        pa.concat_tables(tables, promote_options="default"), f"{folder}/{name}", filesystem=system
    )
    return name


def keep(path: str, names: list[str], name: str, counts: Mapping[str, int]) -> None:
    """These files count: give them their names, and write how many rows had which status.

    Args:
        names: what `write` returned.
        name: of the job or epoch; done again it overwrites its counts and nothing else.
        counts: rows by status.
    """
    if not path:
        return
    system, folder = _open(path)
    for staged in names:
        if staged and system.get_file_info(f"{folder}/{staged}").type is fs.FileType.File:
            system.move(f"{folder}/{staged}", f"{folder}/refused-{staged.removeprefix(_STAGED)}")
    system.create_dir(folder, recursive=True)
    with system.open_output_stream(f"{folder}/_counts-{name}.json") as out:
        out.write(json.dumps(dict(counts), sort_keys=True).encode())


def drop(path: str, names: list[str]) -> None:
    """These files do not count."""
    if not path:
        return
    system, folder = _open(path)
    for staged in names:
        if staged and system.get_file_info(f"{folder}/{staged}").type is fs.FileType.File:
            system.delete_file(f"{folder}/{staged}")


def status_counts(path: str) -> Counter[str]:
    """How many rows had which status, of all jobs and epochs that had this `refusals.path`.

    Raises:
        BadRequest: there is no such folder.
    """
    system, folder = _open(path)
    try:
        infos = system.get_file_info(fs.FileSelector(folder))
    except FileNotFoundError:
        raise BadRequest("path", "a folder that jobs wrote refusals to", path) from None
    counts: Counter[str] = Counter()
    for one in infos:
        if _COUNTS.fullmatch(one.base_name):
            with system.open_input_stream(one.path) as file:
                counts.update(json.loads(file.read()))
    return counts


def _open(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path:
        system, folder = fs.FileSystem.from_uri(path)
        return system, folder
    return fs.LocalFileSystem(), path.rstrip("/")
