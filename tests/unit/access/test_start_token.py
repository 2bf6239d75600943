"""The start-up token's file: for the broker's own user, for one start."""

from __future__ import annotations

from pathlib import Path

from dejaqueue.access.start_token import FILE, StartToken


def test_the_file_is_for_its_owner_alone_and_goes(tmp_path: Path) -> None:
    for directory in (tmp_path, None):
        token = StartToken(directory)
        assert token.path.stat().st_mode & 0o777 == 0o600
        assert token.path.read_text() == token.text + "\n"
        assert len(token.text) == 64
        assert token.text not in repr(token)
        token.remove()
        token.remove()
        assert not token.path.exists()


def test_each_start_has_its_own_and_follows_no_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (tmp_path / FILE).symlink_to(elsewhere)
    first = StartToken(tmp_path)
    assert elsewhere.read_text() == "kept"
    assert StartToken(tmp_path).text != first.text
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
