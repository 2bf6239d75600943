"""Encryption at rest: one layer beneath the journal's format, for every kind of journal.

Master keys (master_keys.py) wrap data keys (data_keys.py); a cipher (cipher.py) seals what one log
or journal stores with them. The library `cryptography` is loaded where a master key is set.

Room: journal. Knows bytes and names; not what is in them.
Holds: a data key belongs to one life of one process; checksums are those of what is stored, so
damage is found, and mended from another copy, without keys.
See: docs/guides/encryption.md; docs/adr/0044-encryption-at-rest.md.
"""
