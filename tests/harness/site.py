"""A scheduler and agents, as real processes, with what tests do with them."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from client_sdk import Client, EbbError, Job, JobState, Node, NodeState, NotFound
from examples.cluster import Cluster
from tests import preloaded
from tests.harness.database import Database, embedded_url
from tests.harness.evidence import Evidence
from tests.harness.limits import LIMIT, TRAINER, WHOLE_NODE
from tests.harness.processes import every_pid, job_processes, processes_of
from tests.store.fixtures import furnish
from tests.store.waiting import wait_for

_LINE = """printf '{"job":%s,"run":%s,"pid":%s,"event":"EVENT"}\\n' "$EBB_JOB_ID" "$EBB_RUN" $$ >> "$EVIDENCE\""""
# Its work done, a job hears no signal and says so: else one that came now would send it back to the queue.
_END = f"trap '' TERM; echo $$ > $EBB_DONE_FILE; {_LINE.replace('EVENT', 'end')}"
_SHORT = f"{_LINE.replace('EVENT', 'start')}; sleep $1; {_END}"
_HELD = f"{_LINE.replace('EVENT', 'start')}; until [ -e $1 ]; do sleep 0.05; done; {_END}"


AT_ONCE = ("--preset", "paper")
"""As published: tests have trials preempt at once, and not when a run is a minute old."""


def quick_cluster(folder: Path, scheduler_flags: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Cluster:
    """One that has its database already, and whose processes need not be imported."""
    furnish(folder / "db")
    return Cluster(folder, [*AT_ONCE, *scheduler_flags], environment, start=preloaded.start)


class Site:
    """A cluster with two nodes, its client, its database and its evidence. Use as a context; leaving it closes everything.

    With a `database` (a URL) there are two schedulers on that, `scheduler` and `standby`, of which the first leads first.
    """

    def __init__(
        self,
        folder: Path,
        scheduler_flags: Sequence[str] = (),
        nodes: Sequence[str] = ("n1", "n2"),
        database: str | None = None,
        devices: Sequence[str] = ("dgx-a100",),
    ) -> None:
        self.devices = devices
        """What each node has, and further flags of its agent."""
        self.cluster = Cluster(folder, [*AT_ONCE, *scheduler_flags], database=database, start=preloaded.start)
        self.folder = self.cluster.folder
        self.nodes = list(nodes)
        self.two = database is not None
        self._told = 0
        """How much the schedulers before this one have logged."""
        self.database = Database(database or embedded_url(self.folder / "db"))
        self.evidence = Evidence(self.folder / "evidence.jsonl")

    def __enter__(self) -> "Site":
        try:
            if not self.two:
                furnish(self.folder / "db")
            self.cluster.start_scheduler()
            if self.two:
                self.cluster.start_standby()
            for node in self.nodes:
                self.cluster.start_agent(node, *self.devices)
            self.client = Client(self.cluster.address, timeout=LIMIT)
            self.wait_connected()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.close()

    def close(self) -> None:
        """Also the jobs of agents that were killed and not started again, as when a test fails between the two."""
        down = [
            node for node in self.nodes if node not in self.cluster.processes or self.cluster.processes[node].poll() is not None
        ]
        self.cluster.close()
        if down:
            for pid in processes_of(self.folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # ---- nodes ---------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        return next(node for node in self.client.nodes() if node.name == name)

    def wait_connected(self, *, since: Sequence[Node] = ()) -> None:
        """Until every node is up, and has joined the scheduler that was started last; those in `since` by a new connection."""
        before = {node.name: node.address for node in since}

        def connected() -> bool:
            nodes = {node.name: node for node in self.client.nodes()}
            joined = self.log("scheduler")[self._told :]  # until they are silent, nodes are up that have yet to come back
            return set(self.nodes) <= set(nodes) and all(
                node.state is NodeState.UP
                and node.address != before.get(name)
                and (self.two or f" node {name} connected from " in joined)
                for name, node in nodes.items()
            )

        wait_for(connected, LIMIT)

    def restart_scheduler(self) -> None:
        self._told = len(self.log("scheduler"))
        self.cluster.start_scheduler()

    # ---- two schedulers ------------------------------------------------------------------------------------------------

    def leader(self) -> str:
        """Which of the schedulers holds a valid lease, by the database; empty when none does."""
        addresses = {"scheduler": self.cluster.listen, **self.cluster.standbys}
        rows = self.database.ask("SELECT address FROM leader WHERE holder <> '' AND expires_at > clock_timestamp()")
        return next((name for name, address in addresses.items() if [{"address": address}] == rows), "")

    def leads(self, name: str) -> bool:
        """Whether it leads, and says so itself."""
        with Client({"scheduler": self.cluster.listen, **self.cluster.standbys}[name], timeout=1) as client:
            try:
                return self.leader() == name and client.cancel(1 << 60) is None
            except NotFound:  # which only a leader can know
                return True
            except EbbError:
                return False

    def wait_leader(self, name: str) -> None:
        wait_for(lambda: self.leads(name), LIMIT)

    def log(self, name: str) -> str:
        """What a process of the cluster has logged."""
        return (self.folder / f"{name}.log").read_text()

    def launcher(self, node: str) -> int:
        """The launcher of a node: the pid of the process that starts its jobs."""
        state = str(self.folder / node)

        def find() -> int:
            for pid in every_pid():
                with contextlib.suppress(OSError):
                    if b"launcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes() and os.readlink(f"/proc/{pid}/cwd") == state:  # noqa: PTH115
                        return pid
            return 0

        return wait_for(find, LIMIT)

    @contextlib.contextmanager
    def launchers_stopped(self) -> Iterator[None]:
        """Orders reach the agents, and nothing is started, as long as this lasts."""
        pids = [self.launcher(node) for node in self.nodes]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    # ---- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, command: Sequence[str | Path], client: Client | None = None, **options: Any) -> Job:
        environment = {"EVIDENCE": str(self.evidence.path), "OMP_NUM_THREADS": "1"}
        return (client or self.client).submit(command, **{"cpus": 1, "memory": 64, "env": environment, **options})

    def short(self, seconds: float = 0.0, **options: Any) -> Job:
        """A job that leaves its evidence and is done."""
        return self.submit(["sh", "-c", _SHORT, "sh", str(seconds)], **options)

    def held(self, release: Path, **options: Any) -> Job:
        """A job that ends when the file `release` is there."""
        return self.submit(["sh", "-c", _HELD, "sh", release], **options)

    def trainer(self, *flags: str | Path, **options: Any) -> Job:
        """A job with checkpoints; see `tests/e2e/trainer.py`."""
        return self.submit([sys.executable, TRAINER, *flags], **options)

    @contextlib.contextmanager
    def room_for_one(self) -> Iterator[Job]:
        """One node is taken by a trial, which nothing can preempt; gives that trial."""
        release = self.file(f"release-blocker-{len(self.evidence.lines())}")
        blocker = self.until(self.held(release, job_class="trial", devices=WHOLE_NODE), JobState.RUNNING)
        try:
            yield blocker
        finally:
            release.touch()
        self.succeeded(blocker)

    def checkpoints(self, job: Job) -> list[Path]:
        """The files of a job's checkpoints, oldest first; those that are being written begin with a dot."""
        return sorted(self.cluster.checkpoints.glob(f"*/job-{job.id}/*.ckpt"))

    def being_saved(self, job: Job) -> list[Path]:
        return sorted(self.cluster.checkpoints.glob(f"*/job-{job.id}/.*.tmp"))

    def file(self, name: str) -> Path:
        """Where a test keeps a file of its own."""
        return self.folder / name

    def wait_run_directory(self, job: Job) -> Path:
        """The directory of the job's first run, once it is there: its launcher begins."""
        return wait_for(lambda: next((self.folder / (job.node or "")).glob(f"runs/**/{job.id}.1"), None), LIMIT)

    def wait_taken(self, job: Job) -> None:
        """Until the job's agent has taken the order to start it: then there is a folder for its checkpoints."""
        wait_for(lambda: list(self.cluster.checkpoints.glob(f"*/job-{job.id}")), LIMIT)

    def until(self, job: Job, *states: JobState, limit: float = LIMIT) -> Job:
        """The job when it is (or was) seen in one of these states."""
        for update in self.client.watch(job.id, timeout=limit):
            for seen in update.jobs:
                if seen.id == job.id and seen.state in states:
                    return seen
                assert not seen.ended, f"job {seen.id} ended as {seen.state.name} ({seen.reason.name}: {seen.reason_detail})"
        raise AssertionError(f"the watch of job {job.id} ended")

    def succeeded(self, *jobs: Job, limit: float = LIMIT) -> None:
        """Waits for their ends, and they are good ones."""
        for job in jobs:
            ended = self.client.wait(job, limit)
            assert ended.state is JobState.SUCCEEDED, (ended, self.client.story(job.id), self.output(ended))

    def output(self, job: Job) -> str:
        path = Path(job.log_path or "/nowhere")
        return path.read_text() if path.exists() else ""

    # ---- what must hold ------------------------------------------------------------------------------------------------

    def check_all_ended(self, limit: float = LIMIT) -> None:
        """Every job ends; each ran as often as its story says and completed once; nothing is held any more."""
        wait_for(lambda: not self.database.ask("SELECT id FROM job WHERE ended_us IS NULL"), limit)
        self.check_now()
        self.evidence.check(self.database)
        assert not self.database.ask("SELECT job_id FROM run WHERE ended_us IS NULL")
        assert not self.database.ask("SELECT id FROM earmark")
        assert not job_processes(self.folder)

    def check_now(self) -> None:
        """What holds at every moment, in the database and among the processes."""
        self.database.check()
        for job, leaders in job_processes(self.folder).items():
            assert len(leaders) == 1, f"job {job} has the processes {leaders}"
