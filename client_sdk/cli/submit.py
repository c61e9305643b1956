"""`ebb submit`."""

import contextlib
import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from client_sdk._values.job_options import JobOptions
from client_sdk.cli import job_file, job_options, option_values
from client_sdk.cli.explain import say_preview
from client_sdk.cli.logs_and_wait import end_text, exit_status
from client_sdk.cli.output import common as output
from client_sdk.cli.session import Number, Session, output_option, quiet_option
from client_sdk.errors import InvalidArgument
from client_sdk.models import JobState


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Submit a job.")
@click.option("-f", "--file", type=click.File(encoding="utf-8"), help="Take the job from a YAML file; options win over it.")
@click.option("--trial", is_flag=True, help="Must start now; may have best-effort jobs preempted for it.")
@click.option("--best-effort", is_flag=True, help="Runs when there is room (the default).")
@click.option("-n", "--name", help="A name for people: letters, digits, blanks and any of ._:/=+-")
@click.option("-c", "--cpus", type=Number(min=0), help="CPU cores, also parts.  [default: what goes with the devices, else 1]")
@click.option("-m", "--memory", help="Host memory, such as 4GiB.  [default: what goes with the devices, else 1GiB]")
@click.option(
    "-g", "--devices", "--gpus", metavar="N", type=Number(min=0), help="Devices (GPUs), or a fraction of one.  [default: 0]"
)
@click.option("--gpu-memory", metavar="SIZE", help="The most memory of a shared device that the job uses, such as 10GiB.")
@click.option(
    "--share",
    type=click.Choice(["exclusive", "packed", "sliced"]),
    help="Share the device in turn (sliced) or at the same time (packed).  [default: as the fraction or --gpu-memory asks]",
)
@click.option(
    "--grace",
    metavar="TIME",
    help="From the stop signal to the kill, such as 30s; 0: killed at once; auto: the site's, and more if saves take longer.  "
    "[default: auto]",
)
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Set a variable; NAME alone takes it from here.")
@click.option(
    "--export",
    metavar="NAMES",
    help="What the job inherits: ALL, NONE, or names and NAME=VALUE with commas.  [default: PATH,VIRTUAL_ENV,CONDA_*]",
)
@click.option("--cwd", metavar="DIR", help="The command's directory on the node.  [default: this one]")
@click.option(
    "--snapshot", is_flag=True, default=None, help="Take the files of this directory along, and run in a copy of them."
)
@click.option("--snapshot-dir", metavar="DIR", help="Take the files of DIR along; run in a copy.")
@click.option("--venv", metavar="DIR", help="Run in this virtual environment of the node.")
@click.option("--conda", metavar="NAME", help="Run in this conda environment of the node, by its name here or its path there.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Higher ones stand before others.  [default: 0]")
@click.option("-t", "--time-limit", metavar="TIME", help="The longest that it may run, such as 90s, 2h, 1d.")
@click.option("--estimate", metavar="TIME", help="How long it is expected to run.")
@click.option("--retries", metavar="N", type=click.IntRange(0, 100), help="Run it again, so often, when a run fails.")
@click.option("--retry-on", metavar="CODES", multiple=True, help="Only for these, such as 75,SIGKILL.  [default: any failure]")
@click.option(
    "--exit-0-after-stop",
    type=click.Choice(["stopped", "done"]),
    help="What an exit with 0 means after a stop signal, such as that of a preemption; stopped: run again.  [default: stopped]",
)
@click.option(
    "--checkpoint-signal",
    metavar="SIGNAL[@SECONDS]",
    help="Ask the program to save by this signal, such as USR1@60, before SIGTERM.",
)
@click.option(
    "--checkpoint-command",
    metavar="CMD",
    help="Save the program's work by this command; EBB_PID is the program's process.",
)
@click.option("--tasks", metavar="N", type=click.IntRange(min=1), help="A gang of N tasks, each with the above.")
@click.option("--task", multiple=True, metavar="N:gpus=1,...", help="A gang's group of N tasks. May be repeated.")
@click.option("--min-tasks", metavar="N", type=click.IntRange(min=1), help="Elastic: never fewer tasks.  [default: 1]")
@click.option("--max-tasks", metavar="N", type=click.IntRange(min=1), help="Elastic: never more tasks; see `ebb resize`.")
@click.option("--after-ok", multiple=True, metavar="ID,...", help="Wait until these jobs have succeeded.")
@click.option("--after-any", multiple=True, metavar="ID,...", help="Wait until these have ended.")
@click.option("--after-failed", multiple=True, metavar="ID,...", help="Wait until these have failed.")
@click.option("-a", "--array", metavar="N[%M]", help="N jobs (EBB_ARRAY_INDEX 0 to N-1), at most M of them at once.")
@click.option("--project", metavar="NAME", help="What you work on, to which the job's usage is charged.")
@click.option("--vc", metavar="NAME", help="The virtual cluster that it belongs to.  [default: $EBB_VC]")
@click.option("--overflow", is_flag=True, help="Where its cells are in use, take anybody's idle ones.")
@click.option("--opportunistic", is_flag=True, help="Only anybody's idle cells, until reclaimed.")
@click.option("--pool", help="The pool to run in.  [default: any where the virtual cluster has room]")
@click.option("--model", help="Only devices of this model.")
@click.option("--device-memory", metavar="SIZE", help="Only devices with at least so much memory, such as 40GiB.")
@click.option("--node", "nodes", metavar="NAME,...", multiple=True, help="Only one of these nodes.")
@click.option("--node-label", "node_labels", metavar="NAME=VALUE", multiple=True, help="Only nodes with all of these labels.")
@click.option("--exclude-node", "exclude_nodes", metavar="NAME,...", multiple=True, help="None of these nodes.")
@click.option(
    "--or",
    "alternatives",
    metavar="'NAME=VALUE ...'",
    multiple=True,
    help="Or in this configuration, such as 'devices=2 model=V100 estimate=3h'. May be repeated.",
)
@click.option("--pin", metavar="NAME", help="Run in this pinned cell of the virtual cluster.")
@click.option("--cell", metavar="LEVEL", help="Take a whole cell of this level, such as socket.")
@click.option(
    "--within",
    metavar="LEVEL",
    multiple=True,
    help="All tasks in one cell of this level, such as rack; rack:preferred means only where that is possible now.",
)
@click.option(
    "--lazy", is_flag=True, default=None, help="Where its own virtual cluster takes its cells, run on as opportunistic."
)
@click.option(
    "--vacates", is_flag=True, default=None, help="Leave, and wait, where its virtual cluster owns fewer cells than it did."
)
@click.option(
    "--hook/--no-hook",
    default=None,
    help="Count the optimizer steps of PyTorch programs, and park them when needed. [default: hook]",
)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--wait", "wait_", is_flag=True, help="Wait for the job's end, and leave as `ebb wait` does.")
@click.option("--request-id", metavar="ID", help="The same id never submits twice; for scripts that may run again.")
@output_option("json", "yaml")
@quiet_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    file: IO[str] | None,
    dry_run: bool,
    wait_: bool,
    request_id: str | None,
    fmt: str | None,
    quiet: bool,
    **said: Any,
) -> None:
    """Submit COMMAND as a job. It is safe on the scheduler's disk when this returns.

    The command is executed as written, without a shell; use `-- sh -c '...'` to run one.

    \b
    Examples:
      ebb submit -- python train.py --steps 1000
      ebb submit --name resnet --cpus 4 --memory 16GiB --devices 1 --grace 2m -- python train.py
      ebb submit --trial --devices 1 --wait -- python try_it.py
      ebb submit --dry-run --trial --devices 2 -- python try_it.py
      ebb submit --retries 3 --retry-on 75,SIGKILL --time-limit 2h -- ./flaky.sh
      ebb submit --grace 90s --checkpoint-signal USR1@60 -- ./simulate
      ebb submit --tasks 4 --devices 1 -- python train.py
      ebb submit --task 1:cpus=8 --task 4:gpus=1,cpus=4,memory=16GiB -- python train.py
      ebb submit --array 100%8 -- ./sweep.sh
      ebb submit --after-ok $(ebb submit -q -- ./prepare.sh) -- ./train.sh
      ebb submit --vc vision --overflow --devices 4 -- python train.py
      ebb submit --vc vision --tasks 2 --devices 8 --within rack -- python train.py
      ebb submit --devices 1 --model A100 --estimate 1h --or 'devices=1 model=V100 estimate=3h' -- python train.py
      ebb submit --devices 1 --or 'cpus=16 command="python train.py --cpu"' -- python train.py
      ebb submit --devices 2 --device-memory 40GiB --node-label zone=a --exclude-node n7 -- python train.py
      ebb submit --gpus 0.5 -- python notebook.py
      ebb submit --gpu-memory 10GiB -- python small.py
      ebb submit --snapshot --venv /shared/envs/torch --devices 1 -- python train.py
      ebb submit -f job.yaml

    A job file has the names of the options as its keys:

    \b
      # job.yaml
      name: resnet
      command: [python, train.py, --steps, 1000]
      class: best-effort          # or trial
      cpus: 4
      memory: 16GiB
      devices: 1
      grace: 2m
      time_limit: 1d
      estimate: 8h
      priority: 10
      retries: 3
      retry_on: [75, SIGKILL]
      tasks:                      # a gang: a number, or groups
        - {count: 1, devices: 0, cpus: 8}
        - {count: 4, command: [python, work.py]}
      after_ok: [7]
      # after_any: [8]
      # after_failed: [9]
      # array: 10%2
      # project: speech
      # vc: vision
      # guarantee: overflow       # or guaranteed, opportunistic
      # within: [rack, {level: node, preferred: true}]
      # pool: a100                # or model: A100-SXM4-80GB; or pin: demo
      # device_memory: 40GiB
      # gpu_memory: 10GiB         # of a shared device; or devices: 0.5
      # share: packed             # or sliced, exclusive
      # nodes: [n1, n2]           # without virtual clusters; also exclude_nodes
      # node_labels: {zone: a}
      # alternatives:             # other configurations, of which one is chosen for each launch
      #   - {devices: 1, model: V100, estimate: 24h}
      #   - {cpus: 16, command: [python, train.py, --cpu], env: {LR: 0.05}}
      # cell: node                # whole cells of this level
      # vacates: true
      # lazy: true
      # exit_0_after_stop: done   # or stopped: run again
      # checkpoint_signal: USR1@60
      # checkpoint_command: ./save.sh $EBB_PID
      # hook: false               # leave PyTorch programs alone
      env: {LR: 0.1}
      # export: [PATH, CONDA_*]   # or ALL, NONE: what it inherits from your shell
      cwd: /data/resnet
      # snapshot: true            # or a directory: instead of cwd
      # venv: /shared/envs/torch  # or conda: torch
    """
    client = ctx.find_object(Session).client  # type: ignore[union-attr]
    command, options = _merge_options(said, {} if file is None else job_file.read(file), "" if file is None else file.name)
    if dry_run:
        if wait_ or request_id is not None:
            raise click.UsageError("with --dry-run nothing is submitted, so there is nothing to --wait for and no --request-id")
        preview = client.preview(command, **options)
        if fmt is not None:
            output.emit(preview, fmt)
        elif not quiet:
            say_preview(preview)
        return
    job = client.submit(command, request_id=request_id, **options)
    with _report_unwritten_id(job.id):
        if quiet:
            click.echo(job.id)
        elif fmt is None:
            click.echo(f"submitted job {job.id}")
        sys.stdout.flush()
    if wait_:
        try:
            job = client.wait(job)
        except KeyboardInterrupt:
            click.echo(f"ebb: job {job.id} goes on; `ebb cancel {job.id}` ends it", err=True)
            raise
    if fmt is not None and not quiet:
        with _report_unwritten_id(job.id):
            output.emit(job, fmt)
            sys.stdout.flush()
    if wait_:
        if job.state is not JobState.SUCCEEDED:
            output.say(f"ebb: {end_text(job)}", err=True)
        ctx.exit(exit_status(job))


@contextlib.contextmanager
def _report_unwritten_id(job_id: int) -> Iterator[None]:
    """Print the ID of a submitted job to standard error if writing it fails, on a full disk for example."""
    try:
        yield
    except OSError:
        output.say(f"ebb: job {job_id} is submitted all the same", err=True)
        raise


_FLAGS = {"nodes": "--node", "node_labels": "--node-label", "exclude_nodes": "--exclude-node", "alternatives": "--or"}
"""Options that may be repeated: the key of a job file is the plural."""


def _merge_options(said: dict[str, Any], filed: dict[str, Any], name: str) -> tuple[list[str], JobOptions]:
    """The command and options of a job, from the command line and a file."""
    groups = list(said.pop("task"))
    if groups and said["tasks"] is not None:
        raise click.UsageError("--tasks is for tasks that are alike, --task for groups of them: take one")
    job_class, guarantee = _one_of(said, "trial", "best-effort"), _one_of(said, "overflow", "opportunistic")
    said |= {"class": job_class, "guarantee": guarantee, "snapshot": said.pop("snapshot_dir") or said["snapshot"]}
    given = {key: value for key, value in said.items() if value not in (None, ())}
    if groups:
        given["tasks"] = groups
    captured = given.get("snapshot", filed.get("snapshot"))
    merged = ({} if captured else {"cwd": "."}) | filed | given
    if "env" in filed and "env" in given:
        merged["env"] = [filed["env"], *given["env"]]

    def name_of(key: str) -> str:
        if key not in given and key in filed:
            return f"{name}: {key}"
        return "--task" if key == "tasks" and groups else _FLAGS.get(key, f"--{key.replace('_', '-')}")

    command = merged.pop("command", None)
    if command is None:
        raise click.UsageError(f"{name} has no command, and none is given" if name else "Missing argument 'COMMAND...'.")
    options = job_options.job_options(merged, name_of)
    if "command" in given:
        return list(command), options
    try:
        return option_values.command(command), options
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: command: {error}") from error


def _one_of(said: dict[str, Any], *names: str) -> str | None:
    """Which of these flags was given: at most one, for a job is only one of them."""
    given = [name for name in names if said.pop(name.replace("-", "_"))]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in given)} say different things; leave one out")
    return given[0] if given else None
