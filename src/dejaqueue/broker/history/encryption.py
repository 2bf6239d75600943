"""Encryption of history files: Parquet's own, with keys that the store's data keys wrap.

Room: broker. Knows files, not what is recorded in them.
Holds: a file that is not encrypted is read as it is, so what was recorded before stays readable.
See: journal/encryption; docs/guides/encryption.md.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from pyarrow.parquet.encryption import (
    CryptoFactory,
    DecryptionConfiguration,
    EncryptionConfiguration,
    KmsClient,
    KmsConnectionConfig,
)

from dejaqueue.journal.encryption.cipher import Cipher

NAME: Final = "history"
_MAGIC: Final = b"PARE"
_BELONGING: Final = b"parquet key"
_KEY_BITS: Final = 256


class _KeyService(KmsClient):  # type: ignore[misc]
    """What Parquet asks to wrap the keys of a file; errors of ours come through it as they are."""

    def __init__(self, cipher: Cipher) -> None:
        super().__init__()
        self._cipher = cipher

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(self._cipher.seal(key_bytes, _BELONGING)).decode()

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        return self._cipher.open(base64.b64decode(wrapped_key), _BELONGING)


class HistoryEncryption:
    """How files are written and read.

    Args:
        cipher: wraps the keys of files.
    """

    def __init__(self, cipher: Cipher) -> None:
        self._factory = CryptoFactory(lambda _: _KeyService(cipher))
        self._connection = KmsConnectionConfig()

    def writing(self) -> Any:
        """`encryption_properties` of a file: every column and the footer, with keys of its own."""
        configuration = EncryptionConfiguration(
            footer_key=NAME, uniform_encryption=True, data_key_length_bits=_KEY_BITS
        )
        return self._factory.file_encryption_properties(self._connection, configuration)

    def reading(self, path: Path) -> Any:
        """`decryption_properties` of a file; None if it is not encrypted. Raises OSError."""
        if not is_encrypted(path):
            return None
        return self._factory.file_decryption_properties(self._connection, DecryptionConfiguration())


def is_encrypted(path: Path) -> bool:
    """Whether a file needs a key. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
