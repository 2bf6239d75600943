"""The start-up token: who may make the first API key of a broker that others can reach.

Room: access. A file beside the data, or a temporary one where the data is on a server.
Holds: the file is readable for the broker's own user alone, and for one start; it is gone as soon
as there is a key; the token is in no log and no answer.
See: administration.py, which asks for it; docs/guides/security.md, "Keys".

Where a broker listens to others, a caller's address says little: a proxy, a container's network
or a forwarded port makes strangers come from loopback. Who can read the file is on the machine.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

FILE = "start-token"
TOKEN_BYTES = 32


class StartToken:
    """A token for one start of a broker, in its file.

    Args:
        directory: of the broker's data; None = it has none here.
        is_made: the parent of this process has made it.

    Attributes:
        text: the token.
        path: where it was written.
    """

    def __init__(self, directory: Path | None, *, is_made: bool = False) -> None:
        if is_made and directory is not None:
            self.path = directory / FILE
            try:
                self.text = self.path.read_text().strip()
                return
            except FileNotFoundError:  # there was a key meanwhile: nobody can know this one
                directory = None
        self.text = secrets.token_hex(TOKEN_BYTES)
        if directory is None:
            handle, name = tempfile.mkstemp(prefix=f"dejaq-{FILE}-")
            self.path = Path(name)
        else:
            self.path = directory / FILE
            self.path.unlink(missing_ok=True)  # of a start that was killed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            handle = os.open(self.path, flags, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(self.text + "\n")

    def __repr__(self) -> str:
        return f"StartToken({str(self.path)!r})"

    def remove(self) -> None:
        """There is a key now, or the broker stops. Twice is fine."""
        with suppress(OSError):  # the disk is failing: it is worth nothing without this process
            self.path.unlink(missing_ok=True)
