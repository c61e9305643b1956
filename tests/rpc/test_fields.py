"""No text that users may send has a NUL in it: PostgreSQL takes none, and what it refuses looks like a fault of its own."""

from collections.abc import Iterator

import pytest
from buf.validate import validate_pb2
from ebb.agent.v1 import agent_link_pb2
from ebb.v1 import cluster_pb2, exchange_pb2, scheduler_pb2, virtual_clusters_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from scheduler_service.rpc.interceptors import PATTERNS, InvalidArgument, check
from tests.rpc.server import submit_request

USERS = (cluster_pb2, exchange_pb2, scheduler_pb2, virtual_clusters_pb2)


def texts(message: Descriptor, seen: set[str]) -> Iterator[tuple[str, validate_pb2.StringRules]]:
    """Every text in it, and what may be in that."""
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        rules = field.GetOptions().Extensions[validate_pb2.field]
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            for part, of_part in (("key", rules.map.keys), ("value", rules.map.values)):
                if entry.fields_by_name[part].type == FieldDescriptor.TYPE_STRING:
                    yield f"{field.full_name}.{part}", of_part.string
        elif entry is not None:
            yield from texts(entry, seen)
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield field.full_name, (rules.repeated.items if field.is_repeated else rules).string


def test_every_text_of_a_request_has_a_pattern() -> None:
    requests = [
        method.input_type
        for module in USERS
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    seen: set[str] = set()
    found = dict(text for request in requests for text in texts(request, seen))
    assert "ebb.v1.JobSpec.environment.value" in found
    assert [name for name, rules in found.items() if not rules.pattern] == []


def test_every_pattern_has_words_for_people() -> None:
    """Of every message that anybody sends, agents too."""
    modules = (*USERS, agent_link_pb2)
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    seen: set[str] = set()
    found = [rules.pattern for service in services for method in service.methods for _, rules in texts(method.input_type, seen)]
    assert set(found) - {""} == PATTERNS.keys()


COUNTED = {"job_id", "run", "task", "pid", "sequence", "acknowledged"}
"""Numbers that only grow: any is possible, and one that is not known means nothing."""


OPEN = {"ebb.v1.RunSteps.state"}
"""Words of which an agent may know more than the scheduler, which takes those as unspecified."""


def unbounded(message: Descriptor, seen: set[str]) -> Iterator[str]:
    """The fields of which an agent could send as much as it likes."""
    if message.full_name in seen or not message.full_name.startswith("ebb."):
        return
    seen.add(message.full_name)
    for field in message.fields:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            rules = field.GetOptions().Extensions[validate_pb2.field].map
            value = rules.values.string.max_len or rules.values.duration.WhichOneof("less_than")
            if not (rules.max_pairs and rules.keys.string.max_len and value):
                yield field.full_name
            continue
        of_field = field.GetOptions().Extensions[validate_pb2.field]
        rules = of_field.repeated.items if field.is_repeated else of_field
        if field.is_repeated and not of_field.repeated.HasField("max_items"):
            yield f"{field.full_name}[]"
        match field.type:
            case FieldDescriptor.TYPE_MESSAGE:
                yield from unbounded(field.message_type, seen)
            case FieldDescriptor.TYPE_BOOL:
                pass
            case FieldDescriptor.TYPE_ENUM:
                if not rules.enum.defined_only and field.full_name not in OPEN:
                    yield field.full_name
            case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES:
                if not (rules.string.max_len or rules.bytes.max_len):
                    yield field.full_name
            case _:
                number = getattr(rules, rules.WhichOneof("type") or "int64")
                below = number.WhichOneof("greater_than") is not None
                above = number.WhichOneof("less_than") is not None
                if not below or not (above or field.name in COUNTED):
                    yield field.full_name


def test_every_field_of_what_agents_send_has_bounds() -> None:
    seen: set[str] = set()
    methods = agent_link_pb2.DESCRIPTOR.services_by_name["AgentLink"].methods
    assert [name for method in methods for name in unbounded(method.input_type, seen)] == []
    assert "ebb.v1.DeviceObservation" in seen


def test_what_breaks_a_pattern_is_told_in_words() -> None:
    with pytest.raises(InvalidArgument, match=r"^spec\.environment: the names of variables have .* begin with no digit$"):
        check(submit_request(environment={"1A": ""}))
    with pytest.raises(InvalidArgument, match=r"^spec\.name: must begin with a letter"):
        check(submit_request(name="\u00fc"))


def test_of_a_large_request_one_broken_rule_is_looked_for() -> None:
    """A million of them took half a minute to find, in which nobody else was answered."""
    with pytest.raises(InvalidArgument, match=r"^states: must contain no more than 16 item\(s\)$"):
        check(scheduler_pb2.ListRequest(states=[99] * 100_000))  # type: ignore[list-item]
