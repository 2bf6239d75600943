"""Master keys: they wrap data keys and nothing else; in a file, the environment, or a key service.

The first one wraps what is new. The others are former ones, which unwrap what they wrapped until
the broker has started once and wrapped it with the first.

Room: journal. The port for a key service is MasterKey; a plugin is a function that gives some.
Holds: a key is never in a message, only its name, which is a hash of it.
See: data_keys.py, key_services.py; docs/guides/encryption.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from dejaqueue.connections import extras
from dejaqueue.errors import BadRequest, EncryptionKeyMissing
from dejaqueue.journal.encryption.cipher import AeadKey
from dejaqueue.journal.encryption.key_services import KmsKey, VaultKey

KEY_BYTES: Final = 32
SOURCES: Final = "file:PATH, env:NAME, vault:MOUNT/KEY, aws-kms:KEY or plugin:MODULE:FUNCTION"

_NONCE_BYTES: Final = 12
_BELONGING: Final = b"dejaqueue data key"


class MasterKey(Protocol):
    """What wraps data keys: 40 bytes each, few. A key service keeps its own secret.

    Attributes:
        name: tells it from all other master keys, for life; stored beside what it wrapped.
    """

    name: str

    def wrap(self, content: bytes) -> bytes:
        """The content so that only `unwrap` of this key gives it back, and finds any change."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """What was wrapped. Raises any error if it is not what this key wrapped."""
        ...


def new_aead(key: bytes) -> AeadKey:
    """AES-256-GCM with a key. Raises BadRequest: the extra is not installed."""
    module = extras.load("cryptography.hazmat.primitives.ciphers.aead", "encryption", "encryption:")
    aead: AeadKey = module.AESGCM(key)
    return aead


class LocalMasterKey:
    """A master key whose bytes this process has."""

    def __init__(self, key: bytes) -> None:
        self.name = hashlib.sha256(b"dejaqueue master key" + key).hexdigest()[:16]
        self._aead = new_aead(key)

    def wrap(self, content: bytes) -> bytes:
        """See MasterKey.wrap."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, content, _BELONGING)

    def unwrap(self, wrapped: bytes) -> bytes:
        """See MasterKey.unwrap."""
        return self._aead.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], _BELONGING)


def load_master_keys(source: str) -> Sequence[MasterKey]:
    """The master keys of a setting, the one to wrap with first.

    Args:
        source: one of SOURCES, or several with commas between. File and variable have a key a
            line: 32 bytes in Base64.

    Raises:
        BadRequest: it is none of those, or there is no such function, or no key in it; what a key
            service needs is not installed.
        EncryptionKeyMissing: file or variable is not there, or others may read the file; a key
            service has no such key, or refuses it. Unavailable: a key service is out of reach.
    """
    return [key for part in source.split(",") for key in _load(part.strip())]


def _load(source: str) -> Sequence[MasterKey]:
    kind, _, place = source.partition(":")
    if kind == "file" and place:
        return _of_lines(_read_private(Path(place).expanduser()), source)
    if kind == "env" and place:
        text = os.environ.get(place)
        if text is None:
            raise EncryptionKeyMissing(f"master key: the variable {place} is not set")
        return _of_lines(text, source)
    if kind == "vault" and place:
        return [VaultKey(place)]
    if kind == "aws-kms" and place:
        return [KmsKey(place)]
    module, _, function = place.partition(":")
    if kind == "plugin" and module and function:
        return _of_plugin(module, function, source)
    raise BadRequest("encryption.master_key", SOURCES, kind)


def _read_private(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise EncryptionKeyMissing(
                f"master key: others may read {path} (mode {mode:04o}): chmod 600 {path}"
            )
        return path.read_text()
    except (OSError, UnicodeDecodeError) as failure:
        raise EncryptionKeyMissing(f"master key: {path} cannot be read: {failure}") from failure


def _of_lines(text: str, source: str) -> list[MasterKey]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    keys: list[MasterKey] = []
    for place, line in enumerate(lines, 1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            wanted = f"lines with {KEY_BYTES} bytes in Base64 each"
            raise BadRequest(f"{source}, line {place}", wanted, f"{len(key)} bytes")
        keys.append(LocalMasterKey(key))
    if not keys:
        raise BadRequest(source, "at least one master key", 0)
    return keys


def _of_plugin(module: str, function: str, source: str) -> Sequence[MasterKey]:
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as missing:
        raise BadRequest("encryption.master_key", "a function that is there", source) from missing
    keys: Sequence[MasterKey] = make()
    if not keys:
        raise BadRequest(source, "at least one master key", 0)
    return keys
