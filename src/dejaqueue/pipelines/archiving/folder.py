"""The folder of an archive: what is in it already, and what is too old.

    <folder>/_archived-<topic>.json                           until when the topic is archived
    <folder>/topic=<topic>/date=<yyyy-mm-dd>/hour=<h>/…       Parquet

Room: pipelines. pyarrow's file systems: a path, or a URI of what pyarrow knows (s3, gs, hdfs).
Holds: a topic counts as archived up to a time only when its files up to then are written.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pyarrow import fs

from dejaqueue.errors import BadRequest

DAY_MS = 86_400_000


class Folder:
    """An archive.

    Args:
        place: a path, or a URI.

    Raises:
        BadRequest: it is neither.
    """

    def __init__(self, place: str) -> None:
        try:
            self._files, self._path = _open(place)
        except (OSError, ValueError) as wrong:
            raise BadRequest("--out", "a directory, or a URI that pyarrow knows", place) from wrong

    def archived_ms(self, topic: str) -> int:
        """Until when a topic is archived; 0 = it is not yet."""
        try:
            with self._files.open_input_stream(self._mark(topic)) as stream:
                return int(json.loads(stream.read())["until_ms"])
        except FileNotFoundError:
            return 0

    def archived(self, topic: str, until_ms: int) -> None:
        """The topic is archived until then."""
        self._files.create_dir(self._path, recursive=True)
        beside = self._mark(topic) + ".new"
        with self._files.open_output_stream(beside) as stream:
            stream.write(json.dumps({"topic": topic, "until_ms": until_ms}).encode())
        self._files.move(beside, self._mark(topic))

    def _mark(self, topic: str) -> str:
        return f"{self._path}/_archived-{topic}.json"

    def prune(self, before_ms: int) -> int:
        """Delete the days that ended before; how many there were, topics counted one by one."""
        count = 0
        for topic in self._folders(self._path, "topic="):
            for day in self._folders(topic, "date="):
                name = day.rpartition("date=")[2]
                try:
                    began = datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC)
                except ValueError:
                    continue  # not ours
                if int(began.timestamp()) * 1_000 + DAY_MS <= before_ms:
                    self._files.delete_dir(day)
                    count += 1
        return count

    def _folders(self, path: str, begin: str) -> list[str]:
        found = self._files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        folders = [one for one in found if one.type is fs.FileType.Directory]
        return sorted(one.path for one in folders if one.base_name.startswith(begin))


def _open(place: str) -> tuple[fs.FileSystem, str]:
    if "://" not in place:
        return fs.LocalFileSystem(), place.rstrip("/")
    files, path = fs.FileSystem.from_uri(place)
    return files, str(path)
