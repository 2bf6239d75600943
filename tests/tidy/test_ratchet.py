"""The lists of exceptions only shrink, from commit to commit.

Covered: the working tree against the last commit, the one before it, and the place where a branch
left main. Where git has no history, as in a shallow clone, there is nothing to compare with.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tidy import ratchet

NOW = 'A: dict[str, str] = {"a": "why", "b": ("long " "why")}\nB: dict[str, int] = {"f": 610}\n'


@pytest.mark.may_skip  # a shallow clone has no commit before
def test_the_lists_of_exceptions_only_shrink() -> None:
    before = [text for commit in ratchet.commits_before() if (text := ratchet.text_at(commit))]
    if not before:
        pytest.skip("git has no commit to compare with")
    now = (ratchet.ROOT / ratchet.LISTS).read_text(encoding="utf-8")
    found = [line for text in before for line in ratchet.grown(text, now)]
    assert not found, "\n" + "\n".join(dict.fromkeys(found))


def test_a_list_that_grows_is_found() -> None:
    assert ratchet.grown(NOW, NOW) == []
    longer = NOW.replace('{"a"', '{"c": "x", "a"')
    assert ratchet.grown(NOW, longer) == ["A: 3 entries, 2 before; new: c"]
    assert ratchet.grown(longer, NOW) == []
    assert ratchet.grown(NOW, NOW.replace("610", "611")) == ["B: f has 611, 610 before"]
    renamed = NOW.replace('"b"', '"moved"')
    assert ratchet.grown(NOW, renamed) == []
    assert ratchet.grown(NOW, NOW + 'C: set[str] = {"x"}\n') == []


def test_the_commits_before_are_those_that_there_are(tmp_path: Path) -> None:
    assert ratchet.commits_before(tmp_path) == []

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--initial-branch", "main")
    heads = []
    (tmp_path / ratchet.LISTS).parent.mkdir(parents=True)
    for text in ("A = 1\n", "A = 2\n", "A = 3\n"):
        (tmp_path / ratchet.LISTS).write_text(text)
        git("add", ".")
        git("commit", "--message", text)
        heads.append(git("rev-parse", "HEAD"))
        assert ratchet.commits_before(tmp_path) == heads[:-3:-1]
    git("checkout", "-b", "branch", heads[0])
    (tmp_path / ratchet.LISTS).write_text("A = 4\n")
    git("commit", "--all", "--message", "4")
    (tmp_path / ratchet.LISTS).write_text("A = 5\n")
    git("commit", "--all", "--message", "5")
    assert ratchet.commits_before(tmp_path)[2:] == [heads[0]]
    assert ratchet.text_at(heads[0], tmp_path) == "A = 1"
    assert ratchet.text_at("HEAD~9", tmp_path) is None
