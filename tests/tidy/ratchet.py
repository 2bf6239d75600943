"""The lists of exceptions as they stood at another commit, and where they have grown since."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = "tests/tidy/exceptions.py"
MAY_GROW = frozenset({"LONG_FILES", "MANY_PARAMETERS", "TAKES_A_PARTITION", "ORDINARY_NOUNS"})
"""Lists in which an entry needs a sentence that says why, and no more than that."""


def lists_of(text: str) -> dict[str, dict[str, int]]:
    """List that may only shrink → entry → how much it lets pass: the number there, or 1."""
    values: dict[str, object] = {}
    exec(compile(text, LISTS, "exec"), values)  # our own file, as it is or as it was
    found = {}
    for node in ast.parse(text).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, entries = node.target.id, values[node.target.id]
        if name in MAY_GROW or not isinstance(entries, dict | set | frozenset):
            continue
        amounts = entries if isinstance(entries, dict) else dict.fromkeys(entries, 1)
        found[name] = {
            entry: amount if isinstance(amount, int) else 1 for entry, amount in amounts.items()
        }
    return found


def grown(before: str, now: str) -> list[str]:
    """What lets more pass now than before; a list that is new may begin as it likes."""
    earlier, found = lists_of(before), []
    for name, entries in lists_of(now).items():
        if name not in earlier:
            continue
        had = earlier[name]
        if len(entries) > len(had):
            new = ", ".join(sorted(set(entries) - set(had)))
            found.append(f"{name}: {len(entries)} entries, {len(had)} before; new: {new}")
        found += [
            f"{name}: {entry} has {amount}, {had[entry]} before"
            for entry, amount in entries.items()
            if amount > had.get(entry, amount)
        ]
    return found


def commits_before(root: Path = ROOT) -> list[str]:
    """The last commit, the one before, and where this branch left main: those that git knows."""
    revisions = ["HEAD", "HEAD~1", _git(root, "merge-base", "HEAD", "main")]
    found = [_git(root, "rev-parse", "--verify", "--quiet", name) for name in revisions if name]
    return list(dict.fromkeys(filter(None, found)))


def text_at(commit: str, root: Path = ROOT) -> str | None:
    """The file of lists at a commit; None where there is none."""
    return _git(root, "show", f"{commit}:{LISTS}") or None


def _git(root: Path, *words: str) -> str:
    """What git says; nothing where it fails, is missing, or has no such history."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
