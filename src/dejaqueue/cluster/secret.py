"""The secret of a cluster: read from the file that settings name, or made for one machine.

Room: cluster. Files alone.
Holds: a secret that is made has 256 random bits and is readable for this user alone; one file of
this user (`state_directory`) gives all nodes of the machine the same one, whichever comes first; a
node keeps a copy in its data directory, which goes before. A file that others own, or may write or
read, is not believed where nobody named it.
See: embedded.py, whose servers' passwords come from it; access/seal.py; docs/guides/cluster.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
from pathlib import Path

from dejaqueue import limits
from dejaqueue.directories import PRIVATE_FILE, make_directory
from dejaqueue.errors import BadRequest, Refused

log = logging.getLogger("dejaqueue.cluster")

FILE = "cluster-secret"
SECRET_BYTES = 32
COMMAND = "(umask 077; openssl rand -hex 32 > FILE), and --set cluster.secret_file=FILE"
"""What makes a secret by hand, and where to name it."""


def read_secret(file: str) -> str:
    """The secret in a file that settings name. Raises BadRequest: there is none."""
    path = Path(file).expanduser()
    try:
        secret = path.read_text(encoding="utf-8").strip()
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError) as error:
        limit = "a file that can be read"
        raise BadRequest("cluster.secret_file", limit, f"{file} ({error})") from None
    if len(secret) < limits.CLUSTER_SECRET_LENGTH_MIN:
        limit = f"a file with at least {limits.CLUSTER_SECRET_LENGTH_MIN} characters: {COMMAND}"
        raise BadRequest("cluster.secret_file", limit, f"{file} with {len(secret)}")
    if mode & 0o077:
        log.warning("others on this machine may read the cluster's secret: chmod 600 %s", path)
    return secret


def machine_secret(directory: Path) -> str:
    """The secret of the nodes that this user runs on this machine.

    Args:
        directory: of this node's data.

    Raises:
        Refused: there is none and none can be kept; says what to do.
    """
    own, machines = directory / FILE, state_directory() / FILE
    try:
        make_directory(directory)
        kept = _read(own)
        try:
            make_directory(machines.parent)
            shared = _make_once(machines, kept or secrets.token_hex(SECRET_BYTES))
        except OSError:
            if kept is None:
                raise
            return kept  # who joins will need it by name; this node does not
        if kept is not None and kept != shared:
            log.warning(
                "the cluster's secret in %s is another one than in %s: a node that is new here "
                "needs --set cluster.secret_file=%s",
                own,
                machines,
                own,
            )
        return _make_once(own, shared) if kept is None else kept
    except OSError as error:
        raise Refused(
            f"the servers of a cluster need a secret, and none can be kept ({error}): make one, "
            f"{COMMAND} on every node"
        ) from None


def kept_secret(directory: Path) -> str:
    """The secret that a node keeps in its data directory. Raises Refused: none, or not believed."""
    found = _read(directory / FILE)
    if found is None:
        raise Refused(
            f"there is no secret in {directory}: name its file, DEJAQ_CLUSTER__SECRET_FILE=FILE"
        )
    return found


def state_directory() -> Path:
    """Where programs of this user keep what is neither settings nor data.

    Raises:
        Refused: this user has no home.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise Refused(
            f"the servers of a cluster need a secret, and there is no place for one ({error}): "
            f"make one, {COMMAND} on every node"
        ) from None
    return state / "dejaq"


def _read(path: Path) -> str | None:
    """A secret that was made here; None = there is none. Raises Refused: it cannot be believed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, encoding="utf-8", errors="replace") as file:
        facts = os.fstat(handle)
        secret = file.read(1_024).strip()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.geteuid() or mode & 0o077:
        raise Refused(
            f"the cluster's secret must be this user's alone: {path} is of user {facts.st_uid} "
            f"(this is {os.geteuid()}), mode {mode:04o}; remove it if you did not make it, or name "
            "it, cluster.secret_file"
        )
    if len(secret) < limits.CLUSTER_SECRET_LENGTH_MIN:
        raise Refused(f"there is no secret in {path}: remove it, so that one can be made")
    return secret


def make_secret(path: Path) -> str:
    """The secret in a file of this user, made if there is none. Raises Refused, OSError."""
    return _make_once(path, secrets.token_hex(SECRET_BYTES))


def _make_once(path: Path, secret: str) -> str:
    """Keep a secret unless there is one: of several who do this at once all get the same one."""
    found = _read(path)
    if found is not None:
        return found
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(handle)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # whole, or not at all, and never in place of another
    finally:
        draft.unlink(missing_ok=True)
    kept = _read(path)
    assert kept is not None
    return kept
