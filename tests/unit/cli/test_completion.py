"""Completion: a script for each shell, and names of topics from the broker."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from dejaqueue.cli.completion import SHELLS, VARIABLE
from dejaqueue.cli.main import main
from tests.cli.conftest import Run, invoke


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_asks_us(shell: str) -> None:
    found = invoke("completion", shell)
    assert (found.exit_code, VARIABLE in found.stdout) == (0, True)


def test_names_of_topics_come_from_the_broker(run: Run, url: str) -> None:
    for name in ("reminders", "reports", "mails"):
        run("topic", "create", name)

    def completed(*words: str) -> list[str]:
        asked = ShellComplete(main, {}, "dejaq", VARIABLE)
        return [one.value for one in asked.get_completions(list(words[:-1]), words[-1])]

    assert completed("stats", "--url", url, "re") == ["reminders", "reports"]
    assert completed("topic", "--help", "topi") == []
    assert completed("topic", "alter", "--url", url, "") == ["mails", "reminders", "reports"]
    assert completed("send", "--url", url, "m") == ["mails"]
    assert "stats" in completed("st")
    assert completed("peek", "--url", "dejaq://127.0.0.1:1", "m") == []
