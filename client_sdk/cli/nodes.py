"""`ebb node`: the machines."""

import click

from client_sdk.cli import output
from client_sdk.cli.session import Session, no_header_option, output_option
from client_sdk.models import Node
from client_sdk.units import format_memory


@click.group()
def node() -> None:
    """Look at the nodes.

    \b
    Example:
      ebb node list
    """


@node.command("list")
@output_option("json", "yaml", "wide")
@no_header_option
@click.option("-q", "--quiet", is_flag=True, help="Print only names.")
@click.pass_obj
def list_(session: Session, fmt: str | None, no_header: bool, quiet: bool) -> None:
    """List the nodes, with what is free on each of what it has.

    \b
    Examples:
      ebb node list
      ebb node list -o json
    """
    nodes = session.client.nodes()
    if quiet:
        for found in nodes:
            click.echo(found.name)
        return
    if fmt in ("json", "yaml"):
        output.emit(list(nodes), fmt)
        return
    columns = ["NAME", "STATE", "CPUS", "MEMORY", "DEVICES", "EARMARKED", "JOBS"]
    if fmt == "wide":
        columns += ["ADDRESS", "AGENT", "SINCE", "MODELS"]
    output.table(columns, [_row(found, fmt == "wide") for found in nodes], header=not no_header)


def _row(found: Node, wide: bool) -> list[str]:
    free, whole, kept = found.free, found.capacity, found.earmarked
    row = [
        found.name,
        found.state.name,
        f"{free.cpus:g}/{whole.cpus:g}",
        f"{format_memory(free.memory_mib)}/{format_memory(whole.memory_mib)}",
        f"{free.devices}/{whole.devices}",
        output.amount(kept) if kept.cpus or kept.memory_mib or kept.devices else "-",
        output.numbers(sorted({job for device in found.devices for job in device.job_ids})),
    ]
    if wide:
        models = sorted({device.model for device in found.devices if device.model})
        row += [found.address or "-", found.agent_version or "-", output.when(found.state_time), ", ".join(models) or "-"]
    return row
