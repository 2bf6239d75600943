"""A standby: a broker that follows the archive of another one, and takes its place by one command.

The door: `standby.py`, which the broker starts, asks and promotes.

Room: broker. Entries come from an archive, and go through the partitions' workers like all others.
Holds: what is applied is one cut of the active broker, so a transaction is in it whole or not at
all; of two sites one is active, and the fence in the archive says which.
See: dejaqueue/backup/fence.py; docs/guides/standby.md;
docs/adr/0084-a-standby-follows-the-archive.md.
"""
