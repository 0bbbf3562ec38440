"""How DTensor shards attention over devices: along the batch and along the heads.

Each device holds whole rows of keys, so no communication is needed. Operands that are broadcast along a
sharded dimension are replicated, and their gradients are summed over the devices.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

from .. import _symbols
from .._module import STARTS
from .._trace import AUX
from ..errors import UnsupportedError

_BATCH, _HEADS = 0, 1
#: Operands that broadcast to the scores, aligned at the last dimension.
_PAIRS = ("bias", "attn_mask")
#: Outputs, and the inputs that have the same dimensions.
_OF = {"o": "q", "dq": "q", "dk": "k", "dv": "v", "d_bias": "bias", "d_sink_logits": "sink_logits"}


def register(*ops: Any) -> None:
    """Registers the sharding strategy of the operators with DTensor. All arguments except sizes are part of
    the key of DTensor's cache; `register_sharding` would omit arguments that are not integers, such as the
    layout."""
    for op in ops:
        keywords = [argument.name for argument in op._schema.arguments if argument.kwarg_only]
        DTensor._op_dispatcher.sharding_propagator.register_op_strategy(
            op, _strategy, RuntimeSchemaInfo(0, keywords)
        )


def refuse(*ops: Any) -> None:
    """Registers a strategy that refuses DTensors. DTensor would gather inputs for a call, and an operator
    cannot write to a cache that is gathered."""
    for op in ops:
        DTensor._op_dispatcher.sharding_propagator.register_op_strategy(op, _refused)


def _refused(schema: OpSchema) -> OpStrategy:
    raise UnsupportedError(
        "expected plain tensors for decoding but got DTensors; decode tensor.to_local() on each device"
    )


def _strategy(schema: OpSchema) -> OpStrategy:
    arguments = schema.op._schema.arguments
    given = dict(zip((argument.name for argument in arguments), schema.args_schema))
    options = {x.name: x.default_value for x in arguments if x.kwarg_only}
    options.update(schema.kwargs_schema)
    names_of = dict(zip(_symbols.ARGUMENTS, _symbols.names_in(options["mask"] or "")))
    tensors = {names_of.get(name, name): x for name, x in given.items() if isinstance(x, OpStrategy)}
    for name in (*STARTS, "page_table"):
        if name in tensors:
            raise UnsupportedError(
                f"expected plain tensors with {name} but got DTensors; call attention on tensor.to_local() on "
                "each device"
            )
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    outputs = [output.name for output in schema.op._schema.returns]
    whole = [Replicate()] * (len(outputs) + len(tensors))
    splits: List[List[Any]] = [whole]
    heads_dim = 1 if options["layout"] == "bhsd" else 2
    for axis, argument in ((_BATCH, "%batch"), (_HEADS, "%head")):
        text = options["score_mod"] or ""
        # A score_mod that reads the index of a sharded dimension would count from 0 on each device.
        if shapes["q"][0 if axis == _BATCH else heads_dim] > 1 and text.count(argument) < 2:
            split = {name: _place(name, axis, shapes[name], heads_dim) for name in shapes}
            made = [_place_output(name, axis, split, shapes, heads_dim, options) for name in outputs]
            splits.append([*made, *(x or Replicate() for x in split.values())])
    names = list(tensors)
    q_at, heads = names.index("q"), shapes["k"][heads_dim]

    def shares_heads(inputs: List[Any], _: Any) -> bool:
        """Returns whether each device holds the key heads that its query heads read."""
        if heads == 1 or heads == shapes["q"][heads_dim]:
            return True
        spec = inputs[q_at]
        counts = (spec.mesh.size(i) for i, p in enumerate(spec.placements) if p == Shard(heads_dim))
        return heads % math.prod(counts) == 0

    return expand_to_full_mesh_op_strategy(
        schema.get_mesh_from_args(),
        schema,
        splits,
        input_index=len(outputs),
        full_mesh_strategy_filter=shares_heads,
    )


def _place(name: str, axis: int, shape: Tuple[int, ...], heads_dim: int) -> Optional[Shard]:
    """Returns how an input is sharded along an axis, or None if the input is broadcast along the axis."""
    if name in AUX:
        return None  # a score_mod reads them by an index that is not sharded
    if name in _symbols.NAMES:
        # The first of two dimensions is the batch.
        has_batch = len(shape) > 1 or name.startswith("per_sequence")
        dim = axis if len(shape) == 3 or (axis == _BATCH and has_batch and shape) else -1
    elif name == "sink_logits":
        dim = {_HEADS: 0}.get(axis, -1)
    elif name in ("kv_len", "q_len", "leftpad_k", "offsets"):
        dim = {_BATCH: 0}.get(axis, -1)
    elif name in _PAIRS:
        dim = len(shape) - 4 + axis
    else:
        dim = 0 if axis == _BATCH else 1 if name in ("lse", "d_lse") else heads_dim
    return Shard(dim) if dim >= 0 and shape[dim] > 1 else None


def _place_output(
    name: str,
    axis: int,
    split: Dict[str, Optional[Shard]],
    shapes: Dict[str, Tuple[int, ...]],
    heads_dim: int,
    options: Dict[str, Any],
) -> Any:
    if name == "lse":
        return Shard(axis)
    source = _OF[name]
    if source not in shapes or not options.get(f"needs_{source}", True):
        return Replicate()  # the empty tensor of a gradient that is not requested
    return split[source] or Partial()
