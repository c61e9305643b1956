"""The checks of an agent's first message. Rules of single fields are in the .proto files; what fields mean together is here."""

import logging
from collections import Counter
from typing import Any, NoReturn

from ebb.agent.v1 import agent_link_pb2 as pb

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.rpc.access import user
from scheduler_service.rpc.backend import Leading
from scheduler_service.rpc.interceptors import InvalidArgument, check

HELLO_LIMIT = 10.0
"""Seconds in which an agent must have said who it is."""
MOST_CPUS = 4096
"""CPUs of a node, more than any machine has. Each may be a cell: one agent's mistake must not create a million of them."""
OWN_LEVELS = ("device", "node")
"""Levels that every node has: no level between them can have one of these names."""
MOST_NAMED = 100
"""Nodes that one leadership names in its log for a claim that they could not prove."""

log = logging.getLogger(__name__)


def hello_of(first: Any, leading: Leading, peer: str) -> pb.Hello:
    """The Hello in an agent's first message. Raises InvalidArgument, and FailedPrecondition for an agent that must not obey
    this scheduler."""
    if first is None or first.WhichOneof("message") != "hello":
        raise InvalidArgument("HELLO_FIRST", f"an agent's first message must be Hello, within {HELLO_LIMIT:g} s")
    hello: pb.Hello = first.hello
    check(hello)
    check_inventory(hello)
    if hello.cluster_id and hello.cluster_id != leading.cluster_id:
        raise FailedPrecondition(
            "OTHER_CLUSTER",
            f"node {hello.node} belongs to cluster {hello.cluster_id}, this is {leading.cluster_id}; "
            "check --scheduler, or start the agent once with --forget-cluster",
        )
    if hello.epoch > leading.epoch:
        _refuse_ahead(hello, leading, peer)
    return hello


def asker(hello: pb.Hello, peer: str) -> str:
    """Return which agent made a claim, for the log."""
    return f"node {hello.node} (as {user()}, from {peer})"


def _refuse_ahead(hello: pb.Hello, leading: Leading, peer: str) -> NoReturn:
    """An agent that claims a higher epoch is right if it can show that epoch's seal: then this leadership ends."""
    said = f"has obeyed epoch {hello.epoch}, and this scheduler leads in epoch {leading.epoch}"
    if hello.cluster_id and leading.seals.fits(hello.epoch, hello.seal):
        leading.meet(hello.epoch, f"{asker(hello, peer)} has obeyed epoch {hello.epoch} of this cluster")
        raise FailedPrecondition("OLD_EPOCH", f"node {hello.node} {said}")
    if hello.node not in leading.unsealed and len(leading.unsealed) < MOST_NAMED:
        leading.unsealed.add(hello.node)
        log.warning("%s is refused: it says that it %s, and does not show the seal of that epoch", asker(hello, peer), said)
    raise FailedPrecondition(
        "EPOCH_UNKNOWN",
        f"node {hello.node} says that it {said}, but does not show the seal of that epoch. If the database was restored from a "
        "backup, stop the schedulers and run `ebb-scheduler restored`",
    )


def check_inventory(hello: pb.Hello) -> None:
    """Raises InvalidArgument if the node's capacity, its levels and its devices contradict each other."""
    node, devices, levels = hello.node, hello.devices, len(hello.levels)
    if [d.index for d in devices] != list(range(len(devices))) or hello.capacity.devices != len(devices):
        raise InvalidArgument("DEVICES", f"node {node}: devices must be numbered 0, 1, ... and agree with its capacity")
    for uuid, times in Counter(d.uuid for d in devices).items():
        if times > 1:
            which = ", ".join(str(d.index) for d in devices if d.uuid == uuid)
            text = f"node {node}: devices {which} have the same UUID {uuid!r}; each device must have its own"
            raise InvalidArgument("DEVICES", text)
    for device in devices:
        if len(device.path) != levels:
            text = f"node {node}: the path {list(device.path)} of device {device.index} must have one number for each of the "
            raise InvalidArgument("DEVICES", f"{text}node's {levels} levels")
    for level in set(hello.levels).intersection(OWN_LEVELS):
        raise InvalidArgument("DEVICES", f"node {node}: a level is named {level!r}, which every node has; choose another name")
    if not hello.capacity.memory_mib or not 0 < hello.capacity.cpu_milli <= 1000 * MOST_CPUS:
        raise InvalidArgument("CAPACITY", f"node {node}: it must have memory, and CPUs, of which at most {MOST_CPUS}")
