"""The functions of FlashAttention-2, with its arguments, over `flashattn.attention`.

Four rules hold for all of them:

- q, k and v are `[B, N, H, D]`, or `[T, H, D]` for functions with `varlen` in their name: f16, bf16
  or f32, on the CPU or a GPU. Query heads share key/value heads. v may have another head dimension
  than q and k.
- The last query is aligned with the last key. A query that sees no key has o = 0 and lse = -inf
  (FlashAttention-2 has lse = inf there).
- `deterministic=True` makes gradients bitwise reproducible.
- dropout_p must be 0.
- block_table, `[B, pages]`, i32, says that k and v are pools of pages, `[pages, S, Hkv, D]`, of any
  page size and without gradients. On the CPU, each call checks the entries of pages that are seen.

With `return_attn_probs=True`, functions return (o, softmax_lse, None). softmax_lse is f32, `[B, H,
N]` or `[H, T]`, and can be differentiated. Probabilities are never stored.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from torch import Tensor

from . import _core

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]

def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Computes attention of q, `[B, Nq, Hq, D]`, to k and v, `[B, Nk, Hkv, D]`.

    Args:
      softmax_scale: factor of the scores; None means `1 / sqrt(D)`.
      window_size: (left, right), the numbers of keys on each side of a query that it sees; -1 means
        no bound.
      softcap: scores s become `softcap * tanh(s / softcap)`; 0 turns this off.
      alibi_slopes: `[Hq]` or `[B, Hq]`, f32, without gradients: `-slope * |i + Nk - Nq - j|` is added
        to the score of query i and key j. The softmax_lse includes all of it; FlashAttention-2 leaves
        out what is the same for all keys of a query.

    Returns:
      o, `[B, Nq, Hq, D]`, or (o, softmax_lse, None) with return_attn_probs.
    """
    _core.refuse(dropout_p=dropout_p)
    o, lse = _core.attend(
        q, k, v, scale=softmax_scale, mask=_core.mask_of(causal, window_size), softcap=softcap,
        deterministic=deterministic, return_lse=return_attn_probs,
        **_core.alibi_of(alibi_slopes, q, causal),
    )  # fmt: skip
    return (o, lse, None) if return_attn_probs else o


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_func` with k and v in one tensor, `[B, Nk, 2, Hkv, D]`, of which nothing is
    copied."""
    k, v = kv.unbind(2)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_func` with q, k and v in one tensor, `[B, N, 3, H, D]`, of which nothing is
    copied."""
    q, k, v = qkv.unbind(2)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Optional[Tensor] = None,
) -> Any:
    """Computes attention of packed sequences: sequence b has the rows from `cu_seqlens_q[b]` to
    `cu_seqlens_q[b + 1]` of q, `[Tq, Hq, D]`, and from `cu_seqlens_k[b]` to `cu_seqlens_k[b + 1]`
    of k and v, `[Tk, Hkv, D]`.

    Args:
      cu_seqlens_q, cu_seqlens_k: `[B + 1]`, i32. The host does not read them on a GPU. With
        block_table, the differences of cu_seqlens_k are the numbers of keys.
      max_seqlen_q, max_seqlen_k: not used, except that a max_seqlen_q of at most 16 makes calls with
        block_table faster.

    Returns:
      o, `[Tq, Hq, D]`, or (o, softmax_lse, None) with return_attn_probs. Rows of no sequence have o
      = 0, unless block_table and such a max_seqlen_q are given.
    """
    _core.refuse(dropout_p=dropout_p)
    o, lse = _core.attend(
        q, k, v, scale=softmax_scale, mask=_core.mask_of(causal, window_size), softcap=softcap,
        deterministic=deterministic, return_lse=return_attn_probs, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, page_table=block_table, max_seqlen_q=max_seqlen_q,
        **_core.alibi_of(alibi_slopes, q, causal, cu_seqlens_q),
    )  # fmt: skip
    return (o, lse, None) if return_attn_probs else o


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_varlen_func` with k and v in one tensor, `[Tk, 2, Hkv, D]`."""
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
        softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """`flash_attn_varlen_func` with q, k and v in one tensor, `[T, 3, H, D]`."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    block_table: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[Tensor] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Computes attention of q, `[B, N, Hq, D]`, to caches, `[B, capacity, Hkv, D]`, without
    gradients. If k and v are given, `[B, M, Hkv, D]`, they are first written into the caches, from
    index `cache_seqlens[b]` on. No length is read by the host on a GPU.

    Args:
      rotary_cos, rotary_sin: `[positions, R / 2]`, with k and v: queries and new keys are rotated
        at the positions from `cache_seqlens[b]` on; queries of a call without causal and
        window_size all at `cache_seqlens[b]`.
      cache_seqlens: the number of rows of the cache in use, a number or `[B]`, i32.
      cache_batch_idx: `[B]`, i32: the index of each sequence in the caches, or in block_table.
      cache_leftpad: `[B]`, i32: the index of the first key in the cache. cache_seqlens counts the
        rows before it too.
      block_table: `[B, P]`, i32: the caches are pools of pages, `[pages, S, Hkv, D]`.
      rotary_interleaved: rotate elements 2i and 2i + 1, and not i and i + R / 2.
      num_splits: not used; the compiler chooses.

    Returns:
      o, or (o, softmax_lse) with return_softmax_lse.
    """
    return _core.with_cache(
        q, k_cache, v_cache, k, v, cache_seqlens, scale=softmax_scale, softcap=softcap,
        mask=_core.mask_of(causal, window_size), return_lse=return_softmax_lse,
        page_table=block_table, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad,
        rotary=(rotary_cos, rotary_sin), rotary_interleaved=rotary_interleaved,
        alibi=_core.alibi_of(alibi_slopes, q, causal),
    )  # fmt: skip
