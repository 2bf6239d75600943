"""Backups: begin one, and see how it goes. Needs the role admin.

Room: http.
See: broker/backup/backups.py; docs/guides/backup.md.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from dejaqueue.access.roles import Role
from dejaqueue.http import backup_shapes
from dejaqueue.http.bodies import json_object
from dejaqueue.http.direct import json_answer
from dejaqueue.http.openapi import answers, body, route
from dejaqueue.http.service import principal_of, service_of

router = APIRouter(prefix="/v1/backups", tags=["backups"])
Body = Annotated[dict[str, Any], Depends(json_object)]
_BEGUN = {"state": "running", "url": "/var/backups/dejaq", "partitions": 0, "done": 0}
_DONE = {"state": "done", "id": "20261124T031629.219Z-9f0c51d2a7e4b836-ffe1", "new_bytes": 81_920}


@route(
    router,
    "backup",
    status_code=202,
    openapi_extra=body(backup_shapes.NewBackup, {"url": "/var/backups/dejaq"}),
    responses=answers(backup_shapes.BackupShown, _BEGUN, "It was begun.", 409, status=202),
)
def begin_backup(request: Request, values: Body) -> Response:
    """Begin a backup.

    The broker goes on meanwhile. Ask for the progress until it is `done` or `failed`.
    """
    return json_answer(_act(request, "backup", values), 202)


@route(
    router,
    "backup_progress",
    responses=answers(backup_shapes.BackupShown, _DONE, "How it goes."),
)
def show_progress(request: Request) -> Response:
    """How the backup goes that was begun last."""
    return json_answer(_act(request, "backup_progress", {}))


def _act(request: Request, name: str, values: dict[str, Any]) -> dict[str, Any]:
    principal_of(request).require(Role.ADMIN, "")
    return service_of(request).broker.call(name, values)
