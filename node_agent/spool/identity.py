"""The state that outlives a spool: the node's name, the cluster that it obeys, and the boot in which the spool was made.

One small file, written durably and rarely. It is read first, so that a spool that a power cut may have damaged is never
opened: the boot has changed by then.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from node_agent.errors import SpoolDamaged

FILE = "node.json"


@dataclass(frozen=True, slots=True)
class Identity:
    kernel_boot: str
    cluster_id: str = ""
    """The cluster and the epoch that were obeyed last; initially "" and 0."""
    epoch: int = 0
    node: str = ""
    """Name of the node that owns the spool; "" if written by an agent that did not keep the name."""
    seal: str = ""
    """Seal of the epoch, in hexadecimal: proves to a scheduler that the cluster was led in it."""


def read(path: Path) -> Identity | None:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        node, seal = str(fields.get("node", "")), str(fields.get("seal", ""))
        bytes.fromhex(seal)
        return Identity(str(fields["kernel_boot"]), str(fields["cluster_id"]), int(fields["epoch"]), node, seal)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpoolDamaged(path=path, why=error) from error


def write(path: Path, identity: Identity) -> None:
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(asdict(identity), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
