"""Shapes of what is sent and answered about backups.

Room: http. As shapes.py: for the API's description; what a value may be is checked by the broker.
See: routes/backups.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from dejaqueue.http.shapes import Shape


class NewBackup(Shape):
    """A backup that is to be taken."""

    url: str = Field(
        description="Where to: a path of the broker's machine, from its root, or an object store."
    )
    full: bool = Field(False, description="Store everything, whatever earlier backups have.")


class BackupShown(BaseModel):
    """How a backup goes; with `done` what it has, with `failed` the error."""

    model_config = ConfigDict(extra="allow")

    state: Literal["none", "running", "done", "failed"]
    id: str = Field(
        default="", description="Of a backup that is done, as `dejaq backup list` shows it."
    )
    error: str = ""
