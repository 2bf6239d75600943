"""`python -m dejaqueue` is the command. What that does: tests/unit/cli."""

from __future__ import annotations

import runpy
import sys

import pytest

from dejaqueue.version import __version__


def test_the_module_is_the_command__with_its_arguments_and_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status in ((["--version"], 0), (["fly"], 2)):
        monkeypatch.setattr(sys, "argv", ["dejaqueue", *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("dejaqueue", run_name="__main__")
        assert ended.value.code == status
    told = capsys.readouterr()
    assert told.out == f"dejaq, version {__version__}\n"
    assert "No such command 'fly'" in told.err


def test_who_imports_it_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dejaqueue", "fly"])
    assert "main" in runpy.run_module("dejaqueue.__main__", run_name="imported")
