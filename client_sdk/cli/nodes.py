"""`ebb node`: the machines, for whoever looks at them and whoever looks after them."""

import sys
from collections.abc import Sequence

import click

from client_sdk.cli import output
from client_sdk.cli.session import Session, no_header_option, output_option
from client_sdk.cli.several import ask_each
from client_sdk.models import Node, NodeState
from client_sdk.units import format_memory

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


COLUMNS = ("NAME", "STATE", "CPUS", "MEMORY", "DEVICES", "EARMARKED", "JOBS")
WIDE_COLUMNS = ("ADDRESS", "AGENT", "SINCE", "MODELS", "STRIKES", "DRAIN")


def state(found: Node) -> str:
    """As Slurm's users know it."""
    if found.drain is None:
        return found.state.name
    if found.state is NodeState.SILENT:
        return "SILENT+DRAIN"
    return "DRAINED" if found.free == found.capacity else "DRAINING"


def row(found: Node, *, wide: bool = False) -> list[str]:
    """Free of whole, for each resource."""
    return [*_short(found), *(_more(found) if wide else ())]


def _short(found: Node) -> list[str]:
    free, whole, kept = found.free, found.capacity, found.earmarked
    return [
        found.name,
        state(found),
        f"{free.cpus:g}/{whole.cpus:g}",
        f"{format_memory(free.memory_mib)}/{format_memory(whole.memory_mib)}",
        f"{free.devices}/{whole.devices}",
        output.amount(kept) if kept.cpus or kept.memory_mib or kept.devices else "-",
        output.numbers(sorted({job for device in found.devices for job in device.job_ids})),
    ]


def _more(found: Node) -> list[str]:
    models = sorted({device.model for device in found.devices if device.model})
    since = output.when(found.state_time)
    where = [found.address or "-", found.agent_version or "-", since, ", ".join(models) or "-"]
    return [*where, str(found.strikes), _drain(found)]


def _drain(found: Node) -> str:
    if found.drain is None:
        return "-"
    return f"{found.drain.reason or 'no reason given'}, by {found.drain.user or 'Ebb'} at {output.when(found.drain.time)}"


@node.command()
@output_option("json", "yaml")
@click.argument("name", metavar="NODE")
@click.pass_obj
def show(session: Session, name: str, fmt: str | None) -> None:
    """Show everything about a node, and who holds its devices.

    \b
    Examples:
      ebb node show n1
      ebb node show n1 -o json
    """
    found = session.client.node(name)
    if fmt is not None:
        output.emit(found, fmt)
        return
    lines = {
        "name": found.name,
        "state": f"{state(found)}, {found.state.name} since {output.when(found.state_time)}",
        "drain": _drain(found),
        "strikes": str(found.strikes),
        "capacity": output.amount(found.capacity),
        "free": output.amount(found.free),
        "earmarked": output.amount(found.earmarked),
        "address": found.address or "-",
        "agent": found.agent_version or "-",
    }
    output.table(["", ""], list(lines.items()), header=False)
    if found.devices:
        columns = ["DEVICE", "MODEL", "MEMORY", *(level.upper() for level in found.levels), "UUID", "JOBS"]
        rows = []
        for device in found.devices:
            path = [*map(str, device.path), *("-" for _ in found.levels)][: len(found.levels)]
            memory = format_memory(device.memory_mib)
            rows.append([str(device.index), device.model or "-", memory, *path, device.uuid, output.numbers(device.job_ids)])
        output.table(columns, rows)


@node.command()
@click.option("-r", "--reason", default="", help="Why; others see it.")
@click.option("--evict", is_flag=True, help="Also have the runs there save their work and leave; they queue again.")
@output_option("json", "yaml")
@quiet_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def drain(ctx: click.Context, names: Sequence[str], reason: str, evict: bool, fmt: str | None, quiet: bool) -> None:
    """Have nothing new placed on nodes.

    What runs there finishes, unless --evict is given. `ebb node list` says DRAINED when nothing is left. Safe to repeat.

    \b
    Examples:
      ebb node drain n1 --reason "new kernel"
      ebb node drain n1 n2 --evict --reason "power off at 18:00"
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    ask_each(ctx, names, lambda name: client.drain(name, reason=reason, evict=evict), _stands, fmt, quiet, "node")


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
    ask_each(ctx, names, client.undrain, _stands, fmt, quiet, "node")


@node.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("json", "yaml")
@quiet_option
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.pass_context
def fence(ctx: click.Context, names: Sequence[str], yes: bool, fmt: str | None, quiet: bool) -> None:
    """Declare silent nodes dead, so that their jobs queue again.

    Only when it is certain that nothing runs there any more, as when the power is off: a run that lives on would run beside
    its successor, and both would write the same checkpoints.

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
    ask_each(ctx, names, client.fence, _stands, fmt, quiet, "node")


def _stands(found: Node) -> str:
    return f"node {found.name} is {state(found)}" + (f": {_drain(found)}" if found.drain else "")
