"""`ebb-agent check`: whether the agent of a state directory runs and is connected, for health checks and people."""

import sys
from pathlib import Path
from typing import NoReturn

import click
import psutil

from node_agent import config


@click.command()
@click.option("--state", metavar="DIR", help="Its state directory; no other setting is needed.")
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="EBB_AGENT_CONFIG",
    help="As for run, and as there the environment counts, too.",
)
def check(state: str | None, file: Path | None) -> None:
    """Check whether this node's agent runs and is connected to a scheduler. The exit status is 0 if so, else 1.

    Run it as the agent's own user: others do not see its connections.

    \b
    Examples:
      ebb-agent check --config /etc/ebb/agent.yaml
      ebb-agent check --state /var/lib/ebb-agent
    """
    try:
        folder = config.load_state({"state": state}, file)
    except config.BadSettings as error:
        raise click.UsageError(str(error)) from error
    try:
        agent = _holder(folder / "lock")
        connected = any(each.status == psutil.CONN_ESTABLISHED for each in agent.net_connections("tcp"))
    except (OSError, ValueError, psutil.Error):
        _end(f"no agent of this user runs on {folder}")
    if not connected:
        _end(f"the agent (pid {agent.pid}) is not connected to a scheduler")
    click.echo(f"the agent (pid {agent.pid}) is connected")


def _holder(lock: Path) -> psutil.Process:
    """Return the agent that has this lock. The lock itself is not tried: that would keep out an agent that starts now.

    Raises OSError, ValueError or psutil.Error if no agent has it.
    """
    agent = psutil.Process(int(lock.read_text()))
    if not any(Path(each.path).samefile(lock) for each in agent.open_files()):
        raise ValueError("the number was written by an agent that is gone, and is another process's now")
    return agent


def _end(why: str) -> NoReturn:
    click.echo(f"ebb-agent: {why}", err=True)
    sys.exit(1)
