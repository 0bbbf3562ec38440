"""`flashattn.attention` for JAX arrays."""

from __future__ import annotations

import functools
from typing import Any, Collection, Dict, Optional, Sequence

import jax.numpy as jnp

from .. import _aux, _features, _module, _scales, _symbols, _trace
from .._checks import model_chip
from .._options import AttentionOptions, hashable
from ..errors import ArgumentError
from ..masks import Mask
from . import _calls, _shards


def as_array(name: str, value: Any) -> Any:
    """Converts an argument to a JAX array. Raises ArgumentError if that is not possible."""
    if value is not None:  # jnp.asarray(None) is NaN
        try:
            return jnp.asarray(value)
        except (TypeError, ValueError):
            pass
    raise ArgumentError(
        f"expected {name!r} to be an array of jax or numpy but got {type(value).__name__}"
    )


def _hashable(schedule: Any) -> Any:
    """Returns a schedule as a hashable value, for the key of JAX's compiled programs. Raises ArgumentError."""
    fields = hashable(schedule)
    try:
        hash(fields)
    except TypeError:
        raise ArgumentError(
            f"expected schedule to be a mapping of numbers and texts, a text or None but got {schedule!r}"
        ) from None
    return fields


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
    schedule: Optional[_module.Schedule] = None,
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
    offset: Any = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    deterministic: bool = False,
    **unknown: Any,
) -> Any:
    """Computes `flashattn.attention` in JAX. The function can be jitted, mapped, and differentiated once in
    reverse mode.

    Args:
      q: queries, `[B, Hq, Nq, D]`, f16, bf16 or f32: a JAX array, a NumPy array or a JAX tracer.
      k, v: keys, `[B, Hkv, Nk, D]`, and values, `[B, Hkv, Nk, Dv]`; Hq is a multiple of Hkv.
      bias, attn_mask, sink_logits, kv_len, q_len, cu_seqlens_q, cu_seqlens_k, page_table, leftpad_k: as in
        `flashattn.attention`. bias and sink_logits have gradients too. The host does not read lengths, starts
        and page tables.
      k_scale, v_scale: as in `flashattn.attention`, for k and v of 8 bits, also traced ones. They have no gradients.
      mask, align, layout, softcap, score_mod: as in `flashattn.attention`; constant at compile time, except for the
        tensors of a mask, which may be traced arrays.
      aux_tensors: as in `flashattn.attention`: arrays, also traced ones, without gradients.
      scale, offset: as in `flashattn.attention`. Python numbers are part of the XLA program, which is compiled
        again for other values. An offset `[B]` is an array, which may be traced. A decoder that counts its
        tokens in an array passes kv_len instead.
      return_lse: also return the log-sum-exp (natural logarithm) of each row's scores, `[B, Hq, Nq]`,
        f32, which has gradients too.
      schedule: schedule fields to pin, for the forward pass only.
      device: "model:sm_90a" and so on run on a model of that GPU, on the platform cpu.
      deterministic: whether the backward pass returns bitwise equal gradients for equal inputs.

    Returns:
      o, `[B, Hq, Nq, Dv]`, or (o, lse). For a row that sees no key, o is 0 and lse is -inf.

    Raises:
      ArgumentError, UnsupportedError: shapes, types or names do not match (while JAX traces), the platform
        is neither cpu nor cuda (while JAX lowers), or a second derivative is requested.
      TypeError: forward-mode differentiation is requested; raised by JAX.
      TraceError: score_mod uses an operation that cannot be traced.
      CompileError, UnsupportedError: the compiler's diagnostic, while JAX lowers.
      LibraryError: the library is missing.
      jax.errors.JaxRuntimeError: a failure while XLA runs the program, for example in the driver.
    """
    if unknown:
        _features.check_keywords("attention", unknown, attention.__kwdefaults__)
    _module.check_options(mask, align, layout)
    symbols: _symbols.Symbols = ()
    if mask is not None:
        mask, symbols = _symbols.split(mask, q)
    model_chip(device)
    text, aux = _aux.prepare(score_mod, aux_tensors)
    offset, offsets = _features.split_offset(offset)
    k_scale, v_scale = (
        _scales.settle(name, x, layout, None) for name, x in (("k_scale", k_scale), ("v_scale", v_scale))
    )
    operands = {
        "bias": bias, "attn_mask": attn_mask, "sink_logits": sink_logits, "kv_len": kv_len, "q_len": q_len,
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "page_table": page_table,
        "leftpad_k": leftpad_k, "k_scale": k_scale, "v_scale": v_scale, "offsets": offsets, **dict(symbols), **aux,
        "offset": offset,
    }  # fmt: skip
    if mask is not None:
        _features.check_rows(mask._of_rows, q, k, align, layout, operands)
    names, values = _features.normalize(operands)
    _features.check_sequences(names, layout)
    given = dict(zip(names, values))
    scale = None if scale is None else _module.check_factor("scale", scale)
    is_thd = layout == "thd"
    chosen = AttentionOptions(
        mask=mask,
        align=align,
        layout="bshd" if is_thd else layout,
        softcap=_features.check_options(softcap),
        score_mod=text,
        model=device,
        deterministic=bool(deterministic),
        schedule=_hashable(schedule),
    )
    options = _calls.Options(chosen, scale, given.pop("offset", None))
    inputs: Dict[str, Any] = {
        name: as_array(name, value)
        for name, value in {"q": q, "k": k, "v": v, **given}.items()
    }  # fmt: skip
    for name in ("bias", "attn_mask"):
        if name in inputs and inputs[name].ndim < 4:
            inputs[name] = jnp.expand_dims(inputs[name], range(4 - inputs[name].ndim))
    if symbols:
        roles = _features.roles_with(inputs)
        for name, _ in symbols:
            inputs[name] = inputs[name].reshape(_symbols.extend(inputs[name].shape, roles[name].dims, 1))
    if is_thd:
        inputs = {name: _with_batch(name, x, inputs) for name, x in inputs.items()}
    outputs = ("o", "lse") if return_lse else ("o",)
    call = functools.partial(_calls.attend_jitted, options, outputs)
    made = _shards.attend(call, inputs, chosen.layout, outputs, score_mod=text)
    if is_thd:
        made = {name: x[0] for name, x in made.items()}
    return (made["o"], made["lse"]) if return_lse else made["o"]


def _with_batch(name: str, x: Any, operands: Collection[str]) -> Any:
    """Returns an input of layout thd with the batch dimension of packed rows, which XLA does not copy."""
    role = _features.roles_with(operands).get(name)
    if role is None or not role.is_packed or name in _symbols.NAMES:
        return x
    rank = len(role.dims_in("thd"))
    if x.ndim != rank:
        raise ArgumentError(f"expected {name!r} of rank {rank} but got rank {x.ndim}")
    return x[None]
