"""FlashAttention-3 and -4 as peers of the benchmark, forward and backward, if their packages are installed.
Their tensors are [B, N, H, D]; the inputs are copied to this layout first."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any, Callable, Dict, List, Tuple

import numpy

from .. import _reference
from ._backward import Makers, autograd_call
from ._features import mask_of

#: The modules, as the documentation of each package names them.
MODULES = {"fa3": "flash_attn_interface", "fa4": "flash_attn.cute"}
#: Queries and keys per block in the block lists of FlashAttention-4.
BLOCK = 128


def forward_makers(shape: Dict[str, Any], q: Any, k: Any, v: Any) -> Makers:
    """Returns a function for each peer that supports the shape, which builds the peer's call."""
    return {name: functools.partial(_forward, name, shape, q, k, v) for name in _takers(shape)}


def gradient_makers(torch: Any, shape: Dict[str, Any], q: Any, k: Any, v: Any, do: Any) -> Makers:
    """Returns the same for the gradients of q, k and v, through autograd."""
    make = functools.partial(_gradients, torch)
    return {name: functools.partial(make, name, shape, q, k, v, do) for name in _takers(shape)}


def _takers(shape: Dict[str, Any]) -> List[str]:
    """Returns the installed peers whose arguments can express the shape's mask."""
    if shape.get("feature"):
        return []
    names = ["fa4"] if shape["mask"] == "sink" else list(MODULES)
    return [name for name in names if is_installed(name)]


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(MODULES[name]) is not None
    except ImportError:  # the parent package is missing or cannot be imported
        return False


def _forward(name: str, shape: Dict[str, Any], q: Any, k: Any, v: Any) -> Callable[[], Any]:
    return functools.partial(_function(name, shape, q), *_turned(q, k, v))


def _gradients(
    torch: Any, name: str, shape: Dict[str, Any], q: Any, k: Any, v: Any, do: Any
) -> Callable[[], Any]:
    leaves = tuple(x.requires_grad_() for x in _turned(q, k, v))
    o = _function(name, shape, q, has_gradients=True)(*leaves)
    return autograd_call(torch, o, leaves, *_turned(do))


def _turned(*tensors: Any) -> Tuple[Any, ...]:
    return tuple(x.transpose(1, 2).contiguous() for x in tensors)


def _function(
    name: str, shape: Dict[str, Any], q: Any, has_gradients: bool = False
) -> Callable[..., Any]:
    """Returns a function from q, k and v to o."""
    function = importlib.import_module(MODULES[name]).flash_attn_func
    options: Dict[str, Any] = {"causal": shape["mask"] == "causal"}
    if shape["mask"] == "window":
        options["window_size"] = (shape["window"] - 1, 0)
    if shape["mask"] == "sink":
        options = _sinks(shape, q.device, has_gradients)
    if name == "fa3" and shape["Nq"] == 1:
        options["num_splits"] = 0  # FlashAttention-3's heuristic chooses the number of splits

    def call(q: Any, k: Any, v: Any) -> Any:
        o = function(q, k, v, **options)
        return o[0] if isinstance(o, tuple) else o  # some versions also return lse

    return call


def _sinks(shape: Dict[str, Any], device: Any, has_gradients: bool) -> Dict[str, Any]:
    """Returns the options that describe a window with sinks to FlashAttention-4: a mask_mod, and lists of the
    blocks that contain visible pairs."""
    import cutlass
    from cutlass import cute
    from flash_attn.cute import utils

    near, sinks, offset = shape["window"], shape["sinks"], shape["Nk"] - shape["Nq"]

    @cute.jit
    def sees(batch, head, query, key, lengths, given):
        row = query + utils.scalar_to_ssa(offset, cutlass.Int32)
        is_sink = key < utils.scalar_to_ssa(sinks, cutlass.Int32)
        is_near = row - key < utils.scalar_to_ssa(near, cutlass.Int32)
        return (key <= row) & (is_near | is_sink)

    # FlashAttention-4's kernel cache ignores the values that a function captures.
    sees.__cute_hash__ = f"flashattn.bench {near} {sinks} {offset}"
    pairs = _pairs_of_blocks(shape)
    options = {"mask_mod": sees, "block_sparse_tensors": _block_lists(pairs, device)}
    if has_gradients:
        options["block_sparse_tensors_bwd"] = _block_lists(pairs.T, device)
    return options


def _pairs_of_blocks(shape: Dict[str, Any]) -> numpy.ndarray:
    """Returns the number of visible pairs of each block, [blocks of queries, blocks of keys]."""
    nq, nk = shape["Nq"], shape["Nk"]
    keys, found = numpy.arange(nk)[None, :], []
    for first in range(0, nq, BLOCK):
        rows = numpy.arange(first, min(nq, first + BLOCK))[:, None] + nk - nq
        seen = _reference.visible(mask_of(shape), rows, keys, nq, nk).sum(axis=0)
        found.append(numpy.add.reduceat(seen, range(0, nk, BLOCK)))
    return numpy.array(found)


def _block_lists(pairs: numpy.ndarray, device: Any) -> Any:
    """Returns, for each row of blocks, the number and the indices of partial blocks, then of full blocks."""
    import torch
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    whole = pairs == BLOCK * BLOCK
    lists: List[Any] = []
    for chosen in ((pairs > 0) & ~whole, whole):
        order = numpy.argsort(~chosen, axis=1, kind="stable")  # chosen blocks first
        lists += [
            torch.from_numpy(x.astype(numpy.int32)[None, None]).to(device)
            for x in (chosen.sum(axis=1), order)
        ]
    return BlockSparseTensorsTorch(*lists, block_size=(BLOCK, BLOCK))
