"""The description of backups names what the call takes."""

from __future__ import annotations

from dejaqueue.access.calls import ACTIONS
from dejaqueue.http.backup_shapes import BackupShown, NewBackup


def test_each_field_is_described() -> None:
    assert tuple(NewBackup.model_fields) == ACTIONS["backup"].fields
    assert BackupShown(state="none").error == ""
