"""`tinyweb completion`: scripts by which shells complete commands, options, their choices and files."""

from __future__ import annotations

import shutil
from enum import StrEnum
from typing import Annotated

import typer

from tinyweb.cli.common import Debug, app

VARIABLE = "_TINYWEB_COMPLETE"  # a shell that asks for completions sets it


class Shell(StrEnum):
    """Shells that Typer writes scripts for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


def prepare() -> None:
    """Lets the command answer a shell that asks for completions."""
    from typer.completion import completion_init  # type: ignore[attr-defined] # it exports no names by __all__

    completion_init()


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that the script is for.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Print a script that lets a shell complete tinyweb's commands, options and files."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shutil.which("tinyweb") is None:
        typer.echo("tinyweb: there is no tinyweb on PATH: the script will do nothing until there is.", err=True)
    typer.echo(get_completion_script(prog_name="tinyweb", complete_var=VARIABLE, shell=shell.value))
