"""How jobs change their places along a path of the residual graph."""

import numpy as np

from scheduler_service.policies.allox.matching.instance import Instance
from scheduler_service.policies.allox.matching.plan import Plan, plan
from scheduler_service.policies.allox.matching.problem import Ints
from scheduler_service.policies.allox.matching.residual import NOBODY, Residual


def cheaper(instance: Instance, before: Plan, found: Residual) -> Plan:
    """A cheaper plan than one that is not optimal."""
    assert found.begin is not None
    path, closed = _path(found, found.begin)
    counts = _table(before)
    if not closed:
        counts.flat[found.begin] -= 1
        counts.flat[path[-1]] += 1
    return _move_along(instance, before, found, path, closed, counts)


def enter_job(instance: Instance, before: Plan, found: Residual, job: int) -> Plan:
    """The optimal plan with one job more, from the optimal one without it: the job takes the cheapest place."""
    place = int(cheapest(instance, before, found, np.array([job]))[0])
    path, _ = _path(found, place)
    counts = _table(before)
    counts.flat[path[-1]] += 1
    kind = before.kind.copy()
    kind[job] = place // before.width
    return _move_along(instance, before._replace(kind=kind), found, path, False, counts)


def cheapest(instance: Instance, given: Plan, found: Residual, jobs: Ints) -> Ints:
    """For each of these jobs, the number of the position where adding it to the jobs of the plan would cost least."""
    times, above, below = instance.times[jobs], given.above[jobs], given.below[jobs]
    row = given.width * np.arange(times.shape[1]) - 1
    places = np.hstack((row + above, row + below))
    costs = np.hstack((above * times, below * times)) + found.prices.ravel()[places]
    best: Ints = places[np.arange(len(jobs)), costs.argmin(axis=1)]
    return best


def _path(found: Residual, start: int) -> tuple[list[int], bool]:
    """The positions along which jobs move, and whether they are a circle. The last one of a path takes another slot."""
    towards = found.towards.ravel()
    path, at = [start], {start: 0}
    while (number := int(towards[path[-1]])) != NOBODY:
        if number in at:
            return path[at[number] :], True
        at[number] = len(path)
        path.append(number)
    return path, False


def _move_along(instance: Instance, before: Plan, found: Residual, path: list[int], closed: bool, counts: Ints) -> Plan:
    leaving = path if closed else path[:-1]
    kind = before.kind.copy()
    kind[found.mover.ravel()[leaving]] = found.towards.ravel()[leaving] // before.width
    return plan(instance, kind, list(counts))


def _table(before: Plan) -> Ints:
    return np.array([np.pad(counts, (0, before.width - len(counts))) for counts in before.counts]).reshape(-1, before.width)
