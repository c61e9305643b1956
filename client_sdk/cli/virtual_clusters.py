"""`ebb vc`: what each tenant is guaranteed."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from client_sdk.cli.confirmation import confirm, force_option
from client_sdk.cli.many_ids import ask_each
from client_sdk.cli.output import common as output
from client_sdk.cli.output.virtual_clusters import COLUMNS, WIDE_COLUMNS, row, show_virtual_cluster
from client_sdk.cli.session import Number, Session, no_header_option, output_option
from client_sdk.errors import InvalidArgument
from client_sdk.models import CellQuota, PinnedCell, VirtualCluster, VirtualClusterPolicy
from client_sdk.units import parse_duration

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only names.")


@click.group()
def vc() -> None:
    """Virtual clusters: what each tenant is guaranteed. Operators create, update and delete them.

    \b
    Examples:
      ebb vc list
      ebb vc show vision
      ebb vc create vision --quota a100/node=2 --quota a100/device=4
      ebb vc update vision --quota a100/node=3 --weight 2
      ebb vc delete vision
      ebb cells --vc vision
    """


@vc.command("list")
@output_option("json", "yaml", "wide")
@no_header_option
@quiet_option
@click.pass_obj
def list_(session: Session, fmt: str | None, no_header: bool, quiet: bool) -> None:
    """List the virtual clusters, with how the cells stand that each owns.

    BOUND: guaranteed runs are inside; FREE: to be had at once; FAULTY: not to be had, because too many devices are broken.
    OPPORTUNISTIC counts devices that it holds beyond that. With -o wide PINS says whether each pinned cell is free, in use or
    faulty; `ebb vc show` says which of its devices.

    \b
    Examples:
      ebb vc list
      ebb vc list -o json
    """
    found = session.client.virtual_clusters()
    if quiet:
        for one in found:
            click.echo(one.name)
        return
    if fmt in ("json", "yaml"):
        output.emit(list(found), fmt)
        return
    wide = fmt == "wide"
    rows = [row(one, wide=wide) for one in found]
    output.table([*COLUMNS, *(WIDE_COLUMNS if wide else ())], rows, header=not no_header)


@vc.command()
@output_option("json", "yaml")
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str, fmt: str | None) -> None:
    """Show everything about a virtual cluster: how the cells of its quota stand, and how each pinned one does.

    A pin is in use where guaranteed runs are inside, and faulty where nobody is and part of it cannot be had; FAULTS names the
    devices, or the nodes.

    \b
    Examples:
      ebb vc show vision
      ebb vc show vision -o json
    """
    found = session.client.virtual_cluster(name)
    if fmt is not None:
        output.emit(found, fmt)
        return
    show_virtual_cluster(found)


# ---- changes -----------------------------------------------------------------------------------------------------------


def _options(command: Any) -> Any:
    """Add the options that create or change a virtual cluster."""
    for option in (
        click.option("--quota", "quotas", metavar="POOL/LEVEL=N", multiple=True, help="So many cells. May be repeated."),
        click.option("--pin", "pins", metavar="NAME=POOL/LEVEL/INDEX", multiple=True, help="A certain cell. May be repeated."),
        click.option("--weight", type=click.IntRange(min=1), help="Of its share of idle cells, beside the others'."),
        click.option("--policy", help="How it is scheduled inside, such as fifo or fitgpp.  [default: the site's]"),
        click.option(
            "--policy-setting", "own", metavar="NAME=VALUE", multiple=True, help="That only this policy knows. May be repeated."
        ),
        click.option("--fitgpp-s", "s", type=Number(min=0), help="Weight of the grace period against the size."),
        click.option(
            "--offer-idle-after", "after", metavar="TIME", help="Offer others cells that were idle for so long; 0: do not."
        ),
        click.option("--offer-idle-for", "window", metavar="TIME", help="For how long they are offered.  [default: as long]"),
        click.option("--offer-idle-keep", "keep", type=click.IntRange(min=0), help="Idle cells of each kind to keep."),
        click.option("--fitgpp-cap", "cap", type=click.IntRange(min=0), help="How often a job may be preempted for trials."),
        force_option,
        output_option("json", "yaml"),
        quiet_option,
        click.argument("name"),
    ):
        command = option(command)
    return command


@vc.command()
@_options
@click.pass_obj
def create(session: Session, /, name: str, fmt: str | None, quiet: bool, weight: int | None, force: bool, **said: Any) -> None:
    """Promise cells to a tenant. Safe to repeat.

    It is refused where all virtual clusters together could then not have what they own; the error says at which level of which
    pool, and how many cells are missing. `ebb cells` shows pools, levels and the numbers of cells. If runs of others would lose
    their guarantee by it, it asks first; without a terminal it needs --force.

    \b
    Examples:
      ebb vc create vision --quota a100/node=2
      ebb vc create speech --quota a100/node=1 --quota a100/device=4 --weight 2 --policy fitgpp
      ebb vc create infra --pin login=a100/node/7
    """
    quotas, pins, policy = _quotas(said["quotas"]), _pins(said["pins"]), _policy_of(said)
    asked = partial(session.client.create_virtual_cluster, name, quotas=quotas, pins=pins, weight=weight or 1, policy=policy)
    _confirm(asked, name, force)
    _answer(asked(), fmt, quiet)


@vc.command()
@click.option("--no-quotas", is_flag=True, help="It owns nothing any more.")
@click.option("--no-pins", is_flag=True, help="Nothing is pinned any more.")
@_options
@click.pass_obj
def update(
    session: Session,
    /,
    name: str,
    fmt: str | None,
    quiet: bool,
    weight: int | None,
    no_quotas: bool,
    no_pins: bool,
    force: bool,
    **said: Any,
) -> None:
    """Change what a tenant is guaranteed. What is not named stays; quotas are given all together, and so are pins.

    What no longer fits runs on as opportunistic, and nothing else moves. If runs would lose their guarantee by it, it
    asks first; without a terminal it needs --force.

    \b
    Examples:
      ebb vc update vision --quota a100/node=3
      ebb vc update vision --weight 2 --policy fitgpp --fitgpp-cap 2
      ebb vc update vision --policy las --policy-setting threshold=7200
      ebb vc update vision --offer-idle-after 2h --offer-idle-for 8h
      ebb vc update vision --no-quotas
    """
    for none, given, what in ((no_quotas, said["quotas"], "quota"), (no_pins, said["pins"], "pin")):
        if none and given:
            raise click.UsageError(f"--no-{what}s and --{what} say different things; leave one out")
    quotas = _quotas(said["quotas"]) if said["quotas"] or no_quotas else None
    pins = _pins(said["pins"]) if said["pins"] or no_pins else None
    policy = _policy_of(said)
    if all(given is None for given in (quotas, pins, weight, policy)):
        raise click.UsageError("say what is to change, such as --quota a100/node=3")
    asked = partial(session.client.update_virtual_cluster, name, quotas=quotas, pins=pins, weight=weight, policy=policy)
    _confirm(asked, name, force)
    _answer(asked(), fmt, quiet)


@vc.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_context
def delete(ctx: click.Context, names: Sequence[str]) -> None:
    """Take virtual clusters away. Only those without live jobs.

    \b
    Example:
      ebb vc delete vision
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]

    def delete_one(name: str) -> str:
        client.delete_virtual_cluster(name)
        return name

    ask_each(ctx, names, delete_one, lambda name: f"deleted virtual cluster {name}", None, False, "virtual cluster")


def _confirm(asked: "partial[VirtualCluster]", name: str, force: bool) -> None:
    """Asks before runs lose their guarantee."""
    if force:
        return
    losses = [
        f"run {one.job_id}.{one.run} of virtual cluster {one.virtual_cluster or name} would lose its guarantee"
        for one in asked(validate_only=True).demoted
    ]
    confirm(losses, "Go on all the same?", force)


def _answer(found: VirtualCluster, fmt: str | None, quiet: bool) -> None:
    if quiet:
        click.echo(found.name)
    elif fmt is not None:
        output.emit(found, fmt)
    else:
        show_virtual_cluster(found)


def _quotas(said: Sequence[str]) -> list[CellQuota]:
    found = []
    for text in said:
        match = re.fullmatch(r"([^/=]+)/([^/=]+)=([0-9]+)", text)
        if match is None or not int(match[3]):
            raise InvalidArgument(
                f"--quota: {text!r} is not POOL/LEVEL=N, such as a100/node=2; `ebb cells` shows pools and levels"
            )
        found.append(CellQuota(match[1], match[2], int(match[3])))
    return found


def _pins(said: Sequence[str]) -> list[PinnedCell]:
    found = []
    for text in said:
        match = re.fullmatch(r"([^/=]+)=([^/=]+)/([^/=]+)/([0-9]+)", text)
        if match is None:
            raise InvalidArgument(
                f"--pin: {text!r} is not NAME=POOL/LEVEL/INDEX, such as big=a100/node/7; `ebb cells` shows them"
            )
        found.append(PinnedCell(match[1], match[2], match[3], int(match[4])))
    return found


def _policy_of(said: dict[str, Any]) -> VirtualClusterPolicy | None:
    after, window = (None if said[name] is None else parse_duration(said[name]) for name in ("after", "window"))
    policy = VirtualClusterPolicy(
        name=said["policy"],
        s=said["s"],
        cap=said["cap"],
        proxy_after=after,
        proxy_window=window,
        proxy_keep=said["keep"],
        settings=_settings(said["own"]) or None,
    )
    return None if policy == VirtualClusterPolicy() else policy


def _settings(said: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in said:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidArgument(f"--policy-setting: {text!r} is not NAME=VALUE, such as threshold=7200") from None
    return found
