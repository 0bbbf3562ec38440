"""The rule by which `torch.vmap` batches attention: the mapped dimension is folded into the batch."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from .. import _aux, _symbols
from .._module import STARTS

#: Arguments whose first dimension is the batch, and arguments that broadcast.
_ROWS = ("q", "k", "v", "o", "lse", "d_o", "d_lse", "kv_len", "q_len", "leftpad_k", "offsets")
_PAIRS = ("bias", "attn_mask", "k_scale", "v_scale")
#: Arguments with which batch elements share the rows of another argument.
_SHARED = (*STARTS, "page_table")


def register(*ops: Any, library: Any) -> None:
    """Registers the vmap rules of operators of `library`."""
    for op in ops:
        torch.library.register_vmap(op._schema.name, _rule(op), lib=library)


def _rule(op: Any) -> Any:
    """Returns the vmap rule of `op`, which folds the mapped dimension into the batch. The calls run one by one
    if an operand without a batch dimension (sink logits) is mapped, if sequences are packed, if keys are in
    pages, if a score_mod reads the batch, or if gradients are sums over the batch.
    """
    names = [argument.name for argument in op._schema.arguments if not argument.kwarg_only]
    outputs = len(op._schema.returns)
    symbols_at = names.index(_symbols.ARGUMENTS[0])
    rows, pairs, sharing = (
        [at for at, name in enumerate(names) if name in kinds] for kinds in (_ROWS, _PAIRS, _SHARED)
    )

    def one_by_one(info: Any, in_dims: Sequence[Optional[int]], args: Any, options: Any) -> Any:
        each = [
            op(*(x if d is None else x.select(d, i) for x, d in zip(args, in_dims)), **options)
            for i in range(info.batch_size)
        ]
        return tuple(map(torch.stack, zip(*each))), (0,) * outputs

    def rule(info: Any, in_dims: Sequence[Optional[int]], *args: Any, **options: Any) -> Any:
        size = info.batch_size
        are_summed = options.get("needs_bias") or options.get("needs_sink_logits")
        has_sinks = any(
            dim is not None and at not in rows and at not in pairs
            for at, dim in enumerate(in_dims[:symbols_at])
        )
        shares = any(args[at] is not None for at in sharing)
        reads_batch = _aux.reads_batch(options.get("score_mod"))
        if are_summed or has_sinks or shares or reads_batch or size == 0:
            return one_by_one(info, in_dims, args, options)
        made = list(args)
        batch = next(
            arg.movedim(dim or 0, 0).shape[1 if dim is not None else 0]
            for arg, dim in ((args[at], in_dims[at]) for at in rows)
            if arg is not None
        )
        for at, (dim, arg) in enumerate(zip(in_dims, args)):
            if arg is None or not (at in rows or at in pairs):
                continue
            arg = arg.unsqueeze(0) if dim is None else arg.movedim(dim, 0)
            if at in pairs:
                arg = arg.reshape(arg.shape[0], *(1,) * (5 - arg.ndim), *arg.shape[1:])
                if arg.shape[0] == 1 and arg.shape[1] == 1:
                    made[at] = arg[0]
                    continue
            made[at] = arg.expand(size, batch, *arg.shape[2:]).flatten(0, 1)
        for at, name in enumerate(_symbols.names_in(options.get("mask") or ""), symbols_at):
            made[at] = _fold(name, args[at], in_dims[at], size, batch)
        found = op(*made, **options)
        # Gradients that are not requested are empty and have no batch.
        unfolded = [
            x.unflatten(0, (size, batch)) if x.ndim > 1 else x.new_empty(size, 0) for x in found
        ]
        return tuple(unfolded), (0,) * outputs

    return rule


def _fold(name: str, symbol: Any, dim: Optional[int], size: int, batch: int) -> Any:
    """Returns a symbol of the mask for `size` calls of `batch` batch elements. `dim` is its mapped dimension."""
    mapped = symbol.unsqueeze(0) if dim is None else symbol.movedim(dim, 0)
    dims = "B" if name.startswith("per_sequence") else "BHN"
    mapped = mapped.reshape(mapped.shape[0], *_symbols.extend(mapped.shape[1:], dims, 1))
    if dim is None and mapped.shape[1] == 1:
        return mapped[0]  # broadcast
    return mapped.expand(size, batch, *mapped.shape[2:]).flatten(0, 1)
