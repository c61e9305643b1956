"""The parts of a policy. The site's loop, virtual clusters, explanations and the simulator are made from the same stages."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Bind, Plan, Remember, Rng, Spot
from scheduler_service.core.model import Decision, Job
from scheduler_service.core.model.values import Mask, Micros
from scheduler_service.core.state.queue_order import BY_PRIORITY, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.placing.resume_placement import Find
from scheduler_service.policies.scope import Starts
from scheduler_service.policies.shares import Shares

Choose = Callable[[State, Job, Rng], Plan | None]
"""On a site without virtual clusters: the plan that makes room for a job; None if nothing that may be preempted would."""


def in_any_configuration(choose: Choose) -> Choose:
    """The choice for the first of a job's configurations for which there is one. `choose` is asked for one configuration."""

    def choose_in_any(state: State, job: Job, rng: Rng) -> Plan | None:
        plans = (choose(state, one, rng) for one in job.in_each_configuration())
        return next((plan for plan in plans if plan is not None), None)

    return choose_in_any


class Ranked(NamedTuple):
    """Jobs that may be preempted, the first victim first, and what the story says about the choice."""

    jobs: list[Job]
    decision: Decision | None = None


Rank = Callable[[State, Job, Sequence[Job], Rng], Ranked]
"""Ranks the jobs that a waiting job may preempt (by `state/preemption_rights`), the first victim first."""


class Victims(NamedTuple):
    """Which runs are preempted for a job that has no room."""

    choose: Choose
    rank: Rank
    """In a virtual cluster: the first of these that make room together are preempted, less those that are not needed."""
    alone: Rank | None = None
    """In a virtual cluster: before that, the first of these that makes room by itself; None: none is sought."""
    spares: Callable[[State, Job], bool] = lambda _state, _job: False
    """Whether the policy's own budget spares a job."""
    cap: int | None = None
    """How often a job may be preempted for trials, on a site without virtual clusters; None: any number of times."""


class Where(NamedTuple):
    """The part of a site in which a job may take turns with others."""

    vc: str = ""
    """The virtual cluster whose runs these are; empty: the site has none."""
    guaranteed: bool = False
    nodes: Sequence[int] | None = None
    """The servers; None: any."""
    plan: Callable[[State, Job], Plan | None] | None = None
    """The plan by which a job would start there next to all that run; None: that is unknown."""
    onto: Callable[[State, Job, int, bool], tuple[tuple[Bind, ...], tuple[Spot, ...]] | None] | None = None
    """The cells and devices of a node on which a running job could resume, besides all that run; None: any idle ones."""
    bindings: Callable[[State, Job, int, Mask], tuple[Bind, ...] | None] | None = None
    """The cells to be bound so that a guaranteed job may have these idle devices of a node; None: it has no right to them."""
    more: Callable[[State, Job, Plan, int], Plan] | None = None
    """Such a plan with up to so many more tasks, beyond the job's guarantee; None: no job is guaranteed anything there."""


Overload = Callable[[State, Job, Where], Plan | None]
"""Decides about a job for which there is no room: the plan by which it takes turns with others; None: it waits."""
PutBack = Callable[[State, str, Find], Proposals]
"""Resumes parked jobs of a virtual cluster, or (empty) of the site, on their devices or where `Find` has room."""
Introspect = Callable[[State, Where], Proposals]
"""Changes how runs of a virtual cluster (empty: of the site) hold devices, by what happened and what was measured: they are
packed, moved, grown and shrunk. Asked after queues were served. What may turn out not to pay is a probe, and is undone."""


class Stages(NamedTuple):
    """A policy. A new one is a file with a function that makes its stages, and an entry of the registry."""

    policy: Policy
    """The loop that serves a site without virtual clusters. In a virtual cluster `hived.policy` serves by the other stages."""
    order: QueueOrder = BY_PRIORITY
    """In which order a queue is served."""
    victims: Victims | None = None
    """None: no job is preempted."""
    starts: Starts | None = None
    """Which queued jobs of a virtual cluster start now in its own cells, and in which configuration. None: the jobs are served
    in order, and one that does not fit holds up those behind it."""
    trials_first: bool = False
    """Trials are served before all other jobs, in queues of their own; False: all jobs of a virtual cluster, or of the site,
    are in one order."""
    remember: Callable[[State, Job], Iterable[Remember]] = lambda _state, _job: ()
    """The notes of the policy about a job that came, went, began to run or ceased to, or whose memo is due: taken before queues
    are served, and again after that."""
    account: Callable[[State, str], Iterable[Remember]] = lambda _state, _subject: ()
    """The notes of the policy about a subject that its order charges, if runs that are charged to the subject began or ended;
    and about a subject whose memo goes with no job (`memo.shared_subject`), if that memo is due."""
    about: Callable[[State, Job], str] = lambda _state, _job: ""
    """For people: the facts that decide where a queued job is in its queue."""
    shares: Callable[[State, str, Micros], Shares] | None = None
    """For people: who has used how much of its share, on the site (empty) or in a virtual cluster. None: the policy does not go
    by usage."""
    learns: bool = False
    """The policy goes by how long jobs run: past runs are kept for that."""
    overload: Overload | None = None
    """None: a job that has no room waits."""
    put_back: PutBack | None = None
    """Resumes jobs that were parked for others, once those that outrank them are served. None: no job is ever parked."""
    introspect: Introspect | None = None
    """None: a run keeps its devices until it ends. If there is such a stage, nodes are asked for measurements."""
    find: Find = place
    """Finds a place for a parked job whose own devices are taken."""
    passed_by: Callable[[State], bool] = lambda _state: False
    """See `fitgpp.strict_trials.passed_by`."""
