"""Nodes as people read them: a row of a table, and everything about one."""

from dataclasses import replace

import click

from client_sdk.cli.output import common as output
from client_sdk.cli.output import steps as steps_output
from client_sdk.models import DeviceObservation, MemoryCycle, Node, NodeState
from client_sdk.units import format_memory

COLUMNS = ("NAME", "STATE", "CPUS", "MEMORY", "DEVICES", "EARMARKED", "JOBS")
WIDE_COLUMNS = ("ADDRESS", "AGENT", "SINCE", "MODELS", "STRIKES", "LABELS", "DRAIN")


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
    return [*_short_columns(found), *(_more_columns(found) if wide else ())]


def _short_columns(found: Node) -> list[str]:
    free, whole = found.free, found.capacity
    faulty = sum(1 for device in found.devices if device.fault)
    return [
        found.name,
        state(found),
        f"{free.cpus:g}/{whole.cpus:g}",
        f"{format_memory(free.memory_mib)}/{format_memory(whole.memory_mib)}",
        f"{free.devices}/{whole.devices}" + (f" ({faulty} faulty)" if faulty else ""),
        _earmark_text(found),
        output.numbers(sorted({job for device in found.devices for job in device.job_ids})),
    ]


def _earmark_text(found: Node) -> str:
    kept = found.earmarked
    return output.amount(kept) if kept.cpus or kept.memory_mib or kept.devices else "-"


def _more_columns(found: Node) -> list[str]:
    models = sorted({device.model for device in found.devices if device.model})
    since = output.local_time(found.state_time)
    where = [found.address or "-", found.agent_version or "-", since, ", ".join(models) or "-"]
    return [*where, str(found.strikes), _labels(found), drain_text(found)]


def _labels(found: Node) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(found.labels.items())) or "-"


def drain_text(found: Node) -> str:
    """Why, by whom and since when nothing new is placed on it."""
    if found.drain is None:
        return "-"
    return f"{found.drain.reason or 'no reason given'}, by {found.drain.user or 'Ebb'} at {output.local_time(found.drain.time)}"


def show_node(found: Node, *, wide: bool) -> None:
    """Prints who holds its devices, what is seen of them, and the memory cycles and steps of runs."""
    lines = {
        "name": found.name,
        "state": ", ".join(dict.fromkeys((state(found), found.state.name))) + f" since {output.local_time(found.state_time)}",
        "drain": drain_text(found),
        "strikes": str(found.strikes),
        "capacity": output.amount(found.capacity),
        "free": output.amount(found.free),
        "earmarked": _earmark_text(found),
        "labels": _labels(found),
        "address": found.address or "-",
        "agent": found.agent_version or "-",
        "observed": "-" if found.observations is None else output.local_time(found.observations.time),
    }
    output.table(["", ""], list(lines.items()), header=False)
    seen = found.observations
    if found.devices:
        click.echo()
        _devices(found, wide=wide)
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
    if seen is not None and seen.mini_batches:
        click.echo()
        output.table(steps_output.CLOCK_COLUMNS, map(steps_output.clock_row, seen.mini_batches))
    if seen is not None and seen.steps:
        click.echo()
        output.table(steps_output.COLUMNS, map(steps_output.row, seen.steps))


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
        "USED": [_used_memory(observed.get(device.index)) for device in found.devices],
        "UTIL": [_busy_percent(observed.get(device.index)) for device in found.devices],
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


def _used_memory(seen: DeviceObservation | None) -> str:
    return "" if seen is None or seen.memory_used_mib is None else _about_memory(seen.memory_used_mib)


def _about_memory(mib: int) -> str:
    """Format a fluctuating amount with three digits: "912MiB", "19.3GiB"."""
    return f"{mib}MiB" if mib < 1024 else f"{mib / 1024:.3g}GiB"


def _busy_percent(seen: DeviceObservation | None) -> str:
    return "" if seen is None or seen.utilisation_percent is None else f"{seen.utilisation_percent}%"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _cycle(cycle: MemoryCycle) -> list[str]:
    run = f"{cycle.job_id}.{cycle.run}" + (f"/{cycle.task}" if cycle.task else "")
    period = "unknown" if cycle.period is None else f"{cycle.period.total_seconds():.3g} s"
    amounts = [_about_memory(cycle.minimum_mib), _about_memory(cycle.maximum_mib)]
    sure = "-" if cycle.period is None else f"{cycle.confidence:.2f}"
    return [run, str(cycle.device), period, *amounts, sure, cycle.source.name]
