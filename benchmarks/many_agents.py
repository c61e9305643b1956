"""Agents of many nodes in one process, each with a stream of its own and the real agent's link, but without processes to run.

Run as a program (`python -m benchmarks.many_agents HOST:PORT COUNT`) it connects them all. It writes one line for each thing
that has happened, and reads one command from each line:

| written | when |
|---|---|
| `connected SECONDS` | every agent is welcome; SECONDS since the start, or since the links were cut |
| `occupied` | every node has a run |
| `started SECONDS` | a run was ordered for the first time since a run was said to have ended; SECONDS since then |

| command | effect |
|---|---|
| `cut` | every connection breaks at once, as when a switch fails |
| `end COUNT` | on as many nodes, a run ends |
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

import uvloop

from node_agent.devices.base import Observation
from node_agent.devices.simulated import simulate_devices
from node_agent.measuring.observations import Observations
from node_agent.run_state.events import Exited, Report, RunEvent, Started
from node_agent.run_state.model import Desired, RunKey, RunPhase, RunRecord, Stopped
from node_agent.transport import link
from node_agent.transport.messages import Hello, LogRequest, Welcome

PROFILE = "dgx-a100"


class Fleet:
    def __init__(self, count: int) -> None:
        self._begun = time.monotonic()
        self._ended = 0.0
        """When a run was said to have ended, after which none was ordered yet; 0: none was."""
        self.nodes = [Node(f"node-{number}", self) for number in range(count)]

    def welcomed(self) -> None:
        if all(node.welcome for node in self.nodes):
            _say(f"connected {time.monotonic() - self._begun}")

    def ordered(self) -> None:
        if self._ended:
            _say(f"started {time.monotonic() - self._ended}")
            self._ended = 0.0
        elif all(node.runs for node in self.nodes):
            _say("occupied")

    def obey(self, command: Sequence[str], port: int) -> None:
        match command:
            case ["cut"]:
                for node in self.nodes:
                    node.welcome = False
                self._begun = time.monotonic()
                cut(port)
            case ["end", count]:
                self._ended = time.monotonic()
                for node in [node for node in self.nodes if node.runs][: int(count)]:
                    node.end()
            case _:
                raise ValueError(f"no such command: {' '.join(command)}")


class Node:
    """The node that `link.run` represents. A run starts immediately, and lasts until it is told to stop."""

    def __init__(self, name: str, fleet: Fleet) -> None:
        self.reported = asyncio.Event()
        self.welcome = False
        self.runs: dict[RunKey, RunRecord] = {}
        self._name = name
        self._fleet = fleet
        self._inventory = simulate_devices(PROFILE, name).inventory
        self._cluster, self._epoch, self._acknowledged, self._said = "", 0, 0, 0
        self._spool: list[Report] = []

    def hello(self) -> Hello:
        runs = tuple(self.runs.values())
        return Hello(self._name, "boot", self._cluster, self._epoch, self._inventory, runs, "bench", self._acknowledged)

    def accept_welcome(self, welcome: Welcome) -> None:
        self._cluster, self._epoch, self.welcome = welcome.cluster_id, welcome.epoch, True
        self._fleet.welcomed()

    def obey(self, wanted: Sequence[Desired]) -> None:
        for desired in wanted:
            key, stops = desired.key, isinstance(desired, Stopped)
            if not stops and key not in self.runs:
                self.runs[key] = RunRecord(key, RunPhase.RUNNING, generation=desired.generation)
                self._report(key, Started(1, "/log"))
                self._fleet.ordered()
            elif stops and key in self.runs:
                self._exit(key, Exited(signal=15))

    def end(self) -> None:
        self._exit(next(iter(self.runs)), Exited())

    def _exit(self, key: RunKey, how: Exited) -> None:
        del self.runs[key]
        self._report(key, how)

    def _report(self, key: RunKey, event: RunEvent) -> None:
        self._said += 1
        self._spool.append(Report(self._said, key, event))
        self.reported.set()

    def pending(self, after: int) -> list[Report]:
        return [report for report in self._spool if report.sequence > after]

    def acknowledge(self, sequence: int) -> None:
        self._acknowledged = max(self._acknowledged, sequence)
        self._spool = self.pending(self._acknowledged)

    def observations(self) -> Observations:
        return Observations(tuple(Observation(device.index, 40_000, 90) for device in self._inventory.devices), ())

    async def recheck_devices(self, _reports: Sequence[Report]) -> None:
        """Its devices are simulated: none breaks."""

    async def transfer(self, _calls: object) -> None:
        """Nothing is fetched or sent here."""

    async def log(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError(f"there is no log of {request.key}")
        yield b""


def cut(port: int) -> None:
    """Breaks every connection of this process to that port."""
    for name in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not name.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(name.name))) as connection:
                peer = connection.getpeername()
                if isinstance(peer, tuple) and peer[1] == port:
                    connection.shutdown(socket.SHUT_RDWR)


def _say(words: str) -> None:
    print(words, flush=True)


async def main(address: str, count: int) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    logging.getLogger("node_agent").setLevel(logging.CRITICAL)  # that links break is no news here
    fleet = Fleet(count)
    links = [asyncio.create_task(link.run(address, node)) for node in fleet.nodes]
    while line := await commands.readline():
        fleet.obey(line.decode().split(), int(address.rpartition(":")[2]))
    for each in links:
        each.cancel()
    await asyncio.wait(links)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
