"""The operators of `context_parallel`, with their rules for autograd, autocast and tracing."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _symbols, _torch
from ._context import forward
from ._context_backward import backward, sink_gradient
from ._context_plans import OPERANDS, Spec
from ._ops import _library, autocast_rule, refuse_second
from ._parallel_checks import check_tensors

_TENSORS = "Tensor q, Tensor k, Tensor v"
_REST = "Tensor?[] operands, Tensor[] numbers, str key"
_library.define(
    f"context_parallel({_TENSORS}, {_REST}) -> (Tensor o, Tensor lse)", tags=(torch.Tag.pt2_compliant_tag,)
)
_library.define(
    f"context_parallel_backward(Tensor d_o, Tensor? d_lse, {_TENSORS}, Tensor o, Tensor lse, {_REST}, bool needs_bias, "
    "bool needs_sink_logits) -> (Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_sink_logits)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
forward_op = torch.ops.flashattn.context_parallel.default
_backward_op = torch.ops.flashattn.context_parallel_backward.default


class Key(NamedTuple):
    """What a key of the operators stands for."""

    spec: Spec
    ints: Tuple[Optional[int], ...]  #: the numbers of the mask that are ints; None for each tensor


_keys: Dict[str, Key] = {}
_names: Dict[Key, str] = {}


def name_of(key: Key) -> str:
    """Returns the text by which operators find a key: graphs of torch hold texts, but not objects."""
    name = _names.get(key)
    if name is None:
        name = _names[key] = str(len(_names))
        _keys[name] = key
    return name


def _with_ints(key: Key, numbers: Sequence[Tensor]) -> List[Any]:
    rest = iter(numbers)
    return [next(rest) if x is None else x for x in key.ints]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, operands: Sequence[Optional[Tensor]], numbers: Sequence[Tensor], key: str
) -> Tuple[Tensor, Tensor]:
    found = _keys[key]
    given = {name: x for name, x in zip(OPERANDS, operands) if x is not None}
    with torch.no_grad(), torch._C._DisableAutocast():
        return forward(found.spec, q, k, v, given, _with_ints(found, numbers))


def _backward(
    d_o: Tensor, d_lse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    operands: Sequence[Optional[Tensor]], numbers: Sequence[Tensor], key: str, needs_bias: bool,
    needs_sink_logits: bool,
) -> Tuple[Tensor, ...]:  # fmt: skip
    found, none = _keys[key], q.new_empty(0)
    given = {name: x for name, x in zip(OPERANDS, operands) if x is not None}
    with torch.no_grad(), torch._C._DisableAutocast():
        d_sink_logits = none
        if needs_sink_logits:
            d_sink_logits = sink_gradient(found.spec, o, lse, d_o, d_lse, given["sink_logits"])
        given.pop("sink_logits", None)  # lse has them already
        *gradients, d_bias = backward(
            found.spec, q, k, v, o, lse, d_o.contiguous(), d_lse, given, _with_ints(found, numbers), needs_bias
        )
    return (*gradients, none if d_bias is None else d_bias, d_sink_logits)  # type: ignore[return-value]


@torch.library.register_fake("flashattn::context_parallel", lib=_library)
def _fake_forward(q: Tensor, k: Tensor, v: Tensor, operands: Any, numbers: Any, key: str) -> Tuple[Tensor, Tensor]:
    spec, axis = _keys[key].spec, _keys[key].spec.axis
    if all(type(n) is int for x in (q, k, v, *numbers) for n in x.shape):
        given = {name: x for name, x in zip(OPERANDS, operands) if x is not None}
        names = () if spec.mask is None else _symbols.names_in(spec.mask)
        lengths = spec.q_shards.length, spec.k_shards.length
        check_tensors((q, k, v), given, tuple(zip(names, _with_ints(_keys[key], numbers))), spec.layout, None, lengths)
    rows = (q.shape[0], q.shape[3 - axis], q.shape[axis])
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(rows, dtype=torch.float32)


@torch.library.register_fake("flashattn::context_parallel_backward", lib=_library)
def _fake_backward(
    d_o: Tensor, d_lse: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, operands: Any, numbers: Any,
    key: str, needs_bias: bool, needs_sink_logits: bool,
) -> Tuple[Tensor, ...]:  # fmt: skip
    given = dict(zip(OPERANDS, operands))
    wanted = {"bias": needs_bias, "sink_logits": needs_sink_logits}
    extra = [torch.empty_like(given[name]) if needs else q.new_empty(0) for name, needs in wanted.items()]
    return (*(x.new_empty(x.shape) for x in (q, k, v)), *extra)


class _Attention(torch.autograd.Function):
    """The autograd function of the operator. `operands` begin with those of `OPERANDS`; the mask's tensors follow."""

    @staticmethod
    def forward(ctx: Any, key: str, q: Tensor, k: Tensor, v: Tensor, *operands: Optional[Tensor]) -> Any:
        own, numbers = operands[: len(OPERANDS)], operands[len(OPERANDS) :]
        with torch._C._AutoDispatchBelowAutograd():
            o, lse = forward_op(q, k, v, list(own), list(numbers), key)
        ctx.set_materialize_grads(False)
        ctx.key = key
        ctx.save_for_backward(q, k, v, o, lse, *operands)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
        q, k, v, o, lse, *operands = ctx.saved_tensors
        own, numbers = operands[: len(OPERANDS)], operands[len(OPERANDS) :]
        needs = dict(zip(("key", "q", "k", "v", *OPERANDS), ctx.needs_input_grad))
        # Every rank runs the backward pass, also one whose output has no gradient: others wait for its messages.
        dq, dk, dv, d_bias, d_sinks = _backward_op(
            torch.zeros_like(o) if d_o is None else d_o, d_lse, q, k, v, o, lse, own, numbers, ctx.key,
            needs["bias"], needs["sink_logits"],
        )  # fmt: skip
        extra = {"bias": d_bias, "sink_logits": d_sinks}
        of_operands = (extra[name] if name in extra and needs[name] else None for name in OPERANDS)
        return (None, dq, dk, dv, *of_operands, *(None for _ in numbers))

    jvp = staticmethod(_torch.refuse_forward_mode)


class _Gradients(torch.autograd.Function):
    """Refuses a second derivative."""

    @staticmethod
    def forward(ctx: Any, rest: Tuple[Any, ...], *tensors: Optional[Tensor]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return _backward_op(*tensors[:7], *rest)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse_second()


def _recorded(q: Tensor, k: Tensor, v: Tensor, operands: Any, numbers: Any, key: str) -> Any:
    if _is_recorded(q, k, v, *operands):
        return _Attention.apply(key, q, k, v, *operands, *numbers)
    with torch._C._AutoDispatchBelowAutograd():
        return forward_op(q, k, v, operands, numbers, key)


def _recorded_backward(*inputs: Any) -> Any:
    tensors, rest = inputs[:7], inputs[7:]
    if _is_recorded(*tensors, *rest[0]):
        return _Gradients.apply(rest, *tensors, *rest[0])
    with torch._C._AutoDispatchBelowAutograd():
        return _backward_op(*inputs)


def _is_recorded(*tensors: Optional[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors if x is not None)


_library.impl("context_parallel", _recorded, "Autograd")
_library.impl("context_parallel_backward", _recorded_backward, "Autograd")
for _device in ("cpu", "cuda"):
    _library.impl("context_parallel", autocast_rule(_device, forward_op), f"Autocast{_device.upper()}")
    _library.impl("context_parallel", _forward, _device.upper())
    _library.impl("context_parallel_backward", _backward, _device.upper())
