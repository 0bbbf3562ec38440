"""Attention as a function of torch's autograd: what it saves, and how gradients flow."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

from . import _tensors, _torch
from ._backward import differentiate
from .errors import UnsupportedError

#: What gradients are given of, in the order of the function's arguments.
_DIFFERENTIABLE = ("q", "k", "v", "bias", "sink_logits")


def has_to_record(q: Any, k: Any, v: Any, operands: Mapping[str, Any]) -> bool:
    """Whether torch would record the call: one of tensors of torch, one of which needs a gradient."""
    if not _tensors.is_torch(q):
        return False
    given = {**operands, "q": q, "k": k, "v": v}
    return any(_torch.needs_gradient(given.get(name)) for name in _DIFFERENTIABLE)


class _Call(NamedTuple):
    """What is no input of a graph."""

    forward: Callable[..., Any]
    stream: Any
    options: Tuple[Any, ...]  #: as of `_attention`, but that lse is returned
    scale: Any
    returns_lse: bool


def attend(
    forward: Callable[..., Any],
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: Tuple[Any, ...],
    values: Tuple[Any, ...],
    scale: Any,
) -> Any:
    """The result of `forward`, `_attention._call_torch`, recorded by torch."""
    if out is not None:
        raise UnsupportedError(
            "expected no out with tensors that require gradients but got one; "
            "call it under torch.no_grad(), or on tensor.detach()"
        )
    returns_lse = bool(options[3])
    call = _Call(forward, stream, (*options[:3], True, *options[4:]), scale, returns_lse)
    return _function().apply(call, q, k, v, *values)


def _detach(tensor: Any) -> Any:
    return tensor.detach() if _tensors.is_torch(tensor) else tensor


@functools.lru_cache(maxsize=None)
def _function() -> Any:
    """The function's class, which torch must be there for."""
    torch = sys.modules["torch"]
    once_differentiable = torch.autograd.function.once_differentiable

    class FlashAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: _Call, *inputs: Any) -> Any:
            ctx.set_materialize_grads(False)
            q, k, v, *values = map(_detach, inputs)
            o, lse = call.forward(
                q, k, v, None, (), tuple(values), call.scale, call.stream, call.options
            )
            # What torch saves it guards against changes in place.
            ctx.are_tensors = [_tensors.is_torch(value) for value in inputs]
            ctx.others = [None if _tensors.is_torch(value) else value for value in inputs]
            ctx.call = call
            ctx.save_for_backward(o, lse, *filter(_tensors.is_torch, inputs))
            return (o, lse) if call.returns_lse else o

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, do: Any, d_lse: Any = None) -> Tuple[Any, ...]:
            o, lse, *saved = map(_detach, ctx.saved_tensors)
            tensors = iter(saved)
            inputs = [
                next(tensors) if is_tensor else other
                for is_tensor, other in zip(ctx.are_tensors, ctx.others)
            ]
            return (
                None,
                *_gradients(ctx.call, inputs, o, lse, do, d_lse, ctx.needs_input_grad[1:]),
            )

    return FlashAttention


def _gradients(
    call: _Call, inputs: Any, o: Any, lse: Any, do: Any, d_lse: Any, needed: Tuple[bool, ...]
) -> Tuple[Any, ...]:
    """A gradient, or None, for each of `inputs`: q, k, v and the operands."""
    mask, align, layout, _, _, _, softcap, score_mod, names, device, _ = call.options
    q, k, v, *values = inputs
    operands = dict(zip(names, values))
    needs: Dict[str, bool] = dict(zip(("q", "k", "v", *names), needed))
    if do is None:
        do = o.new_zeros(o.shape)
    elif do.shape[-1] > 1 and do.stride(-1) != 1:
        do = do.contiguous()  # of a sum it is one number, expanded
    if d_lse is not None:
        d_lse = d_lse.contiguous()
    if needs.get("bias") and 0 in operands["bias"].stride():
        operands["bias"] = operands["bias"].contiguous()
    operands["d_lse"] = d_lse
    asked = [name for name in _DIFFERENTIABLE[3:] if needs.get(name)]
    # The stream is torch's current one, on which gradients come and go.
    found = differentiate(
        (q, k, v, o, lse, do),
        operands,
        tuple(f"d_{name}" for name in asked),
        out=None,
        stream=None,
        scale=call.scale,
        options=(mask, align, layout, False, None, None, softcap, score_mod, device),
    )
    gradients = dict(zip(("q", "k", "v", *asked), found))
    return tuple(gradients.get(name) if need else None for name, need in needs.items())
