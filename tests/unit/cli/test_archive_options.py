"""Options of commands that read backups by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dejaqueue.backup.archive import Archive
from dejaqueue.cli.archive_options import chosen_settings, named_backup, payload_store_of
from dejaqueue.cli.backed_payloads import backed_payloads
from dejaqueue.cli.restore import restore
from dejaqueue.errors import BadRequest


@pytest.mark.parametrize("command", [restore, backed_payloads])
def test_both_commands_have_them(command: object) -> None:
    said = CliRunner().invoke(command, ["--help"]).output  # type: ignore[arg-type]  # a command
    assert "--set GROUP.FIELD=VALUE" in said
    assert "--config PATH" in said


def test_settings_come_from_the_line_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "dejaq.toml"
    file.write_text('[payloads]\nurl = "/from-the-file"\nkeep_ms = 5\n', encoding="utf-8")
    found = chosen_settings(("payloads.url=/from-the-line",), file, "memory:")
    assert (found.payloads.url, found.payloads.keep_ms) == ("/from-the-line", 5)
    assert found.journal.url == "memory:"


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path), make=True)
    with pytest.raises(BadRequest, match="url: a place with backups"):
        named_backup(archive, str(tmp_path), None)
    with pytest.raises(BadRequest, match=r"payloads\.url: where the payloads are"):
        payload_store_of(chosen_settings((), None))
