"""Asking the same of several jobs or nodes: each error on a line of its own, and an exit status of 1 if there was one."""

import inspect
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from client_sdk.cli import output
from client_sdk.cli.session import Session, an_id, output_option, quiet_option
from client_sdk.client import Client
from client_sdk.errors import EbbError
from client_sdk.models import Job

N = TypeVar("N", int, str)
T = TypeVar("T")


def ask_each(
    ctx: click.Context,
    names: Sequence[N],
    ask: Callable[[N], T],
    say: Callable[[T], str],
    fmt: str | None,
    quiet: bool,
    kind: str = "job",
) -> None:
    done: list[T] = []
    failed = False
    for name in names:
        try:
            answer = ask(name)
        except EbbError as error:
            tell_error(f"{kind} {name}", error)
            failed = True
            continue
        done.append(answer)
        if quiet:
            click.echo(name)
        elif fmt is None:
            output.say(say(answer))
    if fmt is not None and not quiet:
        output.emit(done, fmt)
    if failed:
        ctx.exit(1)


def tell_error(about: str, error: EbbError) -> None:
    """About which of several it is, unless it says so itself."""
    said = str(error)
    output.say(f"ebb: {said if said.startswith(f'{about} ') else f'{about}: {said}'}", err=True)


def job_verb(say: Callable[[Job], str]) -> Callable[[Callable[[Client, int], Job]], click.Command]:
    """Makes a command of a call about one job. It takes several, and `say` tells what became of each.

    The function's name and text are the command's.
    """

    def make(call: Callable[[Client, int], Job]) -> click.Command:
        told = inspect.getdoc(call) or ""

        @click.command(call.__name__, help=told, short_help=told.split("\n", 1)[0])
        @output_option("json", "yaml")
        @quiet_option
        @click.argument("job_ids", metavar="ID...", type=an_id, nargs=-1, required=True)
        @click.pass_context
        def command(ctx: click.Context, job_ids: tuple[int, ...], fmt: str | None, quiet: bool) -> None:
            client = ctx.find_object(Session).client  # type: ignore[union-attr]
            ask_each(ctx, job_ids, lambda job_id: call(client, job_id), say, fmt, quiet)

        return command

    return make
