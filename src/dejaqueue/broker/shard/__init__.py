"""The journal's side of a partition: reading it, making it durable, snapshots, its owner.

Room: broker. Knows no requests; partition/ stands on it, by one port: core.py.
See: core.py, commit.py, opening.py, maintenance.py; docs/adr/0031-partition-core-and-chores.md.
"""
