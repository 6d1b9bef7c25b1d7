"""Describes the script's collectives, and finds when the last card arrives."""

from __future__ import annotations

from typing import Any

import torch

from perftool.sim.machine.network import Collective
from perftool.sim.ops.op_work import Call, size, tensors

# For each PyTorch name, the kind and the position of the argument that contains a rank's contribution.
_KINDS = {
    "allreduce": ("all_reduce", 0), "allreduce_coalesced": ("all_reduce", 0), "broadcast": ("broadcast", 0),
    "reduce": ("reduce", 0), "scatter": ("scatter", 0), "barrier": ("barrier", 0), "gather": ("gather", 1),
    "allgather": ("all_gather", 1), "_allgather_base": ("all_gather", 1), "allgather_coalesced": ("all_gather", 1),
    "allgather_into_tensor_coalesced": ("all_gather", 1), "reduce_scatter": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter", 1), "reduce_scatter_tensor_coalesced": ("reduce_scatter", 1),
    "alltoall": ("all_to_all", 1), "alltoall_base": ("all_to_all", 1),
}  # fmt: skip
# Type names of PyTorch's profiler.
_TYPES = {torch.bfloat16: "BFloat16", torch.float16: "Half", torch.float32: "Float", torch.float64: "Double",
          torch.int64: "Long", torch.int32: "Int", torch.uint8: "Byte", torch.bool: "Bool"}  # fmt: skip


def group_of(call: Call) -> Any:
    """Return the process group of the collective ``call``, or None for other calls, such as a send."""
    boxed = next((each for each in call.leaves if isinstance(each, torch.ScriptObject)), None)
    return None if boxed is None or call.op.kind not in _KINDS else torch.distributed.ProcessGroup.unbox(boxed)


def collective_of(call: Call, group: Any) -> Collective:
    """Return the collective that ``call`` runs."""
    kind, place = _KINDS[call.op.kind]
    contribution = () if kind == "barrier" else tensors(call.args[place])
    dtype = _TYPES.get(contribution[0].dtype, str(contribution[0].dtype)) if contribution else ""
    elements = sum(each.numel() for each in contribution)
    ranks = tuple(torch.distributed.get_process_group_ranks(group))
    return Collective(kind, sum(map(size, contribution)), elements, dtype, str(group.group_name), ranks)


def finish(call: Call) -> None:
    """Wait, in real time, for the result of ``call``, because later ops may use it."""
    works = [each for each in _boxed(call.result) if "Work" in str(each._type())]
    for each in works:
        torch.distributed.Work.unbox(each).wait()


def last_arrival(group: Any, ns: int) -> int:
    """Exchange arrival times with the members of ``group`` and return the latest. This rank arrives at ``ns``."""
    options = torch.distributed.AllreduceOptions()
    options.reduceOp = torch.distributed.ReduceOp(torch.distributed.ReduceOp.MAX)
    with torch._C.DisableTorchFunction():
        moment = torch.tensor([ns])
        group.allreduce([moment], options).wait()
        return int(moment.item())


def _boxed(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [found for each in tree for found in _boxed(each)]
    return [tree] if isinstance(tree, torch.ScriptObject) else []
