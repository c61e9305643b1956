"""Requests that nobody would send, drawn from the descriptors of ebb.v1 and ebb.agent.v1."""

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from buf.validate import validate_pb2
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, exchange_pb2, job_pb2, scheduler_pb2, virtual_clusters_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

FILES = (scheduler_pb2, cluster_pb2, virtual_clusters_pb2, exchange_pb2, link_pb)
METHODS: Mapping[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}

POOL = "p100-2x2"
NODES = ("n1", "n2", "n3")
_NOW = int(time.time())
KNOWN: Mapping[str, Sequence[Any]] = {
    "Resources.cpu_milli": (100, 1000, 4000),
    "Resources.memory_mib": (1, 100),
    "Resources.devices": (0, 1, 2, 4),
    "JobSpec.command": ("true",),
    "JobSpec.name": ("", "x"),
    "JobSpec.priority": (-5, 0, 5),
    "Array.size": (1, 3, 100),
    "Device.path": (0, 1),
    "Hello.levels": ("switch",),
    "Duration.seconds": (3600, 86400),
    "Timestamp.seconds": (_NOW + 3600, _NOW + 8 * 3600),
    "boot_id": ("b1", "b2"),
    "cap": (0, 1, 5),
    "cells": (1, 2),
    "cluster_id": ("",),
    "count": (1, 2, 3),
    "exchange_id": (1, 2),
    "exit_codes": (1, 3),
    "exit_signals": (9, 15),
    "generation": (0, 1, 2),
    "index": (0, 1, 2, 3),
    "job_id": tuple(range(1, 13)),
    "device_memory_mib": (0, 16_000),
    "level": ("node", "switch", "device"),
    "model": ("", "P100"),
    "name": ("a", "b", "c"),
    "names": NODES,
    "excluded": NODES,
    "nanos": (0,),
    "node": NODES,
    "posting_id": (1, 2, 3),
    "page_size": (0, 1, 1000),
    "page_token": ("", "1", "3"),
    "pin": ("", "a"),
    "pool": (POOL,),
    "request_id": ("", "", "r1", "r2"),
    "run": (1, 1, 2),
    "sequence": (1, 2, 3),
    "task": (0, 0, 1),
    "user": ("", "ada"),
    "virtual_cluster": ("a", "b"),
    "weight": (1, 2),
    "working_directory": ("", "/tmp"),
}
"""What is likely there, by the names of fields, so that some requests get beyond the first check."""

_NUMBERS = (0, -1, 1, 2, 1000, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, -(2**63))
_FRACTIONS = (float("nan"), float("inf"), -float("inf"), -0.0, 1e308, -1.0, 5e-324, 0.5)
_TEXTS = (
    "\0", "a\0b", "\n", "\r\n\x1b[31m", "\x7f", "\u202e\u2066", "\ud7ff\uffff", "\U0001f680", "%s%n{0}", "'; DROP TABLE job",
    "../../etc/passwd", " ", "-", "EBB_", "node", "0" * 64, "9" * 64, "a" * 65, "a" * 300, "\u00e9" * 4097, "a" * 140_000,
)  # fmt: skip
LONGEST = 8 << 20
"""Bytes: gRPC itself refuses twice as many."""
_DECLARED_BITS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}
_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
"""Types on the wire."""


class Drawing(NamedTuple):
    rng: Random
    known: Mapping[str, Sequence[Any]] = KNOWN

    def message(self, kind: Descriptor, wild: float = 0.0, most: int = 1100) -> Any:
        """A message that might be meant, in which so large a part of the values is not. A list has `most` items at most; those
        within items of a list have fewer, lest all of it be as large as the product."""
        made = GetMessageClass(kind)()
        chosen = {oneof.name: self.rng.choice(oneof.fields).name for oneof in kind.oneofs if len(oneof.fields) > 1}
        for field in kind.fields:
            oneof = field.containing_oneof
            if oneof is None or chosen.get(oneof.name, field.name) == field.name:
                self._fill(made, field, wild, most)
        return made

    def _fill(self, made: Any, field: FieldDescriptor, wild: float, most: int) -> None:
        rules = field.GetOptions().Extensions[validate_pb2.field]
        odd = self.rng.random() < wild
        if field.is_repeated:
            least = max(rules.repeated.min_items, 0)
            count = self.rng.choice((0, 1, 1100)) if odd else self.rng.randint(least, least + 1)
            target = getattr(made, field.name)
            for _ in range(min(count, most, 50 if field.message_type is not None else count)):
                if field.message_type is not None and field.message_type.GetOptions().map_entry:
                    key, value = field.message_type.fields
                    name = self._value(key, wild) or "K"
                    if value.message_type is not None:
                        target[name].CopyFrom(self.message(value.message_type, wild, most // 50))
                    else:
                        target[name] = self._value(value, wild)
                elif field.message_type is not None:
                    target.add().CopyFrom(self.message(field.message_type, wild, most // 50))
                else:
                    target.append(self._value(field, wild))
        elif field.message_type is not None:
            if rules.required != odd or self.rng.random() < 0.2:
                getattr(made, field.name).CopyFrom(self.message(field.message_type, wild, most))
        elif not (field.has_presence and self.rng.random() < 0.5):
            setattr(made, field.name, self._value(field, wild))

    def _value(self, field: FieldDescriptor, wild: float) -> Any:
        rng = self.rng
        known = self.known.get(f"{field.containing_type.name}.{field.name}", self.known.get(field.name))
        odd = rng.random() < wild
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return rng.randbytes(rng.choice((0, 1, 100, 65536, 65537)))
            case FieldDescriptor.CPPTYPE_STRING:
                return rng.choice(_TEXTS) if odd else rng.choice(known or ("", "a"))
            case FieldDescriptor.CPPTYPE_BOOL:
                return rng.random() < 0.3
            case FieldDescriptor.CPPTYPE_ENUM:
                values = known or [value.number for value in field.enum_type.values[rng.random() < 0.8 :]]
                return rng.choice((-1, 99, 2**31 - 1)) if odd else rng.choice(values)
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return rng.choice(_FRACTIONS) if odd else 0.5
            case declared:
                most = 2 ** (_DECLARED_BITS[declared] - 1)
                return rng.choice([n for n in _NUMBERS if -most <= n < most]) if odd else rng.choice(known or (0, 1))


# ---- bytes -------------------------------------------------------------------------------------------------------------


def malformed(draw: Drawing, _kind: Descriptor) -> bytes:
    """A field that is longer than what comes, a number without its end, types that do not exist, groups without end, noise."""
    heads = (b"\x0a\xff\xff\xff", b"\x08" + b"\xff" * 11, b"\x0f", b"\x00\x00", b"\x0b" * 500, b"\x0c")
    return draw.rng.choice((*heads, draw.rng.randbytes(draw.rng.randint(1, 64))))


def truncated(draw: Drawing, kind: Descriptor) -> bytes:
    whole = draw.message(kind).SerializeToString()
    return whole[: draw.rng.randrange(len(whole))] if whole else b"\x0a"


def empty(_draw: Drawing, _kind: Descriptor) -> bytes:
    return b""


def oversized(draw: Drawing, kind: Descriptor) -> bytes:
    """One field of a message that might be meant is far too long, or comes far too often."""
    number = draw.rng.choice(kind.fields).number if kind.fields else 1
    more = draw.rng.choice((_tagged(number, _BYTES, b"a" * 1_200_000), _tagged(number, _BYTES, b"") * 20_000))
    return draw.message(kind).SerializeToString() + more


def wrong_types(draw: Drawing, kind: Descriptor) -> bytes:
    """Each field as another type than it has, between those of a message that might be meant."""
    parts = [draw.message(kind).SerializeToString()]
    for field in kind.fields:
        wire = draw.rng.choice((_VARINT, _FIXED64, _BYTES, _FIXED32))
        content = {_VARINT: b"\x07", _FIXED64: b"\x01" * 8, _BYTES: draw.rng.randbytes(3), _FIXED32: b"\x01" * 4}[wire]
        parts.append(_tagged(field.number, wire, content))
    draw.rng.shuffle(parts)
    return b"".join(parts)


def odd_values(draw: Drawing, kind: Descriptor) -> bytes:
    """Extreme numbers, control characters, long texts, many items: some of the values, or all of them."""
    data = draw.message(kind, draw.rng.choice((0.03, 0.1, 0.3, 1.0))).SerializeToString()
    return data if len(data) < LONGEST else likely(draw, kind)


def no_text(draw: Drawing, kind: Descriptor) -> bytes:
    """A text that is no UTF-8."""
    texts = [field.number for field in kind.fields if field.type == FieldDescriptor.TYPE_STRING] or [1]
    return draw.message(kind).SerializeToString() + _tagged(draw.rng.choice(texts), _BYTES, b"\xc3\x28\xff")


def likely(draw: Drawing, kind: Descriptor) -> bytes:
    return draw.message(kind).SerializeToString()


Case = Callable[[Drawing, Descriptor], bytes]
CASES: Sequence[Case] = (malformed, truncated, empty, oversized, wrong_types, odd_values, odd_values, no_text, likely, likely)


def _tagged(number: int, wire: int, content: bytes) -> bytes:
    return _varint(number << 3 | wire) + (_varint(len(content)) if wire == _BYTES else b"") + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# ---- agents ------------------------------------------------------------------------------------------------------------


def hello(boot: str, node: str = NODES[2]) -> link_pb.Hello:
    """Of a node like the others, which nobody else speaks for."""
    devices = [
        cluster_pb2.Device(index=i, uuid=f"{node}-{i}", model="P100", memory_mib=16_000, path=[i // 2]) for i in range(4)
    ]
    capacity = job_pb2.Resources(cpu_milli=8000, memory_mib=8000, devices=4)
    return link_pb.Hello(node=node, boot_id=boot, capacity=capacity, levels=["switch"], devices=devices)


def walk(draw: Drawing, acknowledged: int) -> list[bytes]:
    """What an agent sends on one stream that has lost its way: reports before Hello, Hello twice, numbers that jump, runs and
    devices that are not there, and now and then what would be right."""
    rng, said = draw.rng, []
    sequence = acknowledged
    for step in range(rng.randint(1, 10)):
        message = link_pb.ConnectRequest()
        match (
            "hello" if not step and rng.random() < 0.8 else rng.choice(("reports", "reports", "seen", "hello", "any", "bytes"))
        ):
            case "hello":
                first = hello(rng.choice(("b1", "b1", "b1", "b2")))
                first.runs.extend(draw.message(link_pb.RunStatus.DESCRIPTOR) for _ in range(rng.choice((0, 0, 3))))
                if rng.random() < 0.3:
                    first.MergeFrom(draw.message(link_pb.Hello.DESCRIPTOR, 0.1))
                message.hello.CopyFrom(first)
            case "reports":
                for _ in range(rng.choice((1, 1, 4))):
                    report = draw.message(link_pb.Report.DESCRIPTOR, rng.choice((0, 0, 0.1)))
                    sequence += 1
                    report.sequence = rng.choice((*[sequence] * 12, sequence + 1, max(sequence - 1, 0), 0, 2**63 - 1))
                    message.reports.reports.append(report)
            case "seen":
                seen = draw.message(link_pb.Observations.DESCRIPTOR, rng.choice((0, 0, 0.1)))
                del seen.devices[:]
                seen.devices.extend(cluster_pb2.DeviceObservation(index=i) for i in range(rng.choice((4, 4, 3))))
                message.observations.CopyFrom(seen)
            case "any":
                message = draw.message(link_pb.ConnectRequest.DESCRIPTOR, 0.1)
            case _:
                said.append(rng.choice(CASES)(draw, link_pb.ConnectRequest.DESCRIPTOR))
                continue
        said.append(message.SerializeToString())
    return said


def pieces_of_a_log(draw: Drawing, request: str) -> list[bytes]:
    """What an agent might answer a request for a log with."""
    rng = draw.rng
    first = draw.message(link_pb.SendLogRequest.DESCRIPTOR, rng.choice((0, 0.2)))
    first.id, first.error, first.end = request, "", rng.random() < 0.1
    more = [draw.message(link_pb.SendLogRequest.DESCRIPTOR, 0.3) for _ in range(rng.randint(0, 4))]
    return [piece.SerializeToString() for piece in (first, *more)] + rng.choice(([], [malformed(draw, first.DESCRIPTOR)]))
