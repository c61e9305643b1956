"""Cost of introspection for the engine: 5,000 nodes of eight devices, on which 20,000 runs request more devices than exist,
and each run reports a mini-batch time once a minute.

Jobs take turns, are profiled, and are packed if the reports show that it pays. In addition to the reports, three runs end
each second, and as many jobs arrive. A step takes the events of a tenth of a second. Times are of the engine's thread, without
the commit and the decoding of messages.
"""

from random import Random
from time import thread_time_ns

from benchmarks.figures import Figure, figure, quantile
from benchmarks.step_cost import Stream
from scheduler_service.core.messages import Event, MiniBatchMeasured, Submitted
from scheduler_service.core.model import JobSpec, RunKey
from scheduler_service.core.model.values import SECOND, Vector

NODES, RUNS = 5_000, 20_000
CAPACITY = Vector(128_000, 4 << 20, 8)
"""With memory for two rows of parked runs."""
STEP_US = SECOND // 10
LOOKED_AT_S = 480
TURNOVER_S = 3
"""Runs that end in a second."""
SIZES = (1, 1, 2, 2, 4, 8)
"""Devices of jobs, as likely as each other: 60,000 in all."""


class Introspected(Stream):
    """Runs of three kinds: the devices of the first are nearly idle, and those of the last are busy."""

    def __init__(self) -> None:
        super().__init__(NODES, CAPACITY, policy="gandiva")
        self.kinds: dict[int, int] = {}

    def submit(self, *_: object) -> Submitted:
        devices = self.random.choice(SIZES)
        kind = self.random.randrange(3)
        demand = Vector(2_000 * devices, 4096 * devices, devices)
        return Submitted("ann", "", JobSpec(("train",), demand, name=f"{['vae', 'rhn', 'resnet'][kind]}-{self.now}"))

    def measured(self, node: int, key: RunKey, random: Random) -> MiniBatchMeasured:
        job = self.state.jobs.rows[key.job_id]
        kind = ("vae", "rhn", "resnet").index(job.spec.name.partition("-")[0])
        run = self.state.runs.rows[key]
        group = self.state.share_groups.rows.get(run.group)
        packed = group is not None and any(
            key in row.runs and other != key and set(self.state.runs.rows[other].devices) & set(run.devices)
            for row in group.rows
            for other in row.runs
        )
        slower = (1.1, 1.5, 2.3)[kind] if packed else 1.0
        time = round(100_000 * slower * random.uniform(0.98, 1.02))
        return MiniBatchMeasured(self.names[node], key, time, 40, 950_000, 8_000, (100_000, 600_000, 950_000)[kind])


def run() -> list[Figure]:
    stream, random = Introspected(), Random(7)
    while len(stream.running) < RUNS:
        stream.take(stream.submit(), after=STEP_US)
        while stream.to_start:
            stream.take(stream.start(), after=0)
    groups = len(stream.state.share_groups.rows)
    print(f"{len(stream.running)} runs, {groups} share groups")
    times, told = [], 0
    reports_per_step = RUNS * STEP_US // (60 * SECOND)
    place = 0
    for number in range(LOOKED_AT_S * SECOND // STEP_US):
        events: list[Event] = []
        for _ in range(reports_per_step):
            place = (place + 1) % len(stream.running)
            events.append(stream.measured(*stream.running[place], random))
        told += len(events)
        if number % (SECOND // STEP_US // TURNOVER_S) == 0:
            events += [stream.exit(), stream.submit()]
        while stream.to_start:
            events.append(stream.start())
        begin = thread_time_ns()
        stream.take(*events, after=STEP_US)
        times.append((thread_time_ns() - begin) / 1e6)
    kept = sum(memo.value[0] == 1 for (_, subject), memo in stream.state.memos.rows.items() if "pair/" in subject)
    print(f"{told} reports, {len(stream.state.share_groups.rows)} share groups, {kept} pairs of kinds for which packing pays")
    ordered = sorted(times)
    share = sum(times) / (LOOKED_AT_S * 1000)
    name = "5,000 nodes, 20,000 runs"
    return [
        figure("introspection", f"processor time of the engine, {name}", 100 * share, "% of a core", at_most=25),
        figure("introspection", f"p50 of a step, {name}", quantile(ordered, 0.5), "ms"),
        figure("introspection", f"p99 of a step, {name}", quantile(ordered, 0.99), "ms", at_most=10),
        figure("introspection", f"longest step, {name}", ordered[-1], "ms"),
    ]


if __name__ == "__main__":
    for one in run():
        print(one)
