"""Which bucket a URL names.

Room: connections.
Holds: the library of object stores is loaded when a URL names one, not before.
See: bucket.py, the port; object_bucket.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dejaqueue.connections.bucket import Bucket, DirectoryBucket
from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.errors import BadRequest

URL_WORDS: Final = "a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container"
OBJECT_SCHEMES: Final = ("s3", "gs", "az")


def open_bucket(url: str, setting: str = "backup.url", patience_seconds: int = 0) -> Bucket:
    """The bucket of a URL. Raises BadRequest: it has another form, or its extra is missing.

    Args:
        setting: what names the URL, for errors.
        patience_seconds: as for ObjectBucket.
    """
    scheme, colon, rest = url.partition("://")
    if colon and scheme in OBJECT_SCHEMES:
        return ObjectBucket(url, setting, patience_seconds)
    is_typo = not colon and ":" in url.partition("/")[0]  # `s3:/bucket`, `backups:`
    if not url or is_typo or (colon and (scheme != "file" or not rest.startswith("/"))):
        raise BadRequest(setting, URL_WORDS, url.partition("?")[0])
    path = Path(rest if colon else url).expanduser().absolute()
    return DirectoryBucket(path, setting.partition(".")[0])
