"""The Versity gateway: S3's protocol, with conditional writes, over a directory.

Room: dev. Installed by `go install github.com/versity/versitygw/cmd/versitygw@latest`.
"""

from __future__ import annotations

from pathlib import Path

from dev.services.service import Service, is_listening, program

LOGIN = "tests", "tests-secret"


class Versitygw(Service):
    """A gateway, with a bucket that is called `bucket`."""

    name = "versitygw"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        return None if program("versitygw") else "the program versitygw"

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
        server = program("versitygw")
        assert server is not None
        login = ["--access", LOGIN[0], "--secret", LOGIN[1]]
        return [server, *login, "--port", f"127.0.0.1:{self.port}", "posix", str(self._root)]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        return is_listening(self.port)
