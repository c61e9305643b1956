"""The field rules of the API, read from where they are written: the options of the messages' own fields.

The service checks them with protovalidate, which needs more than a training image has. This knows those rules that
ebb.v1 uses, and says so where it meets another.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from buf.validate import validate_pb2
from ebb.v1 import job_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from client_sdk.errors import InvalidArgument

Broken = tuple[str, str, str]
"""The field, the rule, and what the field must be."""


def check(request: Message) -> None:
    """Raises InvalidArgument as the service does: it names each field and what it must be, and in `metadata` the first."""
    broken = list(violations(request))
    if broken:
        said = "; ".join(f"{field}: {must}" for field, _, must in broken)
        raise InvalidArgument(said, reason="INVALID_FIELD", metadata={"field": broken[0][0], "rule": broken[0][1]})


def violations(message: Message, inside: str = "") -> Iterator[Broken]:
    """Every rule that the message breaks, in the order of its fields."""
    field: Any
    for field in message.DESCRIPTOR.fields:
        path, rules = inside + field.name, field.GetOptions().Extensions[validate_pb2.field]
        value = getattr(message, field.name)
        whole = field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated
        if whole and not message.HasField(field.name):
            if rules.required:
                yield path, "required", "a value is required"
            continue
        yield from ((path, rule, must) for rule, must in _broken(value, rules, field))
        if whole and not isinstance(value, Duration):
            yield from violations(value, f"{path}.")
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not whole and not field.message_type.GetOptions().map_entry:
            for at, each in enumerate(value):
                yield from violations(each, f"{path}[{at}].")


def _broken(value: Any, rules: validate_pb2.FieldRules, field: Any) -> Iterator[tuple[str, str]]:
    for rule in rules.cel:
        prefix = re.fullmatch(r"!this\.startsWith\('(\w+)'\)", rule.expression)
        _require_known(prefix is not None, rule.expression)
        if prefix is not None and value.startswith(prefix[1]):
            yield rule.id, rule.message
    kind = rules.WhichOneof("type")
    if kind is None:
        return
    own = getattr(rules, kind)
    names = {option.name for option, _ in own.ListFields()}
    match kind:
        case "string":
            _require_known(names <= {"min_len", "max_len", "max_bytes", "pattern"}, f"string {names}")
            yield from _text(value, own)
        case "int32" | "int64":
            _require_known(names <= {"gte", "lte"}, f"{kind} {names}")
            yield from _range(kind, value, own, lambda limit: str(limit), names)
        case "duration":
            _require_known(names <= {"gte", "lte"}, f"duration {names}")
            yield from _range(kind, value, own, lambda limit: f"{_length(limit):g} s", names)
        case "bytes":
            _require_known(names <= {"min_len", "max_len"}, f"bytes {names}")
            if not own.min_len <= len(value) <= own.max_len:
                yield "bytes.len", f"must have {own.min_len} to {own.max_len} bytes, and has {len(value)}"
        case "enum":
            _require_known(names <= {"defined_only"}, f"enum {names}")
            if field.enum_type is not None and value not in field.enum_type.values_by_number:
                yield "enum.defined_only", f"{value} is not one of {', '.join(field.enum_type.values_by_name)}"
        case "repeated":
            _require_known(names <= {"min_items", "max_items", "items", "unique"}, f"repeated {names}")
            if own.unique and len(set(value)) < len(value):
                yield "repeated.unique", "nothing may be given twice"
            if len(value) < own.min_items:
                yield "repeated.min_items", f"at least {own.min_items} must be given"
            if own.HasField("max_items") and len(value) > own.max_items:
                yield "repeated.max_items", f"at most {own.max_items} may be given, and these are {len(value)}"
            yield from _each(value, own.items, field)
        case "map":
            _require_known(names <= {"max_pairs", "keys", "values"}, f"map {names}")
            if own.HasField("max_pairs") and len(value) > own.max_pairs:
                yield "map.max_pairs", f"at most {own.max_pairs} may be given, and these are {len(value)}"
            yield from _each(value, own.keys, field)
            yield from _each(value.values(), own.values, field)
        case _:
            _require_known(False, kind)


def _each(values: Iterable[Any], rules: validate_pb2.FieldRules, field: Any) -> Iterator[tuple[str, str]]:
    for value in values:
        yield from _broken(value, rules, field)


def _text(value: str, own: validate_pb2.StringRules) -> Iterator[tuple[str, str]]:
    if len(value) < own.min_len:
        yield "string.min_len", f"must have at least {own.min_len} characters"
    if own.HasField("max_len") and len(value) > own.max_len:
        yield "string.max_len", f"may have at most {own.max_len} characters, and has {len(value)}"
    if own.HasField("max_bytes") and len(value.encode()) > own.max_bytes:
        yield "string.max_bytes", f"may have at most {own.max_bytes} bytes, and has {len(value.encode())}"
    # In RE2, which the service has, $ is the end of the text; in Python it is also before a last line's end.
    if own.pattern and not re.search(re.sub(r"\$$", r"\\Z", own.pattern), value):
        yield "string.pattern", f"{value[:40]!r} does not match {own.pattern}"


def _range(kind: str, value: Any, own: Any, show: Any, names: set[str]) -> Iterator[tuple[str, str]]:
    low, high = (own.gte if "gte" in names else None), (own.lte if "lte" in names else None)
    if (low is not None and _length(value) < _length(low)) or (high is not None and _length(value) > _length(high)):
        rule = "_".join(name for name in ("gte", "lte") if name in names)
        limits = ([f"at least {show(low)}"] if low is not None else []) + (
            [f"at most {show(high)}"] if high is not None else []
        )
        yield f"{kind}.{rule}", f"must be {' and '.join(limits)}, and is {show(value)}"


def _length(value: Any) -> float:
    return value.seconds + value.nanos / 1e9 if isinstance(value, Duration) else value


def _require_known(known: bool, rule: str) -> None:
    if not known:
        raise NotImplementedError(f"client_sdk.testing cannot check this rule of the API: {rule}")


def check_checkpoint(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument where the grace period leaves no time for the checkpoint signal or command."""
    grace = _length(spec.grace_period)
    seconds = int(spec.checkpoint_signal.partition("@")[2] or 0)
    field = "spec.checkpoint_signal" if spec.checkpoint_signal else "spec.checkpoint_command"
    if spec.checkpoint_signal and spec.checkpoint_command:
        _refuse("spec.checkpoint_command", "checkpoint.one", "a job has a checkpoint signal or a checkpoint command")
    if (spec.checkpoint_signal or spec.checkpoint_command) and not grace:
        _refuse(
            field, "checkpoint.grace", "the grace period is 0 s, which leaves no time to save; give a grace period (--grace)"
        )
    if seconds > grace:
        said = f"{seconds} s to save are more than there is: the grace period is {grace:g} s; give a longer one (--grace)"
        _refuse(field, "checkpoint.grace", said)


def check_elastic(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument for bounds that the number of tasks cannot have."""
    least, most = spec.min_tasks, spec.max_tasks
    if not (least or most):
        return
    if len(spec.task_groups) != 1:
        said = (
            f"an elastic job has one task group, and not {len(spec.task_groups)}; say how many tasks it begins with (--tasks)"
        )
        _refuse("spec.task_groups", "elastic.one_group", said)
    if spec.alternatives:
        _refuse("spec.alternatives", "elastic.no_alternatives", "an elastic job has one configuration; leave these out")
    tasks = spec.task_groups[0].count
    if not 1 <= least <= tasks <= most:
        said = f"an elastic job has 1 <= min_tasks <= tasks <= max_tasks, and not {least}, {tasks} and {most}; give both bounds"
        _refuse("spec.max_tasks" if tasks > most else "spec.min_tasks", "elastic.bounds", said)


def check_share(spec: job_pb2.JobSpec) -> None:
    """Raises InvalidArgument for a part of a device that no job can have. What is not said of how it shares is said then."""
    part, memory, devices = spec.gpu_fraction_ppm, spec.gpu_memory_mib, spec.resources.devices
    asked = job_pb2.SHARE_MODE_SLICED if part else job_pb2.SHARE_MODE_PACKED if memory else job_pb2.SHARE_MODE_EXCLUSIVE
    spec.share = spec.share or asked
    if spec.share == job_pb2.SHARE_MODE_EXCLUSIVE:
        if part or memory:
            named = "a fraction of a device" if part else "memory of a device (gpu_memory)"
            said = f"a job that asks for {named} shares the device; leave out exclusive, or ask for whole devices"
            _refuse("spec.share", "share.part", said)
        spec.ClearField("share")
        return
    if spec.share == job_pb2.SHARE_MODE_SLICED and not part:
        said = "a sliced job has a part of the time of a device; say which by a fraction (--gpus 0.5)"
        _refuse("spec.gpu_fraction_ppm", "share.fraction", said)
    if not (part or memory):
        said = "a packed job has a part of a device; say which by a fraction (--gpus 0.5) or by memory (--gpu-memory 10GiB)"
        _refuse("spec.share", "share.part", said)
    if spec.task_groups:
        said = "a gang has whole devices; leave out tasks, or the part of a device"
        _refuse("spec.task_groups", "share.one_task", said)
    if spec.alternatives:
        said = "a job that asks for a part of a device has one configuration; leave out alternatives, or the part of a device"
        _refuse("spec.alternatives", "share.one_configuration", said)
    if devices != 1:
        said = f"a job shares one device, and not {devices}; ask for one (--gpus 1) or for a part of one (--gpus 0.5)"
        _refuse("spec.resources.devices", "share.one_device", said)


def _refuse(field: str, rule: str, said: str) -> NoReturn:
    raise InvalidArgument(f"{field}: {said}", reason="INVALID_FIELD", metadata={"field": field, "rule": rule})
