"""Attention and its backward pass as operators of torch, `flashattn::attention` and
`flashattn::attention_backward`, with the rules of torch for autograd, tracing, vmap and autocast.

Every attention in a graph of torch is a call of these operators, except for decoding (`_decode`).
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _attention, _kernel, _module, _plans, _tensors, _torch
from .._backward import differentiate, replay
from .._checks import model_chip
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask
from . import _flops, _vmap

#: The optional operands, in the order of the arguments.
OPERANDS = ("bias", "attn_mask", "sink_logits", "kv_len", "offset")
_INPUTS = "Tensor q, Tensor k, Tensor v"
_OPERANDS = "Tensor? bias, Tensor? attn_mask, Tensor? sink_logits, Tensor? kv_len, SymInt? offset"
#: Masks and score modifications are MLIR text, as in the modules that are compiled.
_OPTIONS = (
    "float? scale=None, str? mask=None, str align='bottom_right', str layout='bhsd', "
    "float? softcap=None, str? score_mod=None, str? model=None"
)
_FORWARD = f"{_INPUTS}, {_OPERANDS}, *, {_OPTIONS}, str? schedule=None, int? stream=None"
_BACKWARD = (
    f"Tensor d_o, Tensor? d_lse, {_INPUTS}, Tensor o, Tensor lse, {_OPERANDS}, *, {_OPTIONS}, "
    "bool needs_bias=False, bool needs_sink_logits=False, bool deterministic=False"
)

_library = torch.library.Library("flashattn", "DEF")
_library.define(
    f"attention({_FORWARD}) -> (Tensor o, Tensor lse)", tags=(torch.Tag.pt2_compliant_tag,)
)
_library.define(
    f"attention_backward({_BACKWARD}) -> "
    "(Tensor dq, Tensor dk, Tensor dv, Tensor d_bias, Tensor d_sink_logits)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_attention_op = torch.ops.flashattn.attention.default
_backward_op = torch.ops.flashattn.attention_backward.default


def attend(
    q: Any,
    k: Any,
    v: Any,
    operands: Mapping[str, Any],
    *,
    mask: Optional[Mask],
    align: str,
    layout: str,
    return_lse: bool,
    out: Any,
    schedule: Any,
    dtype: Any,
    stream: Any,
    scale: Optional[float],
    softcap: Optional[float],
    score_mod: Optional[str],
    device: Optional[str],
) -> Any:
    """Computes `flashattn.attention` through the operator, if torch records, traces, batches or autocasts the
    call. `score_mod` is MLIR text; `operands` holds only the operands of the call."""
    _torch.refuse_gradients(scale=scale, softcap=softcap)
    if out is not None:
        raise UnsupportedError(
            "expected no out with tensors that require gradients, or in what torch traces, batches or "
            "casts, but got one; call it under torch.no_grad(), or on tensor.detach()"
        )
    if device is not None:
        model_chip(device)
    if dtype is not None:
        _plans.is_bf16(dtype)
    if schedule is not None:
        element = _tensors.parse_element(q.dtype)
        is_cpu = device is None and not q.is_cuda
        schedule = _kernel.format_schedule(_plans.mapping(schedule), element, is_cpu)
    inputs = (
        q,
        _as_tensor(k, q),
        _as_tensor(v, q),
        _as_tensor(operands.get("bias"), q),
        _as_tensor(operands.get("attn_mask"), q),
        _as_tensor(operands.get("sink_logits"), q),
        _as_tensor(operands.get("kv_len"), q),
        operands.get("offset"),
    )
    options = _fields(scale, mask, align, layout, softcap, score_mod, device)
    options["schedule"] = schedule
    options["stream"] = None if stream is None else _tensors.stream_pointer(stream)
    if is_seen(inputs) or _torch.in_transform():
        o, lse = _call(_attention_op, _BatchedAttention, inputs, options)
    else:
        o, lse = _Attention.apply(options, *inputs)
    return (o, lse) if return_lse else o


def _fields(
    scale: Optional[float],
    mask: Optional[Mask],
    align: str,
    layout: str,
    softcap: Optional[float],
    score_mod: Optional[str],
    model: Optional[str],
) -> Dict[str, Any]:
    """Returns the options that both operators take."""
    return {
        "scale": None if scale is None else _as_float(scale),
        "mask": None if mask is None else str(mask),
        "align": align,
        "layout": layout,
        "softcap": softcap,
        "score_mod": score_mod,
        "model": model,
    }


def _as_float(scale: Any) -> float:
    try:
        return float(scale)
    except OverflowError:
        return _module.check_factor("scale", scale)  # raises ArgumentError


def record(
    found: Tuple[Tensor, Tensor],
    rows: Tuple[Tensor, Tensor, Tensor],
    values: Tuple[Any, ...],
    scale: Optional[float],
    options: Tuple[Any, ...],
) -> Any:
    """Records the results of a plan in autograd. Returns o, or (o, lse) if `options`, in which
    `flashattn.attention` looks up plans, request lse. The attributes of the operator are computed in the
    backward pass only, to save host time."""
    names = options[8]
    if not names:
        return _apply_planned((found, scale, options), *rows)
    given = dict(zip(names, values))
    o, lse = _Attention.apply((found, scale, options), *rows, *map(given.get, OPERANDS))
    return (o, lse) if options[3] else o


def is_seen(inputs: Sequence[Any]) -> bool:
    """Returns whether a call must go through torch's dispatcher for another reason than autograd: a mode,
    autocast, `torch.jit.trace`, or a tensor of another class or device. The dispatcher costs 20 us on the
    host."""
    if torch.compiler.is_compiling() or _torch.any_autocast() or _torch.count_modes():
        return True
    if _torch.is_tracing():
        return True
    return not all(
        type(x) in (Tensor, torch.nn.Parameter) and (x.is_cpu or x.is_cuda)
        for x in inputs
        if isinstance(x, Tensor)
    )


def _call(op: Any, function: Any, inputs: Tuple[Any, ...], options: Dict[str, Any]) -> Any:
    """Calls the operator or, in transforms such as `torch.func.grad`, which cannot look into an operator, the
    autograd function that records it."""
    if torch.compiler.is_compiling() or not _torch.in_transform():
        return op(*inputs, **options)
    return function.apply(options, *inputs)


def _as_tensor(value: Any, like: Tensor) -> Any:
    """Converts an operand that is a list or an array to a tensor on the device of `like`."""
    if value is None or isinstance(value, Tensor):
        return value
    return torch.as_tensor(value, device=like.device)


@functools.lru_cache(maxsize=1024)
def _mask_of(text: Optional[str]) -> Optional[Mask]:
    return None if text is None else Mask(text)


def _lay_out(name: str, tensor: Optional[Tensor]) -> Any:
    """Returns an input in the layout that kernels read, detached from its autograd graph."""
    if tensor is None:
        return None
    tensor = _torch.lay_out(name, tensor)
    return tensor.detach() if tensor.requires_grad else tensor


def _normalize(
    bias: Optional[Tensor],
    attn_mask: Optional[Tensor],
    sink_logits: Optional[Tensor],
    kv_len: Optional[Tensor],
    offset: Optional[int],
) -> Tuple[Tuple[str, ...], Tuple[Any, ...]]:
    """Returns the names and the values of the operands that are not None, in order."""
    tensors = zip(OPERANDS, (bias, attn_mask, sink_logits, kv_len))
    values = (*(_lay_out(name, tensor) for name, tensor in tensors), offset)
    found = [(name, value) for name, value in zip(OPERANDS, values) if value is not None]
    return tuple(name for name, _ in found), tuple(value for _, value in found)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Optional[Tensor],
    attn_mask: Optional[Tensor],
    sink_logits: Optional[Tensor],
    kv_len: Optional[Tensor],
    offset: Optional[int],
    *,
    scale: Optional[float] = None,
    mask: Optional[str] = None,
    align: str = "bottom_right",
    layout: str = "bhsd",
    softcap: Optional[float] = None,
    score_mod: Optional[str] = None,
    model: Optional[str] = None,
    schedule: Optional[str] = None,
    stream: Optional[int] = None,
) -> Tuple[Tensor, Tensor]:
    with torch.no_grad(), torch._C._DisableAutocast():
        names, values = _normalize(bias, attn_mask, sink_logits, kv_len, offset)
        options = (
            _mask_of(mask), align, layout, True, schedule, None, softcap, score_mod, names, model,
            True,
        )  # fmt: skip
        q, k, v = (_lay_out(name, x) for name, x in zip("qkv", (q, k, v)))
        return _attention._call_torch(q, k, v, None, (), values, scale, stream, options)


def _backward(
    d_o: Tensor,
    d_lse: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    bias: Optional[Tensor],
    attn_mask: Optional[Tensor],
    sink_logits: Optional[Tensor],
    kv_len: Optional[Tensor],
    offset: Optional[int],
    *,
    scale: Optional[float] = None,
    mask: Optional[str] = None,
    align: str = "bottom_right",
    layout: str = "bhsd",
    softcap: Optional[float] = None,
    score_mod: Optional[str] = None,
    model: Optional[str] = None,
    needs_bias: bool = False,
    needs_sink_logits: bool = False,
    deterministic: bool = False,
) -> Tuple[Tensor, ...]:
    if needs_bias and bias is not None and 0 in bias.stride():
        bias = bias.contiguous()  # rule B5: one gradient per element of an expanded bias
    with torch.no_grad():
        names, values = _normalize(bias, attn_mask, sink_logits, kv_len, offset)
        given = zip(("q", "k", "v", "o", "lse", "d_o"), (q, k, v, o, lse, d_o))
        found = differentiate(
            tuple(_lay_out(name, x) for name, x in given),
            {**dict(zip(names, values)), "d_lse": _lay_out("d_lse", d_lse)},
            ("d_bias",) * needs_bias + ("d_sink_logits",) * needs_sink_logits,
            out=None,
            stream=None,
            scale=scale,
            options=(
                _mask_of(mask), align, layout, deterministic, None, None, softcap, score_mod, model,
            ),
        )  # fmt: skip
    rest = iter(found[3:])
    return (
        *found[:3],
        next(rest) if needs_bias else q.new_empty(0),
        next(rest) if needs_sink_logits else q.new_empty(0),
    )


def check_rows(q: Tensor, **others: Tensor) -> None:
    """Checks that the tensors have rank 4, one supported type and one device. Sizes are not checked."""
    rows = {"q": q, **others}
    for name, tensor in rows.items():
        if tensor.ndim != 4:
            raise ArgumentError(f"expected {name!r} of rank 4 but got rank {tensor.ndim}")
        if tensor.dtype != q.dtype:
            raise ArgumentError(
                f"expected element type {_tensors.parse_element(q.dtype)} of {name!r} as in 'q' "
                f"but got {_tensors.parse_element(tensor.dtype)}"
            )
        if tensor.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {tensor.device}")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise UnsupportedError(
            "expected element type f16, bf16 or f32 of 'q' but got "
            f"{_tensors.parse_element(q.dtype)}; convert it, as with .to(torch.float32)"
        )


def _sizes(
    q: Tensor, k: Tensor, v: Tensor, operands: Sequence[Any], layout: str
) -> Tuple[Any, Any, Any]:
    """Checks ranks, types and devices. Returns the batch, the heads and the length of q."""
    for name, operand in zip(OPERANDS, operands):
        if isinstance(operand, Tensor) and operand.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {operand.device}")
    check_rows(q=q, k=k, v=v)
    batch, heads, length = q.shape[:3]
    return (batch, heads, length) if layout == "bhsd" else (batch, length, heads)


@torch.library.register_fake("flashattn::attention", lib=_library)
def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, *operands: Any, layout: str = "bhsd", **options: Any
) -> Tuple[Tensor, Tensor]:
    batch, heads, length = _sizes(q, k, v, operands, layout)
    return (
        q.new_empty((*q.shape[:3], v.shape[3])),
        q.new_empty((batch, heads, length), dtype=torch.float32),
    )


@torch.library.register_fake("flashattn::attention_backward", lib=_library)
def _fake_backward(
    d_o: Tensor,
    d_lse: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    bias: Optional[Tensor],
    attn_mask: Optional[Tensor],
    sink_logits: Optional[Tensor],
    *rest: Any,
    needs_bias: bool = False,
    needs_sink_logits: bool = False,
    **options: Any,
) -> Tuple[Tensor, ...]:
    extra = ((needs_bias, bias), (needs_sink_logits, sink_logits))
    return (
        *(x.new_empty(x.shape) for x in (q, k, v)),
        *(
            x.new_empty(x.shape) if is_wanted and x is not None else q.new_empty(0)
            for is_wanted, x in extra
        ),
    )


def _save(ctx: Any, options: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.options, ctx.offset = options, inputs[7]
    # torch detects in-place changes of saved tensors.
    ctx.save_for_backward(*inputs[:7], *output)


def _saved_options(options: Any) -> Dict[str, Any]:
    """Returns the options that `_save` stored, as arguments of the backward operator. The schedule and the
    stream apply to the forward pass only; the backward pass runs on the current stream."""
    if isinstance(options, dict):
        return {name: x for name, x in options.items() if name not in ("schedule", "stream")}
    scale, (mask, align, layout, _, _, _, softcap, score_mod, _, model, _) = options
    return _fields(scale, mask, align, layout, softcap, score_mod, model)


def _replay(options: Any, tensors: Tuple[Any, ...]) -> Any:
    """Computes the gradients from `tensors`, (q, k, v, o, lse, d_o), with the plan of an earlier call. Returns
    None if there is no such plan, or if the call must go through torch's dispatcher. `_backward` without
    this shortcut costs three times as much on the host."""
    if torch.is_grad_enabled() or _torch.in_transform():
        return None
    if _torch.any_autocast() or _torch.count_modes():
        return None
    if isinstance(options, dict):
        # A direct call of the operator omits options with default values.
        fields = {**(_forward.__kwdefaults__ or {}), **options}
        names = ("scale", "mask", "align", "layout", "softcap", "score_mod", "model")
        scale, mask, align, layout, softcap, score_mod, model = map(fields.__getitem__, names)
        mask = _mask_of(mask)
    else:
        scale, (mask, align, layout, _, _, _, softcap, score_mod, _, model, _) = options
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    chosen = (mask, align, layout, is_deterministic, None, None, softcap, score_mod, model)
    return replay(tensors, scale, chosen)


def _differentiate(options: Any, saved: Tuple[Any, ...], *others: Any) -> Tuple[Optional[Tensor], ...]:
    """Runs `_find_gradients`, as an event if a profiler is running."""
    if _torch.profiler._is_profiler_enabled:
        with _torch.event("flashattn::attention_backward", saved):
            return _find_gradients(options, saved, *others)
    return _find_gradients(options, saved, *others)


def _find_gradients(
    options: Any,
    saved: Tuple[Any, ...],
    offset: Optional[int],
    needs: Sequence[bool],
    d_o: Optional[Tensor],
    d_lse: Optional[Tensor],
) -> Tuple[Optional[Tensor], ...]:
    """Returns the gradient of each input of the operator for which `needs` is true, and None for the others.
    `saved` holds the input tensors, then o and lse."""
    if d_o is None and d_lse is None:
        return (None,) * len(needs)
    q, k, v, bias, attn_mask, sink_logits, kv_len, o, lse = saved
    _torch.refuse_tangents(d_o=d_o, d_lse=d_lse, q=q, k=k, v=v, bias=bias, sink_logits=sink_logits)
    found = None
    if bias is attn_mask is sink_logits is kv_len is offset is d_lse is None:
        found = _replay(options, (q, k, v, o, lse, d_o))
    if found is None:
        inputs = (
            torch.zeros_like(o) if d_o is None else d_o,
            d_lse,
            *(q, k, v, o, lse, bias, attn_mask, sink_logits, kv_len, offset),
        )
        fields = {
            **_saved_options(options),
            "needs_bias": bool(needs[3]),
            "needs_sink_logits": bool(needs[5]),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        if torch.is_grad_enabled() or is_seen(inputs):
            found = _call(_backward_op, _Gradients, inputs, fields)
        else:
            found = _backward(*inputs, **fields)
    dq, dk, dv, d_bias, d_sink_logits = (*found, None, None)[:5]
    found = (dq, dk, dv, d_bias, None, d_sink_logits, None, None)
    return tuple(gradient if need else None for gradient, need in zip(found, needs))


class _Planned(torch.autograd.Function):
    """Records results that a plan has computed from q, k and v, without operands. Each further tensor that a
    function takes, returns or saves costs about 1 us on the host, so lse is an output only if requested."""

    @staticmethod
    def forward(ctx: Any, given: Tuple[Any, ...], *rows: Tensor) -> Any:
        found, *ctx.options = given
        ctx.save_for_backward(*rows, *found)
        if given[2][3]:
            ctx.set_materialize_grads(False)
            return found
        return found[0]

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor] = None) -> Any:
        q, k, v, o, lse = ctx.saved_tensors
        needs = (*ctx.needs_input_grad[1:], *(False,) * len(OPERANDS))
        saved = q, k, v, None, None, None, None, o, lse
        return (None, *_differentiate(ctx.options, saved, None, needs, d_o, d_lse)[:3])

    jvp = staticmethod(_torch.refuse_forward_mode)


#: Bypasses `Function.apply`, which handles transforms at each call; no plan is recorded in a transform.
_apply_planned = super(torch.autograd.Function, _Planned).apply


class _Attention(torch.autograd.Function):
    """The autograd function of the operator. `options` are the operator's options or, from `record`, a tuple
    of the results of a plan, the scale and the plan's options."""

    @staticmethod
    def forward(ctx: Any, options: Any, *inputs: Any) -> Any:
        if isinstance(options, tuple):
            output, *options = options
        elif is_seen(inputs):
            with torch._C._AutoDispatchBelowAutograd():
                output = _attention_op(*inputs, **options)
        else:
            output = _forward(*inputs, **options)
        _save(ctx, options, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
        needs = ctx.needs_input_grad[1:]
        return (
            None, *_differentiate(ctx.options, ctx.saved_tensors, ctx.offset, needs, d_o, d_lse),
        )  # fmt: skip

    jvp = staticmethod(_torch.refuse_forward_mode)


class _BatchedAttention(_Attention):
    """`_Attention` in the form that `torch.func.grad` and `vmap` require. A call costs 40 us more in torch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(options: Dict[str, Any], *inputs: Any) -> Any:
        return _attention_op(*inputs, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs[0], inputs[1:], output)


class _Gradients(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(options: Dict[str, Any], *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return _backward_op(*inputs, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedError(
            "expected attention to be differentiated once but got a second derivative; "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has those"
        )


def _recorded(op: Any, function: Any) -> Any:
    """Returns the autograd kernel of `op`. The kernel that torch.library builds from a formula reads the whole
    schema at each call, which costs 100 us on the host with this number of arguments."""

    names = [argument.name for argument in op._schema.arguments]

    def kernel(*inputs: Any, **options: Any) -> Any:
        _torch.refuse_tangents(**dict(zip(names, inputs)))
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*inputs):
            return function.apply(options, *inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*inputs, **options)

    return kernel


_library.impl("attention", _recorded(_attention_op, _Attention), "Autograd")
_library.impl("attention_backward", _recorded(_backward_op, _Gradients), "Autograd")
for _key in ("CPU", "CUDA"):
    _library.impl("attention", _forward, _key)
    _library.impl("attention_backward", _backward, _key)

_flops.register(torch.ops.flashattn.attention, torch.ops.flashattn.attention_backward)
_vmap.register(
    ("attention", _attention_op, (0, 1, 2, 6), (3, 4), 2),
    ("attention_backward", _backward_op, (0, 1, 2, 3, 4, 5, 6, 10), (7, 8), 5),
    library=_library,
)


def _cast(device: str) -> Any:
    """Returns the autocast rule: q, k and v are cast to the autocast type, as in torch's own attention. The bias
    and the sink logits are not cast, because they are added to f32 scores."""
    key = torch._C.DispatchKey.AutocastCPU if device == "cpu" else torch._C.DispatchKey.AutocastCUDA
    keys = torch._C.DispatchKeySet(key)

    def rule(*args: Any, **options: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        rows = [
            x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x
            for x in args[:3]
        ]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return _attention_op(*rows, *args[3:], **options)

    return rule


_library.impl("attention", _cast("cpu"), "AutocastCPU")
_library.impl("attention", _cast("cuda"), "AutocastCUDA")

if torch.distributed.is_available():
    from . import _sharding

    _sharding.register(_attention_op, _backward_op)

_torch.attend, _torch.record = attend, record
_torch.detect_torch()
