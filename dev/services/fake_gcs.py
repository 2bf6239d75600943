"""fake-gcs-server: the protocol of Google's Cloud Storage, in memory.

Room: dev. Installed by `go install github.com/fsouza/fake-gcs-server@latest`.
"""

from __future__ import annotations

import json
import urllib.request

from dev.services.service import Service, is_listening, program


class FakeGcs(Service):
    """A store, with a bucket that is called `bucket`."""

    name = "fake-gcs-server"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        return None if program("fake-gcs-server") else "the program fake-gcs-server"

    @property
    def url(self) -> str:
        """See Service.url; found by what `environment` says."""
        return "gs://bucket"

    @property
    def environment(self) -> dict[str, str]:
        """By which clients find it: an account of nobody, which is asked for no token."""
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}

    def new_bucket(self, name: str) -> str:
        """The URL of a bucket that is made now."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/storage/v1/b?project=tests",
            method="POST",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        return f"gs://{name}"

    def prepare(self) -> None:
        """See Service.prepare."""

    def started(self) -> None:
        """See Service.started."""
        self.new_bucket("bucket")

    def command(self) -> list[str]:
        """See Service.command."""
        server = program("fake-gcs-server")
        assert server is not None
        place = ["-host", "127.0.0.1", "-port", str(self.port)]
        public = ["-public-host", f"127.0.0.1:{self.port}"]
        return [server, "-scheme", "http", "-backend", "memory", *place, *public]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        return is_listening(self.port)
