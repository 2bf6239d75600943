"""A server of S3's protocol on this machine, for tests: moto's, in this process, in memory."""

from __future__ import annotations

import os
import threading
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import pytest

_CHANGING = threading.Lock()


@contextmanager
def changed_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have the environment of this process say so, in short; any thread.

    One at a time: to undo a change all of the environment is put back as it was, and a thread that
    looks meanwhile sees none of it, and puts that back.
    """
    with _CHANGING, mock.patch.dict(os.environ, values):
        yield


class S3Server:
    """A server, and the environment in which clients find it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def new_bucket(self) -> str:
        """The URL of a bucket that is made now."""
        # Servers of one process have their buckets in common, also one after the other.
        name = f"bucket-{uuid.uuid4().hex}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT", data=b"")
        urllib.request.urlopen(request).close()
        return f"s3://{name}"


def s3_server() -> Iterator[S3Server]:
    """For a fixture to yield from; the environment of this process names the server meanwhile."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = S3Server(f"http://{host}:{port}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found
    server.stop()
