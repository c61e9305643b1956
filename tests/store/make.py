"""Rows for tests: plain ones, and any ones (hypothesis)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from scheduler_service.core.model import (
    ENDED,
    Array,
    CandidateScore,
    Cluster,
    Configuration,
    Decision,
    Dependency,
    DependencyKind,
    Earmark,
    EarmarkPhase,
    Elements,
    EventKind,
    Exit0AfterStop,
    Job,
    JobClass,
    JobEvent,
    JobSpec,
    JobState,
    Node,
    NodeDevice,
    NodeSelector,
    NodeState,
    OperationKind,
    OperationPhase,
    Reason,
    Retry,
    Run,
    RunKey,
    RunPhase,
    ShareMode,
    StopReason,
    Strike,
    TaskGroup,
)
from scheduler_service.core.model.estimates import Estimate, History, PastRun, Reading, Sampling, Source
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import Parking, PhaseTime
from scheduler_service.core.model.saves import LaunchSave, SaveOutcome, SaveResult
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Exchange,
    ExchangeState,
    LedgerEntry,
    Lot,
    Posting,
    PostingKind,
    PostingState,
    Surplus,
)
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.model.tenants.virtual_clusters import (
    Binding,
    CellRequest,
    Guarantee,
    Pin,
    Quota,
    VcPolicy,
    VirtualCluster,
    Within,
)
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.journal import Change
from scheduler_service.store import Loaded, Market

T = 1_700_000_000_000_001
SPEC = JobSpec(("python", "train.py"), Vector(4000, 16384, 1), JobClass.BEST_EFFORT, 30_000_000, "train", (("A", "b"),), "/tmp")
CLUSTER = Cluster("lab", 7)
NODE = Node(1, "n1", "boot", NodeState.UP, Vector(64000, 256000, 4), ("socket",), T)
DEVICE = NodeDevice(1, 0, "GPU-0", "sim", 81920, (0,), numa_node=0, link_domain=1)
VC = VirtualCluster(1, "vision", (Quota("a100", "node", 2),), (Pin("big", "a100", "node", 7),), 3, VcPolicy("fitgpp", cap=2))
BINDING = Binding("a100", "node", 7, 1, "big")
LOT = Lot("a100", "node", 2, T, T + 3_600_000_000, devices=8)
OFFER = Posting(1, PostingKind.OFFER, 1, LOT, T, LOT.end_us, request_id="post 1")
REQUEST = Posting(2, PostingKind.REQUEST, 2, LOT, T, LOT.end_us, request_id="post 1", state=PostingState.MATCHED)
EXCHANGE = Exchange(1, 1, 2, 1, 2, LOT, LOT.device_us, T)
TABLES = {
    Cluster: "cluster",
    Job: "job",
    Run: "run",
    Node: "node",
    NodeDevice: "device",
    Earmark: "earmark",
    VirtualCluster: "virtual_cluster",
    Binding: "cell_binding",
    Memo: "memo",
    ShareGroup: "share_group",
    Operation: "operation",
    History: "history",
    Posting: "exchange_posting",
    Exchange: "exchange",
    LedgerEntry: "exchange_ledger",
    Surplus: "exchange_surplus",
    IdleCells: "idle_cells",
}


def job(job_id: int, **fields: Any) -> Job:
    return Job(**{"id": job_id, "spec": SPEC, "user": "ada", "request_id": "", "submitted_us": T, **fields})


def run(job_id: int, number: int = 1, **fields: Any) -> Run:
    given = {"node": 1, "devices": (0,), "demand": SPEC.demand, "phase": RunPhase.STARTING, "placed_us": T}
    return Run(job_id, number, **{**given, **fields})


def earmark(earmark_id: int, job_id: int, **fields: Any) -> Earmark:
    given = {"phase": EarmarkPhase.VACATING, "node": 1, "want": Vector(2, 2, 2)}
    return Earmark(earmark_id, job_id=job_id, **{**given, **fields})


def memo(subject: str, **fields: Any) -> Memo:
    return Memo(**{"policy": "las", "subject": subject, "value": (1, "a"), **fields})


def share_group(number: int, **fields: Any) -> ShareGroup:
    given = {"devices": ((1, (0,)),), "rows": (Row((RunKey(1, 1),)), Row((RunKey(2, 1),), 3))}
    return ShareGroup(number, **{**given, **fields})


def operation(number: int, job_id: int, **fields: Any) -> Operation:
    given = {"kind": OperationKind.PARK, "phase": OperationPhase.PARKING, "source": RunKey(job_id, 1)}
    return Operation(**{"id": number, "job_id": job_id, "begun_us": T, "phase_us": T, **given, **fields})


def history(script: str, **fields: Any) -> History:
    return History(**{"user": "ada", "script": script, "runs": (PastRun("sim", 1, 2, 1, (0.5,), 9),), "used_us": T, **fields})


def submitted(job_id: int) -> JobEvent:
    return JobEvent(job_id, T, EventKind.SUBMITTED)


def new(*rows: Any) -> list[Change]:
    """The changes that add these rows."""
    return [Change(TABLES[type(row)], None, None, row) for row in rows]


def changed(old: Any, **fields: Any) -> Change:
    return Change(TABLES[type(old)], None, old, replace(old, **fields))


def deleted(row: Any) -> Change:
    return Change(TABLES[type(row)], None, row, None)


def loaded(commit_no: int, rows: Iterable[Any]) -> Loaded:
    """What `load` should give after these rows were committed."""
    kinds: dict[type, list[Any]] = {kind: [] for kind in TABLES}
    for row in rows:
        kinds[type(row)].append(row)
    last = {(r.id, r.run) for r in kinds[Job] if r.state not in ENDED}
    return Loaded(
        cluster=next(iter(kinds[Cluster]), None),
        jobs=tuple(sorted((r for r in kinds[Job] if r.state not in ENDED), key=lambda r: r.id)),
        runs=tuple(sorted((r for r in kinds[Run] if r.phase is not RunPhase.ENDED), key=lambda r: r.key)),
        share_groups=tuple(sorted(kinds[ShareGroup], key=lambda r: r.id)),
        operations=tuple(sorted(kinds[Operation], key=lambda r: r.id)),
        nodes=tuple(sorted(kinds[Node], key=lambda r: r.id)),
        devices=tuple(sorted(kinds[NodeDevice], key=lambda r: (r.node, r.index))),
        earmarks=tuple(sorted(kinds[Earmark], key=lambda r: r.id)),
        vcs=tuple(sorted(kinds[VirtualCluster], key=lambda r: r.id)),
        bindings=tuple(sorted(kinds[Binding], key=lambda r: (r.pool, r.level, r.index))),
        memos=tuple(sorted(kinds[Memo], key=lambda r: (r.policy, r.subject))),
        history=tuple(sorted(kinds[History], key=lambda r: (r.user, r.script))),
        market=Market(
            tuple(sorted((r for r in kinds[Posting] if r.state is PostingState.OPEN), key=lambda r: r.id)),
            tuple(sorted((r for r in kinds[Exchange] if r.state is not ExchangeState.RETURNED), key=lambda r: r.id)),
            tuple(sorted(kinds[Surplus], key=lambda r: r.vc)),
            tuple(sorted(kinds[IdleCells], key=lambda r: (r.vc, r.pool, r.level))),
        ),
        last_runs=tuple(
            sorted((r for r in kinds[Run] if r.phase is RunPhase.ENDED and r.key[:2] in last), key=lambda r: r.key)
        ),
        commit_no=commit_no,
    )


# -- any rows ------------------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
big = st.integers(0, 2**63 - 1)
small = st.integers(-(2**31), 2**31 - 1)
natural = st.integers(0, 2**31 - 1)
positive = st.integers(1, 2**31 - 1)
times = st.integers(0, 2**62)
vectors = st.builds(Vector, big, big, natural)
reals = st.floats(allow_nan=False)


def maybe(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | values


dependencies = st.lists(st.builds(Dependency, big, st.sampled_from(DependencyKind)), max_size=2).map(tuple)
withins = st.builds(Within, words, st.booleans(), small)
cell_requests = st.builds(
    CellRequest,
    words,
    words,
    words,
    st.lists(words, max_size=2).map(tuple),
    st.lists(withins, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
)
own_settings = st.dictionaries(words, st.floats(allow_nan=False, allow_infinity=False), max_size=2)
vc_policies = st.builds(
    VcPolicy,
    words,
    st.floats(allow_nan=False),
    natural,
    st.none() | natural,
    natural,
    natural,
    natural,
    own_settings.map(lambda given: tuple(given.items())),
)
quotas_of = st.lists(st.builds(Quota, words, words, st.integers(1, 2**31 - 1)), max_size=3).map(tuple)
pins_of = st.lists(st.builds(Pin, words, words, words, natural), max_size=2).map(tuple)
nodes_of = st.lists(big, max_size=2).map(tuple)

gangs = st.lists(st.builds(TaskGroup, st.integers(1, 3), vectors, st.lists(words, max_size=2).map(tuple)), max_size=2).map(
    tuple
)
pairs = st.lists(st.tuples(words, words), max_size=2).map(tuple)
names_of = st.lists(words, max_size=2).map(tuple)
node_selectors = st.builds(NodeSelector, names_of, pairs, names_of)
configurations = st.builds(
    Configuration, vectors, gangs, cell_requests, natural, node_selectors, names_of, pairs, st.integers(0, 2**63 - 1)
)
labels_of = st.dictionaries(words, words, max_size=2).map(lambda given: tuple(sorted(given.items())))

specs = st.builds(
    JobSpec,
    command=st.lists(words, min_size=1, max_size=3).map(tuple),
    demand=vectors,
    job_class=st.sampled_from(JobClass),
    grace_us=big,
    name=words,
    environment=st.lists(st.tuples(words, words), max_size=3).map(tuple),
    working_directory=words,
    priority=small,
    time_limit_us=big,
    estimate_us=big,
    retry=st.builds(Retry, natural, st.lists(natural, max_size=2).map(tuple), st.lists(natural, max_size=2).map(tuple)),
    gang=gangs,
    dependencies=dependencies,
    array=st.none() | st.builds(Array, natural, natural),
    vc=words,
    guarantee=st.sampled_from(Guarantee),
    cells=cell_requests,
    exit_0_after_stop=st.sampled_from(Exit0AfterStop),
    project=words,
    checkpoint_signal=words,
    checkpoint_command=words,
    snapshots=names_of,
    inherited=pairs,
    device_memory_mib=natural,
    gpu_fraction_ppm=natural,
    gpu_memory_mib=natural,
    share=st.sampled_from(ShareMode),
    nodes=node_selectors,
    alternatives=st.lists(configurations, max_size=2).map(tuple),
)


estimates = st.builds(Estimate, natural, st.sampled_from(Source), big, big, natural, words, st.booleans())
readings = st.lists(st.builds(Reading, natural, big), max_size=2).map(tuple)
samplings = st.builds(Sampling, natural, big, maybe(times), readings, natural, natural, natural)
past_runs = st.builds(PastRun, words, natural, natural, natural, st.lists(st.floats(-1e300, 1e300), max_size=2).map(tuple), big)

save_results = st.builds(SaveResult, st.sampled_from(SaveOutcome), st.integers(-1, 2**53), words)


@st.composite
def jobs(draw: st.DrawFn, job_id: int, spec: JobSpec | None = None) -> Job:
    state, spec = draw(st.sampled_from(JobState)), spec or draw(specs)
    return Job(
        job_id,
        spec,
        f"user {job_id % 2}",
        f"request {job_id}" if job_id % 3 else "",
        T + job_id,
        state,
        draw(st.sampled_from(Reason)),
        draw(words),
        draw(big),
        draw(natural),
        draw(st.booleans()),
        draw(natural),
        draw(st.booleans()),
        draw(maybe(times)),
        draw(times) if state in ENDED else None,
        draw(small),
        draw(small),
        draw(small),
        draw(big),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(natural),
        draw(maybe(times)),
        draw(big),
        draw(maybe(times)),
        draw(maybe(times)),
        draw(words),
        draw(nodes_of),
        draw(nodes_of),
        draw(nodes_of),
        draw(st.sampled_from(Reason)),
        draw(st.booleans()),
        draw(dependencies),
        draw(st.none() | st.builds(Elements, natural, natural, natural, natural)),
        job_id % 3,
        job_id % 5,
        draw(st.integers(0, len(spec.alternatives))),
        draw(nodes_of),
        draw(st.lists(estimates, max_size=2).map(tuple)),
        draw(maybe(samplings)),
        last_save=draw(st.none() | st.builds(LaunchSave, natural, save_results)),
    )


parkings = st.builds(
    Parking, natural, st.booleans(), st.lists(natural, max_size=3).map(tuple), maybe(times), times, words, natural
)
phase_times = st.builds(PhaseTime, st.sampled_from(OperationKind), st.sampled_from(OperationPhase), times, times, words)


@st.composite
def runs(draw: st.DrawFn, job_id: int, number: int, node: int, alive: bool, task: int = 0, vc: str = "") -> Run:
    phase = draw(st.sampled_from([p for p in RunPhase if p is not RunPhase.ENDED])) if alive else RunPhase.ENDED
    shared = draw(st.booleans())
    devices, demand, parking = draw(st.lists(natural, max_size=3).map(tuple)), draw(vectors), draw(st.none() | parkings)
    if parking is not None and parking.devices:
        devices, demand = (), demand._replace(devices=0)
    return Run(
        job_id,
        number,
        node,
        devices,
        demand,
        phase,
        draw(times),
        draw(maybe(times)),
        None if alive else draw(times),
        draw(words),
        draw(st.none() | st.sampled_from(StopReason)),
        draw(big),
        draw(maybe(times)),
        draw(big),
        draw(small),
        draw(small),
        draw(st.booleans()),
        draw(st.booleans()),
        task,
        draw(words),
        draw(maybe(times)),
        vc,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(words),
        draw(st.integers(1, 2**63 - 1)),
        draw(big) if shared else 0,
        draw(big),
        draw(big),
        shared,
        parking,
        draw(st.lists(phase_times, max_size=2).map(tuple)),
        draw(st.integers(0, 1_000_000)),
        save=draw(st.none() | save_results),
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """The rows of a whole cluster, which refer to each other as they should."""
    count = st.integers(1, 2**40)
    numbers = [draw(count) for _ in range(4)]
    seed = draw(st.integers(-(2**63), 2**63 - 1))
    rows: list[Any] = [Cluster("lab", seed, *numbers, draw(times), *(draw(count) for _ in range(4)))]
    rows += [draw(share_groups(number)) for number in range(1, draw(st.integers(0, 2)) + 1)]
    nodes = draw(st.integers(1, 3))
    for n in range(1, nodes + 1):
        levels = draw(st.lists(words, max_size=2).map(tuple))
        state = draw(st.sampled_from(NodeState))
        rows.append(
            Node(
                n,
                f"n{n}",
                draw(words),
                state,
                draw(vectors),
                levels,
                draw(times),
                draw(big),
                draw(words),
                draw(words),
                draw(maybe(times)),
                draw(words),
                draw(words),
                draw(natural),
                draw(labels_of),
                draw(words),
                tuple(draw(st.lists(st.builds(Strike, count, maybe(words), words), max_size=2))),
            )
        )
    for j in range(1, draw(st.integers(0, 3)) + 1):
        job = draw(jobs(j))
        rows.append(job)
        launches = draw(st.integers(0, 3))
        on = [draw(st.integers(1, nodes)) for _ in range(launches)]
        for number, node in enumerate(on, 1):
            alive = number == launches and draw(st.booleans())
            rows.append(draw(runs(j, number, node, alive, vc=job.spec.vc)))
            for task in range(1, draw(st.integers(1, 3))):
                elsewhere, lives = draw(st.integers(1, nodes)), alive and draw(st.booleans())
                rows.append(draw(runs(j, number, elsewhere, lives, task, job.spec.vc)))
            path = draw(st.lists(natural, max_size=2).map(tuple))
            named = node, j * 10 + number, f"GPU-{j}.{number}", draw(words), draw(big), path
            rows.append(NodeDevice(*named, draw(st.none() | natural), draw(st.none() | natural), draw(words)))
        if draw(st.booleans()):
            rows.append(draw(operations(j, j)))
        if draw(st.booleans()):
            want = draw(vectors)
            kept = Vector(*(draw(st.integers(0, part)) for part in want))
            victims = draw(st.lists(st.builds(RunKey, big, natural), max_size=2).map(tuple))
            phase = draw(st.sampled_from(EarmarkPhase))
            node = draw(st.integers(1, nodes))
            tasks_there = draw(st.lists(natural, max_size=2).map(tuple))
            devices = tuple(draw(nodes_of) for _ in tasks_there)
            last = draw(times), draw(maybe(times)), tasks_there, devices, draw(st.integers(0, 15))
            rows.append(Earmark(j, phase, j, node, want, kept, victims, *last))
    for v in range(1, draw(st.integers(0, 3)) + 1):
        row = draw(st.builds(VirtualCluster, st.just(v), st.just(f"vc {v}"), quotas_of, pins_of, positive, vc_policies))
        cells = draw(st.lists(st.tuples(words, words, natural), max_size=3, unique=True))
        rows += [row, *(Binding(f"{v} {pool}", level, index, v, draw(words)) for pool, level, index in cells)]
        kinds = draw(st.lists(st.tuples(words, words), max_size=2, unique=True))
        rows += [IdleCells(v, pool, level, draw(histories), draw(maybe(times))) for pool, level in kinds]
    for script in draw(st.lists(words, max_size=2, unique=True)):
        rows.append(history(script, runs=draw(st.lists(past_runs, max_size=2).map(tuple)), used_us=draw(times)))
    return rows + draw(markets())


amounts = st.integers(-(2**62), 2**62)
keys = st.builds(RunKey, big, natural)
memo_values = st.lists(st.one_of(st.integers(-(2**60), 2**60), words), max_size=3).map(tuple)
histories = st.lists(st.tuples(times, natural), max_size=3).map(tuple)


@st.composite
def lots(draw: st.DrawFn) -> Lot:
    begin = draw(times)
    return Lot(draw(words), draw(words), draw(positive), begin, begin + draw(st.integers(1, 2**60)), draw(natural))


@st.composite
def postings(draw: st.DrawFn, posting_id: int) -> Posting:
    lot = draw(lots())
    posted = draw(st.integers(0, lot.end_us))
    swap = draw(st.none() | lots())
    return Posting(
        posting_id,
        draw(st.sampled_from(PostingKind)),
        draw(positive),
        lot,
        posted,
        draw(st.integers(posted, lot.end_us)),
        draw(maybe(big)) if swap is None else None,
        swap,
        draw(st.sampled_from(PostingState)),
        draw(st.booleans()),
        draw(maybe(times)),
        f"request {posting_id}" if posting_id % 2 else "",
    )


rows_of = st.lists(
    st.builds(Row, st.lists(keys, min_size=1, max_size=2).map(tuple), st.just(0) | positive), min_size=1, max_size=3
).filter(lambda rows: any(row.weight for row in rows))
holdings = st.lists(st.tuples(big, st.lists(natural, min_size=1, max_size=3).map(tuple)), min_size=1, max_size=2)


@st.composite
def share_groups(draw: st.DrawFn, number: int) -> ShareGroup:
    devices, members = tuple(draw(holdings)), tuple(draw(rows_of))
    period, generation = draw(st.integers(1, 2**62)), draw(st.integers(1, 2**62))
    return ShareGroup(number, devices, members, period, draw(words), draw(st.booleans()), generation, draw(st.booleans()))


words_or_numbers = st.one_of(st.integers(-(2**60), 2**60), words)


@st.composite
def operations(draw: st.DrawFn, number: int, job_id: int) -> Operation:
    return Operation(
        number,
        draw(st.sampled_from(OperationKind)),
        draw(st.sampled_from(OperationPhase)),
        job_id,
        draw(keys),
        draw(times),
        draw(times),
        draw(st.none() | keys),
        draw(maybe(times)),
        draw(st.lists(words_or_numbers, max_size=2).map(tuple)),
        draw(st.dictionaries(words, words_or_numbers, max_size=2).map(lambda found: tuple(sorted(found.items())))),
    )


@st.composite
def exchanges(draw: st.DrawFn, exchange_id: int, postings: int) -> Exchange:
    state, giver = draw(st.sampled_from(ExchangeState)), draw(positive)
    offer, request = draw(st.integers(0, postings)), draw(st.integers(1, postings))
    return Exchange(
        exchange_id,
        offer,
        request,
        giver,
        giver + 1,
        draw(lots()),
        draw(big),
        draw(times),
        draw(st.integers(0, exchange_id)),
        state,
        draw(st.sampled_from((0, giver, giver + 1))),
        draw(times) if state is ExchangeState.ACTIVE else draw(maybe(times)),
        draw(times) if state is ExchangeState.RETURNED else None,
        f"request {exchange_id}" if exchange_id % 2 else "",
    )


@st.composite
def markets(draw: st.DrawFn) -> list[Any]:
    """Postings and exchanges, and what was booked for these; whose they are may be gone."""
    posted = [draw(postings(number)) for number in range(1, draw(st.integers(0, 3)) + 1)]
    rows: list[Any] = [*posted]
    for number in range(1, (draw(st.integers(0, 2)) if posted else 0) + 1):
        exchange = draw(exchanges(number, len(posted)))
        what, amount = draw(st.sampled_from(Booking)), draw(st.integers(1, 2**100))
        rows += [
            exchange,
            LedgerEntry(exchange.giver, number, what, amount, draw(times)),
            LedgerEntry(exchange.taker, number, what, -amount, draw(times)),
        ]
    return rows + [Surplus(vc, draw(amounts)) for vc in range(1, draw(st.integers(0, 2)) + 1)]


candidates = st.builds(CandidateScore, keys, big, vectors, vectors, reals, big, reals, natural, st.booleans(), st.booleans())
decisions = st.builds(
    Decision, big, big, vectors, words, reals, natural, reals, big, natural, st.lists(candidates, max_size=2).map(tuple)
)
events = st.builds(
    JobEvent,
    st.just(1),
    times,
    st.sampled_from(EventKind),
    natural,
    big,
    st.sampled_from(Reason),
    big,
    small,
    small,
    words,
    st.none() | decisions,
)
