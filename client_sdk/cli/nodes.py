"""`ebb node`: the machines, for whoever looks at them and whoever looks after them."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from client_sdk.cli import output
from client_sdk.cli.many_ids import ask_each
from client_sdk.cli.session import Session, no_header_option, output_option
from client_sdk.models import DeviceObservation, MemoryCycle, Node, NodeState
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


COLUMNS = ("NAME", "STATE", "CPUS", "MEMORY", "DEVICES", "EARMARKED", "JOBS")
WIDE_COLUMNS = ("ADDRESS", "AGENT", "SINCE", "MODELS", "STRIKES", "DRAIN")


def state(found: Node) -> str:
    """As Slurm's users know it."""
    if found.drain is None:
        return found.state.name
    if found.state is NodeState.SILENT:
        return "SILENT+DRAIN"
    faulty = sum(1 for device in found.devices if device.fault and not device.job_ids)
    idle = found.free.devices + faulty >= found.capacity.devices
    return "DRAINED" if idle and replace(found.free, devices=found.capacity.devices) == found.capacity else "DRAINING"


def row(found: Node, *, wide: bool = False) -> list[str]:
    """Free of whole, for each resource."""
    return [*_short(found), *(_more(found) if wide else ())]


def _short(found: Node) -> list[str]:
    free, whole = found.free, found.capacity
    faulty = sum(1 for device in found.devices if device.fault)
    return [
        found.name,
        state(found),
        f"{free.cpus:g}/{whole.cpus:g}",
        f"{format_memory(free.memory_mib)}/{format_memory(whole.memory_mib)}",
        f"{free.devices}/{whole.devices}" + (f" ({faulty} faulty)" if faulty else ""),
        _earmarked(found),
        output.numbers(sorted({job for device in found.devices for job in device.job_ids})),
    ]


def _earmarked(found: Node) -> str:
    kept = found.earmarked
    return output.amount(kept) if kept.cpus or kept.memory_mib or kept.devices else "-"


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
@output_option("json", "yaml", "wide")
@click.argument("name", metavar="NODE")
@click.pass_obj
def show(session: Session, name: str, fmt: str | None) -> None:
    """Show everything about a node: who holds its devices, what is seen of them, and the memory cycles of runs.

    \b
    Examples:
      ebb node show n1
      ebb node show n1 -o wide
      ebb node show n1 -o json

    USED and UTIL are as of a moment ago; UTIL is how much of a second some kernel was there. Devices with the same number under
    LINKS reach each other over NVLink. A cycle of memory is a mini-batch: PERIOD is its time. What nothing is known of is left
    out; -o wide adds the UUIDs of devices, and their NUMA nodes.
    """
    found = session.client.node(name)
    if fmt in ("json", "yaml"):
        output.emit(found, fmt)
        return
    lines = {
        "name": found.name,
        "state": ", ".join(dict.fromkeys((state(found), found.state.name))) + f" since {output.when(found.state_time)}",
        "drain": _drain(found),
        "strikes": str(found.strikes),
        "capacity": output.amount(found.capacity),
        "free": output.amount(found.free),
        "earmarked": _earmarked(found),
        "address": found.address or "-",
        "agent": found.agent_version or "-",
        "observed": "-" if found.observations is None else output.when(found.observations.time),
    }
    output.table(["", ""], list(lines.items()), header=False)
    seen = found.observations
    if found.devices:
        click.echo()
        _devices(found, wide=fmt == "wide")
    # What the agent sees is newer than what the scheduler has made of it.
    told = {device.index: device.fault for device in found.devices}
    if seen is not None:
        told |= {each.index: each.fault for each in seen.devices}
    if faults := [[str(device.index), device.uuid, told[device.index]] for device in found.devices if told[device.index]]:
        click.echo()
        output.table(FAULT_COLUMNS, faults)
    if seen is not None and seen.cycles:
        click.echo()
        output.table(CYCLE_COLUMNS, map(_cycle, seen.cycles))
        if any(cycle.period is None for cycle in seen.cycles):
            click.echo(UNKNOWN_CYCLE)


FAULT_COLUMNS = ("FAULTY", "UUID", "FAULT")
CYCLE_COLUMNS = ("RUN", "DEVICE", "PERIOD", "MIN", "MAX", "CONFIDENCE", "SOURCE")
UNKNOWN_CYCLE = (
    "unknown: the driver shows no cycle. There is none, the device is shared, or an\n"
    "allocator that keeps what is freed, as PyTorch's does, hides the mini-batches.\n"
    "It is not a fault."
)


def _devices(found: Node, *, wide: bool) -> None:
    """A column that says something of no device is left out: with all of them there is hardly a terminal wide enough."""
    observed = {each.index: each for each in found.observations.devices} if found.observations is not None else {}
    columns: dict[str, list[str]] = {
        "DEVICE": [str(device.index) for device in found.devices],
        "MODEL": [device.model for device in found.devices],
        "MEMORY": [format_memory(device.memory_mib) if device.memory_mib else "" for device in found.devices],
        "USED": [_used(observed.get(device.index)) for device in found.devices],
        "UTIL": [_busy(observed.get(device.index)) for device in found.devices],
    }
    for depth, level in enumerate(found.levels):
        columns[level.upper()] = [str(device.path[depth]) if depth < len(device.path) else "" for device in found.devices]
    columns["LINKS"] = [_number(device.link_domain) for device in found.devices]
    if wide:
        columns["NUMA"] = [_number(device.numa_node) for device in found.devices]
        columns["UUID"] = [device.uuid for device in found.devices]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    shown["JOBS"] = [output.numbers(device.job_ids) for device in found.devices]
    rows = zip(*shown.values(), strict=True)
    output.table(list(shown), [[cell or "-" for cell in row] for row in rows])


def _used(seen: DeviceObservation | None) -> str:
    return "" if seen is None or seen.memory_used_mib is None else _about(seen.memory_used_mib)


def _about(mib: int) -> str:
    """Of what changes all the time, three digits say enough: "912MiB", "19.3GiB"."""
    return f"{mib}MiB" if mib < 1024 else f"{mib / 1024:.3g}GiB"


def _busy(seen: DeviceObservation | None) -> str:
    return "" if seen is None or seen.utilisation_percent is None else f"{seen.utilisation_percent}%"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _cycle(cycle: MemoryCycle) -> list[str]:
    run = f"{cycle.job_id}.{cycle.run}" + (f"/{cycle.task}" if cycle.task else "")
    period = "unknown" if cycle.period is None else f"{cycle.period.total_seconds():.3g} s"
    amounts = [_about(cycle.minimum_mib), _about(cycle.maximum_mib)]
    sure = "-" if cycle.period is None else f"{cycle.confidence:.2f}"
    return [run, str(cycle.device), period, *amounts, sure, cycle.source.name]


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
    ask_each(ctx, names, client.fence, _fenced, fmt, quiet, "node")


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

    def gone(name: str) -> str:
        client.delete_node(name)
        return name

    ask_each(ctx, names, gone, lambda name: f"deleted node {name}", None, False, "node")


def _fenced(found: Node) -> str:
    return f"{_stands(found)}; what was there is taken for dead, and its jobs queue again (ebb list)"


def _stands(found: Node) -> str:
    return f"node {found.name} is {state(found)}" + (f": {_drain(found)}" if found.drain else "")
