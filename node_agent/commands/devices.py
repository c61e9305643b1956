"""`ebb-agent devices`: the devices of this machine as the agent sees them, without an agent or a scheduler."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import click
from pydantic import ValidationError

from node_agent import config
from node_agent.build_devices import laid_out, open_devices
from node_agent.config import DeviceSettings
from node_agent.devices.base import Inventory
from node_agent.devices.reading import Reading
from node_agent.devices.topology_text import as_json, picture
from node_agent.errors import AgentError, NoDriver

NO_DRIVER = 3


@click.command(
    epilog="""\b
Examples:
  ebb-agent devices                                   # the GPUs of this machine, and where they stand to each other
  ebb-agent devices --config /etc/ebb/agent.yaml      # as the agent with these settings offers them
  ebb-agent devices --device-tree tree.yaml           # whether a device tree file fits, and what comes out
  ebb-agent devices --devices dgx-a100                # a simulated profile
  ebb-agent devices -o json | jq '.devices[].uuid'
  ebb-agent devices --reading > machine.json          # what the driver says, to keep or to send along with a report
  ebb-agent devices --from machine.json               # the tree of a machine that was recorded so

\b
The environment (EBB_AGENT_DEVICES, ...) counts as it does for run. The status is 3 where there is no NVIDIA driver, or
one that cannot be used, and 1 for whatever else is wrong. What the tree means: docs/devices.md.
"""
)
@click.option("--devices", metavar="KIND", help="nvml, or a simulated profile, as for run. [default: nvml]")
@click.option("--device-tree", metavar="FILE", help="A YAML file with the tree, where the driver's levels mislead.")
@click.option("--reserve-cpus", metavar="N", help="As for run.")
@click.option("--reserve-memory", metavar="GIB", help="As for run.")
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="EBB_AGENT_CONFIG",
    help="As for run; settings that are not about devices are not looked at.",
)
@click.option(
    "--from", "recorded", type=click.File(), metavar="FILE", help="Show a machine that --reading recorded; - for stdin."
)
@click.option("--reading", "raw", is_flag=True, help="Print what the driver says, as JSON, before anything is made of it.")
@click.option("-o", "--output", type=click.Choice(["tree", "json"]), default="tree", help="[default: tree]")
def devices(file: Path | None, recorded: TextIO | None, raw: bool, output: str, **flags: Any) -> None:
    """Show this machine's devices: their tree, and what was odd about it."""
    try:
        settings = config.load_devices(flags if recorded is None else flags | {"devices": config.NVML}, file)
        inventory, notes, reading = asyncio.run(_find_devices(settings, None if recorded is None else _read(recorded)))
    except config.BadSettings as error:
        raise click.UsageError(str(error)) from error
    except NoDriver as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(NO_DRIVER)
    except AgentError as error:
        raise click.ClickException(str(error)) from error
    if raw:
        if reading is None:
            raise click.UsageError(f"--reading: {settings.devices} is simulated, so there is no driver to read")
        click.echo(reading.model_dump_json(indent=1))
    elif output == "json":
        click.echo(json.dumps(as_json(inventory, notes, reading), indent=1))
    else:
        click.echo(picture(inventory, notes, reading))


async def _find_devices(settings: DeviceSettings, recorded: Reading | None) -> tuple[Inventory, Sequence[str], Reading | None]:
    if recorded is not None:
        return *await laid_out(recorded, settings.device_tree), recorded
    found = await open_devices(settings)
    return found.provider.inventory, found.notes, found.reading


def _read(file: TextIO) -> Reading:
    try:
        return Reading.model_validate_json(file.read())
    except (ValidationError, UnicodeDecodeError) as error:
        what = _first_error(error) if isinstance(error, ValidationError) else "it is not text"
        raise click.UsageError(
            f"--from: {file.name} is not what `ebb-agent devices --reading` of this version writes ({what})"
        ) from error


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return ": ".join([".".join(map(str, first["loc"])), first["msg"]] if first["loc"] else [first["msg"]])
