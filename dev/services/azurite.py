"""Azurite: the protocol of Azure's Blob Storage, by its maker, in memory.

Room: dev. Fetched by scripts/install_object_stores.sh, or on PATH. Needs Node.js 20.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import urllib.request
from pathlib import Path

from dev.services.service import Service, is_listening, program

# The account that every Azurite has; it is no secret:
# https://learn.microsoft.com/azure/storage/common/storage-use-azurite#well-known-storage-account-and-key
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_FETCHED = Path(__file__).resolve().parents[2] / "build" / "object-stores" / "azurite"
_PLACE = _FETCHED / "node_modules" / ".bin"


class Azurite(Service):
    """A store, with a container that is called `bucket`."""

    name = "azurite"

    @classmethod
    def missing(cls) -> str | None:
        """See Service.missing."""
        found = program("azurite-blob", str(_PLACE))
        return None if found else "the program azurite-blob (scripts/install_object_stores.sh)"

    @property
    def url(self) -> str:
        """See Service.url; found by what `environment` says."""
        return "az://bucket"

    @property
    def environment(self) -> dict[str, str]:
        """By which clients find it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_bucket(self, name: str) -> str:
        """The URL of a container that is made now."""
        path = f"/{ACCOUNT}/{name}"
        date = email.utils.formatdate(usegmt=True)
        lines = ["PUT"] + [""] * 11 + [f"x-ms-date:{date}", f"x-ms-version:{_VERSION}"]
        text = "\n".join([*lines, f"/{ACCOUNT}{path}", "restype:container"])
        signed = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": _VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}",
            },
        )
        urllib.request.urlopen(request).close()
        return f"az://{name}"

    def prepare(self) -> None:
        """See Service.prepare."""

    def started(self) -> None:
        """See Service.started."""
        self.new_bucket("bucket")

    def command(self) -> list[str]:
        """See Service.command."""
        server = program("azurite-blob", str(_PLACE))
        assert server is not None
        given = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return [server, *given, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]

    def is_ready(self) -> bool:
        """See Service.is_ready."""
        return is_listening(self.port)
