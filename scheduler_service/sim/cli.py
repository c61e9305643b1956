"""`ebb-sim`: the command line of the simulator. Slow imports are done by the commands that need them."""

import errno
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_service.sim.experiments.config import Config
    from scheduler_service.sim.experiments.estimates import Group

METRICS = ("slowdown", "wait", "completion", "preemptions", "queue", "utilisation", "cost", "fairness", "vcs", "sharing")


class Commands(click.Group):
    """A group that reports Ctrl-C and a full disk, which may come at any time, in words."""

    program = "ebb-sim"

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _end("stopped", 130, self.program)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader has seen enough, and click handles it
            _end(": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error)))), 1, self.program)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="ebb-cluster", prog_name="ebb-sim")
def main() -> None:
    """Ask what a policy would have done: Ebb's own engine on a simulated cluster.

    \b
    In five minutes:
      ebb-sim init > site.yaml       a configuration with comments
      ebb-sim run site.yaml          simulate it, compare the policies, draw figures
    """


@main.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/ and the file's name]")
@click.option("--check", is_flag=True, help="Check the configuration, say what would be simulated, and exit.")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("-j", "--jobs", metavar="N", type=click.IntRange(1), help="So many at a time on this machine; as --on local[N].")
@click.option(
    "--keep",
    type=click.Choice(["summary", "jobs", "all"]),
    default="all",
    show_default=True,
    help="What stays of each simulation: its figures; and a row for each job; and one for each run.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Keep jobs and runs as CSV, too, in seconds, CPUs and GiB.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already, and replace results of another run.")
@click.option("--figures/--no-figures", default=True, help="Draw figures (PNG and SVG).  [default: figures]")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of tables.")
def run(config: Path, output: Path | None, check: bool, on: str, jobs: int | None, **how: Any) -> None:
    """Simulate a configuration, and compare its policies.

    After Ctrl-C the same command continues where it stopped, and so does one with other policies or seeds. A folder with
    results of another cluster or other jobs is refused. The status is 0, 1 if a simulation failed, 2 for a wrong configuration,
    and 130 after Ctrl-C. docs/simulating.md says what the figures mean.

    \b
    Examples:
      ebb-sim run site.yaml --check
      ebb-sim run site.yaml -o results/site -j 4
      ebb-sim run site.yaml --on tcp://dask-head:8786 --keep summary
    """
    if jobs is not None and on != "local":
        raise click.UsageError("-j is for this machine: leave --on away, or -j")
    settings, folder = _load(config), output or Path("results") / config.stem
    plan = _plan(settings, config)
    if check:
        click.echo(plan)
        return
    from scheduler_service.sim.experiments.commands import compute

    where = on if jobs is None else f"local[{jobs}]"
    sys.exit(compute(settings.cases(config.parent), folder, where, settings.metrics, **how))


@main.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--against", metavar="LABEL", help="Show how each differs from this one, in per cent.")
@click.option("--metrics", metavar="NAMES", help=f"Some of {', '.join(METRICS)}, with commas.  [default: all that are there]")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of tables.")
@click.option("--figures", metavar="DIR", type=click.Path(path_type=Path), help="Draw the figures of all of them together.")
def compare(results: tuple[Path, ...], against: str | None, metrics: str | None, as_json: bool, figures: Path | None) -> None:
    """Compare the results of one or several `ebb-sim run` commands.

    Numbers are means over seeds; the number after the ± is half of a 95 % interval. With --against, seeds that both have are
    compared one by one: the results of two policies on the same jobs differ far less by chance.

    \b
    Examples:
      ebb-sim compare results/site
      ebb-sim compare results/site --against fifo --metrics slowdown,cost
      ebb-sim compare results/site results/site-with-400-gpus
    """
    chosen = METRICS if metrics is None else tuple(name.strip() for name in metrics.split(","))
    for name in chosen:
        if name not in METRICS:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(METRICS)}", param_hint="--metrics")
    from scheduler_service.sim.experiments.commands import Unusable, groups_in, present

    try:
        groups = groups_in(results)
        base = _find(groups, against) if against is not None else None
    except Unusable as error:
        _end(str(error), 2)
    if figures is not None:  # before anything is shown, as after `run`
        from scheduler_service.sim.experiments.figures import draw

        click.echo(f"{len(draw(groups, figures))} files in {figures}", err=True)
    present(groups, chosen, base, as_json)


@main.command()
def init() -> None:
    """Print a configuration with comments, to begin with.

    \b
    Example:
      ebb-sim init > site.yaml
    """
    click.echo((resources.files("scheduler_service.sim") / "example.yaml").read_text(encoding="utf-8"), nl=False)


def _load(file: Path) -> "Config":
    from scheduler_service.sim.experiments.config import ConfigError, load

    try:
        return load(file)
    except ConfigError as error:
        _end(str(error), 2)


def _plan(settings: "Config", file: Path) -> str:
    """Describe the plan. This also reads the files that the configuration names, and looks at all jobs of the first seed. It
    exits on an error: better once and now than in each simulation."""
    from scheduler_service.sim.experiments.cases import preview
    from scheduler_service.sim.failures import BadSchedule
    from scheduler_service.sim.workloads import BadTrace

    cases = settings.cases(file.parent)
    try:
        different = len({case.digest() for case in cases})
        jobs, skipped = preview(cases[0])
    except OSError as error:
        _end(f"{error.filename} cannot be read: {error.strerror}", 2)
    except (BadTrace, BadSchedule, ValueError, ArithmeticError) as error:
        _end(str(error), 2)
    left_out = f"\n{skipped}" if skipped else ""
    if not jobs:
        _end(f"the workload has no job for this cluster{left_out}", 2)
    capacity = cases[0].capacity()
    nodes = sum(group.nodes for group in settings.cluster)
    return (
        f"{file} is right: {len(settings.policies)} policies x {len(settings.seeds)} seeds, {different} simulations of a "
        f"{settings.workload.kind} workload\non {nodes} nodes with {capacity.devices} GPUs, "
        f"{capacity.cpu_milli / 1000:,g} CPUs and {capacity.memory_mib / 1024:,g} GiB\n"
        f"{jobs:,} jobs in the first{left_out}"
    )


def _find(groups: "Sequence[Group]", label: str) -> "Group":
    found = next((group for group in groups if group.label == label), None)
    if found is None:
        _end(f"there is no {label!r} to compare with; there are {', '.join(repr(group.label) for group in groups)}", 2)
    return found


def _end(why: str, status: int, program: str = "ebb-sim") -> NoReturn:
    click.echo("\n".join(f"{program}: {line}" for line in why.splitlines()), err=True)
    sys.exit(status)
