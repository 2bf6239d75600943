"""Another operating system, as far as Python shows it: names of modules and of functions that are
not there, files that are not there, what `sys.platform` says.

    python -m tests.cli.other_system win32 dejaq://127.0.0.1:7464

Run in a process of its own. What is not ours is loaded before, since it has ways of its own there.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from typing import Any

NOT_OURS = (
    *("asyncio", "click", "concurrent.futures", "ctypes", "cronsim", "email", "http.client"),
    *("http.server", "inspect", "logging.handlers", "mmap", "multiprocessing", "numpy"),
    *("numpy.random", "pathlib", "pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.flight"),
    *("pyarrow.json", "pyarrow.parquet", "pydantic_settings", "rich.console", "rich.live"),
    *("rich.table", "select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess"),
    *("tempfile", "threading", "tzdata", "urllib.request", "xxhash", "zoneinfo", "kombu"),
    *("celery.app", "celery.backends.base", "kombu.transport.virtual", "sqlalchemy", "pydantic"),
    *("kombu.asynchronous.hub", "uuid", "getpass", "platform", "code", "difflib"),
)
NO_MODULES = {
    "darwin": ("uvloop",),
    "win32": (
        *("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"),
        "uvloop",
    ),
}
_NO_LINUX = {
    "os": """
        EFD_CLOEXEC EFD_NONBLOCK POSIX_FADV_DONTNEED copy_file_range eventfd eventfd_read
        eventfd_write fdatasync getrandom memfd_create pidfd_open posix_fadvise posix_fallocate
        sched_getaffinity sched_setaffinity splice
    """,
    "time": "CLOCK_BOOTTIME",
    "select": "epoll",
    "signal": "SIGRTMIN sigtimedwait sigwaitinfo",
    "socket": "AF_NETLINK AF_PACKET",
}
_NO_UNIX = {
    "os": """
        O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown fchmod fchown fork forkpty getegid
        geteuid getgid getloadavg getpgid getuid killpg mknod posix_spawn pread preadv pwrite
        pwritev register_at_fork sendfile setsid statvfs sync sysconf uname wait4 writev
    """,
    "time": "CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime clock_gettime_ns",
    "select": "poll",
    "signal": """
        SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGTSTP SIGUSR1 SIGUSR2
        SIG_BLOCK SIG_UNBLOCK pthread_kill pthread_sigmask setitimer sigwait
    """,
    "socket": "AF_UNIX",
    "mmap": "MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE",
}
NO_NAMES = {"darwin": (_NO_LINUX,), "win32": (_NO_LINUX, _NO_UNIX)}
OURS = ("client", "wire", "schema", "tasks", "celery", "outbox.sqlalchemy")
"""Rooms that run there."""


class _Missing:
    """Finds no module of these names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become(system: str) -> None:
    """From now on this process looks like one of another system."""
    for name in NOT_OURS:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in NO_MODULES[system]]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Missing(NO_MODULES[system]))
    for names in NO_NAMES[system]:
        for module, listed in names.items():
            for name in listed.split():
                if hasattr(sys.modules[module], name):
                    delattr(sys.modules[module], name)
    _hide_files()
    if system == "win32":
        _no_library(sys.modules["ctypes"])
    sys.platform = system


def _hide_files() -> None:
    """There is no /proc, and no /sys."""
    whole = io.open

    def open_other(file: Any, *rest: Any, **named: Any) -> Any:
        if str(file).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return whole(file, *rest, **named)

    io.open = open_other
    import builtins

    builtins.open = open_other


def _no_library(ctypes: ModuleType) -> None:
    """There, this process is no library."""

    class Library:
        def __init__(self, name: str | None, *_: Any, **__: Any) -> None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")

    ctypes.CDLL = Library  # type: ignore[attr-defined]


# --- what a user of that system does ------------------------------------------------------------


def use(url: str) -> None:
    """Load all that runs there, send and take messages, and try what does not."""
    import dejaqueue
    from dejaqueue.cli.main import _OF_A_BROKER, COMMANDS

    for room in OURS:
        package = importlib.import_module(f"dejaqueue.{room}")
        inside = getattr(package, "__path__", ())
        for one in pkgutil.walk_packages(inside, f"{package.__name__}."):
            if not one.name.endswith("__main__"):
                importlib.import_module(one.name)
    for name, place in COMMANDS.items():
        if name not in _OF_A_BROKER:
            importlib.import_module(place.partition(":")[0])
    with dejaqueue.Client(url) as client:
        client.create_topic("mails")
        client.send("mails", "first", delay=0.05)
        for message in client.consume("mails", max_messages=1):
            assert message.lateness_us >= 0
            print(message.payload.decode(), message.ack(wait=True).ok)
    for call in (dejaqueue.open, dejaqueue.open_async):
        try:
            call("./queue")
        except dejaqueue.Refused as reason:
            print(reason)
    for words in (["send", "mails", "--text", "second", "--url", url], ["serve", "--port", "0"]):
        print(words[0], *_command(words))
    status, said, _ = _command(["--help"])
    assert status == 0
    assert all(f"\n  {name} " in said for name in COMMANDS), said
    loaded = [one for one in ("broker", "journal", "flight") if f"dejaqueue.{one}" in sys.modules]
    assert loaded == [], loaded


def _command(words: list[str]) -> tuple[int, str, str]:
    """Status, output and errors of the command."""
    from dejaqueue.cli.main import main

    said, wrong = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(wrong):
            main(words)
    except SystemExit as end:
        return int(end.code or 0), said.getvalue(), wrong.getvalue().strip()
    raise AssertionError


if __name__ == "__main__":
    become(sys.argv[1])
    use(sys.argv[2])
