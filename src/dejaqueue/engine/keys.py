"""Keys as the engine knows them: hashes, of a column at once.

Room: engine. The hash is schema/keys.py's, because clients need it as well.
"""

from __future__ import annotations

from dejaqueue.schema.keys import NO_KEY, hash_keys

__all__ = ["NO_KEY", "hash_keys"]
