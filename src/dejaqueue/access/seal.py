"""The seal of a document: proof that whoever wrote it has the secret of the cluster.

Room: access. Pure: no file, no network.
Holds: the key of a seal is derived from the secret for this purpose alone, so that neither a seal
nor a password that was derived from the same secret gives the other one away; seals are compared in
constant time.
See: key_set.py, which seals the API keys; cluster/secret.py for where secrets come from.
"""

from __future__ import annotations

import hmac
import json
from typing import Any

_PURPOSE = b"dejaq: the document of API keys, 1"
_HIDING = b"dejaq: what verifies signatures, 1"


class Seal:
    """Seals JSON objects with HMAC-SHA-256.

    >>> seal = Seal("a secret")
    >>> sealed = seal.on({"keys": []})
    >>> seal.fits(sealed), seal.fits(sealed | {"keys": [1]}), Seal("another").fits(sealed)
    (True, False, False)

    Args:
        secret: of the cluster.
    """

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), _PURPOSE, "sha256")
        self._hiding_key = hmac.digest(secret.encode(), _HIDING, "sha256")

    def on(self, values: dict[str, Any]) -> dict[str, Any]:
        """The object with its seal beside its fields."""
        return values | {"seal": self._of(values)}

    def fits(self, values: dict[str, Any]) -> bool:
        """True if an object has the seal that it should have."""
        seal = values.get("seal")
        expected = self._of({name: one for name, one in values.items() if name != "seal"})
        return isinstance(seal, str) and hmac.compare_digest(seal.encode(), expected.encode())

    def hidden(self, name: str, value: bytes) -> bytes:
        """32 bytes made unreadable to whoever has not the secret; twice gives them back.

        Args:
            name: of the one value that is ever hidden under it: an API key's id.
        """
        pad = hmac.digest(self._hiding_key, name.encode(), "sha256")
        return bytes(a ^ b for a, b in zip(value, pad, strict=True))

    def _of(self, values: dict[str, Any]) -> str:
        """What is sealed are canonical bytes: sorted, without blanks, ASCII alone."""
        content = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hmac.digest(self._key, content.encode("ascii"), "sha256").hex()
