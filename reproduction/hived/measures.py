"""The measurements of HiveD's evaluation (paper, section 5), from a simulation's tables of jobs and runs.

Only regular use counts. If the table of runs has a column `guaranteed_us`, a run is regular from then on (null: not when it
ended), and in the earlier times in `guaranteed_before_us`; without that column, all runs are regular from their placement. A
task of a job of several nodes holds a whole node, except for the remainder on the last one, if the job has just as many tasks
as nodes that it fills; else its tasks are alike.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.sim.experiments.history import Floats, History, Ints, Mask, Steps

NODE_GPUS = 8
WINDOW_US: Micros = 12 * 3_600_000_000
"""The window of the paper's moving means and counts: 12 hours."""
MADE_ROOM = ("preempted", "reclaimed")
"""Reasons why a run stops to make room for another."""


class Uses(NamedTuple):
    """The regular tasks, a row for each: node, GPUs, virtual cluster, begin and end."""

    node: Ints
    gpus: Ints
    vc: Ints
    begin: Ints
    end: Ints

    def select(self, rows: Mask) -> "Uses":
        return Uses(*(column[rows] for column in self))


def uses(history: History, runs: Any, node_gpus: int = NODE_GPUS) -> Uses:
    """The regular tasks of the runs. Tasks that were regular for no time are left out."""
    return _tasks(history, runs, *_regular(history, runs), node_gpus)


def all_uses(history: History, runs: Any, node_gpus: int = NODE_GPUS) -> Uses:
    """The tasks of all runs, regular or not."""
    return _tasks(history, runs, np.arange(len(history.placed)), history.placed, history.left, node_gpus)


def _regular(history: History, runs: Any) -> tuple[Ints, Ints, Ints]:
    """Which runs were regular, and from when to when; a run that lost its guarantee and got it back is listed several times."""
    which, begin, end = np.arange(len(history.placed)), history.placed, history.left
    if "guaranteed_us" in runs.column_names:
        since = runs["guaranteed_us"]
        begin = np.where(since.is_valid().to_numpy(), np.maximum(since.fill_null(0).to_numpy(), begin), end)
    if "guaranteed_before_us" in runs.column_names:
        before = runs["guaranteed_before_us"]
        times = pc.list_flatten(before).to_numpy().astype(np.int64)
        again = np.repeat(which, pc.list_value_length(before).fill_null(0).to_numpy() // 2)
        which, begin, end = (np.concatenate(both) for both in ((which, again), (begin, times[::2]), (end, times[1::2])))
    return which, begin, end


def _tasks(history: History, runs: Any, which: Ints, begin: Ints, end: Ints, node_gpus: int) -> Uses:
    """The tasks of these runs, each from its begin to its end."""
    nodes = pc.list_flatten(runs["nodes"]).to_numpy().astype(np.int64)
    lengths = pc.list_value_length(runs["nodes"]).to_numpy().astype(np.int64)
    first, count = (np.cumsum(lengths) - lengths)[which], lengths[which]
    row = np.repeat(np.arange(len(which)), count)
    rank = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    asked = history.demand[2][history.owner][which]
    fills = count == -(-asked // node_gpus)
    filled = np.clip(asked[row] - rank * node_gpus, 0, node_gpus)
    gpus = np.where(fills[row], filled, asked[row] // np.maximum(count[row], 1))
    vc = history.vcs[0][history.owner][which]
    made = Uses(nodes[first[row] + rank], gpus, vc[row], begin[row], end[row])
    return made.select((made.end > made.begin) & (made.gpus > 0))


def gpus_in_use(uses: Uses) -> Steps:
    """GPUs in use."""
    return Steps(np.concatenate((uses.begin, uses.end)), np.concatenate((uses.gpus, -uses.gpus)))


def busy(uses: Uses) -> Steps:
    """The number of nodes that a regular job which needs a whole one cannot have: those with any GPU in use."""
    begin, end, _ = _busy_times(uses)
    return Steps(np.concatenate((begin, end)), np.repeat(np.array([1, -1]), len(begin)))


def lacking(uses: Uses, gpus: int, node_gpus: int = NODE_GPUS) -> Steps:
    """The number of nodes on which the uses leave fewer GPUs than this."""
    node, at = np.tile(uses.node, 2), np.concatenate((uses.begin, uses.end))
    change = np.concatenate((uses.gpus, -uses.gpus))
    order = np.lexsort((-change, at, node))
    lacks = np.cumsum(change[order]) > node_gpus - gpus  # all have ended before the next node's first begins
    turns = np.diff(lacks.astype(np.int64), prepend=0)
    return Steps(at[order][turns != 0], turns[turns != 0])


def _busy_times(uses: Uses) -> tuple[Ints, Ints, Ints]:
    """Begin, end and node of each time in which a node is in use."""
    node, at = np.tile(uses.node, 2), np.concatenate((uses.begin, uses.end))
    change = np.repeat(np.array([1, -1]), len(uses.node))
    order = np.lexsort((-change, at, node))  # one that begins at the moment in which another ends keeps the node in use
    level = np.cumsum(change[order])  # all have ended before the next node's first begins
    ends = level == 0
    begins = np.roll(ends, 1)
    return at[order][begins], at[order][ends], node[order][ends]


def fragmentation(uses: Uses, nodes: int, edges: Floats) -> Floats:
    """The share of the nodes that are not available to an 8-GPU regular job (5.2.2), between each two of the edges."""
    return busy(uses).means(edges) / nodes


def idle_nodes(uses: Uses, nodes: int, begin: Micros, end: Micros, at_least_us: Micros) -> Steps:
    """The number of nodes that are in a period of at least this length without use by a regular job (figure 10)."""
    since, until, node = _busy_times(uses)
    never = np.setdiff1d(np.arange(1, nodes + 1), node)
    every = np.concatenate((np.unique(node), never))
    # a node's idle times lie between its busy ones, and between those and the edges
    all_nodes = np.concatenate((node, every))
    starts = np.clip(np.concatenate((until, np.full(len(every), begin))), begin, end)
    order = np.lexsort((starts, all_nodes))
    stops = np.clip(np.concatenate((since, np.full(len(every), end))), begin, end)
    ends = stops[np.lexsort((stops, all_nodes))]
    starts = starts[order]
    long = (ends - starts >= at_least_us) & (ends > starts)
    starts, ends = starts[long], ends[long]
    return Steps(np.concatenate((starts, ends)), np.repeat(np.array([1, -1]), len(starts)))


def delays(history: History, jobs: Any) -> Ints:
    """How long each job waits for its first start; if it never starts, until the end of the simulation."""
    start = jobs["start_us"]
    known = np.where(start.is_valid().to_numpy(), start.fill_null(0).to_numpy(), history.horizon)
    waited: Ints = known - history.submit
    return waited


def queueing_times(history: History) -> Ints:
    """How long each job had no run. During a migration it has two runs at the same time."""
    order = np.lexsort((history.placed, history.owner))
    running = np.zeros(len(history.submit), np.int64)
    owner, placed, left = history.owner[order], history.placed[order], history.left[order]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    for first, last in pairwise([*starts.tolist(), len(owner)]):
        until = np.maximum.accumulate(left[first:last])
        since = np.maximum(placed[first:last], np.concatenate(([0], until[:-1])))
        running[owner[first]] = np.clip(until - since, 0, None).sum()
    waited: Ints = history.end - history.submit - running
    return waited


def moving_mean(submit: Ints, values: NDArray[Any], at: Floats, window_us: Micros = WINDOW_US) -> Floats:
    """The mean over the jobs that were submitted in the window that ends at each time; NaN if there are no jobs."""
    order = np.argsort(submit, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(values[order].astype(np.float64))))
    first, last = (np.searchsorted(submit[order], at - back, side="right") for back in (window_us, 0))
    count = last - first
    means: Floats = np.where(count > 0, (sums[last] - sums[first]) / np.maximum(count, 1), np.nan)
    return means


def excess(shared: History, shared_delays: Ints, private: History, private_delays: Ints) -> Floats:
    """How much longer each job of the shared cluster waits than in its tenant's private one; NaN if it is not there. A tenant's
    jobs are identified by their submit times, and jobs with the same time by their order.
    """
    known = dict(zip(_names(private), private_delays.tolist(), strict=True))
    theirs = np.array([known.get(name, np.nan) for name in _names(shared)], np.float64)
    return shared_delays - theirs


def _names(history: History) -> Iterator[tuple[str, Micros, int]]:
    """A key for each job: its tenant, its submit time, and how many of the tenant's jobs came before it at that time."""
    seen = Counter[tuple[str, Micros]]()
    codes, names = history.vcs
    for code, at in zip(codes.tolist(), history.submit.tolist(), strict=True):
        yield names[code], at, seen[names[code], at]
        seen[names[code], at] += 1


def waited_in_quota(history: History, delays: Ints, uses: Uses, quotas: Mapping[str, int]) -> Ints:
    """How long of its delay each job would have been within its tenant's quota, in GPUs, had it been started."""
    waited = np.zeros(len(history.submit), np.int64)
    for name, gpus, of in _alike_jobs(history):
        steps = gpus_in_use(uses.select(uses.vc == history.vcs[1].index(name)))
        begin = history.submit[of]
        waited[of] = _time_at_most(steps, quotas.get(name, 0) - gpus, begin, begin + delays[of])
    return waited


def waited_with_cells(history: History, delays: Ints, uses: Uses, owned: Mapping[str, int], node_gpus: int = NODE_GPUS) -> Ints:
    """How long each job was the first of its tenant to wait while there were cells for it, if tenants own `owned` nodes.

    A job of whole nodes had cells while enough of the nodes had none of its tenant's own jobs on them; a smaller one while
    these left it enough GPUs on one node.
    """
    since, waited = _first_since(history, delays), np.zeros(len(history.submit), np.int64)
    for name, gpus, of in _alike_jobs(history):
        steps = lacking(uses.select(uses.vc == history.vcs[1].index(name)), min(gpus, node_gpus), node_gpus)
        most = owned.get(name, 0) - -(-gpus // node_gpus)
        waited[of] = _time_at_most(steps, most, since[of], history.submit[of] + delays[of])
    return waited


def _first_since(history: History, delays: Ints) -> Ints:
    """When each job became the first to wait: all that its tenant had submitted earlier had started, or else its own wait
    ended."""
    since, starts = history.submit.copy(), history.submit + delays
    for code in range(len(history.vcs[1])):
        of = history.vcs[0] == code
        before = np.maximum.accumulate(np.concatenate(([0], starts[of])))[:-1]
        since[of] = np.clip(before, history.submit[of], starts[of])
    return since


def _alike_jobs(history: History) -> Iterator[tuple[str, int, Mask]]:
    """The jobs of each tenant that ask for the same number of GPUs: tenant, GPUs, and a mask of the jobs."""
    codes, names = history.vcs
    for code, name in enumerate(names):
        for gpus in np.unique(history.demand[2][codes == code]).tolist():
            yield name, gpus, (codes == code) & (history.demand[2] == gpus)


def _time_at_most(steps: Steps, most: int, begin: Ints, end: Ints) -> Ints:
    """How long between each begin and end the level was at most this."""
    if most < 0:
        return np.zeros(len(begin), np.int64)
    if not len(steps.at):
        return end - begin
    above = np.concatenate(([0], np.cumsum(np.diff(steps.at) * (steps.level[:-1] > most))))

    def time_until(times: Ints) -> Ints:
        place = np.clip(np.searchsorted(steps.at, times, side="right") - 1, 0, None)
        since = np.clip(times - steps.at[place], 0, None) * (steps.level[place] > most)
        total: Ints = above[place] + since
        return total

    return end - begin - (time_until(end) - time_until(begin))


def anomalies(excess: Floats, in_quota: Ints) -> Floats:
    """How long sharing delayed each job although its tenant's quota had room: how much longer it waited than in the private
    cluster, but at most the time within its quota. 0 if it was not delayed, or if no private cluster could run it."""
    length: Floats = np.clip(np.minimum(np.nan_to_num(excess, nan=0.0), in_quota), 0, None)
    return length


def count_delayed(history: History, lengths: Floats, tolerance_us: Micros) -> dict[str, tuple[int, float]]:
    """For each tenant, how many of its multi-GPU jobs were delayed in quota by more than this, and what share of them."""
    codes, names = history.vcs
    found: dict[str, tuple[int, float]] = {}
    for code, name in enumerate(names):
        of = (codes == code) & (history.demand[2] > 1)
        count = int((of & (lengths > tolerance_us)).sum())
        found[name] = count, count / max(int(of.sum()), 1)
    return found


def gpus_preempted(history: History, runs: Any, edges: Floats) -> Ints:
    """How many GPUs were taken from runs to make room for others, between each two of the edges (figure 8)."""
    why = np.array(runs["why"].to_pylist(), dtype=object)
    of = np.isin(why, MADE_ROOM) & history.has_signal
    gpus = history.demand[2][history.owner[of]]
    counted: Ints = np.histogram(history.signalled[of], edges, weights=gpus)[0].astype(np.int64)
    return counted


def fluctuation(steps: Steps, own: int, begin: Micros, end: Micros) -> float:
    """The Relative Fluctuation of a tenant's use (Eqn 3), with `own`, the GPUs of its virtual cluster, as the mean."""
    level, held = _levels_within(steps, begin, end)
    return float(np.sqrt(np.average((level - own) ** 2, weights=held)) / own)


def effective(steps: Steps, own: int, begin: Micros, end: Micros) -> float:
    """The share of what a tenant owns that is used."""
    level, held = _levels_within(steps, begin, end)
    return float(np.average(np.minimum(level, own), weights=held) / own)


def gain(increased: float, effective: float) -> float:
    """The gain by cell exchange: its addition to a tenant's utilization, relative to that without it (tables 4 and 5)."""
    return increased / effective


def _levels_within(steps: Steps, begin: Micros, end: Micros) -> tuple[Floats, Floats]:
    """The levels between two times, and how long each holds."""
    at = np.clip(np.concatenate(([begin], steps.at, [end])), begin, end)
    return np.concatenate(([0.0], steps.level)).astype(np.float64), np.diff(at).astype(np.float64)


def history_of(tables: tuple[Any, Any], nodes: int) -> History:
    """The history of a cluster of this many nodes in which only GPUs count."""
    return History(*tables, Vector(0, 0, nodes * NODE_GPUS))
