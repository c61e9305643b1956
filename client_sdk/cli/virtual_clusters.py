"""`ebb vc`: what each tenant is guaranteed."""

import re
from collections.abc import Sequence
from typing import Any

import click

from client_sdk.cli import output
from client_sdk.cli.many_ids import ask_each
from client_sdk.cli.session import Number, Session, no_header_option, output_option
from client_sdk.errors import InvalidArgument
from client_sdk.models import CellQuota, PinnedCell, PinUse, VirtualCluster, VirtualClusterPolicy
from client_sdk.units import parse_duration

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only names.")
COLUMNS = ("NAME", "OWNS", "BOUND", "FREE", "FAULTY", "OPPORTUNISTIC")
WIDE_COLUMNS = ("WEIGHT", "POLICY", "PINS")


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
    rows = [[*_short(one), *(_more(one) if wide else ())] for one in found]
    output.table([*COLUMNS, *(WIDE_COLUMNS if wide else ())], rows, header=not no_header)


def _short(found: VirtualCluster) -> list[str]:
    counts = {what: sum(getattr(use, what) for use in found.cells) for what in ("bound", "free", "faulty")}
    owns = ", ".join(f"{quota.cells} {quota.pool}/{quota.level}" for quota in found.quotas)
    return [found.name, owns or "-", *map(str, counts.values()), str(found.opportunistic_devices)]


def _more(found: VirtualCluster) -> list[str]:
    stands = {use.name: f" ({_state(use)})" for use in found.pin_uses}
    pins = ", ".join(_pin(pin) + stands.get(pin.name, "") for pin in found.pins)
    return [str(found.weight), _policy(found.policy), pins or "-"]


def _pin(pin: PinnedCell) -> str:
    return f"{pin.name}={pin.pool}/{pin.level}/{pin.index}"


def _state(use: PinUse) -> str:
    return use.state.name.lower().replace("_", " ")


def _faults(use: PinUse) -> str:
    """ "n1 0,3 (XID 79), n2 (silent)" """
    where = (filter(None, (fault.node, ",".join(map(str, fault.devices)), f"({fault.why})")) for fault in use.faults)
    return ", ".join(map(" ".join, where)) or "-"


def _policy(policy: VirtualClusterPolicy) -> str:
    """With those of its numbers that it has a use for."""
    words = [policy.name or "-"]
    if policy.name == "fitgpp":
        words.append(f"s={policy.s:g}")
    if policy.name != "fifo":
        words.append(f"cap={policy.cap}")
        words += [f"in-flight={policy.trials_in_flight}"] if policy.trials_in_flight else []
    words += [f"{name}={value:g}" for name, value in sorted((policy.settings or {}).items())]
    return " ".join(words)


def _proxy(policy: VirtualClusterPolicy) -> str:
    if not policy.proxy_after:
        return "off"
    window = output.duration(policy.proxy_window or policy.proxy_after)
    kept = f", but for {policy.proxy_keep}" if policy.proxy_keep else ""
    return f"offers cells that were idle for {output.duration(policy.proxy_after)}, for {window}{kept}"


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
    _say(found)


def _say(found: VirtualCluster) -> None:
    lines = {
        "name": found.name,
        "weight": str(found.weight),
        "policy": _policy(found.policy),
        "proxy": _proxy(found.policy),
        "pins": ", ".join(map(_pin, found.pins)) or "-",
        "opportunistic": f"{found.opportunistic_devices} devices",
    }
    output.table(["", ""], list(lines.items()), header=False)
    if found.cells:
        click.echo()
        rows = [[u.pool, u.level, *map(str, (u.owned, u.bound, u.free, u.faulty, u.taken, u.given))] for u in found.cells]
        output.table(("POOL", "LEVEL", "OWNS", "BOUND", "FREE", "FAULTY", "TAKEN", "GIVEN"), rows)
    if found.pin_uses:
        click.echo()
        cells = {pin.name: f"{pin.pool}/{pin.level}/{pin.index}" for pin in found.pins}
        rows = [[u.name, cells.get(u.name, "-"), _state(u), f"{u.held} of {u.devices}", _faults(u)] for u in found.pin_uses]
        output.table(("PIN", "CELL", "STATE", "HELD", "FAULTS"), rows)


# ---- changes -----------------------------------------------------------------------------------------------------------


def _options(command: Any) -> Any:
    """What there is to say of one, to create or change it."""
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
        output_option("json", "yaml"),
        quiet_option,
        click.argument("name"),
    ):
        command = option(command)
    return command


@vc.command()
@_options
@click.pass_obj
def create(session: Session, /, name: str, fmt: str | None, quiet: bool, weight: int | None, **said: Any) -> None:
    """Promise cells to a tenant. Safe to repeat.

    It is refused where all virtual clusters together could then not have what they own; the error says at which level of which
    pool, and how many cells are missing. `ebb cells` shows pools, levels and the numbers of cells.

    \b
    Examples:
      ebb vc create vision --quota a100/node=2
      ebb vc create speech --quota a100/node=1 --quota a100/device=4 --weight 2 --policy fitgpp
      ebb vc create infra --pin login=a100/node/7
    """
    quotas, pins, policy = _quotas(said["quotas"]), _pins(said["pins"]), _policy_of(said)
    made = session.client.create_virtual_cluster(name, quotas=quotas, pins=pins, weight=weight or 1, policy=policy)
    _answer(made, fmt, quiet)


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
    **said: Any,
) -> None:
    """Change what a tenant is guaranteed. What is not named stays; quotas are given all together, and so are pins.

    What no longer fits runs on as opportunistic, and nothing else moves.

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
    changed = session.client.update_virtual_cluster(name, quotas=quotas, pins=pins, weight=weight, policy=policy)
    _answer(changed, fmt, quiet)


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

    def gone(name: str) -> str:
        client.delete_virtual_cluster(name)
        return name

    ask_each(ctx, names, gone, lambda name: f"deleted virtual cluster {name}", None, False, "virtual cluster")


def _answer(found: VirtualCluster, fmt: str | None, quiet: bool) -> None:
    if quiet:
        click.echo(found.name)
    elif fmt is not None:
        output.emit(found, fmt)
    else:
        _say(found)


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
