"""All API keys at one moment, with what is remembered of those that were revoked; as a document.

Room: access. Pure values.
Holds: a key that was revoked is in no merger of two sets, whichever is the older one: its id is
remembered until the key would have ended, and for ever if it had no end. So no document from
before, restored or slipped in, makes it work again.
See: key_ring.py, which keeps one; seal.py; docs/adr/0020-keys-of-a-cluster.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dejaqueue import limits
from dejaqueue.access.api_keys import ApiKey
from dejaqueue.access.seal import Seal
from dejaqueue.errors import BadRequest, JournalDamaged, Refused

FORMAT_VERSION = 2
UNSEALED_VERSIONS = (1, FORMAT_VERSION)
"""Version 1 knew neither revoked ids nor seals."""
FORGET_AFTER_MS = 24 * 3_600_000
"""A revoked key is remembered a day longer than it would have lived: clocks of brokers differ."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys by id, in the order of their making.

    Attributes:
        revoked: id -> when the key would have ended, UTC milliseconds; None = never.
    """

    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    revoked: Mapping[str, int | None] = field(default_factory=dict)

    def merged(self, other: KeySet) -> KeySet:
        """What either of them has, without what either of them knows to be revoked."""
        revoked = {**self.revoked, **other.revoked}
        keys = {**self.keys, **other.keys}
        return KeySet({name: key for name, key in keys.items() if name not in revoked}, revoked)

    def has_all_of(self, other: KeySet, now_ms: int) -> bool:
        """True if nothing of the other one is missing here that still matters."""
        other = other.without_forgotten(now_ms)
        return all(name in self.revoked for name in other.revoked) and all(
            name in self.keys or name in self.revoked for name in other.keys
        )

    def without_forgotten(self, now_ms: int) -> KeySet:
        """Without those revoked ids that need not be remembered any more."""
        return KeySet(
            self.keys,
            {
                name: ends_ms
                for name, ends_ms in self.revoked.items()
                if ends_ms is None or now_ms < ends_ms + FORGET_AFTER_MS
            },
        )

    def with_key(self, key: ApiKey) -> KeySet:
        """With a new key. Raises Refused: there are too many, or too many were revoked."""
        if len(self.keys) >= limits.API_KEYS_MAX:
            raise Refused(f"there are {limits.API_KEYS_MAX} API keys, the limit")
        if len(self.revoked) >= limits.API_KEYS_REVOKED_MAX:
            raise Refused(
                f"{limits.API_KEYS_REVOKED_MAX} revoked API keys are remembered, the limit; each "
                "is forgotten a day after it would have ended, so give keys an end"
            )
        return KeySet({**self.keys, key.id: key}, self.revoked)

    def without(self, key: ApiKey) -> KeySet:
        """Without a key, which is revoked."""
        keys = {name: one for name, one in self.keys.items() if name != key.id}
        return KeySet(keys, {**self.revoked, key.id: key.ends_ms})

    def to_text(self, seal: Seal | None) -> str:
        """As a document."""
        values: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "keys": [_stored(key, seal) for key in self.keys.values()],
            "revoked": dict(self.revoked),
        }
        return json.dumps(values if seal is None else seal.on(values))


def _stored(key: ApiKey, seal: Seal | None) -> dict[str, Any]:
    """What is stored of a key: what verifies its signatures could sign, too, so where others can
    read the document, with whom the cluster's secret is not shared, it is hidden from them."""
    values = key.to_stored()
    if seal is not None and key.signing is not None:
        del values["signing"]
        values["hidden_signing"] = seal.hidden(key.id, key.signing).hex()
    return values


def _key_of(stored: dict[str, Any], seal: Seal | None) -> ApiKey:
    hidden = stored.get("hidden_signing")
    if seal is not None and hidden is not None:
        signing = seal.hidden(str(stored["id"]), bytes.fromhex(hidden))
        stored = {**stored, "signing": signing.hex()}
    return ApiKey.from_stored(stored)


def key_set_of(text: str, seal: Seal | None) -> KeySet:
    """The keys of a document.

    Args:
        seal: that it must have; None = it must have none.

    Raises:
        JournalDamaged: it is none, or its seal is wrong. Refused: another version wrote it.
    """
    # Never the text of what is wrong: it could show a digest.
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise TypeError
        _check_seal(values, seal)
        if values["version"] not in UNSEALED_VERSIONS:
            raise Refused(
                f"the API keys have version {values['version']}, the last known is {FORMAT_VERSION}"
            )
        keys = [_key_of(stored, seal) for stored in values["keys"]]
        revoked = {
            str(name): None if ends_ms is None else int(ends_ms)
            for name, ends_ms in values.get("revoked", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadRequest) as wrong:
        text = f"the API keys cannot be read ({type(wrong).__name__})"
        raise JournalDamaged(text) from None
    return KeySet({key.id: key for key in keys if key.id not in revoked}, revoked)


def _check_seal(values: dict[str, Any], seal: Seal | None) -> None:
    if seal is None and "seal" in values:
        raise JournalDamaged(
            "the API keys are sealed with the secret of a cluster: name its file, "
            "cluster.secret_file, got: none"
        )
    if seal is not None and not seal.fits(values):
        was = "wrong" if "seal" in values else "missing"
        raise JournalDamaged(
            "the seal of the API keys must be of this cluster's secret (if the secret was changed: "
            f"cluster.seal_keys), got: {was}"
        )


def unsealed_key_set_of(text: str) -> KeySet:
    """The keys of a document, whatever its seal. Raises as `key_set_of`."""
    try:
        values = json.loads(text)
        values.pop("seal", None)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return key_set_of(text, None)
    return key_set_of(json.dumps(values), None)
