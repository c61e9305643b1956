"""The agents of a fake cluster: each speaks the agents' protocol to the service, and starts no process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2, job_pb2

from client_sdk._protobuf import convert
from client_sdk.errors import InvalidArgument
from client_sdk.models import Resources
from client_sdk.testing._script import Outcome

if TYPE_CHECKING:
    from client_sdk.testing._runs import Runs

MODEL = "Fake"
"""The model of every device of a fake cluster."""
_DEVICES_MEMORY = 4
"""A node's memory is so many times that of its devices: what is parked there has room."""
_PIECE = 64 * 1024
_STATES = ("prepared", "running", "parked", "warming")
Key = tuple[int, int, int]
"""Job, run and task."""


@dataclass
class Run:
    """A task of a launch on its node."""

    key: Key
    spec: job_pb2.JobSpec
    user: str
    log: Path
    generation: int = 0
    state: str = ""
    """The desired state that it is in, by its name in DesiredRun; "ended" once it has ended."""
    begun: bool = False
    told: bool = False
    """Whether it was told to stop."""
    shares: bool = False
    """Whether others use its devices, too."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its output has grown or it has ended, for those that follow the output."""

    @property
    def has_ended(self) -> bool:
        return self.state == "ended"

    def write(self, output: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(output)
        self.changed.set()


class _Caller:
    """The context of calls that come from this process."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:0"


class Agent:
    """One node, with all runs that it ever had."""

    def __init__(self, name: str, resources: Resources, world: "Runs", link: Any) -> None:
        """`link`: the servicer of AgentLink."""
        self.name = name
        self.runs: dict[Key, Run] = {}
        self.orders = 0
        """The number of orders that it has taken."""
        self._resources = resources
        self._world = world
        self._link = link
        self._outgoing: asyncio.Queue[pb.ConnectRequest] = asyncio.Queue()
        self._sent = self._taken = 0
        """The numbers of requests that it has sent, and that the service has taken."""
        self._sequence = 0
        self._acknowledged = 0
        self._observed = pb.Observations()
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = asyncio.Event()
        self._logs: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether it has said something that the service has not taken yet, or reported something that is not durable yet."""
        return self._sent != self._taken or self._sequence != self._acknowledged

    @property
    def devices(self) -> int:
        return self._resources.devices

    async def wait_joined(self) -> None:
        await self._joined

    async def serve(self) -> None:
        """Connect, and obey until the link ends."""
        self._send(hello=self._hello())
        try:
            async for response in self._link.Connect(self._requests(), _Caller()):
                match response.WhichOneof("message"):
                    case "welcome":
                        self._joined.set_result(None)
                    case "desired_runs":
                        for desired in response.desired_runs.runs:
                            self.orders += 1
                            self._obey(desired)
                    case "acknowledgement":
                        self._acknowledged = response.acknowledgement.sequence
                        self._heard.set()
                    case "log_request":
                        task = asyncio.create_task(self._send_log(response.log_request))
                        self._logs.add(task)
                        task.add_done_callback(self._logs.discard)
                self._world.note_move()
        except Exception as error:
            if self._joined.done():
                raise
            self._joined.set_exception(error)

    async def wait_acknowledged(self, sequence: int) -> None:
        """Wait until a report is durable."""
        while self._acknowledged < sequence:
            self._heard.clear()
            await self._heard.wait()

    def observations(self, seen: cluster_pb2.NodeObservations | None) -> pb.Observations:
        """Return the message of an agent that sees this; None: nothing. Raises InvalidArgument for devices of another."""
        if seen is None:
            return pb.Observations()
        if seen.devices and sorted(each.index for each in seen.devices) != list(range(self._resources.devices)):
            why = f"node {self.name}: what is observed must be its {self._resources.devices} devices"
            raise InvalidArgument(why, reason="DEVICES")
        return pb.Observations(devices=seen.devices, cycles=seen.cycles, steps=seen.steps, mini_batches=seen.mini_batches)

    def observe(self, seen: cluster_pb2.NodeObservations | None) -> None:
        """Set what it sees of its devices and runs; None: nothing."""
        if seen is None and any(device.fault for device in self._observed.devices):  # none is faulty any more
            self._observed = pb.Observations(devices=[cluster_pb2.DeviceObservation(index=i) for i in range(self.devices)])
            self.send_observations()
        self._observed = self.observations(seen)
        self.send_observations()

    def send_observations(self) -> None:
        """Send what it sees, and how its runs save."""
        seen = pb.Observations()
        seen.CopyFrom(self._observed)
        timed = {(each.job_id, each.run, each.task) for each in seen.mini_batches}
        for run in self.runs.values():
            if run.begun and not run.has_ended:
                job_id, number, task = run.key
                saves = pb.SAVE_MEANS_NONE if self._world.loses_its_work(job_id) else pb.SAVE_MEANS_HANDLER
                seen.checkpoints.add(job_id=job_id, run=number, task=task, means=saves)
                if run.shares and run.key in timed:  # what was measured of it, was measured in its turn
                    seen.slices.add(job_id=job_id, run=number, task=task, executing=True)
        if seen == pb.Observations():
            self._send(heartbeat=pb.Heartbeat())
        else:
            self._send(observations=seen)

    def end(self, run: Run, outcome: Outcome) -> None:
        """End a run that has not ended."""
        run.state = "ended"
        if run.key[2] == 0:
            run.write(outcome.output)
        run.changed.set()
        exited = pb.RunExited(
            exit_code=outcome.exit_code,
            exit_signal=outcome.exit_signal,
            launch_error=outcome.launch_error,
            done=outcome.done,
            told=run.told,
        )
        self._report(run.key, exited=exited)

    # ---- the protocol --------------------------------------------------------------------------------------------------

    def _hello(self) -> pb.Hello:
        capacity = convert.resources_message(self._resources)
        memory = self._resources.memory_mib // (_DEVICES_MEMORY * max(self.devices, 1))
        devices = [
            cluster_pb2.Device(index=i, uuid=f"{self.name}-{i}", model=MODEL, memory_mib=memory)
            for i in range(self._resources.devices)
        ]
        return pb.Hello(node=self.name, boot_id="fake", capacity=capacity, devices=devices, agent_version="fake")

    async def _requests(self) -> AsyncIterator[pb.ConnectRequest]:
        while True:
            yield await self._outgoing.get()
            self._taken += 1  # the service asks for the next one
            self._world.note_move()

    def _send(self, **message: Any) -> None:
        self._sent += 1
        self._outgoing.put_nowait(pb.ConnectRequest(**message))

    def _report(self, key: Key, **event: Any) -> int:
        self._sequence += 1
        report = pb.Report(sequence=self._sequence, job_id=key[0], run=key[1], task=key[2], **event)
        self._send(reports=pb.Reports(reports=[report]))
        return self._sequence

    # ---- runs ----------------------------------------------------------------------------------------------------------

    def _obey(self, desired: pb.DesiredRun) -> None:
        key, state = (desired.job_id, desired.run, desired.task), desired.WhichOneof("state")
        run = self.runs.get(key)
        if run is None:
            run = self.runs[key] = self._new_run(key, desired)
        if run.has_ended or state not in (*_STATES, "stopped") or desired.generation <= run.generation:
            return
        run.generation = desired.generation
        if state == "stopped":
            self._stop(run)
            return
        before, run.state = run.state, str(state)
        run.shares = len(_launch(desired).share.rows) > 1
        if state == before:  # another share plan
            return
        if state == "running" and not run.begun:
            self._begin(run)
        elif state == "running":
            self._report(key, resumed=pb.RunResumed(rung="fake"))
        elif state == "parked":
            self._report(key, parked=pb.RunParked(rung="fake", saves=True))
        else:
            self._report(key, ready=pb.RunReady(address="127.0.0.1", port=1 if key[2] == 0 else 0))

    def _new_run(self, key: Key, desired: pb.DesiredRun) -> Run:
        launch = _launch(desired)
        job_id, number, task = key
        log = self._world.folder / (f"{job_id}.{number}.{task}.log" if task else f"{job_id}.{number}.log")
        return Run(key, launch.spec, launch.user, log)

    def _begin(self, run: Run) -> None:
        run.begun = True
        run.log.touch()
        started = pb.RunStarted(pid=1, log_path=str(run.log), program=next(iter(run.spec.command), ""))
        sequence = self._report(run.key, started=started)
        self.send_observations()
        self._world.take_begun(run, self, sequence)

    def _stop(self, run: Run) -> None:
        run.told = True
        if run.begun:
            self._world.must_stop(run, self)
        else:
            self.end(run, Outcome(exit_signal=15))

    # ---- logs ----------------------------------------------------------------------------------------------------------

    async def _send_log(self, asked: pb.LogRequest) -> None:
        await self._link.SendLog(self._pieces(asked), _Caller())

    async def _pieces(self, asked: pb.LogRequest) -> AsyncIterator[pb.SendLogRequest]:
        run, at = self.runs.get((asked.job_id, asked.run, asked.task)), asked.offset
        size = run.log.stat().st_size if run is not None and run.log.exists() else -1
        error = ""
        if size < 0:
            error = "NOT_STARTED: it has not begun"
        elif at > size:
            error = f"OFFSET: its log has {size} bytes, and none at {at}; read it from its beginning"
        yield pb.SendLogRequest(id=asked.id, error=error)
        over = run is None or bool(error)
        while run is not None and not over:
            run.changed.clear()
            over = run.has_ended or not asked.follow
            data = run.log.read_bytes()[at:]
            for begin in range(0, len(data), _PIECE):
                yield pb.SendLogRequest(data=data[begin : begin + _PIECE])
            at += len(data)
            if not over:
                await run.changed.wait()
        if not error:
            yield pb.SendLogRequest(end=True)


def _launch(desired: pb.DesiredRun) -> pb.Launch:
    """Return what a run is started from; nothing for one that is to stop."""
    state = desired.WhichOneof("state") or "running"
    return desired.parked.launch if state == "parked" else pb.Launch() if state == "stopped" else getattr(desired, state)
