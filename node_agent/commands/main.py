"""The command line: `ebb-agent run`."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
import uvloop

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # the agent never forks without executing
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # the link reports failed connections, once and in words

from node_agent import app, config
from node_agent.commands.check import check
from node_agent.commands.devices import devices
from node_agent.doctor.command import doctor
from node_agent.errors import AgentError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ebb-cluster", prog_name="ebb-agent")
def main() -> None:
    """Ebb's agent: runs jobs on a node and tells the scheduler about them."""


@main.command(
    epilog="""\b
Examples:
  ebb-agent run --scheduler 127.0.0.1:7737 --devices dgx-a100 --node n1 --state ./n1
  ebb-agent run --scheduler 127.0.0.1:7737 --devices nvml --state /var/lib/ebb-agent
  ebb-agent run --config agent.yaml --log-level debug
  EBB_AGENT_SCHEDULER=127.0.0.1:7737 ebb-agent run --devices cpu-20c --state /var/lib/ebb-agent

\b
Every option can be given as EBB_AGENT_<NAME> in the environment, or as <name>: in the file
(with underscores). A flag wins over the environment, which wins over the file.
When the agent stops, its jobs go on, and the next agent on the same state directory takes them over.
"""
)
@click.option(
    "--scheduler",
    metavar="HOST:PORT[,...]",
    help="Where the scheduler listens, or each of several; not on this machine: with --tls-ca.",
)
@click.option("--devices", metavar="KIND", help="nvml: this machine's GPUs. Or dgx-a100, pcie-8, pcie-2, cpu-20c: simulated.")
@click.option("--device-tree", metavar="FILE", help="A YAML file with the tree of the GPUs, where the driver's levels mislead.")
@click.option("--reserve-cpus", metavar="N", help="CPUs of this machine that jobs do not get, with nvml. [default: 0]")
@click.option("--reserve-memory", metavar="GIB", help="Memory of this machine that jobs do not get, with nvml. [default: 2]")
@click.option("--memory-rate", metavar="HZ", help="How often to read the memory of GPUs in use: 50 at most. [default: 10]")
@click.option(
    "--cpus",
    metavar="SET[;...]",
    help="The host's CPUs of each simulated device, such as 0-1;2,3. [default: the CPUs of this machine, spread evenly]",
)
@click.option("--node", metavar="NAME", help="The node's name in the cluster. [default: the host's name]")
@click.option("--state", metavar="DIR", help="What the agent must not forget; one directory for each agent.")
@click.option(
    "--address",
    metavar="HOST",
    help="Where other nodes reach this one, for gangs. [default: its address on the way to the scheduler]",
)
@click.option(
    "--labels",
    metavar="NAME=VALUE[,...]",
    help="Labels by which jobs may ask for this node, such as zone=a,disk=nvme. [default: none]",
)
@click.option("--checkpoints", metavar="DIR", help="Where jobs save their work. [default: STATE/checkpoints]")
@click.option("--token-file", metavar="FILE", help="The agent's token, from `ebb-scheduler token create --role agent`.")
@click.option("--tls-ca", metavar="FILE", help="Use TLS; the CA's certificate (PEM), which vouches for the scheduler.")
@click.option("--tls-cert", metavar="FILE", help="For mutual TLS: the agent's own certificate (PEM),")
@click.option("--tls-key", metavar="FILE", help="and its key (PEM).")
@click.option("--allow-root", is_flag=True, default=None, help="Run as root, and so run everybody's jobs as root.")
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="EBB_AGENT_CONFIG",
    help="A YAML file.",
)
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error. [default: info]")
@click.option(
    "--forget-cluster",
    is_flag=True,
    default=None,
    help="Start afresh, and obey whichever cluster answers first. Refused while runs are alive.",
)
@click.option(
    "--stop-jobs-on-exit", is_flag=True, default=None, help="Kill all jobs when the agent is stopped; they queue again."
)
@click.option(
    "--memory-limit",
    metavar="POLICY",
    help="Kill runs that use more memory than they asked for: enforce or off. [default: enforce]",
)
@click.option(
    "--control-groups",
    metavar="POLICY",
    help="A control group for each run: auto (where possible), require or off. [default: auto]",
)
@click.option(
    "--hook",
    metavar="POLICY",
    help="Count the optimizer steps of PyTorch programs, and park them when needed: on or off. [default: on]",
)
@click.option(
    "--parked-memory-mib",
    metavar="MIB",
    help="Host memory for what parked runs had on their devices, in MiB. [default: half of the node's memory]",
)
@click.option(
    "--mps",
    metavar="POLICY",
    help="NVIDIA MPS for runs that execute on one GPU at the same time: packed (use it for them) or off. [default: off]",
)
@click.option(
    "--criu",
    metavar="POLICY",
    help="CRIU for programs that do not save their work when they are stopped: on (dump, restore) or off. [default: off]",
)
@click.option(
    "--checkpoint-copies",
    metavar="POLICY",
    help="Checkpoints of another agent on this machine: auto (copy their files) or network (fetch them). [default: auto]",
)
@click.option(
    "--checkpoint-store",
    metavar="URL",
    help="Where the checkpoints of runs that have left are uploaded, such as s3://BUCKET/PREFIX. [default: nowhere]",
)
@click.option(
    "--keep-stored",
    metavar="DAYS",
    help="Remove a job's checkpoints from the checkpoint store so long after its end. [default: keep all]",
)
@click.option(
    "--keep-runs", metavar="DAYS", help="Remove a run's folder, with its log, so long after its end. [default: keep all]"
)
@click.option(
    "--step-window", metavar="SECONDS", help="Average the step rates and mini-batch times of runs over so long. [default: 60]"
)
@click.option("--launcher-idle", metavar="SECONDS", help="How long the launcher stays without jobs and agent. [default: 60]")
def run(file: Path | None, **flags: Any) -> None:
    """Run the agent of this node until SIGTERM or SIGINT."""
    for warning in config.misspelt(os.environ):
        click.echo(f"ebb-agent: {warning}", err=True)
    try:
        settings = config.load(flags, file)
    except config.BadSettings as error:
        raise click.UsageError(str(error)) from error
    logging.basicConfig(
        stream=sys.stderr, level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        uvloop.run(app.run(settings))
    except AgentError as error:
        raise click.ClickException(str(error)) from error
    except ExceptionGroup as group:
        known, unknown = group.split(AgentError)
        if known is None or unknown is not None:
            raise
        raise click.ClickException("; ".join(map(str, known.exceptions))) from group


main.add_command(check)
main.add_command(devices)
main.add_command(doctor)
