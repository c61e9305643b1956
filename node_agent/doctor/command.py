"""The command `ebb-agent doctor`."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil

from node_agent import config
from node_agent.checkpoints.criu import unusable
from node_agent.config import Settings
from node_agent.doctor import gpus, machine, network, storage
from node_agent.doctor.findings import Check, Finding, examine, ok, problem

_LIMIT = 40.0
_ONE_CALL = 5.0
_GPUS = 30.0
"""Seconds. A driver that is not kept loaded is slow to answer."""
_MARKS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM"}


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="EBB_AGENT_CONFIG",
    help="As for run, and as there the environment counts, too.",
)
@click.option("--scheduler", metavar="HOST:PORT[,...]", help="As for run.")
@click.option("--devices", metavar="KIND", help="As for run.")
@click.option("--state", metavar="DIR", help="As for run.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json for a fleet.  [default: text]")
def doctor(file: Path | None, output: str, **flags: Any) -> None:
    """Check this machine as its agent will see it, and say what is in its way and what to do about it.

    Run it as the agent's own user: what works for root proves nothing. Nothing is changed, and an agent may be running. The
    exit status is 1 if there is a problem, else 0, even with warnings.

    \b
    Examples:
      runuser -u ebb-agent -- ebb-agent doctor --config /etc/ebb/agent.yaml
      ebb-agent doctor --scheduler 127.0.0.1:7737 --devices dgx-a100 --state ./n1
      ebb-agent doctor --config /etc/ebb/agent.yaml -o json | jq '.findings[] | select(.level == "problem")'
    """
    settings, wrong = _settings(flags, file)
    checks = machine_checks(settings) | (settings_checks(settings) if settings is not None else {})
    found = {"settings": wrong} | examine(checks, _LIMIT)
    healthy = all(finding.level != "problem" for findings in found.values() for finding in findings)
    node = settings.node if settings is not None else socket.gethostname()
    click.echo(as_json(node, healthy, found) if output == "json" else as_text(found))
    sys.exit(0 if healthy else 1)


def _settings(flags: Mapping[str, object], file: Path | None) -> tuple[Settings | None, list[Finding]]:
    try:
        settings = config.load(flags, file)
    except config.BadSettings as error:
        do = f"set it in {file or 'the file, the environment, or by a flag'}; what depends on settings was not looked at"
        return None, [problem(line, do) for line in str(error).splitlines()]
    return settings, [ok(f"node {settings.node}, from {file}" if file else f"node {settings.node}")]


def machine_checks(settings: Settings | None) -> dict[str, Check]:
    """Return the checks that need few settings, or none."""
    agent = storage.lock_holder(settings.state, Path("/proc/locks").read_text()) if settings is not None else 0
    about = Path(f"/proc/{agent or 'self'}")
    return {
        "user": lambda: machine.user(
            os.geteuid(), settings is not None and settings.allow_root, Path("/run/systemd/system").exists()
        ),
        "kernel": lambda: machine.kernel(os.uname().release, os.pidfd_open),
        "control groups": lambda: machine.control_groups(
            (about / "cgroup").read_text(), (about / "mountinfo").read_text(), agent
        ),
        "limits": lambda: machine.limits((about / "limits").read_text(), agent, Path("/sys/class/infiniband").exists()),
        "memory": lambda: machine.memory(_text("/proc/meminfo"), _text("/proc/sys/vm/overcommit_memory")),
        "shared memory": lambda: machine.shared_memory(Path("/dev/shm")),
        "clock": lambda: machine.clock(machine.adjtimex),
    }


def settings_checks(settings: Settings) -> dict[str, Check]:
    targets = settings.scheduler.split(",")
    agent = storage.lock_holder(settings.state, _text("/proc/locks"))
    return {
        "state": lambda: storage.state(settings.state, _text("/proc/self/mountinfo"), agent),
        "checkpoints": lambda: storage.checkpoints(settings.checkpoint_root, _text("/proc/self/mountinfo"), os.geteuid()),
        "devices": partial(devices, settings),
        "criu": partial(criu, settings),
        "scheduler": lambda: network.schedulers(targets, settings.security, _ONE_CALL),
        "address": lambda: network.address(settings.reachable_address(), network.are_loopback(targets), _own_addresses()),
    }


def devices(settings: Settings) -> Iterator[Finding]:
    return gpus.check_simulated(settings.devices) if settings.devices != config.NVML else gpus.check_real(_GPUS, settings)


def criu(settings: Settings) -> Iterator[Finding]:
    return machine.criu(settings.criu == "on", asyncio.run(unusable()) if settings.criu == "on" else "")


def as_json(node: str, healthy: bool, found: Mapping[str, list[Finding]]) -> str:
    every = [
        {"check": check, "level": finding.level, "text": finding.text, "do": finding.do}
        for check, findings in found.items()
        for finding in findings
    ]
    return json.dumps({"node": node, "ok": healthy, "findings": every}, indent=2)


def as_text(found: Mapping[str, list[Finding]]) -> str:
    lines = []
    width = max(map(len, found))
    for check, findings in found.items():
        for finding in findings:
            lines.append(f"{_MARKS[finding.level]:7}  {check:{width}}  {finding.text}")
            if finding.do:
                lines.append(f"{'':7}  {'':{width}}  -> {finding.do}")
    levels = [finding.level for findings in found.values() for finding in findings]
    problems, warnings = levels.count("problem"), levels.count("warning")
    lines.append(f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}")
    return "\n".join(lines)


def _own_addresses() -> set[str]:
    return {address.address.partition("%")[0] for of_one in psutil.net_if_addrs().values() for address in of_one}


def _text(path: str) -> str:
    return Path(path).read_text()
