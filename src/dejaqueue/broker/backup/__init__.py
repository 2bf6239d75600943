"""Backups of a broker: the cut through all its partitions, what is copied, and the way back.

The door: `backups.py`, which takes backups of a running broker, and `restoring.py`, which fills a
store of journals that no broker has open.

Room: broker. Reads journals beside the workers that append to them.
Holds: what was acknowledged before a backup was asked for is in it; a transaction is in it whole or
not at all.
See: dejaqueue/backup, where backups are stored; docs/adr/0047-backups-are-pieces-and-a-manifest.md.
"""
