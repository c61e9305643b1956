"""Clusters and jobs of all kinds, for tests that draw them."""

from collections.abc import Sequence
from itertools import chain, product

from hypothesis import strategies as st

from scheduler_service.core.model import (
    Array,
    Configuration,
    Exit0AfterStop,
    JobClass,
    JobSpec,
    NodeSelector,
    Retry,
    ShareMode,
    TaskGroup,
)
from scheduler_service.core.model.configurations import ANY_NODE
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND, ZERO, Vector, add
from scheduler_service.policies.chosen_stages import stages
from scheduler_service.policies.options import PreemptionSettings
from scheduler_service.policies.stages import Stages

CAPACITIES = (Vector(4000, 4096, 4), Vector(8000, 2048, 2), Vector(4000, 4096, 0))
USUAL = st.builds(Vector, st.sampled_from((250, 500, 1000)), st.sampled_from((1, 256)), st.sampled_from((2, 1, 3, 4)))
ODD = st.builds(
    Vector, st.sampled_from((0, 1000, 4000, 9000)), st.sampled_from((0, 1, 1024, 4096)), st.sampled_from((0, 1, 2, 5))
)
DEMANDS = st.one_of(USUAL, USUAL, USUAL, ODD)
SMALL = st.builds(Vector, st.sampled_from((250, 1000)), st.sampled_from((1, 256)), st.sampled_from((1, 0, 2)))


def gang_of(groups: Sequence[TaskGroup]) -> tuple[tuple[TaskGroup, ...], Vector]:
    """The groups, and what they need in all."""
    total = ZERO
    for group in groups:
        for _ in range(group.size):
            total = add(total, group.demand)
    return tuple(groups), total


GANGS = (
    st.lists(st.builds(lambda size, demand: TaskGroup(size, demand), st.integers(1, 3), SMALL), min_size=1, max_size=2)
    .filter(lambda groups: 2 <= sum(group.size for group in groups) <= 4)
    .map(gang_of)
)
ONE_TASK = DEMANDS.map(lambda demand: ((), demand))
RETRIES = (Retry(), Retry(), Retry(2), Retry(1, (1,)), Retry(3, (), (9,)))
ARRAYS = (None, None, None, None, None, Array(1), Array(3), Array(3, 1), Array(4, 2))
GRACES = (0, SECOND, 10 * SECOND, 60 * SECOND)


def _spec(shape: tuple[tuple[TaskGroup, ...], Vector], job_class: JobClass, **more: object) -> JobSpec:
    return JobSpec(("true",), shape[1], job_class, gang=shape[0], **more)  # type: ignore[arg-type]


LABELS = ((("zone", "a"),), (("rack", "r1"), ("zone", "b")), ())
"""Of nodes, in turn."""
NODES: st.SearchStrategy[NodeSelector] = st.sampled_from(
    (
        *[ANY_NODE] * 8,
        NodeSelector(labels=(("zone", "a"),)),
        NodeSelector(labels=(("zone", "b"),), excluded=("n2",)),
        NodeSelector(excluded=("n1",)),
        NodeSelector(names=("n1", "n2")),
    )
)
MODELS = st.sampled_from(("", "", "", "", "A100", "T4")).map(lambda model: CellRequest(model=model))
MEMORY = st.sampled_from((0, 0, 0, 16_384, 20_000))


def _configuration(shape: tuple[tuple[TaskGroup, ...], Vector], **more: object) -> Configuration:
    return Configuration(shape[1], shape[0], **more)  # type: ignore[arg-type]


CONFIGURATIONS = st.builds(
    _configuration,
    st.one_of(ONE_TASK, ONE_TASK, GANGS),
    cells=MODELS,
    device_memory_mib=MEMORY,
    nodes=NODES,
    estimate_us=st.sampled_from((0, SECOND, 100 * SECOND)),
)
ALTERNATIVES = st.one_of(st.just(()), st.just(()), st.lists(CONFIGURATIONS, max_size=3).map(tuple))

PARTS = st.sampled_from(
    (
        *[None] * 6,
        (500_000, 0, ShareMode.SLICED),
        (250_000, 100, ShareMode.SLICED),
        (700_000, 1000, ShareMode.SLICED),
        (500_000, 0, ShareMode.PACKED),
        (0, 9_000, ShareMode.PACKED),
        (0, 16_000, ShareMode.PACKED),
        (300_000, 2_000, ShareMode.PACKED),
    )
)
"""Fraction of a device, memory of it, and how it is shared."""


def _with_part(spec: JobSpec, part: tuple[int, int, ShareMode] | None) -> JobSpec:
    if part is None or spec.gang or spec.alternatives:
        return spec
    fraction, memory, share = part
    demand = spec.demand._replace(devices=1)
    return with_changes(spec, demand=demand, gpu_fraction_ppm=fraction, gpu_memory_mib=memory, share=share)


_WHOLE: st.SearchStrategy[JobSpec] = st.builds(
    _spec,
    st.one_of(ONE_TASK, ONE_TASK, GANGS),
    st.sampled_from(JobClass),
    grace_us=st.sampled_from(GRACES),
    priority=st.sampled_from((0, 0, 0, 1, -1, 5)),
    time_limit_us=st.sampled_from((0, 0, 3 * SECOND, 60 * SECOND)),
    estimate_us=st.sampled_from((0, SECOND, 100 * SECOND)),
    retry=st.sampled_from(RETRIES),
    array=st.sampled_from(ARRAYS),
    exit_0_after_stop=st.sampled_from(Exit0AfterStop),
    cells=MODELS,
    device_memory_mib=MEMORY,
    nodes=NODES,
    alternatives=ALTERNATIVES,
    project=st.sampled_from(("", "", "p", "q")),
).map(lambda spec: with_changes(spec, min_tasks=1, max_tasks=4) if len(spec.gang) == 1 and not spec.alternatives else spec)
"""Gangs of one group are elastic."""
SPECS: st.SearchStrategy[JobSpec] = st.builds(_with_part, _WHOLE, PARTS)

PARAMETERS = (
    PreemptionSettings(cap=2),
    PreemptionSettings(cap=1, trials_in_flight=1),
    PreemptionSettings(s=1.0, cap=2, trials_in_flight=2),
    PreemptionSettings(s=0.0, cap=1),
    PreemptionSettings(cap=0),
)


def _policies() -> list[tuple[Stages, int, bool]]:
    """Every policy, the cap that it must keep, and whether it backfills."""
    preempting = product(("fitgpp", "fitgpp", "thrifty", "lrtp", "rand"), PARAMETERS, (False, True))
    plain = (("fifo", PreemptionSettings(cap=0), backfilled) for backfilled in (False, True))
    made = [(stages(name, given, filled), given.cap, filled) for name, given, filled in chain(preempting, plain)]
    services = ({"threshold": 4}, {"threshold": 4, "second_threshold": 60, "patience": 1}, {"threshold": 60, "budget": 2})
    made += [(stages("las", PreemptionSettings(), own=own), 0, False) for own in services for _ in range(3)]
    matched = ({"alpha": 0}, {"alpha": 0.5}, {"alpha": 1}, {"alpha": 0.5, "long": 0, "period": 3}, {"long": 2, "period": 1})
    sampled = ({"sample_most": 3}, {"sample_most": 60, "sample_share": 1, "long": 2, "period": 1}, {"sample_percent": 0})
    matched += tuple({"alpha": 1} | own for own in sampled)
    made += [(stages("allox", PreemptionSettings(), own=own), 0, False) for own in matched for _ in range(2)]
    priced = ({}, {"limit": 1, "patience": 1}, {"long": 2, "period": 1})
    made += [(stages("allox-priced", PreemptionSettings(), own=own), 0, False) for own in priced for _ in range(2)]
    sliced = ({"rows": 2}, {"oversubscription": 8, "packing_gain": 0, "grow_after": 30}, {"packed_most": 2, "probe_periods": 1})
    made += [(stages("gandiva", given, own=own), given.cap, False) for own in sliced for given in PARAMETERS[:3]]
    shares = ({"half_life": 60, "period": 3}, {"half_life": 600, "period": 60, "other_projects": 0, "project.p": 2})
    return made + [(stages("fair", PreemptionSettings(), f, own=own), 0, f) for own in shares for f in (False, False, True)]


POLICIES = st.sampled_from(_policies())

SETTINGS: st.SearchStrategy[Settings] = st.builds(
    lambda **chosen: Settings()._replace(**chosen),
    earmark_ttl_us=st.sampled_from((SECOND, 60 * SECOND)),
    aging_us=st.sampled_from((0, 2 * SECOND, 3600 * SECOND)),
    min_run_us=st.sampled_from((0, 2 * SECOND, 600 * SECOND)),
    gang_start_us=st.sampled_from((5 * SECOND, 60 * SECOND)),
    blame_nodes=st.sampled_from((3, 2, 0)),
    fault_retries=st.sampled_from((0, 2)),
    bad_node_strikes=st.sampled_from((0, 3, 1)),
    history_rows=st.sampled_from((0, 0, 2)),
)
EXITS: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    (
        {},
        {},
        {"done": True},
        {"exit_code": 1},
        {"exit_signal": 9},
        {"yielded": True},
        {"yielded": True},
        {"unknown": True},
        {"launch_error": "no such file"},
        {"exit_signal": 9, "out_of_memory": True},
        {"exit_signal": 9, "node_stopped": True},
    )
)
