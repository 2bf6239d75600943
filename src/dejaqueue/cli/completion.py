"""`dejaq completion`: what a shell needs to complete commands, options and names of topics.

Room: cli.
See: connection.py, which asks the broker for the names.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_DEJAQ_COMPLETE"
"""How the shell asks; click makes it of the command's name."""
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog='Examples: `eval "$(dejaq completion bash)"` in ~/.bashrc · '
    "`dejaq completion fish > ~/.config/fish/completions/dejaq.fish`",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for SHELL, which completes commands, options and names of topics.

    Names come from the broker of --url or DEJAQ_URL, with the key of DEJAQ_API_KEY.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "dejaq", VARIABLE).source())
