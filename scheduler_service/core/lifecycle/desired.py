"""The desired state of a run on its node: a function of its row, its job's and its share group's, and, while it is warm, of the
nodes of its launch.

The engine's orders and the answer to an agent that connects are both made here, so they cannot differ.

    phase              desired                                               generation
    STARTING, READY    Running; Prepared while its gang has no rendezvous    the row's, and 1 more with the rendezvous
    RUNNING            none: the node has said that it runs. Running, if it  the same; a change of the plan of its share group
                       is or was in a share group, or was told to park       raises it, and so does a park that is taken back
    WARMING            Warming                                               the same; its begin raises it
    PARKING, PARKED    Parked                                                the same; `park` raises it
    RESUMING           Running                                               the same; `try_to_resume` raises it
    STOPPING           Stopped, within the grace period of the row           the same; `stop_run` and `shorten_grace` raise it
    ENDED              none: it has ended                                    -

The rendezvous counts by itself because it concerns all tasks of a gang: their rows are not written again for it.
"""

from collections import Counter
from functools import lru_cache
from typing import assert_never

from scheduler_service.core.messages import GangPlace, KnownRun, Order, Parked, Prepared, Running, SharePlan, Stopped, Warming
from scheduler_service.core.model import Job, Run, RunPhase, ShareMode, StopReason
from scheduler_service.core.model.sharing import ShareGroup


def desired_order(job: Job, run: Run, group: ShareGroup | None = None, target_nodes: tuple[int, ...] = ()) -> Order | None:
    """The order for the run's node; None if the node has nothing to hear. `group`: the share group that the run is in.
    `target_nodes`: the node of each task in the launch of a WARMING run."""
    match run.phase:
        case RunPhase.STARTING | RunPhase.READY:
            state = Prepared if job.launch_spec.gang and not job.rendezvous else Running
            launched = state(job, run, gang_place(job, run), share_plan(job, run, group))
            return Order(run.node, run.key, generation_of(job, run), launched)
        case RunPhase.WARMING:
            return Order(run.node, run.key, generation_of(job, run), Warming(job, run, gang_place(job, run, target_nodes)))
        case RunPhase.PARKING | RunPhase.PARKED:
            assert run.parking is not None  # `park` gives both
            launch = gang_place(job, run), share_plan(job, run, group)
            parked = Parked(job, run, *launch, run.parking.limit_us, run.parking.times)
            return Order(run.node, run.key, generation_of(job, run), parked)
        case RunPhase.RUNNING | RunPhase.RESUMING if run.shared or run.parking is not None:
            running = Running(job, run, gang_place(job, run), share_plan(job, run, group))
            return Order(run.node, run.key, generation_of(job, run), running)
        case RunPhase.STOPPING:
            assert run.stop_reason is not None  # `stop_run` gives both
            target = _target(job) if run.stop_reason is StopReason.RESIZED else 0
            stopped = Stopped(run.stop_grace_us, run.stop_reason, run.stop_for, target)
            return Order(run.node, run.key, generation_of(job, run), stopped)
        case RunPhase.RUNNING | RunPhase.RESUMING | RunPhase.ENDED:
            return None
        case _:
            assert_never(run.phase)


def _target(job: Job) -> int:
    """The number of tasks of an elastic job's next launch."""
    return job.resize_to or len(job.launch_spec.tasks())


def share_plan(job: Job, run: Run, group: ShareGroup | None) -> SharePlan | None:
    if group is None:
        return None
    active = tuple(place for place, row in enumerate(group.rows) if run.key in row.runs)
    mine = active, run.device_memory_mib, run.parked_mib, job.spec.share is ShareMode.PACKED
    return SharePlan(group.id, group.generation, group.rows, group.period_us, *mine)


def not_needed(run: Run) -> Order:
    """The order for a warm run that does not begin. It has no row any more. A node that is away is told when it connects."""
    return Order(run.node, run.key, run.generation + 2, Stopped(0, StopReason.UNCLAIMED))


def order_for_unclaimed(node: int, known: KnownRun) -> Order:
    """The order for a run that its node has and the state does not: it was lost, and its job may run elsewhere.

    It has no grace period: what it saved now could take the place of what its job has saved elsewhere since. No row counts
    its generations, so the order follows whatever the node has heard.
    """
    return Order(node, known.key, known.generation + 1, Stopped(0, StopReason.UNCLAIMED))


def generation_of(job: Job, run: Run) -> int:
    """The generation of what is desired of the run now."""
    return run.generation + bool(job.rendezvous)


def gang_place(job: Job, run: Run, nodes: tuple[int, ...] = ()) -> GangPlace | None:
    """The place of a task in its gang, of which other tasks may have ended already; None for a job of one task. `nodes`: those
    of the tasks, if this is not the job's launch."""
    return _places(nodes or job.task_nodes)[run.task] if job.launch_spec.gang else None


@lru_cache(maxsize=64)
def _places(task_nodes: tuple[int, ...]) -> tuple[GangPlace, ...]:
    """Places of tasks on these nodes, by rank."""
    nodes = tuple(dict.fromkeys(task_nodes))
    number, there = {node: i for i, node in enumerate(nodes)}, Counter(task_nodes)
    seen: Counter[int] = Counter()
    places = []
    for node in task_nodes:
        places.append(GangPlace(len(task_nodes), seen[node], there[node], number[node], nodes))
        seen[node] += 1
    return tuple(places)
