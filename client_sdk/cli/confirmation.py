"""A question before a command does what loses something. Without a terminal, --force has to answer it beforehand."""

import sys
from collections.abc import Sequence

import click

from client_sdk.cli.output import common as output

force_option = click.option("--force", is_flag=True, help="Do not ask before something is lost.")


def confirm(losses: Sequence[str], question: str, force: bool) -> None:
    """Returns if nothing is lost, or the user agrees; `losses` says what would be, a line each. With `force` nobody is asked.

    Raises Exit(1) otherwise. Call it before anything is changed.
    """
    if not losses or force:
        return
    for loss in losses:
        output.say(f"ebb: {loss}", err=True)
    if not sys.stdin.isatty():
        output.say("ebb: nothing was changed, and there is no terminal to ask at: give --force to do it all the same", err=True)
        raise click.exceptions.Exit(1)
    if not click.confirm(question, err=True):
        output.say("ebb: nothing was changed", err=True)
        raise click.exceptions.Exit(1)
