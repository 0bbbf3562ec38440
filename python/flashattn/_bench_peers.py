"""FlashAttention-3 and -4, where their packages are installed, as peers of the benchmark: forward
and gradients. Their order of dimensions is [B, N, H, D]; what they are given is copied into it first."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any, Callable, Dict, List, Tuple

from ._bench_backward import Makers, autograd_call

#: The packages' names are those of their own documentation.
MODULES = {"fa3": "flash_attn_interface", "fa4": "flash_attn.cute"}


def forward_makers(shape: Dict[str, Any], q: Any, k: Any, v: Any) -> Makers:
    """What makes the calls of those that take the shape."""
    return {name: functools.partial(_forward, name, shape, q, k, v) for name in _takers(shape)}


def gradient_makers(torch: Any, shape: Dict[str, Any], q: Any, k: Any, v: Any, do: Any) -> Makers:
    """The same for the gradients of q, k and v, by their autograd."""
    make = functools.partial(_gradients, torch)
    return {name: functools.partial(make, name, shape, q, k, v, do) for name in _takers(shape)}


def _takers(shape: Dict[str, Any]) -> List[str]:
    """Of the installed ones those whose arguments can say the shape's mask."""
    if shape["mask"] == "sink" or shape.get("feature"):
        return []
    return [name for name, module in MODULES.items() if _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of a package without that part
        return False


def _forward(name: str, shape: Dict[str, Any], q: Any, k: Any, v: Any) -> Callable[[], Any]:
    return functools.partial(_function(name, shape), *_turned(q, k, v))


def _gradients(
    torch: Any, name: str, shape: Dict[str, Any], q: Any, k: Any, v: Any, do: Any
) -> Callable[[], Any]:
    leaves = tuple(x.requires_grad_() for x in _turned(q, k, v))
    o = _function(name, shape)(*leaves)
    return autograd_call(torch, o, leaves, *_turned(do))


def _turned(*tensors: Any) -> Tuple[Any, ...]:
    return tuple(x.transpose(1, 2).contiguous() for x in tensors)


def _function(name: str, shape: Dict[str, Any]) -> Callable[..., Any]:
    """From q, k and v to o alone."""
    function = importlib.import_module(MODULES[name]).flash_attn_func
    options: Dict[str, Any] = {"causal": shape["mask"] == "causal"}
    if shape["mask"] == "window":
        options["window_size"] = (shape["window"] - 1, 0)
    if name == "fa3" and shape["Nq"] == 1:
        options["num_splits"] = 0  # as many parts of the keys as its own heuristic says, not one

    def call(q: Any, k: Any, v: Any) -> Any:
        o = function(q, k, v, **options)
        return o[0] if isinstance(o, tuple) else o  # some versions give lse too

    return call
