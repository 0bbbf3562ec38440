"""The functions of FlashAttention-3, with its arguments, over `flashattn.attention`::

    from flashattn.flash_attn_interface import flash_attn_func, flash_attn_varlen_func

The first three rules of `flashattn.flash_attn.flash_attn_interface` hold here too. In addition:

- num_splits, pack_gqa, sm_margin, scheduler_metadata and max_seqlen_k are not used, nor is
  max_seqlen_q without a cache: the compiler chooses.
- With `attention_chunk=c`, a query at position p sees keys of its chunk alone, from `c * (p // c)`
  to `c * (p // c) + c - 1`. Gradients are supported, unlike in FlashAttention-3.
- k and v may have 8 bits: float8_e4m3fn, float8_e5m2 or int8. k_descale and v_descale, `[B, Hkv]`, f32, are
  their scales for each sequence and head, and sizes may be 1. New keys and values of a cache are divided
  by them, rounded and clamped; those of 8 bits are copied. q may be float8_e4m3fn or float8_e5m2 beside such k
  and v, with q_descale, `[B, Hkv]`; o is then bfloat16. On GPUs, this needs sm_90a, and q, k and v of
  float8_e4m3fn.
- qv must be None: UnsupportedError says otherwise.

With `return_attn_probs=True`, functions return (o, softmax_lse).
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from .errors import ArgumentError
from .flash_attn import _core

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]

#: The version of FlashAttention-3 whose arguments these are.
__version__ = "3.0.0"


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Computes attention of q, `[B, Nq, Hq, D]`, to k, `[B, Nk, Hkv, D]`, and v, `[B, Nk, Hkv,
    Dv]`.

    Returns:
      o, `[B, Nq, Hq, Dv]`, or (o, softmax_lse) with return_attn_probs, where softmax_lse is `[B,
      Hq, Nq]`, f32.
    """
    _core.refuse(qv=qv)
    o, lse = _core.attend(
        q, k, v, scale=softmax_scale, mask=_core.mask_of(causal, window_size, attention_chunk),
        softcap=softcap, deterministic=deterministic, return_lse=return_attn_probs,
        q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
    )  # fmt: skip
    return (o, lse) if return_attn_probs else o


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: Optional[int] = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_func` with q, k and v in one tensor, of which nothing is copied: `[B, N, 3, H,
    D]`, or `[B, N, Hq + 2 * Hkv, D]` with num_heads_q, which is Hq.
    """
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(-3)
    else:
        shared = 0 if num_heads_q is None else (qkv.shape[-2] - num_heads_q) // 2
        if num_heads_q is None or shared < 1 or num_heads_q + 2 * shared != qkv.shape[-2]:
            raise ArgumentError(
                f"expected num_heads_q that leaves an even number of the {qkv.shape[-2]} heads of "
                f"'qkv', for keys and values, but got {num_heads_q}"
            )
        q, k, v = torch.split(qkv, [num_heads_q, shared, shared], dim=-2)
    return flash_attn_func(
        q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size,
        attention_chunk, softcap, deterministic=deterministic, sm_margin=sm_margin,
        return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    seqused_q: Optional[Tensor] = None,
    seqused_k: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    qv: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Computes attention of packed sequences: sequence b has the rows from `cu_seqlens_q[b]` to
    `cu_seqlens_q[b + 1]` of q, `[Tq, Hq, D]`, and from `cu_seqlens_k[b]` to `cu_seqlens_k[b + 1]`
    of k, `[Tk, Hkv, D]`, and v, `[Tk, Hkv, Dv]`. The sequence uses its first `seqused_q[b]`
    queries and `seqused_k[b]` keys.

    Returns:
      o, `[Tq, Hq, Dv]`, or (o, softmax_lse) with return_attn_probs, where softmax_lse is `[Hq,
      Tq]`, f32. Rows that do not count have o = 0 and softmax_lse = -inf.
    """
    _core.refuse(qv=qv)
    o, lse = _core.attend(
        q, k, v, scale=softmax_scale, mask=_core.mask_of(causal, window_size, attention_chunk),
        softcap=softcap, deterministic=deterministic, return_lse=return_attn_probs,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
        seqused_k=seqused_k, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
    )  # fmt: skip
    return (o, lse) if return_attn_probs else o


def flash_attn_combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tuple[Tensor, Tensor]:
    """Merges parts of an attention that have seen different keys, by operations of PyTorch.

    Args:
      out_partial: the outputs, `[parts, B, N, H, D]`.
      lse_partial: the log-sum-exps, `[parts, B, N, H]`. A part with -inf saw no key, and is left
        out.
      out: the tensor to write to.
      out_dtype: the type of o; None means that of out, or else that of out_partial.

    Returns:
      (o, lse): `[B, N, H, D]`, and `[B, N, H]`, f32.
    """
    return _core.combine(out_partial, lse_partial, out, out_dtype)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    qv: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Any = None,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """`flash_attn_with_kvcache` of FlashAttention-2, with the arguments of FlashAttention-3. In
    addition, q may be packed: `[Tq, Hq, D]` with cu_seqlens_q; and so may k and v: `[Tk, Hkv, D]`
    with cu_seqlens_k_new. page_table is FlashAttention-2's block_table, and rotary_seqlens, `[B]`,
    are the positions of the first new row, by default cache_seqlens. qv must be None.

    Returns:
      o, or (o, softmax_lse) with return_softmax_lse. FlashAttention-3 appends the results of its
      parts.
    """
    _core.refuse(qv=qv)
    return _core.with_cache(
        q, k_cache, v_cache, k, v, cache_seqlens, scale=softmax_scale, softcap=softcap,
        mask=_core.mask_of(causal, window_size, attention_chunk), return_lse=return_softmax_lse,
        page_table=page_table, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new,
        rotary=(rotary_cos, rotary_sin), rotary_interleaved=rotary_interleaved,
        rotary_seqlens=rotary_seqlens, max_seqlen_q=max_seqlen_q,
        q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
    )  # fmt: skip


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: Optional[int] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    page_size: Optional[int] = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: Optional[bool] = None,
    sm_margin: int = 0,
) -> Tensor:
    """Returns an empty tensor, i32, which `flash_attn_with_kvcache` takes as scheduler_metadata:
    the compiler needs none."""
    return torch.empty(0, dtype=torch.int32, device=cache_seqlens.device)
