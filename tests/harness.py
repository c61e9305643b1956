"""A cluster of real processes under load, and what proves that it kept its word.

Jobs leave evidence: each run appends one line to one file when it starts and when it completes, in a single write, so what
ran, how often and in which order is known from the jobs themselves and not from the scheduler. `Database` looks straight at
PostgreSQL, also while no scheduler runs, and can hold a commit still on either side of the moment at which it is durable.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

from client_sdk import Client, EbbError, Job, JobState, Node, NodeState, NotFound
from examples.cluster import Cluster
from tests import preloaded
from tests.store.fixtures import furnish
from tests.store.waiting import wait_for

ROOT = Path(__file__).parents[1]
TRAINER = ROOT / "tests" / "e2e" / "trainer.py"
LIMIT = 60.0
"""Seconds for anything that must happen; generous, since other tests use the same cores."""
WHOLE_NODE = 8
"""Devices of a node of the profile dgx-a100."""

_LINE = """printf '{"job":%s,"run":%s,"pid":%s,"event":"EVENT"}\\n' "$EBB_JOB_ID" "$EBB_RUN" $$ >> "$EVIDENCE\""""
# Its work done, a job hears no signal: one that came between its last line and its exit would send it back to the queue.
_END = f"trap '' TERM; {_LINE.replace('EVENT', 'end')}"
_SHORT = f"{_LINE.replace('EVENT', 'start')}; sleep $1; {_END}"
_HELD = f"{_LINE.replace('EVENT', 'start')}; until [ -e $1 ]; do sleep 0.05; done; {_END}"


def quick_cluster(folder: Path, scheduler_flags: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Cluster:
    """One that has its database already, and whose processes need not be imported."""
    furnish(folder / "db")
    return Cluster(folder, scheduler_flags, environment, start=preloaded.start)


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
        self.cluster = Cluster(folder, scheduler_flags, database=database, start=preloaded.start)
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
            for pid in _pids():
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
        return sorted(self.cluster.checkpoints.glob(f"**/job-{job.id}/*.ckpt"))

    def being_saved(self, job: Job) -> list[Path]:
        return sorted(self.cluster.checkpoints.glob(f"**/job-{job.id}/.*.tmp"))

    def file(self, name: str) -> Path:
        """Where a test keeps a file of its own."""
        return self.folder / name

    def wait_run_directory(self, job: Job) -> Path:
        """The directory of the job's first run, once it is there: its agent has taken the order."""
        return wait_for(lambda: next((self.folder / (job.node or "")).glob(f"runs/**/{job.id}.1"), None), LIMIT)

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
        assert not self.database.ask("SELECT id FROM operation")
        assert not job_processes(self.folder)

    def check_now(self) -> None:
        """What holds at every moment, in the database and among the processes."""
        self.database.check()
        for job, leaders in job_processes(self.folder).items():
            assert len(leaders) == 1, f"job {job} has the processes {leaders}"


# ---- evidence ----------------------------------------------------------------------------------------------------------


class Evidence:
    """The lines that jobs wrote, in the order in which they did."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, job: Job | int | None = None, event: str | None = None) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        every = [json.loads(line) for line in text.splitlines()]
        job_id = job.id if isinstance(job, Job) else job
        return [line for line in every if job_id in (None, line["job"]) and event in (None, line["event"])]

    def wait(self, job: Job, event: str, run: int | None = None) -> dict[str, Any]:
        """The first such line, once it is there."""
        found = wait_for(lambda: [line for line in self.lines(job, event) if run in (None, line["run"])], LIMIT)
        return found[0]

    def count(self, event: str) -> int:
        return self.path.read_text().count(f'"{event}"') if self.path.exists() else 0

    def check(self, database: "Database") -> None:
        """No run took place twice, none overlapped the next, and every job that succeeded completed once."""
        by_job: dict[int, list[dict[str, Any]]] = {}
        for line in self.lines():
            by_job.setdefault(line["job"], []).append(line)
        jobs = {row["id"]: row for row in database.ask("SELECT id, state, run FROM job")}
        assert set(by_job) <= set(jobs), "something ran that the database does not know"
        requeues = Counter(row["job_id"] for row in database.ask("SELECT job_id FROM job_event WHERE kind = 7"))
        for job_id, row in jobs.items():
            lines = by_job.get(job_id, [])
            starts = [line["run"] for line in lines if line["event"] == "start"]
            assert len(starts) == len(set(starts)), f"a run of job {job_id} was executed twice: {lines}"
            order = [line["run"] for line in lines]
            assert order == sorted(order), f"runs of job {job_id} overlapped: {lines}"
            assert row["run"] <= 1 + requeues[job_id], f"job {job_id} was launched more often than it was sent back"
            ends = [line["run"] for line in lines if line["event"] == "end"]
            wanted = [row["run"]] if row["state"] == JobState.SUCCEEDED else []
            if starts:  # else it is a job that leaves no evidence
                assert ends == wanted, f"job {job_id} completed {len(ends)} times: {lines}"


# ---- the database ------------------------------------------------------------------------------------------------------


def embedded_url(place: Path) -> str:
    """Of the PostgreSQL that a scheduler runs itself in this folder."""
    return f"postgresql://ebb@/postgres?host={quote(str(place / 'postgres' / 'socket'), safe='')}"


class Database:
    """The scheduler's PostgreSQL, asked directly."""

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> "psycopg.Connection[dict[str, Any]]":
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row, application_name="test")

    def ask(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self.connect() as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    def requests(self, request_id: str) -> list[int]:
        """The jobs of a request_id: one, if the scheduler keeps its word."""
        return [row["id"] for row in self.ask("SELECT id FROM job WHERE request_id = %s ORDER BY id", request_id)]

    def check(self) -> None:
        """What must hold after every commit, said again in SQL of its own: nothing here trusts the schema's constraints."""
        with self.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            nothing = {
                "jobs with two live runs": "SELECT job_id FROM run WHERE phase <> 4 GROUP BY job_id HAVING count(*) > 1",
                "devices owned by two live runs": (
                    "SELECT node, d FROM run, unnest(devices) d WHERE phase <> 4 GROUP BY node, d HAVING count(*) > 1"
                ),
                "devices held that are not there": (
                    "SELECT r.job_id FROM run r CROSS JOIN unnest(devices) d"
                    " LEFT JOIN device v ON (v.node, v.index) = (r.node, d) WHERE r.phase <> 4 AND v.node IS NULL"
                ),
                "nodes with more than they have": (
                    "SELECT n.id FROM node n JOIN run r ON r.node = n.id AND r.phase <> 4 GROUP BY n.id"
                    " HAVING sum(r.demand_devices) > n.capacity_devices OR sum(r.demand_cpu_milli) > n.capacity_cpu_milli"
                ),
                "jobs with more than one end": (
                    "SELECT job_id FROM job_event WHERE kind = 11 GROUP BY job_id HAVING count(*) > 1"
                ),
                "ended jobs without the event": (
                    "SELECT id FROM job WHERE state >= 6 AND NOT EXISTS"
                    " (SELECT FROM job_event e WHERE e.job_id = job.id AND e.kind = 11)"
                ),
                "ended jobs with a live run": "SELECT id FROM job JOIN run ON job_id = id WHERE state >= 6 AND phase <> 4",
                "requests with two jobs": (
                    "SELECT request_id FROM job WHERE request_id <> '' GROUP BY user_name, request_id HAVING count(*) > 1"
                ),
                "jobs preempted more often than allowed": "SELECT id FROM job WHERE preempted_for_trial > 1",
            }
            for what, query in nothing.items():
                found = connection.execute(query).fetchall()  # type: ignore[arg-type]
                assert not found, f"{what}: {found}"

    # ---- holding a commit still ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def commits_kept_out(self) -> Iterator[None]:
        """Before: no commit of a scheduler gets past its first statement, as the leader's row is locked."""
        with self.connect() as connection, connection.transaction(force_rollback=True):
            connection.execute("SELECT FROM leader FOR UPDATE")
            yield

    @contextlib.contextmanager
    def answers_withheld(self) -> Iterator[None]:
        """After: a commit becomes durable, and its session does not hear of it, as it waits for a standby that is not there."""
        with self.connect() as admin, self.connect() as probe:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            admin.execute("SELECT pg_reload_conf()")
            try:
                self._wait_until_in_force(admin, probe)
                yield
            finally:
                admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
                admin.execute("SELECT pg_reload_conf()")
                wait_for(lambda: not self._withheld(admin, "%"))

    def wait_until_withheld(self) -> None:
        """A commit of the scheduler is durable, and its answer is withheld."""
        with self.connect() as admin:
            wait_for(lambda: self._withheld(admin, "ebb writer"), LIMIT)

    def wait_until_kept_out(self) -> None:
        """A commit of the scheduler waits for the leader's row."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ebb writer' AND wait_event_type = 'Lock'"
        with self.connect() as admin:
            wait_for(lambda: admin.execute(query).fetchall(), LIMIT)

    @staticmethod
    def _withheld(admin: "psycopg.Connection[dict[str, Any]]", name: str) -> list[dict[str, Any]]:
        query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE %s"
        return admin.execute(query, (name,)).fetchall()

    def _wait_until_in_force(self, admin: "psycopg.Connection[Any]", probe: "psycopg.Connection[Any]") -> None:
        """The server takes the setting up in its own time: commit something until that is withheld."""
        pid = probe.info.backend_pid
        look = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
        emit = b"SELECT pg_logical_emit_message(true, 'test', '')"
        probe.pgconn.send_query(emit)

        def withheld() -> bool:
            row = admin.execute(look, (pid,)).fetchone()
            assert row is not None
            probe.pgconn.consume_input()
            if not probe.pgconn.is_busy():  # else it may have been idle only because it had not begun
                while probe.pgconn.get_result() is not None:
                    pass
                probe.pgconn.send_query(emit)
            return bool(row["wait_event"] == "SyncRep")

        wait_for(withheld)
        admin.execute("SELECT pg_cancel_backend(%s)", (pid,))  # it is committed all the same
        while probe.pgconn.get_result() is not None:
            pass


# ---- processes ---------------------------------------------------------------------------------------------------------


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ...; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> number - 1 & 1)


def job_processes(folder: Path) -> dict[int, list[int]]:
    """Job -> the leaders of its runs that are alive, of every node under the folder."""
    found: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if len(fields) < 4 or fields[0] in "ZX" or not fields[2] == fields[3] == str(pid):
            continue
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if any(v.startswith(b"EBB_RUN_DIR=" + bytes(folder) + b"/") for v in variables):
                job = next(int(v.partition(b"=")[2]) for v in variables if v.startswith(b"EBB_JOB_ID="))
                found.setdefault(job, []).append(pid)
    return found


def processes_of(folder: Path) -> dict[int, str]:
    """Everything alive that has to do with a folder: by its arguments, its environment, or where it works."""
    found = {}
    needle = bytes(folder)
    for pid in _pids():
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            where = bytes(Path(f"/proc/{pid}/cwd").readlink())
            about = arguments + where + b"/\0" + Path(f"/proc/{pid}/environ").read_bytes()
            if needle + b"/" in about and alive(pid) and pid not in (os.getpid(), os.getppid()):
                found[pid] = arguments.replace(b"\0", b" ").decode(errors="replace")
    return found


def leftovers(folder: Path) -> list[str]:
    """Processes, sockets and held locks that a closed cluster has left behind."""
    left = [f"process {pid}: {command}" for pid, command in processes_of(folder).items()]
    left += [f"socket {path}" for path in folder.rglob("*") if path.is_socket()]
    for path in folder.rglob("lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left.append(f"lock {path}")
    return left


def run(command: Sequence[str | Path], limit: float = LIMIT, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A program as its users start it, to its end."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        check=False,
    )


def run_module(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run([sys.executable, "-m", *arguments])


# ---- load --------------------------------------------------------------------------------------------------------------


class Load:
    """A client that goes on submitting over every kill, from a thread of its own. Use as a context.

    Short jobs of both classes and training jobs with checkpoints, which trials as large as a node preempt. A submit that fails
    is sent again with its request_id until it is answered. There are never more than `ahead` jobs that have not completed.
    """

    def __init__(self, site: Site, seed: int, ahead: int = 10) -> None:
        self.answered: dict[str, int] = {}
        """request_id -> job, of every submit that got an answer."""
        self._site = site
        self._random = Random(seed)
        self._seed = seed
        self._ahead = ahead
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load-{seed}")

    def __enter__(self) -> "Load":
        self._ended_before = self._site.evidence.count("end")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * LIMIT)
        assert not self._thread.is_alive()

    def wait_for_progress(self, answers: int = 3, ends: int = 2) -> None:
        """Until it got so many answers, and so many jobs completed, from now on."""
        answered, ended = len(self.answered), self._site.evidence.count("end")

        def moved() -> bool:
            if self._fault is not None:
                raise self._fault
            return len(self.answered) >= answered + answers and self._site.evidence.count("end") >= ended + ends

        wait_for(moved, LIMIT)

    def check(self) -> None:
        """Every job that was accepted is there, once, and is the one that was answered."""
        if self._fault is not None:
            raise self._fault
        rows = self._site.database.ask("SELECT id, request_id FROM job WHERE request_id LIKE %s", f"load-{self._seed}-%")
        assert {row["request_id"]: row["id"] for row in rows} == self.answered
        assert len(rows) == len(self.answered)

    def _run(self) -> None:
        try:
            with Client(self._site.cluster.address, timeout=5) as client:
                for number in range(10_000):
                    while len(self.answered) - (self._site.evidence.count("end") - self._ended_before) >= self._ahead:
                        if self._stop.wait(0.01):
                            return
                    if self._stop.wait(self._random.uniform(0, 0.03)):
                        return
                    self._submit(client, f"load-{self._seed}-{number}", self._choose())
        except BaseException as fault:
            self._fault = fault

    def _submit(self, client: Client, request_id: str, job: Callable[..., Job]) -> None:
        last: EbbError | None = None
        for _ in range(20):
            try:
                self.answered[request_id] = job(client=client, request_id=request_id).id
                return
            except EbbError as error:
                last = error
        raise AssertionError(f"{request_id} was not accepted") from last

    def _choose(self) -> Callable[..., Job]:
        draw = self._random.random()
        if draw < 0.15:
            steps, devices = str(self._random.randint(5, 20)), self._random.choice([4, WHOLE_NODE])
            return lambda **o: self._site.trainer("--steps", steps, devices=devices, grace=30, **o)
        job_class = "trial" if draw < 0.4 else "best-effort"
        devices = self._random.choice([1, 2, 4, WHOLE_NODE]) if job_class == "trial" else self._random.choice([0, 1, 2])
        seconds = self._random.uniform(0, 0.1)
        return lambda **o: self._site.short(seconds, job_class=job_class, devices=devices, grace=5, **o)
