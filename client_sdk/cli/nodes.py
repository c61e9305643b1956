"""`ebb node`: shows nodes to users, and lets operators manage them."""

import sys
from collections.abc import Sequence

import click

from client_sdk.cli.confirmation import force_option
from client_sdk.cli.many_ids import ask_each, confirm_losses
from client_sdk.cli.output import common as output
from client_sdk.cli.output.nodes import COLUMNS, WIDE_COLUMNS, drain_text, row, show_node, state
from client_sdk.cli.session import Session, no_header_option, output_option
from client_sdk.models import Node

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only names.")


@click.group()
def node() -> None:
    """Look at the nodes, take them out of service and put them back.

    \b
    Examples:
      ebb node list
      ebb node show n1
      ebb node drain n1 --reason "fan broken"
      ebb node undrain n1
      ebb node fence n1
      ebb node delete n1
    """


@node.command("list")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def list_(session: Session, fmt: str | None, no_header: bool, quiet: bool) -> None:
    """List the nodes, with what is free on each of what it has.

    \b
    Examples:
      ebb node list
      ebb node list -o json

    DRAINED: nothing new is placed on it, and nothing is left there; DRAINING: its last jobs are. -o wide says why.
    """
    nodes = session.client.nodes()
    if quiet:
        for found in nodes:
            click.echo(found.name)
        return
    if fmt in ("json", "yaml"):
        output.emit(list(nodes), fmt)
        return
    rows = [row(found, wide=fmt == "wide") for found in nodes]
    output.table([*COLUMNS, *(WIDE_COLUMNS if fmt == "wide" else ())], rows, header=not no_header)


@node.command()
@output_option("json", "yaml", "wide")
@click.argument("name", metavar="NODE")
@click.pass_obj
def show(session: Session, name: str, fmt: str | None) -> None:
    """Show everything about a node: who holds its devices, what is seen of them, and the memory cycles and steps of runs.

    \b
    Examples:
      ebb node show n1
      ebb node show n1 -o wide
      ebb node show n1 -o json

    USED and UTIL are as of a moment ago; UTIL is how much of a second some kernel was there. Devices with the same number under
    LINKS reach each other over NVLink. A cycle of memory is a mini-batch: PERIOD is its time. What nothing is known of is left
    out; -o wide adds the UUIDs of devices, and their NUMA nodes.

    STEP is what the program of a run counts. STEPS/S and MINI-BATCH cover the last minute, or the last 20 steps if these took
    longer; ± is the standard error of the rate, and the standard deviation of the mini-batch time.

    SOURCE says what shows the mini-batch time of a run: the STEPS that its program counts, or the MEMORY, the POWER or the
    UTILISATION of its device. CONFIDENCE is from 0 to 1.
    """
    found = session.client.node(name)
    if fmt in ("json", "yaml"):
        output.emit(found, fmt)
        return
    show_node(found, wide=fmt == "wide")


@node.command()
@click.option("-r", "--reason", default="", help="Why; others see it.")
@click.option("--evict", is_flag=True, help="Also have the runs there save their work and leave; they queue again.")
@force_option
@output_option("json", "yaml")
@quiet_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def drain(
    ctx: click.Context, names: Sequence[str], reason: str, evict: bool, force: bool, fmt: str | None, quiet: bool
) -> None:
    """Have nothing new placed on nodes.

    What runs there finishes, unless --evict is given. `ebb node list` says DRAINED when nothing is left. Safe to repeat.
    With --evict the command asks before a job loses its work, since nothing saves it, as `ebb suspend` does.

    \b
    Examples:
      ebb node drain n1 --reason "new kernel"
      ebb node drain n1 n2 --evict --reason "power off at 18:00"
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    lost = confirm_losses(names, lambda name: client.lost_by_drain(name, evict=True), force) if evict else {}
    ask_each(ctx, names, lambda name: client.drain(name, reason=reason, evict=evict), _state_text, fmt, quiet, "node")
    for job_id, loss in lost.items():
        output.say(f"job {job_id}: {loss}", err=True)


@node.command()
@output_option("json", "yaml")
@quiet_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def undrain(ctx: click.Context, names: Sequence[str], fmt: str | None, quiet: bool) -> None:
    """Open drained nodes again. Their strikes are forgotten.

    \b
    Example:
      ebb node undrain n1 n2
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    ask_each(ctx, names, client.undrain, _state_text, fmt, quiet, "node")


@node.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("json", "yaml")
@quiet_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def fence(ctx: click.Context, names: Sequence[str], yes: bool, fmt: str | None, quiet: bool) -> None:
    """Declare silent nodes dead, so that their jobs queue again.

    Use it only if it is certain that nothing runs there any more, as when the power is off: a surviving run would run at the
    same time as its successor, and both would write the same checkpoints.

    \b
    Examples:
      ebb node fence n1
      ebb node fence --yes n1
    """
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("say --yes where nobody can be asked whether it is certain that nothing runs there any more")
        click.confirm(f"Is it certain that nothing runs on {', '.join(names)} any more?", abort=True, err=True)
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    ask_each(ctx, names, client.fence, _fence_text, fmt, quiet, "node")


@node.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def delete(ctx: click.Context, names: Sequence[str]) -> None:
    """Take nodes that will not come back out of the cluster. Only silent ones, on which nothing runs: fence them first.

    Jobs that ran there still say so. A node that comes again all the same joins as a new one: open, and without strikes. Safe
    to repeat.

    \b
    Examples:
      ebb node delete n1
      ebb node delete n1 n2
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]

    def delete_one(name: str) -> str:
        client.delete_node(name)
        return name

    ask_each(ctx, names, delete_one, lambda name: f"deleted node {name}", None, False, "node")


def _fence_text(found: Node) -> str:
    return f"{_state_text(found)}; what was there is taken for dead, and its jobs queue again (ebb list)"


def _state_text(found: Node) -> str:
    return f"node {found.name} is {state(found)}" + (f": {drain_text(found)}" if found.drain else "")
