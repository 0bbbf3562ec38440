"""`flashattn.attention_backward`: looks up the plan of a call, and checks calls that have no plan yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Sequence, Tuple, TypeVar, overload

import numpy

from . import _aux, _cache, _features, _kernel, _module, _options, _plans, _scales, _symbols, _tensors, _torch, _trace
from ._checks import model_chip
from ._options import AttentionOptions
from .errors import ArgumentError
from .masks import Mask

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class _Keywords(_options.Keywords, total=False):
        d_lse: Any
        deterministic: bool

_OP = "attention_backward"
_GRADIENTS = ("dq", "dk", "dv")  #: the outputs of every call

#: The tensor type of the caller's library.
_Given = TypeVar("_Given")


@overload
def attention_backward(
    q: _Given,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    do: Any,
    *,
    return_d_bias: Literal[False] = ...,
    return_d_sink_logits: Literal[False] = ...,
    **options: Unpack[_Keywords],
) -> Tuple[_Given, _Given, _Given]: ...
@overload
def attention_backward(
    q: _Given,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    do: Any,
    *,
    return_d_bias: bool = ...,
    return_d_sink_logits: bool = ...,
    **options: Unpack[_Keywords],
) -> Tuple[Any, ...]: ...
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    do: Any,
    *,
    d_lse: Any = None,
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.Layout = "bhsd",
    deterministic: bool = False,
    return_d_bias: bool = False,
    return_d_sink_logits: bool = False,
    out: Any = None,
    schedule: Optional[_module.Schedule] = None,
    dtype: Any = None,
    stream: Any = None,
    device: Optional[str] = None,
    bias: Any = None,
    attn_mask: Any = None,
    softcap: Optional[float] = None,
    sink_logits: Any = None,
    kv_len: Any = None,
    q_len: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    offset: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    **unknown: Any,
) -> Any:
    """Computes the gradients of a loss with respect to q, k and v, given `do`, the gradient of the loss
    with respect to o.

    PyTorch tensors that require gradients do not need this function, because `flashattn.attention`
    supports autograd.

    Args:
      q, k, v: the inputs of `flashattn.attention`.
      o, lse: the results of `flashattn.attention` with return_lse. If q is f16 or bf16, o may also be f32.
      do: the gradient with respect to o, in the shape of o and the type of q, or any of f16, bf16 and f32 if q has 8
        bits. Error messages call this argument 'd_o', as the op does.
      d_lse: the gradient with respect to lse, in the shape and type of lse, if the loss depends on lse.
      mask, scale, align, layout, bias, attn_mask, softcap, sink_logits, kv_len, q_len, cu_seqlens_q,
        cu_seqlens_k, offset, score_mod, aux_tensors: the same as in the call of `flashattn.attention`. The
        compiler differentiates score_mod with respect to the score; numbers that score_mod captures and
        aux_tensors have no gradient.
      k_scale, v_scale: the same, too. The function copies tensors of 8 bits to memory: the values, with their scales,
        in the type of q or, if q has 8 bits, of do.
      deterministic: whether equal calls return bitwise equal results.
      return_d_bias: also return the gradient with respect to bias, in the shape and type of bias, summed
        over the dimensions along which bias is broadcast. An expanded PyTorch tensor gets a gradient for
        each of its elements.
      return_d_sink_logits: also return the gradient with respect to sink_logits, `[Hq]`, f32.
      out: the tensors to write to, as a tuple in the order of the returned tensors. They must not share
        any byte with another tensor of the call.
      schedule, dtype, stream, device: as in `flashattn.attention`.

    Returns:
      (dq, dk, dv), with the shapes and the type of q, k and v (or those of their copies), then d_bias and
      d_sink_logits if requested. Sums are computed in f32. Rows that see no key, keys that no row sees, keys from
      kv_len on and rows of no packed sequence have zero gradients.

    Raises:
      The same errors as `flashattn.attention`.
    """
    if unknown:
        _features.check_keywords(_OP, unknown, attention_backward.__kwdefaults__)
    if schedule is not None and schedule.__class__ is not str:
        schedule = _options.hashable(schedule)
    softcap = _features.check_options(softcap)
    if _has_bytes(q) or _has_bytes(k) or _has_bytes(v) or k_scale is not None or v_scale is not None:
        scales = {"k_scale": k_scale, "v_scale": v_scale}
        q, k, v = _scales.widen(q, k, v, scales, do, layout, cu_seqlens_k)
    text, aux = _aux.prepare(score_mod, aux_tensors)
    offset, offsets = _features.split_offset(offset)
    symbols: _symbols.Symbols = ()
    if isinstance(mask, Mask) and mask._symbols:
        mask, symbols = _symbols.split(mask, q)
    operands = {
        "d_lse": d_lse, "bias": bias, "attn_mask": attn_mask, "sink_logits": sink_logits,
        "kv_len": kv_len, "q_len": q_len, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        "offsets": offsets, **dict(symbols), **aux, "offset": offset,
    }  # fmt: skip
    if symbols and mask is not None and mask._of_rows:
        _features.check_rows(mask._of_rows, q, k, align, layout, operands)
    names, values = _features.normalize(operands, _OP, q)
    fields = (
        mask, align, layout, softcap, text, device, None, False, bool(deterministic), schedule, dtype, names,
        gradients_of(return_d_bias, return_d_sink_logits), out is None, False,
    )  # fmt: skip
    options = _options.new(AttentionOptions, fields)
    given = q, k, v, o, lse, do
    if _torch.profiler._is_profiler_enabled and _tensors.is_torch(q):
        with _torch.event("flashattn::attention_backward", given):
            return differentiate(given, values, out, stream, scale, options)
    return differentiate(given, values, out, stream, scale, options)


def _has_bytes(x: Any) -> bool:
    """Returns whether elements have 8 bits. Most calls have none, and go on without another look."""
    return getattr(getattr(x, "dtype", None), "itemsize", 2) == 1


def gradients_of(bias: bool, sink_logits: bool) -> Tuple[str, ...]:
    """Returns the names of the outputs if the gradients of these operands are requested or not."""
    if not (bias or sink_logits):
        return _GRADIENTS
    return _GRADIENTS + ("d_bias",) * bool(bias) + ("d_sink_logits",) * bool(sink_logits)


def differentiate(
    given: Tuple[Any, ...],
    values: Tuple[Any, ...],
    out: Any,
    stream: Any,
    scale: Any,
    options: AttentionOptions,
) -> Tuple[Any, ...]:
    """Computes `attention_backward` for `given`: q, k, v, o, lse and do. `values` are those of the operands in
    `options`."""
    outs = tuple(out) if isinstance(out, (tuple, list)) else ()
    tensors = (*given, *values, *outs)
    kind = type(given[0])
    plan = key = None
    words: List[int] = []
    if out is not None and len(outs) != len(options.gradients):
        pass  # `_run` reports the error
    elif kind is numpy.ndarray:
        plan, key, words = _plans.find_numpy(tensors, options, _cache.cache.plans)
    elif kind is _torch.Tensor:
        plan, key, words = _plans.find_torch(tensors, options, _cache.cache.plans)
    if plan is None:
        return _run(given, out, stream, options, key, values, scale)
    return _start(plan, kind, outs, words, stream, scale)


def replay(
    given: Tuple[Any, ...], scale: Any, forward: AttentionOptions, deterministic: bool
) -> Any:
    """Computes the gradients of a call on torch tensors, with the options `forward` and without operands,
    with the plan of an earlier call. Returns None if there is no such plan. The caller is responsible for
    autograd."""
    options = forward.backward(deterministic, _GRADIENTS)
    plan, _, words = _plans.find_torch(given, options, _cache.cache.plans, records=True)
    return None if plan is None else _start(plan, _torch.Tensor, (), words, None, scale)


def _start(
    plan: _plans.Plan, kind: Any, outs: Tuple[Any, ...], words: List[int], stream: Any, scale: Any
) -> Tuple[Any, ...]:
    """Launches a plan and returns its outputs, which are allocated if `outs` is empty."""
    assert plan.kernel is not None
    bits = plan.scale_bits if scale is None else _module.scale_bits(scale)
    plan.kernel._used = _cache.clock()
    if not outs:
        if kind is numpy.ndarray:
            outs = tuple(map(numpy.empty, plan.shapes, plan.like))
            words += [array.__array_interface__["data"][0] for array in outs]
        else:
            outs = tuple(map(_torch.empty_like, plan.like))
            words += [tensor.data_ptr() for tensor in outs]
    if kind is numpy.ndarray:
        stream = 0 if stream is None else _tensors.stream_pointer(stream)
    else:
        stream = _torch.stream_or(stream, plan.device)
    words.append(bits)
    plan.start(stream, words)
    return outs


def _run(
    tensors: Tuple[Any, ...],
    out: Any,
    stream: Any,
    options: AttentionOptions,
    key: Any,
    values: Tuple[Any, ...],
    scale: Any,
) -> Tuple[Any, ...]:
    """Checks, compiles and launches a call that has no plan. Stores the plan under `key`, unless `key` is None."""
    model_chip(options.model)
    operands = dict(zip(options.operands, values))
    wanted = options.gradients
    _torch.detect_torch()
    _module.check_options(options.mask, options.align, options.layout)
    scale_bits = None if scale is None else _module.scale_bits(scale)
    sources = {"d_bias": "bias", "d_sink_logits": "sink_logits"}
    for name in wanted[3:]:
        if sources[name] not in operands:
            raise ArgumentError(f"expected {sources[name]} for return_{name} but got None")
    given = dict(zip(("q", "k", "v", "o", "lse", "d_o"), tensors))
    _tensors.check_layouts({**given, **operands})
    if _tensors.is_torch(given["q"]):
        inputs = {**given, **operands}
        laid_out = {name: _torch.lay_out(name, x) for name, x in inputs.items()}
        wants_bias = "d_bias" in wanted and _tensors.is_torch(operands.get("bias"))
        if wants_bias and 0 in operands["bias"].stride():
            laid_out["bias"] = operands["bias"].contiguous()  # rule B5: one gradient per element
        is_copied = any(laid_out[name] is not x for name, x in inputs.items())
        given = {name: laid_out[name] for name in given}
        operands = {name: laid_out[name] for name in operands}
        if is_copied and key is not None:
            # The key is that of the tensors before they were copied, whose memory no plan may read.
            rows, copied = tuple(given.values()), tuple(operands.values())
            return differentiate(rows, copied, out, stream, scale, options)
    call = _plans.check_call(_OP, given, operands, options)
    found = _split_out(out, wanted)
    outputs = {name: _plans.output_of(call, name, found[name]) for name in wanted}
    if "d_bias" in wanted:
        bias = _tensors.view("bias", operands["bias"], call.bf16_bits, options.model)
        outputs["d_bias"] = _plans.Output(
            found["d_bias"], bias.shape, bias.element, operands["bias"]
        )
    return _kernel.run(call, outputs, _plans.Plan, key, options, stream, scale_bits)


def _split_out(out: Any, wanted: Tuple[str, ...]) -> Dict[str, Any]:
    if out is None:
        return dict.fromkeys(wanted)
    if not isinstance(out, (tuple, list)) or len(out) != len(wanted):
        found = f"{len(out)} elements" if isinstance(out, (tuple, list)) else type(out).__name__
        raise ArgumentError(f"expected out to be a tuple ({', '.join(wanted)}) but got {found}")
    return dict(zip(wanted, out))
