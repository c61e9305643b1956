"""Checks of a submitted spec that the rules of single fields cannot express."""

from ebb.v1 import job_pb2

from scheduler_service.core.model import JobSpec, ShareMode
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND
from scheduler_service.rpc.convert.specs import share_in
from scheduler_service.rpc.interceptors import invalid
from scheduler_service.rpc.receiving import LARGEST_SPEC

MOST_TASKS = 4096
"""Tasks of one gang, at most."""
LARGEST_GANG = 1 << 26
"""Bytes of the specs of all tasks of one gang together, at most."""


def check_spec(spec: job_pb2.JobSpec) -> None:
    """Raise InvalidArgument for faults that the rules of single fields do not find."""
    if spec.ByteSize() > LARGEST_SPEC:
        raise invalid("spec", "bytes.max_len", f"must be at most {LARGEST_SPEC} bytes")
    tasks = 0
    for at, groups in enumerate((spec.task_groups, *(one.task_groups for one in spec.alternatives))):
        tasks = max(tasks, many := sum(group.count for group in groups))
        if many > MOST_TASKS:
            where = f"spec.alternatives[{at - 1}]" if at else "spec"
            raise invalid(f"{where}.task_groups", "tasks.max", f"at most {MOST_TASKS} tasks in all, not {many}")
    if spec.min_tasks or spec.max_tasks:
        _check_elastic(spec)
        tasks = spec.max_tasks
    if spec.share or spec.gpu_fraction_ppm or spec.gpu_memory_mib:
        _check_share(spec)
    if tasks * spec.ByteSize() > LARGEST_GANG:
        too_much = f"with {tasks} tasks it must be at most {LARGEST_GANG // tasks} bytes, for each is sent a copy"
        raise invalid("spec", "bytes.max_len", too_much)
    if spec.guarantee and not spec.virtual_cluster:
        raise invalid("spec.virtual_cluster", "virtual_cluster.given", "say whose guarantee is meant")
    if spec.redacted:
        lacks = "this spec lacks what its owner alone may see: take one that you have made yourself"
        raise invalid("spec.redacted", "redacted.whole", lacks)


def check_checkpoint(spec: JobSpec) -> None:
    """Raises InvalidArgument where the grace period leaves no time for the checkpoint signal or command."""
    if spec.checkpoint_signal and spec.checkpoint_command:
        raise invalid("spec.checkpoint_command", "checkpoint.one", "a job has a checkpoint signal or a checkpoint command")
    if not (spec.checkpoint_signal or spec.checkpoint_command):
        return
    field = "spec.checkpoint_signal" if spec.checkpoint_signal else "spec.checkpoint_command"
    seconds = int(spec.checkpoint_signal.partition("@")[2] or 0)
    grace = f"the grace period is {spec.grace_us / 1e6:g} s"
    if not spec.grace_us:
        raise invalid(field, "checkpoint.grace", f"{grace}, which leaves no time to save; give a grace period (--grace)")
    if seconds * SECOND > spec.grace_us:
        why = f"{seconds} s to save are more than there is: {grace}; give a longer one (--grace)"
        raise invalid(field, "checkpoint.grace", why)


def check_configurations(spec: JobSpec) -> None:
    """Raises InvalidArgument for cells without a virtual cluster, and for two equal configurations."""
    seen: dict[JobSpec, int] = {}
    for number, one in enumerate(spec.in_each_configuration()):
        cells = one.cells
        if not spec.vc and cells != CellRequest(pool=cells.pool, model=cells.model):  # the engine refuses pools by name
            whose = f"say whose cells configuration {number} asks for" if spec.alternatives else "say whose cells are meant"
            raise invalid("spec.virtual_cluster", "virtual_cluster.given", whose)
        if spec.alternatives and (before := seen.setdefault(with_changes(one, estimate_us=0), number)) != number:
            equal = f"configurations {before} and {number} are equal; leave one out"
            raise invalid(f"spec.alternatives[{number - 1}]", "alternatives.unique", equal)


def _check_share(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument for a part of a device that no job can have."""
    part, memory, mode = spec.gpu_fraction_ppm, spec.gpu_memory_mib, share_in(spec)
    devices, named = spec.resources.devices, "a fraction of a device" if part else "memory of a device (gpu_memory)"
    if mode is ShareMode.EXCLUSIVE:
        if part or memory:
            why = f"a job that asks for {named} shares the device; leave out exclusive, or ask for whole devices"
            raise invalid("spec.share", "share.part", why)
        return
    if mode is ShareMode.SLICED and not part:
        why = "a sliced job has a part of the time of a device; say which by a fraction (--gpus 0.5)"
        raise invalid("spec.gpu_fraction_ppm", "share.fraction", why)
    if not (part or memory):
        why = "a packed job has a part of a device; say which by a fraction (--gpus 0.5) or by memory (--gpu-memory 10GiB)"
        raise invalid("spec.share", "share.part", why)
    if spec.task_groups:
        why = "a gang has whole devices; leave out tasks, or the part of a device"
        raise invalid("spec.task_groups", "share.one_task", why)
    if spec.alternatives:
        why = "a job that asks for a part of a device has one configuration; leave out alternatives, or the part of a device"
        raise invalid("spec.alternatives", "share.one_configuration", why)
    if devices != 1:
        why = f"a job shares one device, and not {devices}; ask for one (--gpus 1) or for a part of one (--gpus 0.5)"
        raise invalid("spec.resources.devices", "share.one_device", why)


def _check_elastic(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument for bounds that the number of tasks cannot have."""
    least, most = spec.min_tasks, spec.max_tasks
    if len(spec.task_groups) != 1:
        why = f"an elastic job has one task group, and not {len(spec.task_groups)}; say how many tasks it begins with (--tasks)"
        raise invalid("spec.task_groups", "elastic.one_group", why)
    if spec.alternatives:
        raise invalid("spec.alternatives", "elastic.no_alternatives", "an elastic job has one configuration; leave these out")
    tasks = spec.task_groups[0].count
    if not 1 <= least <= tasks <= most:
        why = f"an elastic job has 1 <= min_tasks <= tasks <= max_tasks, and not {least}, {tasks} and {most}; give both bounds"
        raise invalid("spec.max_tasks" if tasks > most else "spec.min_tasks", "elastic.bounds", why)
