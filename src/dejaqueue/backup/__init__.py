"""Backups as they are stored: a bucket, pieces named by their content, a manifest for each backup.

Room: backup. Knows journals' entries, snapshots and the catalogue; no broker, no sockets.
Holds: a piece is stored once and never changed; a backup is there when its manifest is, which is
written last; whatever is read is compared with its name first.
See: archive.py; broker/backup/, which takes backups and restores them;
docs/adr/0047-backups-are-pieces-and-a-manifest.md.
"""
