"""The acts of the show. Each act waits for the event that it shows, and raises Failed if that does not happen."""

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from client_sdk import JobEvent
from examples.demo.gandiva.cluster import GAIN, PERIOD, Site
from examples.demo.gandiva.rates import Step, lost_or_repeated, rate, turns
from examples.demo.stage import Failed

Say = Callable[[str], None]
TRIED, KEPT, UNDONE = "packing is tried", "packing is kept", "packing is undone"
_TIMES = re.compile(r"([0-9.]+) times the work")


class Turns(NamedTuple):
    """How jobs took turns on a device."""

    jobs: tuple[str, ...]
    rates: tuple[float, ...]
    """Steps a second, of each."""
    in_a_row: float
    """Steps that one of them did before another one did some, on average."""


class Packing(NamedTuple):
    """A trial of packing, as the scheduler judged it and as the step logs have it."""

    kind: str
    in_turns: float
    """Steps a second of both jobs together."""
    packed: float
    ratio: float
    """How much more work the scheduler measured."""
    kept: bool


class Move(NamedTuple):
    job: str
    source: str
    target: str
    step: int
    """The first one at the target."""
    seconds: float
    """Between the last step at the source and the first one at the target."""


class Sizes(NamedTuple):
    """The size of the elastic job: the number of its tasks, and the parts of steps that it computes per second."""

    tasks: int
    rate: float


# ---- turns -------------------------------------------------------------------------------------------------------------


def oversubscribe(site: Site, kinds: Sequence[str], say: Say) -> list[Turns]:
    """Twice as many jobs as devices start at once. Jobs of one kind share a device, since each third job joins the first."""
    names = [f"{kind}-{number}" for number in (1, 2) for kind in kinds]
    for name in names:
        site.submit(name, name.partition("-")[0])
    site.runs(*names)
    devices = {name: (site.job(name).node, site.job(name).devices) for name in names}
    say(f"{len(names)} jobs run on {len(set(devices.values()))} devices; none waits.")
    return [_in_turns(site, [f"{kind}-{number}" for number in (1, 2)], say) for kind in kinds]


def _in_turns(site: Site, names: Sequence[str], say: Say) -> Turns:
    """Watches two jobs until they have taken turns for a while, at most until they are packed."""
    one, other = names
    if site.job(one).devices != site.job(other).devices:
        raise Failed(f"{one} and {other} do not share a device: {site.job(one).devices} and {site.job(other).devices}")
    since = max(site.steps(name)[0].ended for name in names)
    site.until(lambda: time.time() > since + 1.5 * PERIOD, f"{one} and {other} to take turns")
    until = _when(site.told(one, TRIED)) or time.time()
    logs = {name: site.steps(name) for name in names}
    found = turns(logs, since, until)
    mean = sum(found) / len(found)
    rates = tuple(rate(logs[name], since, until) for name in names)
    if len(found) < 2 or mean < 5 or not all(rates):
        raise Failed(f"{one} and {other} take no turns: their steps come in sequences of {found}")
    line = site.told(other, "takes turns")
    say(f"{one} and {other} take turns: {rates[0]:.1f} and {rates[1]:.1f} steps/s, {mean:.0f} steps at a time.")
    if line is None:
        raise Failed(f"the story of {other} does not say that it takes turns")
    return Turns(tuple(names), rates, mean)


def _when(line: JobEvent | None) -> float:
    return _seconds(line.time) if line is not None else 0.0


def _seconds(moment: datetime | None) -> float:
    assert moment is not None  # every line of a story has a time
    return moment.timestamp()


# ---- packing -----------------------------------------------------------------------------------------------------------


def pack(site: Site, kind: str, say: Say) -> Packing:
    """Waits for the verdict about two jobs of one kind."""
    names = [f"{kind}-{number}" for number in (1, 2)]
    tried = site.until(lambda: site.told(names[0], TRIED), f"packing of two {kind}s to be tried")
    verdict = site.until(lambda: site.told(names[0], KEPT, UNDONE), f"a verdict about packing two {kind}s")
    found = _TIMES.search(verdict.text)
    if found is None:
        raise Failed(f"packing of two {kind}s was not measured: {verdict.text}")
    begin, end = _when(tried), _when(verdict)
    since = max(max(site.steps(name)[0].ended for name in names), begin - 2 * PERIOD)
    logs = [site.steps(name) for name in names]
    before, after = (sum(rate(steps, *times) for steps in logs) for times in ((since, begin), (begin, end)))
    kept, ratio = KEPT in verdict.text, float(found[1])
    say(f"{kind}s: {verdict.text}.")
    if kept is not (ratio > 1 + GAIN / 100):
        raise Failed(f"the verdict about two {kind}s does not follow from what was measured: {verdict.text}")
    return Packing(kind, before, after, ratio, kept)


def stays(site: Site, kind: str, packed: bool) -> None:
    """Waits until the step logs show that the verdict holds: jobs that are packed alternate, others take turns again."""
    names = [f"{kind}-{number}" for number in (1, 2)]
    since = _when(site.told(names[0], KEPT, UNDONE))

    def seen() -> bool:
        now = time.time()
        found = turns({name: site.steps(name) for name in names}, now - 1.5 * PERIOD, now)
        mean = sum(found) / max(len(found), 1)
        return now > since + 2 * PERIOD and len(found) > 1 and (mean < 5) is packed

    site.until(seen, f"two {kind}s to execute {'together' if packed else 'in turns'}")


# ---- a move ------------------------------------------------------------------------------------------------------------


def defragment(site: Site, source: str, target: str, say: Say) -> Move:
    """A job starts on a node of its own, and moves to one in use that has room."""
    name = "mover"
    site.submit(name, "reader")
    site.runs(name)
    if (node := site.steps(name)[0].node) != source:
        raise Failed(f"{name} starts on {node}, not on {source}")
    say(f"{name} starts on {source}, of which one device stays idle.")
    site.until(lambda: any(step.node == target for step in site.steps(name)), f"{name} to move to {target}")
    steps = site.steps(name)
    there = next(i for i, step in enumerate(steps) if step.node == target)
    if wrong := lost_or_repeated(steps):
        raise Failed(f"{name} has lost work: {'; '.join(wrong)}")
    line = site.told(name, "has room")
    if line is None:
        raise Failed(f"the story of {name} does not say why it moved")
    took = steps[there].ended - steps[there - 1].ended
    say(f"{name} moves {line.text}.")
    say(f"{name} goes on with step {steps[there].number}, {took:.1f} s after its last step on {source}. No step is lost.")
    return Move(name, source, target, steps[there].number, took)


# ---- growing and shrinking ---------------------------------------------------------------------------------------------


def resize(site: Site, say: Say) -> list[Sizes]:
    """An elastic job takes an idle device, and gives it back to a job that needs it."""
    name, wants = "elastic", "newcomer"
    site.submit(name, "reader", parts=2, most=2)
    sizes = [_size(site, name, 1, 1)]
    line = site.until(lambda: site.told(name, "it grows"), f"{name} to grow")
    say(f"{name}: {line.text}.")
    sizes.append(_size(site, name, 2, 2))
    site.submit(wants, "reader")
    line = site.until(lambda: site.told(name, "gives back"), f"{name} to shrink")
    say(f"{name}: {line.text}.")
    sizes.append(_size(site, name, 3, 1))
    site.runs(wants)
    if site.told(wants, "takes turns") is not None:
        raise Failed(f"{wants} takes turns with others, though {name} has given back a device")
    rates = ", ".join(f"{each.rate:.1f} with {each.tasks} device{'s' * (each.tasks > 1)}" for each in sizes)
    say(f"{name} did {rates} (parts of steps a second), and {wants} runs on the device that it gave back.")
    return sizes


def _size(site: Site, name: str, run: int, tasks: int) -> Sizes:
    """The job in this run, measured for two seconds. Each task does its share of the two parts of a step."""
    found: list[Step] = []

    def steps() -> list[Step]:
        found[:] = [step for step in site.steps(name) if step.run == run]
        return found

    site.until(lambda: len({step.task for step in steps()}) == tasks, f"{name} to run with {tasks} tasks")
    since = max(next(step.ended for step in found if step.task == task) for task in range(tasks))
    site.until(lambda: time.time() > since + 2, f"{name} to be measured")
    return Sizes(tasks, rate(steps(), since, since + 2) * 2 / tasks)
