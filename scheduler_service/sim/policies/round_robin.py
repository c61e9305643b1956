"""round-robin: a job that does not fit takes turns with others instead of waiting (Gandiva, section 4.2.1, without its servers'
affinities, packing and migration).

It is there to show what turns alone do, and to test shares: first come, first served, and a job that finds no idle devices goes
to the node whose devices have the fewest users. Runs stay on the devices on which they began.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Rng, Share, Spot, Wait
from scheduler_service.core.model import Job, Reason, Run, RunKey
from scheduler_service.core.model.values import SECOND, fits
from scheduler_service.core.sharing.equations import limit_mib, users_of
from scheduler_service.core.state.holdings import runs_together
from scheduler_service.core.state.queue_keys import OWN_LANES, own_lane
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.order.fifo import head_of
from scheduler_service.policies.placing.first_fit import no_room, place, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.stages import Stages
from scheduler_service.sim.policies.ousterhout import Device, Member, rows_of


class Settings(NamedTuple):
    """Settings of this policy alone."""

    slice: float = 60
    """Seconds of each turn."""
    users: int = 8
    """How many runs may have a device at most."""


def round_robin(state: State, settings: Settings) -> Proposals:
    yield from start_on_earmarks(state, place_on_earmarks)
    skipped = dict.fromkeys(OWN_LANES, 0)
    while (job := head_of(state, skipped)) is not None:
        action = place(state, job) or joining(state, job, settings) or no_room(state, job)
        refused = yield (action,)
        if isinstance(action, Wait) and action.reason is not Reason.TOO_LARGE:
            return
        skipped[own_lane(job)] += refused is not None  # else it has left the queue


def joining(state: State, job: Job, settings: Settings) -> Place | None:
    """Has the job take turns on the devices that have the fewest users; None: it is a gang, or no node has room for it."""
    spec = job.spec
    if spec.gang or spec.alternatives or not spec.demand.devices:
        return None
    host = spec.demand._replace(devices=0)
    found: list[tuple[int, int, tuple[int, ...]]] = []
    users = _users(state)
    for node in state.nodes.rows.values():
        if not state.is_usable(spec, node.id) or not fits(host, state.free_resources.free(node.id)):
            continue
        faulty = state.faulty_devices.get(node.id, 0)
        there = [index for index in range(node.capacity.devices) if not faulty >> index & 1]
        counts = sorted((len(users.get((node.id, index), ())), index) for index in there)[: spec.demand.devices]
        if len(counts) == spec.demand.devices and counts[-1][0] < settings.users:
            found.append((sum(count for count, _ in counts), node.id, tuple(sorted(index for _, index in counts))))
    if not found:
        return None
    _, at, devices = min(found)
    run = RunKey(job.id, job.next_run)
    others = {
        one.key: one for device in devices for other in users.get((at, device), ()) for one in runs_together(state, other)
    }
    members = [Member((run,), frozenset((at, index) for index in devices)), *_members(others.values())]
    rows = rows_of(members)
    limits = tuple(_limits(state, members))
    share = Share(rows, limits, round(settings.slice * SECOND) * len(rows))
    return Place(job.id, (Spot(at, devices),), share=share)


def _users(state: State) -> dict[Device, list[int]]:
    """The jobs that use each device."""
    found = users_of(run for run in state.runs.rows.values() if run.demand.devices)
    return {device: [run.job_id for run in runs] for device, runs in found.items()}


def _members(runs: Iterable[Run]) -> Iterator[Member]:
    by_job: dict[int, list[Run]] = {}
    for run in runs:
        by_job.setdefault(run.job_id, []).append(run)
    for tasks in by_job.values():
        devices = frozenset((run.node, index) for run in tasks for index in run.devices)
        yield Member(tuple(sorted(run.key for run in tasks)), devices)


def _limits(state: State, members: list[Member]) -> Iterator[tuple[RunKey, int]]:
    """Each run may use what is left of its devices beside what the others leave there while they are parked."""
    count: dict[Device, int] = {}
    for member in members:
        for device in member.devices:
            count[device] = count.get(device, 0) + 1
    for member in members:
        left = min(
            limit_mib(state.devices.rows[device].memory_mib, state.settings)
            - (count[device] - 1) * state.settings.parked_residue_mib
            for device in member.devices
        )
        yield from ((key, max(left, 0)) for key in member.runs)


def stages(options: Options) -> Stages:
    """Raises ValueError for settings that cannot be."""
    settings = own_settings(Settings, options.own)
    if settings.slice <= 0 or settings.users < 1:
        raise ValueError(f"the settings slice ({settings.slice:g}) and users ({settings.users:g}) must be more than 0")

    def policy(state: State, _rng: Rng) -> Proposals:
        return round_robin(state, settings)

    return Stages(policy)
