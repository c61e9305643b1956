"""Checkpoints of which every rank writes and reads its own shards, by torch.distributed.checkpoint.

    checkpoint.all-step-00000120-run-000002/
      __0_0.distcp  __1_0.distcp  .metadata  # the shards of the ranks, and which tensors are in them
      others.pickle                          # of rank 0: what is neither a module nor an optimizer
      manifest.json                          # of rank 0, written last

Saving and loading are collective: all ranks do both at the same step. Another number of ranks reads the shards that it needs.
"""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from client_sdk.training._storing import folders
from client_sdk.training._storing.files import CheckpointError

_OTHERS = "others.pickle"


def check_group(world_size: int) -> None:
    """Raises RuntimeError if the program has no process group of all ranks."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized() or dist.get_world_size() != world_size:
        raise RuntimeError(
            "sharded=True needs a process group of all ranks: call torch.distributed.init_process_group before "
            "job.checkpointable"
        )


def write(directory: Path, name: str, things: Mapping[str, Any], others: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    """Writes a new folder together with all ranks. Returns the reference to it in rank 0, and None in others.

    `things` are modules and optimizers; `others` are states, of which those of rank 0 are written. Raises OSError, ValueError
    for an optimizer without its module, and CheckpointError in all ranks if one of them cannot write its shards.
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    first = dist.get_rank() == 0
    chosen = [folders.new_folder(directory, name) if first else None]
    dist.broadcast_object_list(chosen, 0)
    (folder,) = chosen
    assert folder is not None
    try:
        dcp.save(_states(things), checkpoint_id=folder)
    except dcp.api.CheckpointException as error:  # in all ranks; it is no Exception
        why = "; ".join(f"rank {rank}: {failure[0]}" for rank, failure in sorted(error.failures.items()))
        raise CheckpointError(f"{folder} could not be written: {why}") from error
    if not first:
        return None
    (folder / _OTHERS).write_bytes(pickle.dumps(dict(others), protocol=5))
    return folders.seal_existing(folder, about)


def read_others(folder: Path) -> dict[str, Any]:
    """The states that rank 0 has written. Raises CheckpointError for a folder that is not sharded."""
    if not (folder / _OTHERS).exists():
        raise CheckpointError(f"{folder} is not sharded: leave out sharded=True to resume from it")
    found: dict[str, Any] = pickle.loads((folder / _OTHERS).read_bytes())
    return found


def load(folder: Path, things: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Restores modules and optimizers in place, together with all ranks. `known` are all that are registered, among which are
    the modules of the optimizers."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict

    states = _states(things, known)
    dcp.load(states, checkpoint_id=folder)
    for name, thing in things.items():
        if _is_module(thing):
            state_dict.set_model_state_dict(thing, states[name])
        else:
            state_dict.set_optimizer_state_dict(_owner(name, thing, known), thing, states[name])


def is_sharded(thing: Any) -> bool:
    """Whether it is a module or an optimizer of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, (torch.nn.Module, torch.optim.Optimizer))


def _is_module(thing: Any) -> bool:
    return isinstance(thing, sys.modules["torch"].nn.Module)


def _states(things: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    from torch.distributed.checkpoint import state_dict

    return {
        name: state_dict.get_model_state_dict(thing)
        if _is_module(thing)
        else state_dict.get_optimizer_state_dict(_owner(name, thing, known or things), thing)
        for name, thing in things.items()
    }


def _owner(name: str, optimizer: Any, known: Mapping[str, Any]) -> Any:
    """The module to which the parameters of an optimizer belong."""
    mine = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for thing in known.values():
        if _is_module(thing) and mine <= {id(each) for each in thing.parameters()}:
            return thing
    raise ValueError(f"{name}: no registered module has the parameters of this optimizer; register the module with it")
