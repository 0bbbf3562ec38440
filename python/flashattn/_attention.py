"""`flashattn.attention`: looks up the plan of a call, and checks calls that have no plan yet.

Plans are looked up in two ways. If the tensor type exposes its tensors to C (torch 2.10 and later), the
library compares the tensors with those of the most recent plans. A dictionary holds all plans, but
building its key costs three times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Sequence, Tuple, TypeVar, Union, overload

import numpy

from . import (
    _aux, _cache, _features, _kernel, _library, _module, _options, _plans, _scales, _symbols, _tensors, _torch, _trace,
)  # fmt: skip
from ._checks import ALIGNMENT, model_chip
from ._library import pack_objects
from ._options import AttentionOptions, new
from .errors import ArgumentError
from .masks import Mask

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The number of recent plans that the library compares with a call, one by one.
_MAX_RECENT = 4

#: The tensor type of the caller's library.
_Given = TypeVar("_Given")


class _Plan(_plans.Plan):
    """A plan whose tensors the library can compare with those of a call."""

    __slots__ = ("match", "match_head")

    def __init__(self, kernel: _kernel.Kernel, values: Any, shapes: Any):
        super().__init__(kernel, values, shapes)
        self.match = kernel._library.match
        is_aligned = all(view.pointer % ALIGNMENT == 0 for view in values[:4])
        self.match_head = _library.match_head(
            _torch.exchange, self.tensors, self.device, is_aligned
        )


@overload
def attention(
    q: _Given, k: Any, v: Any, *, return_lse: Literal[False] = ..., **options: Unpack[_options.ForwardKeywords]
) -> _Given: ...
@overload
def attention(
    q: _Given, k: Any, v: Any, *, return_lse: Literal[True], **options: Unpack[_options.ForwardKeywords]
) -> Tuple[_Given, Any]: ...
@overload
def attention(
    q: _Given, k: Any, v: Any, *, return_lse: bool, **options: Unpack[_options.ForwardKeywords]
) -> Union[_Given, Tuple[_Given, Any]]: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.Layout = "bhsd",
    return_lse: bool = False,
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
    page_table: Any = None,
    leftpad_k: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    max_seqlen_q: Optional[int] = None,
    invariant: bool = False,
    offset: Any = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    **unknown: Any,
) -> Any:
    """Computes attention without storing the matrix of scores:
    `softmax(mask(score_mod(softcap(scale * q k^T)) + bias)) v`.

    PyTorch tensors that require gradients are supported by autograd. The result can be differentiated
    once, and `out` is not allowed. For other arrays, `attention_backward` computes the gradients.

    The first call that needs a kernel compiles it. A kernel usually serves all batch sizes, head counts
    and lengths. The exception is decode: each Nq up to 16 on a GPU, where split-KV distributes the keys
    over thread blocks, and up to 4 on the CPU, where the query tile has Nq rows, needs a separate kernel.
    Such a kernel, and some kernels for query heads that share key/value heads, serve fixed head counts
    (docs/features.md, "Static sizes").

    Args:
      q: queries, `[B, Hq, Nq, D]`, f16, bf16 or f32: a NumPy array (on the CPU), a PyTorch tensor
        (on the CPU or a GPU), or any object with `__cuda_array_interface__` or DLPack. The last stride
        must be 1; the other strides are arbitrary, and nothing is copied. A PyTorch tensor with another
        last stride is copied.
      k: keys, `[B, Hkv, Nk, D]`. Hq is a multiple of Hkv: query head h reads key head
        `h // (Hq // Hkv)`.
      v: values, `[B, Hkv, Nk, Dv]`.
      mask: the visible pairs of a query and a key, such as `flashattn.causal`; None shows all pairs. The tensors of a
        mask are read at each call (`flashattn.affine_set`). One kernel serves all of their elements.
      scale: factor of the scores, from 1e-18 to 1e18; None means `1 / sqrt(D)`. One kernel serves all
        values.
      align: the position of query 0 if Nq and Nk differ: Nk - Nq ("bottom_right") or 0 ("top_left").
      layout: "bhsd", or "bshd" if the sequence axis precedes the heads axis in q, k, v and o. "thd" is
        "bshd" without the batch axis of packed tensors, for calls with cu_seqlens_q: q `[T, Hq, D]`, o
        `[T, Hq, Dv]` and lse `[Hq, T]`, and with cu_seqlens_k also k `[Tk, Hkv, D]` and v `[Tk, Hkv, Dv]`.
      return_lse: also return the log-sum-exp (natural logarithm) of each row's scores, `[B, Hq, Nq]`, f32.
      out: the tensor to write to: o, or the pair (o, lse) with return_lse. o has the type of q. If q is f16
        or bf16, o may also be f32, and its elements are not rounded to the type of q. Outputs must not share
        any byte with another tensor of the call. Interleaved views, such as the slices of one packed tensor
        of q, k, v and o, are allowed. A call with `out` takes no more time than a call that allocates
        its outputs.
      schedule: schedule fields to pin, as a mapping or as the text of the attribute:
        `{"tile_m": 64, "tile_n": 64}`, or `{"tile_n": 80, "hopper": {"consumers": 3}}` for warp
        specialization on Hopper. The other fields are derived from the pinned fields, and the compiler
        chooses a tile size that is missing, as in `{"tile_m": 16}`. None selects the schedule that the
        tuner found (unless FLASHATTN_TUNED=0) or else the compiler's choice.
      dtype: "bf16" if arrays of uint16 hold the bits of bf16. Arrays of ml_dtypes.bfloat16 need no
        dtype.
      stream: a CUDA stream or its address; None means the caller's current stream. On a GPU, the call
        enqueues work on the stream and never waits. On the CPU, the call returns when the result is
        complete.
      device: "model:sm_90a", "model:sm_80" and so on run host tensors on a model of that GPU. The model
        is slow, and raises DeviceError for errors such as a race, a deadlock or an access out of bounds.
        A kernel's first call runs interleaving 1, its next call interleaving 2.

      bias: added to the scores: f16, bf16 or f32, of any shape that broadcasts to `[B, Hq, Nq, Nk]`,
        whatever the layout. A broadcast bias is not expanded in memory. Tensor operands are read in place.
        Each of them may be a list, and with PyTorch tensors on a GPU also a NumPy array, which are copied at
        each call. On the CPU, sink_logits may also be an array of float64, and lengths and starts arrays of
        int64, which are copied.
      attn_mask: bool, broadcasts to `[B, Hq, Nq, Nk]`; False hides a pair that the mask shows.
      softcap: a number c, from 1e-18 to 1e18; scores s become `c * tanh(s / c)` before score_mod and bias.
      sink_logits: `[Hq]`, f32: one logit per query head, added to the softmax denominator only. The lse of
        a row that sees no key is this logit.
      kv_len: `[B]`, i32: the number of valid keys of each batch element. Keys from this index on are
        ignored, whatever k and v contain there. With "bottom_right", query 0 is at position kv_len - Nq.
      q_len: `[B]`, i32: the number of valid queries of each batch element or packed sequence, which takes
        the place of Nq. In rows from this index on, o is 0 and lse is -inf. q_len and starts exclude bias
        and attn_mask.
      cu_seqlens_q: `[B+1]`, i32: the starts of B packed sequences. q is `[1, Hq, T, D]`, or `[T, Hq, D]`
        with layout "thd", and sequence b has the rows from cu_seqlens_q[b] to cu_seqlens_q[b+1]. Starts do
        not decrease, and a sequence may be empty. In rows of no sequence, o is 0 and lse is -inf. Masks,
        positions and score_mod count from the first row of each sequence. On the CPU and on a
        model, each call checks the starts. On a GPU, the host does not read them.
      cu_seqlens_k: `[B+1]`, i32: the same for k and v. Without one of them, the tensors on its side have B
        batch elements, and kv_len states how many of their keys are valid (docs/sequences.md).
      page_table: `[B, P]`, i32: k and v are pools of pages, `[pages, Hkv, S, D]` and `[pages, Hkv, S, Dv]`, and
        key j of batch element or sequence b is row `j % S` of page `page_table[b, j // S]`. kv_len is required.
        The page size S is compiled in. The strides of pools are arbitrary, except for the last. Pages that no
        query sees are not read, and their entries may be any numbers. With P = 1, an entry is the index of the
        sequence in k and v, of which S rows belong to it. On the CPU and on a model, each call checks the entries
        of pages that are seen (docs/serving.md). On a GPU, the host does not read them. Calls with page_table or
        leftpad_k have no gradients, and exclude bias, attn_mask and cu_seqlens_k.
      leftpad_k: `[B]`, i32: key j is row `leftpad_k[b] + j` of k[b], or of the pages of sequence b. kv_len counts
        keys from there.
      k_scale: f32: scales of k, which may have elements of 8 bits: float8_e4m3fn, float8_e5m2 or int8. A value is
        what is stored times its scale, or what is stored without one. A number, or a tensor of rank 0, is one scale
        for all. `[B, Hkv]` has one for each sequence and key/value head. `[B, Hkv, Nk, X]`, in the order of the
        layout, has X for each row: one for each block of D / X elements, a multiple of 16. Any size may also be 1. A
        tensor with one row serves all rows of a sequence. Others are arranged like the rows of k: `[1, Hkv, T, X]`
        with cu_seqlens_k, or `[T, Hkv, X]` with layout "thd", and `[pages, Hkv, S, X]` with page_table. Scales, and k
        and v of 8 bits, have no gradients (docs/fp8.md).
      v_scale: the same for v, which may have another type than k.
      max_seqlen_q: a promise that no sequence of cu_seqlens_q has more rows. It only makes calls without
        cu_seqlens_k faster, if it is at most 16: without it, three kernels compute the sequences with one query,
        with few and with many (docs/serving.md). With it, sequences with more rows are not computed, and rows of
        no sequence are not written.
      invariant: whether the result of a batch element or packed sequence has the same bits in every batch: other
        elements or sequences, their number and order, and the size of caches and page tables do not matter. Keys
        are then split at multiples of 1024, not by the size of the batch.
      offset: the position of query 0, an integer of 32 bits; replaces the position that `align` implies.
        One kernel serves all values. Or `[B]`, i32: one position for each batch element or packed sequence.
      score_mod: a function of (score, b, h, p, k) that returns the new score, such as
        `lambda score, b, h, p, k: score + flashattn.math.exp2(-h) * (k - p)`. Its arguments are the
        scaled and capped score, the batch b, the query head h, the position p of the query and the
        index k of the key. The function is traced: its arguments record operators and the functions of
        `flashattn.math`, and the record is compiled. Captured numbers become constants. b, h, p and k are
        32-bit integers and score is f32. An operation on an integer and a float converts the integer to
        f32.
      aux_tensors: up to 4 tensors that score_mod reads by batch and head, and takes as further arguments:
        `lambda score, b, h, p, k, slopes: score + slopes[h] * (k - p)` with `aux_tensors=(slopes,)`. They have
        rank 0, 1 or 2 and the type f16, bf16, f32, i32 or bool; each index is b or h, so the sizes are those of
        the batch and the query heads. The compiled kernel reads their elements at each call. They have no
        gradients. Float elements are read as f32, and arrays of float64 are copied.

    Returns:
      o, `[B, Hq, Nq, Dv]`, or (o, lse). For a row that sees no key, o is 0 and lse is -inf.

    Raises:
      ArgumentError: shapes, types, devices, strides or names do not match, or an output shares memory
        with another tensor.
      KeywordError: an unknown keyword; a subclass of ArgumentError and of TypeError.
      TraceError: score_mod uses an operation that cannot be traced, such as `if` on a score.
      CompileError, UnsupportedError: the compiler's diagnostic, when a kernel is compiled.
      LibraryError: the library is missing.
      DeviceError: there is no driver or no device, or a launch failed.

    Warns:
      UserWarning: the mask hides whole rows at every length; issued when a kernel is compiled.
    """
    if unknown:
        _features.check_keywords("attention", unknown, attention.__kwdefaults__)
    traces = _torch.attend is not None and _torch.is_compiling()
    names: Tuple[str, ...] = ()
    values: Tuple[Any, ...] = ()
    text: Any = None
    operands: Any = None
    symbols: _symbols.Symbols = ()
    if mask.__class__ is Mask and mask._symbols:  # type: ignore[union-attr]
        mask, symbols = _symbols.split(mask, q)
    if symbols or not (
        bias is attn_mask is softcap is sink_logits is kv_len is q_len is cu_seqlens_q is cu_seqlens_k
        is page_table is leftpad_k is k_scale is v_scale is offset is aux_tensors is None and score_mod is None
    ):  # fmt: skip
        offset, offsets = _features.split_offset(offset)
        operands = {
            "bias": bias, "attn_mask": attn_mask, "sink_logits": sink_logits, "kv_len": kv_len,
            "q_len": q_len, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
            "page_table": page_table, "leftpad_k": leftpad_k, "k_scale": k_scale, "v_scale": v_scale,
            "offsets": offsets, **dict(symbols),
        }  # fmt: skip
        if symbols and mask is not None and mask._of_rows:
            _features.check_rows(mask._of_rows, q, k, align, layout, {**operands, "offset": offset})
        if k_scale is not None or v_scale is not None:
            operands["k_scale"] = _scales.settle("k_scale", k_scale, layout, q)
            operands["v_scale"] = _scales.settle("v_scale", v_scale, layout, q)
        text = score_mod
        if not traces:
            softcap = _features.check_options(softcap)
            text, aux = _aux.prepare(score_mod, aux_tensors)
            operands.update(aux)
        operands["offset"] = offset
        if not traces:
            names, values = _features.normalize(operands, like=q)
        elif aux_tensors is not None:
            operands["aux_tensors"] = aux_tensors
    if schedule is not None and schedule.__class__ is not str and not traces:
        schedule = _options.hashable(schedule)
    if max_seqlen_q is not None:
        max_seqlen_q = _features.limit_queries(max_seqlen_q, operands or {})
    fields: Tuple[Any, ...] = (
        mask, align, layout, softcap, text, device, max_seqlen_q, bool(invariant), False, schedule, dtype, names, (),
        out is None, return_lse,
    )  # fmt: skip
    if traces:
        return _attend_traced(q, k, v, out, stream, AttentionOptions(*fields), operands or {}, scale)
    options = new(AttentionOptions, fields)
    if out is None:
        outs: Tuple[Any, ...] = ()
    elif not return_lse:
        outs = (out,)
    else:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    kind = type(q)
    if kind is numpy.ndarray:
        # Unpacking takes the host longer than the test, even of empty tuples.
        tensors = (q, k, v, *outs, *values) if outs or values else (q, k, v)
        plan, key, words = _plans.find_numpy(tensors, options, _cache.cache.plans)
    elif kind is _torch.Tensor:
        if _torch.profiler._is_profiler_enabled:
            with _torch.event("flashattn::attention", (q, k, v, *values)):
                return _call_torch(q, k, v, out, outs, values, scale, stream, options)
        return _call_torch(q, k, v, out, outs, values, scale, stream, options)
    else:
        plan = key = None
    if plan is None:
        return _attend(q, k, v, out, stream, options, key, values, scale)
    words.append(plan.scale_bits if scale is None else _module.scale_bits(scale))
    plan.kernel._used = _cache.clock()
    if out is None:
        o = numpy.empty(plan.shapes[0], plan.like[0])
        if return_lse:
            lse = numpy.empty(plan.shapes[1], numpy.float32)
            words[3:3] = o.__array_interface__["data"][0], lse.__array_interface__["data"][0]
            out = o, lse
        else:
            words.insert(3, o.__array_interface__["data"][0])
            out = o
    if stream is not None:
        _tensors.stream_pointer(stream)
    plan.start(0, words)
    return out


def _attend_traced(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: AttentionOptions,
    operands: Dict[str, Any],
    scale: Any,
) -> Any:
    """Runs a call that torch traces: torch sees the operator, not the lookup of plans. The score_mod in
    `options` is the caller's function."""
    if options.score_mod is not None:
        if _torch.in_dynamo():
            return _torch.outside(_attend_untraced, q, k, v, out, stream, options, operands, scale)
    text, aux = _aux.prepare(options.score_mod, operands.pop("aux_tensors", None))
    operands.update(aux)
    options = options._replace(score_mod=text)
    return _torch.attend(q, k, v, out, stream, options, operands, scale)


def _attend_untraced(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: AttentionOptions,
    operands: Dict[str, Any],
    scale: Any,
) -> Any:
    """Runs a call as if torch did not trace it."""
    known = attention.__kwdefaults__ or {}
    offsets = operands.pop("offsets", None)
    if offsets is not None:
        operands["offset"] = offsets
    operands, options = _symbols.join(operands, options)
    given = {name: value for name, value in options._asdict().items() if name in known}
    return attention(
        q, k, v, out=out, stream=stream, scale=scale, device=options.model, **operands, **given
    )


def _call_torch(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    outs: Tuple[Any, ...],
    values: Tuple[Any, ...],
    scale: Any,
    stream: Any,
    options: AttentionOptions,
) -> Any:
    # The key of a plan does not contain these properties, so each call checks them.
    for t in (k, v, *outs):
        if t.__class__ is not _torch.Tensor:
            return _attend(q, k, v, out, stream, options, None, values, scale)
    records: Any = _torch.grad_enabled() and (
        q.requires_grad
        or k.requires_grad
        or v.requires_grad
        or (values and any(getattr(value, "requires_grad", False) for value in values))
    )
    if (
        _torch.any_autocast()
        or _torch.count_modes()
        or _torch.is_tracing()
        or _torch.forward_ad._current_level >= 0
        or (records and (out is not None or _torch.record is None or _torch.in_transform()))
    ):
        return _attend(q, k, v, out, stream, options, None, values, scale)
    # A call that autograd records always computes lse, for the backward pass.
    wanted = options.with_lse() if records else options
    plan: Optional[_Plan] = None
    key = None
    words: List[int] = []
    match = 0
    if _torch.exchange and (not values or all(value.__class__ is int for value in values)):
        ids = id(q), id(k), id(v), *map(id, outs), 0, 0
        try:
            for recent in _cache.cache.recent:
                if recent.options == wanted:
                    match = recent.match(recent.match_head + pack_objects(*ids[:5]))
                    if match:
                        plan = recent
                        break
        except (TypeError, ValueError, RuntimeError, BufferError):
            match = 0  # the checks of `_attend` name the invalid argument
    if plan is None:
        plan, key, words = _plans.find_torch(
            (q, k, v, *outs, *values), wanted, _cache.cache.plans, records
        )
    if plan is None:
        return _attend(q, k, v, out, stream, options, key, values, scale)
    assert plan.kernel is not None
    bits = plan.scale_bits if scale is None else _module.scale_bits(scale)
    plan.kernel._used = _cache.clock()
    if not match and _torch.exchange and not plan.is_empty:
        others = [recent for recent in _cache.cache.recent if recent is not plan]
        _cache.cache.recent = [plan, *others[: _MAX_RECENT - 1]]
    at = [0] * len(outs)
    if out is None:
        o = out = _torch.empty_like(plan.like[0])
        at = [o.data_ptr()]
        if wanted.return_lse:
            lse = _torch.empty_like(plan.like[1])
            at.append(lse.data_ptr())
            out = o, lse
    if match and stream is None:
        given = [value & _plans.WORD for value in values] if values else ()
        status = plan.launch(plan.launch_head + plan.pack_matched(match, *at, *given, bits))
        if status:
            plan.library.fail(status)
    else:
        if match:
            words = [t.data_ptr() for t in (q, k, v, *outs)]
            words += [value & _plans.WORD for value in values]
        if not outs:
            words[3:3] = at
        words.append(bits)
        plan.start(_torch.stream_or(stream, plan.device), words)
    return _torch.record(out, (q, k, v), values, scale, options) if records else out


def _attend(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: AttentionOptions,
    key: Any,
    values: Tuple[Any, ...],
    scale: Any,
) -> Any:
    """Runs a call that has no plan: checks it, then compiles and launches a kernel or calls torch's operator.
    Stores the plan under `key`, unless `key` is None."""
    operands = dict(zip(options.operands, values))
    _torch.detect_torch()
    _module.check_options(options.mask, options.align, options.layout)
    scale_bits = None if scale is None else _module.scale_bits(scale)
    tensors = {"q": q, "k": k, "v": v}
    _tensors.check_layouts({**tensors, **operands})
    _torch.refuse_tangents(**tensors, **operands)
    if _tensors.is_torch(q) and _torch.has_to_dispatch((q, k, v, *values)):
        return _torch.operators()(q, k, v, out, stream, options, operands, scale)
    if _tensors.is_torch(q):
        given = q, k, v, *values
        laid_out = tuple(map(_torch.lay_out, ("q", "k", "v", *options.operands), given))
        if any(one is not other for one, other in zip(laid_out, given)):
            outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
            return _call_torch(*laid_out[:3], out, outs, laid_out[3:], scale, stream, options)
    model_chip(options.model)
    call = _plans.check_call("attention", tensors, operands, options)
    names = ("o", "lse") if options.return_lse else ("o",)
    outputs = {
        name: _plans.output_of(call, name, tensor)
        for name, tensor in zip(names, _split_out(out, options.return_lse))
    }
    made = _kernel.run(call, outputs, _Plan, key, options, stream, scale_bits)
    return made if options.return_lse else made[0]


def _split_out(out: Any, return_lse: bool) -> Tuple[Any, Any]:
    if out is None:
        return None, None
    if not return_lse:
        if isinstance(out, (tuple, list)):
            raise ArgumentError(
                "expected one tensor as out but got a pair; return_lse=True takes (o, lse)"
            )
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(
            "expected out to be a pair (o, lse) with return_lse but got " + type(out).__name__
        )
    return out[0], out[1]
