"""Virtual clusters as people read them: a row of a table, and everything about one."""

import click

from client_sdk.cli.output import common as output
from client_sdk.models import PinnedCell, PinUse, VirtualCluster, VirtualClusterPolicy

COLUMNS = ("NAME", "OWNS", "BOUND", "FREE", "FAULTY", "OPPORTUNISTIC")
WIDE_COLUMNS = ("WEIGHT", "POLICY", "PINS")


def row(found: VirtualCluster, *, wide: bool = False) -> list[str]:
    return [*_short_columns(found), *(_more_columns(found) if wide else ())]


def _short_columns(found: VirtualCluster) -> list[str]:
    counts = {what: sum(getattr(use, what) for use in found.cells) for what in ("bound", "free", "faulty")}
    owns = ", ".join(f"{quota.cells} {quota.pool}/{quota.level}" for quota in found.quotas)
    return [found.name, owns or "-", *map(str, counts.values()), str(found.opportunistic_devices)]


def _more_columns(found: VirtualCluster) -> list[str]:
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


def show_virtual_cluster(found: VirtualCluster) -> None:
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
