"""`ebb cells`: the trees of the pools, with owners and states."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import TypeVar

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.session import Session, output_option
from client_sdk.models import BoundCell, DeviceCell, DeviceUse, NodeCells, Pool

T = TypeVar("T")

MARKS = {
    DeviceUse.IDLE: ".",
    DeviceUse.GUARANTEED: "G",
    DeviceUse.OPPORTUNISTIC: "o",
    DeviceUse.KEPT: "k",
    DeviceUse.FAULTY: "x",
    DeviceUse.UNSPECIFIED: "?",
}
LEGEND = "G guaranteed, o opportunistic, k kept for a job, . idle, x faulty (X: and in use); [ ] a cell inside the node"
STYLES = {"G": "green", "o": "yellow", "k": "cyan", "x": "red", "X": "red"}


@click.command()
@click.option("--pool", default="", help="Only this pool.")
@click.option("--vc", default="", metavar="NAME", help="Only where this virtual cluster has cells or runs.")
@output_option("json", "yaml")
@click.pass_obj
def cells(session: Session, pool: str, vc: str, fmt: str | None) -> None:
    """Draw the cells: the tree of each pool, whose each cell is, and how each device is held.

    The number before a cell is its index, as --pin of `ebb vc create` wants it. Behind a node are those of its cells that are
    somebody's: `vision: node` is all of it, `vision: socket 3` a part, and `vision: socket 3 (big)` one that is pinned as big.

    \b
    Examples:
      ebb cells
      ebb cells --pool a100 --vc vision
      ebb cells -o json
    """
    found = session.client.cells(pool=pool, virtual_cluster=vc)
    if fmt is not None:
        output.emit(list(found), fmt)
        return
    if not found:
        click.echo("there are no pools yet: they come with the first node")
    for one in found:
        for line in draw_pool(one):
            click.echo("".join(click.style(text, fg=STYLES.get(style)) for text, style in line))
    if any(node.devices for one in found for node in one.nodes):
        click.echo(LEGEND)


Line = list[tuple[str, str]]
"""Texts, each with the mark that it is drawn for."""


def draw_pool(pool: Pool) -> Iterator[Line]:
    """The lines of a pool: what it is, and its tree from the top down to the nodes."""
    names = " > ".join(level.name for level in reversed(pool.levels))
    yield [(f"{pool.name}: {pool.model + ', ' if pool.model else ''}{names}", "")]
    for level in reversed(pool.levels):
        if level.owned or level.missing:
            missing = f", {level.missing} missing" if level.missing else ""
            yield [(f"  {level.name}: {level.cells}, owned {level.owned}, free {level.free}{missing}", "")]
    for lent in pool.exchanged:
        until = f" until {output.utc(lent.end)}"
        yield [(f"  {lent.taker} has {lent.cells} {lent.level} of {lent.giver}'s{until} (exchange {lent.exchange_id})", "")]
    yield from _cell_lines(pool, len(pool.levels) - 1, pool.nodes, "")
    for misfit in pool.misfits:
        yield [(f"{misfit.node}: left out, {misfit.why}", "x")]


def _cell_lines(pool: Pool, level: int, nodes: Sequence[NodeCells], stem: str) -> Iterator[Line]:
    """The cells of a level that have these nodes in them."""
    if level == pool.node_level:
        wide = max((len(f"{node.index} {node.node}") for node in nodes), default=0)
        for last, node in _mark_last(nodes):
            label = f"{stem}{'└─ ' if last else '├─ '}{node.index} {node.node}"
            parts: Line = [(label.ljust(len(stem) + 3 + wide), "")]
            if node.devices:
                parts += [("  ", ""), *_bracket_devices(pool, pool.node_level, list(node.devices))]
            owners = ", ".join(map(_owner, _cells_inside(pool, node)))
            said = " ".join(filter(None, (owners, f"({node.closed})" if node.closed else "")))
            yield [*parts, (f"  {said}", "")] if said else parts
        return
    each = prod(above.fan for above in pool.levels[pool.node_level + 1 : level + 1])
    grouped = [(index, list(inside)) for index, inside in groupby(nodes, lambda node: node.index // each)]
    for last, (index, inside) in _mark_last(grouped):
        mine = (cell for cell in pool.cells if cell.level == pool.levels[level].name and cell.index == index)
        owners = ", ".join(map(_owner, mine))
        yield [(f"{stem}{'└─ ' if last else '├─ '}{pool.levels[level].name} {index}{'  ' + owners if owners else ''}", "")]
        yield from _cell_lines(pool, level - 1, inside, stem + ("   " if last else "│  "))


def _mark_last(items: Sequence[T]) -> Iterable[tuple[bool, T]]:
    return ((i == len(items) - 1, item) for i, item in enumerate(items))


def _bracket_devices(pool: Pool, level: int, devices: list[DeviceCell]) -> Line:
    """A mark for each device, with brackets around each cell of more than one inside the node: [[..][..]]."""
    if level == 0:
        marks = ["X" if device.fault and device.job_ids else MARKS[device.use] for device in devices]
        return [(mark, mark) for mark in marks]
    fan = pool.levels[level].fan
    size = max(len(devices) // fan, 1)
    inside = [
        part for at in range(0, len(devices), size) for part in _bracket_devices(pool, level - 1, devices[at : at + size])
    ]
    return inside if fan == 1 else [("[", ""), *inside, ("]", "")]


def _cells_inside(pool: Pool, node: NodeCells) -> list[BoundCell]:
    """The cells in the node that are somebody's, the largest first."""
    within = {}
    cells = 1
    for level in range(pool.node_level, -1, -1):
        within[pool.levels[level].name] = range(node.index * cells, (node.index + 1) * cells)
        cells *= pool.levels[level].fan
    return [cell for cell in pool.cells if cell.index in within.get(cell.level, ())]


def _owner(cell: BoundCell) -> str:
    return f"{cell.virtual_cluster}: {cell.level} {cell.index}" + (f" ({cell.pin})" if cell.pin else "")
