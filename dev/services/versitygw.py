"""The Versity gateway: S3's protocol, with conditional writes, over a directory.

Room: dev. Built from its module by scripts/install_object_stores.sh, or on PATH.
"""

from __future__ import annotations

from pathlib import Path

from dev.services.service import Service, is_listening, program

LOGIN = "tests", "tests-secret"
_PLACE = Path(__file__).resolve().parents[2] / "build" / "object-stores"


class Versitygw(Service):
    """A gateway, with a bucket that is called `bucket`."""

    name = "versitygw"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        found = program("versitygw", str(_PLACE))
        return None if found else "the program versitygw (scripts/install_object_stores.sh)"

    @property
    def url(self) -> str:
        """See Service.url; found by what `environment` says."""
        return "s3://bucket"

    @property
    def environment(self) -> dict[str, str]:
        """By which clients find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": LOGIN[0],
            "AWS_SECRET_ACCESS_KEY": LOGIN[1],
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def new_bucket(self, name: str) -> str:
        """The URL of a bucket that is made now: a directory is one."""
        (self._root / name).mkdir()
        return f"s3://{name}"

    @property
    def _root(self) -> Path:
        return self.folder / "buckets"

    def prepare(self) -> None:
        """See Service.prepare."""
        self._root.mkdir()
        self.new_bucket("bucket")

    def command(self) -> list[str]:
        """See Service.command."""
        server = program("versitygw", str(_PLACE))
        assert server is not None
        login = ["--access", LOGIN[0], "--secret", LOGIN[1]]
        return [server, *login, "--port", f"127.0.0.1:{self.port}", "posix", str(self._root)]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        return is_listening(self.port)
