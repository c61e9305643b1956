"""The present share of its devices that a launch has, by its share group and its neighbors; and the placement of
its tasks, as far as rates depend on it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.model import RunKey
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.nodes import Party, Task
from scheduler_service.sim.sharing.kinds import Spread
from scheduler_service.sim.sharing.model import BILLION, Site
from scheduler_service.sim.sharing.setup import Setup
from scheduler_service.sim.sharing.turns import Group, entry_us, is_in, part_of_cycle, users

Members = Mapping[RunKey, Party]
"""Members of share groups, by the runs of their tasks."""


class Present(NamedTuple):
    """The present execution of a launch. Parts are in billionths."""

    share: int
    """The part of the time in which it executes."""
    done: int
    """Its work relative to that alone all the time: less than its share if it is packed."""
    lost: int
    """The part of the time that is its turn, but in which others are parked and it is resumed."""


ALONE = Present(BILLION, BILLION, 0)


def works(party: Party) -> bool:
    """Whether all of its tasks have begun, and none was signalled, lost or parked."""
    launch = party.launch
    left = launch.signalled_us is not None or launch.lost_us is not None or launch.ended_us is not None
    return launch.works_us is not None and party.stopped_us is None and not left


def present(party: Party, group: Group | None, members: Members, setup: Setup, at: Micros) -> Present:
    """The present execution of a launch. With exact slices it has all of the present turn or nothing; see `entering_us`."""
    if group is None:
        return ALONE
    now = group.active(at)[0] if setup.exact else None
    share = done = lost = 0
    for number, row in enumerate(group.rows):
        if not is_in(row, party) or now not in (None, number):
            continue
        mates = [mate.life.job.kind for mate in users(row, members, party) if works(mate)]
        if now is None:
            entry = entry_us(group, number, party, members, setup.switching)
            part, whole = part_of_cycle(group, number, entry), part_of_cycle(group, number, 0)
        else:
            part = whole = BILLION
        share, lost = share + part, lost + whole - part
        done += part * setup.rates.rate_packed(party.life.job.kind, mates, site(party)) // BILLION
    return Present(share, done, lost)


def is_packed(party: Party, group: Group | None, members: Members) -> bool:
    """Whether another job uses one of its devices at the same time, in any row."""
    rows = () if group is None else group.rows
    return any(works(mate) for row in rows if is_in(row, party) for mate in users(row, members, party))


def entering_us(party: Party, group: Group | None, members: Members, setup: Setup, at: Micros) -> Micros:
    """The time lost at the beginning of the present turn, with exact slices. The turn begins now."""
    return 0 if group is None else entry_us(group, group.active(at)[0], party, members, setup.switching)


def site(party: Party) -> Site:
    """The site of its tasks. For launches with their own devices it is found only when others share them, in a case without
    settings for sharing."""
    if party.site is None:
        party.site = site_of(party.tasks)
    return party.site


def rate_beside_neighbors(
    party: Party, near: Mapping[str, Mapping[int, Party]], shares: Mapping[int, Present], setup: Setup
) -> int:
    """The remaining part of its rate next to the launches on other devices of its nodes. `shares`: those already known of
    launches that also change now."""

    def running_neighbors() -> Iterator[tuple[Party, int]]:
        for node in nodes:
            for key, other in near.get(node, {}).items():
                if other is not party and works(other) and not mine & set(places(other)):
                    pace = other.launch.pace
                    known = shares.get(key)
                    yield other, known.share if known is not None else pace.share if pace is not None else BILLION

    nodes = list(dict.fromkeys(task.node.name for task in party.tasks))
    mine = set(places(party))
    found = list(running_neighbors())
    networked = [share for other, share in found if len({task.node.name for task in other.tasks}) > 1] if len(nodes) > 1 else []
    return setup.rates.rate_beside(party.life.job.kind, [(other.life.job.kind, share) for other, share in found], networked)


def places(party: Party) -> Iterator[tuple[str, int]]:
    return ((task.node.name, device) for task in party.tasks for device in task.devices)


def site_of(tasks: Sequence[Task]) -> Site:
    """The site of the tasks of one launch."""
    found = [(task.node, device) for task in tasks for device in task.devices]
    if not found:
        return Site("", 0, Spread.SWITCH)
    node, device = found[0]
    devices = node.inventory.devices
    model = devices[device].model if devices else ""
    per_node = Counter(id(node) for node, _ in found)
    if len(per_node) > 1:
        return Site(model, len(found), Spread.NODES if min(per_node.values()) > 1 else Spread.SCATTERED)
    return Site(model, len(found), _spread_within([devices[device].path for _, device in found] if devices else []))


def _spread_within(paths: Sequence[tuple[int, ...]]) -> Spread:
    """The spread on one node, by the paths of the devices in its tree. The outermost level is taken as the socket, and the
    innermost one as the switch."""
    common = 0
    for parts in zip(*paths, strict=True):
        if len(set(parts)) > 1:
            break
        common += 1
    if not paths or common == len(paths[0]):
        return Spread.SWITCH
    return Spread.SOCKET if common else Spread.NODE
