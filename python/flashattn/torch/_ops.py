"""Attention and its backward pass as operators of torch, `flashattn::attention` and
`flashattn::attention_backward`, with the rules of torch for autograd, tracing, vmap and autocast.

Every attention in a graph of torch is a call of these operators, except for decoding (`_decode`).
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _attention, _features, _module, _plans, _scales, _symbols, _tensors, _torch
from .._backward import differentiate, gradients_of, replay
from .._checks import any_of, model_chip
from .._library import SCALES
from .._options import OPERANDS, SHARED, AttentionOptions, mapping, schema_of
from .._trace import AUX
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask
from . import _flops, _vmap

_INPUTS = "Tensor q, Tensor k, Tensor v"
_OPERANDS = ", ".join(f"{kind} {name}" for name, kind in OPERANDS.items())
#: The operands that are tensors. The offset is the last operand.
_TENSORS = tuple(name for name in OPERANDS if name != "offset")
_OPTIONS = f"float? scale=None, {schema_of(*SHARED)}"
#: The tensors of the mask, in the order in which its text names them.
_SYMBOLS = ", ".join(f"Tensor? {name}=None" for name in _symbols.ARGUMENTS)
_FORWARD = f"{_INPUTS}, {_OPERANDS}, {_SYMBOLS}, *, {_OPTIONS}, str? schedule=None, int? stream=None"
_BACKWARD = (
    f"Tensor d_o, Tensor? d_lse, {_INPUTS}, Tensor o, Tensor lse, {_OPERANDS}, {_SYMBOLS}, *, {_OPTIONS}, "
    f"bool needs_bias=False, bool needs_sink_logits=False, {schema_of('deterministic')}"
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


#: The place of the offset among the arguments of `attention`. Only symbols follow it.
_OFFSET = 2 + len(OPERANDS)
#: The names of operands in the order of the function's arguments.
_ORDER = (*(name for name in _TENSORS if name not in AUX), *_symbols.NAMES, *AUX, "offset")
#: The scale and the options of a call that autograd records.
_Given = Tuple[Any, AttentionOptions]


def attend(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: AttentionOptions,
    operands: Dict[str, Any],
    scale: Any,
) -> Any:
    """Computes `flashattn.attention` through the operator, if torch records, traces, batches or autocasts the
    call. `operands` holds only the operands of the call."""
    _torch.refuse_gradients(scale=scale, softcap=options.softcap)
    if out is not None:
        raise UnsupportedError(
            "expected no out in a call that torch records, traces, batches or casts but got one; make the call "
            "under torch.no_grad(), or on tensor.detach()"
        )
    if options.model is not None:
        model_chip(options.model)
    if options.dtype is not None:
        _plans.is_bf16(options.dtype)
    schedule = options.schedule
    if schedule is not None:
        element = _tensors.parse_element(q.dtype)
        is_cpu = options.model is None and not q.is_cuda
        schedule = _module.format_schedule(mapping(schedule), element, is_cpu)
    given = map(operands.get, _TENSORS)
    symbols = [_as_tensor(x, q) for x in _symbols.among(operands)]
    inputs = (q, *(_as_tensor(x, q) for x in (k, v, *given)), operands.get("offset"), *symbols)
    fields = _fields(scale, options)
    fields["schedule"] = schedule
    fields["stream"] = None if stream is None else _tensors.stream_pointer(stream)
    if is_seen(inputs) or _torch.in_transform():
        o, lse = _call(_attention_op, _BatchedAttention, inputs, fields)
    else:
        o, lse = _Attention.apply(fields, *inputs)
    return (o, lse) if options.return_lse else o


def _fields(scale: Any, options: AttentionOptions) -> Dict[str, Any]:
    """Returns the arguments of both operators for these options."""
    found = {name: getattr(options, name) for name in SHARED}
    found["mask"] = None if options.mask is None else str(options.mask)
    found["scale"] = None if scale is None else _as_float(scale)
    return found


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
    options: AttentionOptions,
) -> Any:
    """Records the results of a plan in autograd. Returns o, or (o, lse) if `options` request lse. The
    arguments of the operator are computed in the backward pass only, to save host time."""
    if not values:
        return _apply_planned((found, scale, options), *rows)
    given = dict(zip(options.operands, values))
    operands = (*map(given.get, OPERANDS), *_symbols.among(given))
    o, lse = _Attention.apply((found, scale, options), *rows, *operands)
    return (o, lse) if options.return_lse else o


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


def _normalize(operands: Sequence[Any], mask: Optional[str]) -> Tuple[Tuple[str, ...], Tuple[Any, ...]]:
    """Returns the names and the values of the operands that are not None, in the order of the function's arguments.
    `operands` are those of an operator. `mask` is the text of the mask, which names the symbols."""
    symbols = [x for x in operands[len(OPERANDS) :] if x is not None]
    values = {name: value for name, value in zip(OPERANDS, operands) if value is not None}
    if symbols or mask is not None:
        names = _symbols.names_in(mask or "")
        if len(names) != len(symbols):
            raise ArgumentError(f"expected {len(names)} symbols, which the mask reads, but got {len(symbols)}")
        values.update(zip(names, symbols))
        values = {name: values[name] for name in _ORDER if name in values}
    found = {name: x if name == "offset" else _lay_out(name, x) for name, x in values.items()}
    return tuple(found), tuple(found.values())


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *operands: Any,
    scale: Optional[float] = None,
    mask: Optional[str] = None,
    stream: Optional[int] = None,
    **fields: Any,
) -> Tuple[Tensor, Tensor]:
    with torch.no_grad(), torch._C._DisableAutocast():
        names, values = _normalize(operands, mask)
        options = AttentionOptions(_mask_of(mask), return_lse=True, operands=names, **fields)
        q, k, v = map(_lay_out, "qkv", (q, k, v))
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
    *operands: Any,
    scale: Optional[float] = None,
    mask: Optional[str] = None,
    needs_bias: bool = False,
    needs_sink_logits: bool = False,
    **fields: Any,
) -> Tuple[Tensor, ...]:
    if needs_bias and bias is not None and 0 in bias.stride():
        bias = bias.contiguous()  # rule B5: one gradient per element of an expanded bias
    with torch.no_grad():
        names, values = _normalize((bias, *operands), mask)
        if d_lse is not None:
            names, values = ("d_lse", *names), (_lay_out("d_lse", d_lse), *values)
        gradients = gradients_of(needs_bias, needs_sink_logits)
        options = AttentionOptions(_mask_of(mask), operands=names, gradients=gradients, **fields)
        rows = tuple(map(_lay_out, ("q", "k", "v", "o", "lse", "d_o"), (q, k, v, o, lse, d_o)))
        found = differentiate(rows, values, None, None, scale, options)
    rest = iter(found[3:])
    return (
        *found[:3],
        next(rest) if needs_bias else q.new_empty(0),
        next(rest) if needs_sink_logits else q.new_empty(0),
    )


#: The types of 8 bits that keys and values may have (rule F1), and those that queries may have (rule F3).
NARROW = tuple(getattr(torch, name) for name in _tensors.NARROW.values())
_NARROW_QUERIES = torch.float8_e4m3fn, torch.float8_e5m2


def output_like(q: Tensor, shape: Sequence[Any]) -> Tensor:
    """Returns an empty tensor of the type that o has if the caller names none."""
    return q.new_empty(shape, dtype=torch.bfloat16 if q.dtype in NARROW else q.dtype)


def refuse_narrow(rows: Sequence[Tensor], needs: Sequence[bool]) -> None:
    """Raises UnsupportedError in a backward pass that `needs` the gradient of a tensor of 8 bits among q, k and v."""
    for name, x, is_needed in zip("qkv", rows, needs):
        if x.dtype in NARROW and is_needed:
            raise UnsupportedError(
                f"expected no gradient of {name!r} of {_tensors.parse_element(x.dtype)} but got it with requires_grad; "
                "pass tensor.detach(), or call flashattn.attention_backward"
            )


def check_rows(
    q: Tensor, packed: Sequence[str] = (), narrow: Sequence[str] = (), /, **others: Tensor
) -> None:
    """Checks that the tensors have rank 4, or 3 if they are `packed` in layout thd, one supported type and one
    device. Those that are `narrow`, and then also q, may have 8 bits. Sizes are not checked."""
    rows = {"q": q, **others}
    for name, tensor in rows.items():
        rank = 3 if name in packed else 4
        if tensor.ndim != rank:
            raise ArgumentError(f"expected {name!r} of rank {rank} but got rank {tensor.ndim}")
        if tensor.dtype != q.dtype and not (name in narrow and tensor.dtype in NARROW):
            wanted = f"{_tensors.parse_element(q.dtype)} as in 'q'"
            if name in narrow:
                wanted = any_of([*(() if q.dtype in NARROW else (wanted,)), *_tensors.NARROW])
            raise ArgumentError(
                f"expected {name!r} with element type {wanted} but got {_tensors.parse_element(tensor.dtype)}"
            )
        if tensor.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {tensor.device}")
    types = torch.float16, torch.bfloat16, torch.float32
    if q.dtype not in types and not (narrow and q.dtype in _NARROW_QUERIES):
        raise UnsupportedError(
            "expected 'q' with element type f16, bf16 or f32 but got "
            f"{_tensors.parse_element(q.dtype)}; convert it, as with .to(torch.float32)"
        )


def _sizes(
    q: Tensor, k: Tensor, v: Tensor, operands: Sequence[Any], layout: str, mask: Optional[str]
) -> Tuple[Any, ...]:
    """Checks ranks, types and devices. Returns the shape of lse."""
    given = {name: operand for name, operand in zip(OPERANDS, operands) if operand is not None}
    symbols = zip(_symbols.names_in(mask or ""), operands[len(OPERANDS) :])
    for name, operand in (*given.items(), *symbols):
        if isinstance(operand, Tensor) and operand.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {operand.device}")
    _features.check_sequences(given, layout)
    packed = "q" + "kv" * ("cu_seqlens_k" in given) if layout == "thd" else ""
    check_rows(q, packed, "kv", k=k, v=v)
    for name, of in (("k_scale", k), ("v_scale", v)):
        if name in given and of.dtype not in NARROW:
            _scales.refuse(name, _tensors.parse_element(of.dtype))
    *batch, heads, length = q.shape[:-1]
    return (*batch, heads, length) if layout == "bhsd" else (*batch, length, heads)


@torch.library.register_fake("flashattn::attention", lib=_library)
def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, *operands: Any, layout: str = "bhsd", mask: Optional[str] = None, **options: Any
) -> Tuple[Tensor, Tensor]:
    rows = _sizes(q, k, v, operands, layout, mask)
    return (
        output_like(q, (*q.shape[:-1], v.shape[-1])),
        q.new_empty(rows, dtype=torch.float32),
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


def _save(ctx: Any, given: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    """Saves a call for the backward pass. `given` are the arguments of the operator, or the scale and the
    options. The schedule and the stream apply to the forward pass only; the backward pass runs on the current
    stream."""
    if isinstance(given, dict):
        fields = {name: x for name, x in given.items() if name in SHARED}
        given = given.get("scale"), AttentionOptions(**fields)._replace(mask=_mask_of(given.get("mask")))
    for name, operand in zip(OPERANDS, inputs[3:]):
        if name in _module.PLACES and operand is not None and any(ctx.needs_input_grad):
            raise UnsupportedError(
                f"expected no tensor with requires_grad in a call with {name} but got one; make the call under "
                "torch.no_grad(), or on tensor.detach()"
            )
    ctx.set_materialize_grads(False)
    ctx.given, ctx.offset = given, inputs[_OFFSET]
    # torch detects in-place changes of saved tensors.
    ctx.save_for_backward(*inputs[:_OFFSET], *inputs[_OFFSET + 1 :], *output)


def _replay(scale: Any, options: AttentionOptions, tensors: Tuple[Any, ...]) -> Any:
    """Computes the gradients from `tensors`, (q, k, v, o, lse, d_o), with the plan of an earlier call. Returns
    None if there is no such plan, or if the call must go through torch's dispatcher. `_backward` without
    this shortcut costs three times as much on the host."""
    if torch.is_grad_enabled() or _torch.in_transform():
        return None
    if _torch.any_autocast() or _torch.count_modes():
        return None
    return replay(tensors, scale, options, torch.are_deterministic_algorithms_enabled())


def _differentiate(given: _Given, saved: Tuple[Any, ...], *others: Any) -> Tuple[Optional[Tensor], ...]:
    """Runs `_find_gradients`, as an event if a profiler is running."""
    if _torch.profiler._is_profiler_enabled:
        with _torch.event("flashattn::attention_backward", saved):
            return _find_gradients(given, saved, *others)
    return _find_gradients(given, saved, *others)


def _find_gradients(
    given: _Given,
    saved: Tuple[Any, ...],
    offset: Optional[int],
    needs: Sequence[bool],
    d_o: Optional[Tensor],
    d_lse: Optional[Tensor],
) -> Tuple[Optional[Tensor], ...]:
    """Returns the gradient of each input of the operator for which `needs` is true, and None for the others.
    `saved` holds the input tensors, then o and lse. A call without operands may leave them out of `saved` and
    `needs`."""
    if d_o is None and d_lse is None:
        return (None,) * len(needs)
    q, k, v, *operands, o, lse = saved
    refuse_narrow((q, k, v), needs)
    if q.dtype in NARROW:
        q = q.to(o.dtype)
    named = dict(zip(_TENSORS, operands)) if operands else {}
    if k.dtype != q.dtype or v.dtype != q.dtype:
        k, v = _as_values(q, (k, v), named, given[1].layout)
        named.update(dict.fromkeys(SCALES))
        operands = [*map(named.get, _TENSORS), *operands[len(_TENSORS) :]] if operands else []
    _torch.refuse_tangents(d_o=d_o, d_lse=d_lse, q=q, k=k, v=v, **named)
    found = None
    if offset is d_lse is None and not (operands and any(x is not None for x in operands)):
        found = _replay(*given, (q, k, v, o, lse, d_o))
    if found is None:
        inputs = (
            torch.zeros_like(o) if d_o is None else d_o,
            d_lse,
            *(q, k, v, o, lse, *map(named.get, _TENSORS), offset, *operands[len(_TENSORS) :]),
        )
        wanted = dict(zip(OPERANDS, needs[3:]))
        fields = {
            **_fields(*given),
            "needs_bias": bool(wanted.get("bias")),
            "needs_sink_logits": bool(wanted.get("sink_logits")),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        if torch.is_grad_enabled() or is_seen(inputs):
            found = _call(_backward_op, _Gradients, inputs, fields)
        else:
            found = _backward(*inputs, **fields)
    if operands:
        dq, dk, dv, d_bias, d_sink_logits = (*found, None, None)[:5]
        gradients = {"bias": d_bias, "sink_logits": d_sink_logits}
        found = (dq, dk, dv, *map(gradients.get, OPERANDS), *(None,) * (len(operands) - len(_TENSORS)))
    return tuple(gradient if need else None for gradient, need in zip(found, needs))


def _as_values(q: Tensor, rows: Sequence[Tensor], named: Dict[str, Any], layout: str) -> Tuple[Tensor, ...]:
    """Returns keys and values of 8 bits in the type of the queries."""
    starts = named.get("cu_seqlens_k")
    scales = (named.get(name) for name in SCALES)
    return tuple(
        x if x.dtype == q.dtype else _scales.dequantize(x, scale, q, layout, starts)
        for x, scale in zip(rows, scales)
    )


class _Planned(torch.autograd.Function):
    """Records results that a plan has computed from q, k and v, without operands. Each further tensor that a
    function takes, returns or saves costs about 1 us on the host, so lse is an output only if requested."""

    @staticmethod
    def forward(ctx: Any, given: Tuple[Any, ...], *rows: Tensor) -> Any:
        found, *ctx.given = given
        ctx.save_for_backward(*rows, *found)
        if given[2].return_lse:
            ctx.set_materialize_grads(False)
            return found
        return found[0]

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor] = None) -> Any:
        needs = ctx.needs_input_grad[1:]
        return (None, *_differentiate(ctx.given, ctx.saved_tensors, None, needs, d_o, d_lse))

    jvp = staticmethod(_torch.refuse_forward_mode)


#: Bypasses `Function.apply`, which handles transforms at each call; no plan is recorded in a transform.
_apply_planned = super(torch.autograd.Function, _Planned).apply


class _Attention(torch.autograd.Function):
    """The autograd function of the operator. `given` are the operator's arguments or, from `record`, a tuple
    of the results of a plan, the scale and the options."""

    @staticmethod
    def forward(ctx: Any, given: Any, *inputs: Any) -> Any:
        if isinstance(given, tuple):
            output, *given = given
        elif is_seen(inputs):
            with torch._C._AutoDispatchBelowAutograd():
                output = _attention_op(*inputs, **given)
        else:
            output = _forward(*inputs, **given)
        _save(ctx, given, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Any:
        needs = ctx.needs_input_grad[1:]
        return (
            None, *_differentiate(ctx.given, ctx.saved_tensors, ctx.offset, needs, d_o, d_lse),
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
        refuse_second()


def refuse_second() -> Any:
    raise UnsupportedError(
        "expected attention to be differentiated once but got a second derivative; use "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
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
_vmap.register(_attention_op, _backward_op, library=_library)


def autocast_rule(device: str, op: Any) -> Any:
    """Returns the autocast rule: q, k and v are cast to the autocast type, as in torch's own attention. The bias
    and the sink logits are not cast, because they are added to f32 scores."""
    key = torch._C.DispatchKey.AutocastCPU if device == "cpu" else torch._C.DispatchKey.AutocastCUDA
    keys = torch._C.DispatchKeySet(key)

    def rule(*args: Any, **options: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*cast_rows(device, args[:3]), *args[3:], **options)

    return rule


def cast_rows(device: str, rows: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    """Returns q, k and v in the autocast type of a device."""
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 and x.dtype not in NARROW else x
        for x in rows
    )


for _kind in ("cpu", "cuda"):
    _library.impl("attention", autocast_rule(_kind, _attention_op), f"Autocast{_kind.upper()}")

if torch.distributed.is_available():
    from . import _sharding

    _sharding.register(_attention_op, _backward_op)

_torch.attend, _torch.record = attend, record
_torch.detect_torch()
