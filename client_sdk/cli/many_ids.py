"""Asking the same of several jobs or nodes: each error on a line of its own, and an exit status of 1 if there was one."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import click

from client_sdk.cli.confirmation import confirm, force_option
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, an_id, output_option, quiet_option
from client_sdk.client import Client
from client_sdk.errors import EbbError
from client_sdk.models import Job, JobAtRisk

N = TypeVar("N", int, str)
T = TypeVar("T")
Risks = Callable[[Client, int], Iterable[JobAtRisk]]


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


def confirm_losses(names: Sequence[N], risks: Callable[[N], Iterable[JobAtRisk]], force: bool) -> Mapping[int, str]:
    """Asks the user, before anything is changed, if jobs would lose their work by it; `risks` says which. Returns what is to be
    said of each of them afterwards. Of a change that is refused nothing is said here: it is refused when it is asked for."""
    found: dict[int, JobAtRisk] = {}
    for name in names:
        with suppress(EbbError):
            found |= {risk.job_id: risk for risk in risks(name)}
    works = {job_id: output.duration(risk.run_time) for job_id, risk in found.items()}
    confirm(
        [
            f"job {job_id} has never saved and has not registered with Ebb: stopped now, it loses the work of its run ({work})"
            for job_id, work in works.items()
        ],
        f"Stop {'it' if len(works) == 1 else 'them'} all the same?",
        force,
    )
    return {job_id: f"it has never saved, and loses the work of its run ({work})" for job_id, work in works.items()}


def append_losses(say: Callable[[Job], str], lost: Mapping[int, str]) -> Callable[[Job], str]:
    """Append to the sentence about a job what it loses."""
    return lambda job: f"{say(job)}; {lost[job.id]}" if job.id in lost else say(job)


def job_verb(say: Callable[[Job], str], risks: Risks | None = None) -> Callable[[Callable[[Client, int], Job]], click.Command]:
    """Makes a command from a call for one job. The command takes several jobs, and `say` describes the result for each. `risks`
    returns the jobs that lose their work if the call stops them.

    The function's name and text are the command's.
    """

    def make(call: Callable[[Client, int], Job]) -> click.Command:
        told = inspect.getdoc(call) or ""

        @output_option("json", "yaml")
        @quiet_option
        @click.argument("job_ids", metavar="ID...", type=an_id, nargs=-1, required=True)
        @click.pass_context
        def command(ctx: click.Context, job_ids: tuple[int, ...], fmt: str | None, quiet: bool, force: bool = False) -> None:
            client = ctx.find_object(Session).client  # type: ignore[union-attr]
            lost = {} if risks is None else confirm_losses(job_ids, lambda job_id: risks(client, job_id), force)
            ask_each(ctx, job_ids, lambda job_id: call(client, job_id), append_losses(say, lost), fmt, quiet)

        asks = command if risks is None else force_option(command)
        return click.command(call.__name__, help=told, short_help=told.split("\n", 1)[0])(asks)

    return make
