"""The `completion` command: prints the completion script of a shell."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from controller.cli.commands.options import choice_parser

HELP = """
Print the script that completes commands and options in a shell.

\b
Examples:
  source <(volcano-global completion bash)
  volcano-global completion zsh > "${fpath[1]}/_volcano-global"
  volcano-global completion fish > ~/.config/fish/completions/volcano-global.fish
"""

#: In a folder of `fpath`, zsh runs the script when it first completes: without this line, that completes nothing.
_ZSH_FIRST_CALL = '''
[[ $funcstack[1] != _volcano-global ]] || _volcano_global_completion "$@"'''


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell,
        typer.Argument(
            parser=choice_parser(Shell),
            metavar="SHELL",
            autocompletion=lambda: list(Shell),
            help="The shell: bash, zsh or fish.",
            show_default=False,
        ),
    ],
) -> None:
    """Print the completion script of *shell*."""
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 -- typer has no public name

    script = get_completion_script(
        prog_name="volcano-global", complete_var="_VOLCANO_GLOBAL_COMPLETE", shell=shell.value
    )
    sys.stdout.write(f"{script}{_ZSH_FIRST_CALL if shell is Shell.ZSH else ''}\n")
