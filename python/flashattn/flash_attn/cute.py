"""The functions of FlashAttention-4, with its arguments, over `flashattn.attention`::

    from flashattn.flash_attn.cute import flash_attn_func, flash_attn_varlen_func

The first three rules of `flashattn.flash_attn.flash_attn_interface` hold here too. In addition:

- Functions return (o, lse). As in FlashAttention-4, lse is None unless return_lse is True or a
  gradient is required. It can be differentiated.
- window_size is (left, right), and None means no bound. As in FlashAttention-4, bounds may be
  negative, and two bounds whose sum is negative, such as (-1, -1), are no bounds.
- learnable_sink, `[Hq]`, is one logit per query head, added to the softmax denominator only.
- score_mod is called with (score, b, h, q_idx=, kv_idx=, seqlen_info=, aux_tensors=) and traced, as
  the function of `flashattn.attention`: it may use operators and `flashattn.math`, but nothing of
  CuTe. It may read aux_tensors, of rank 2 at most, by b and h: `aux_tensors[0][b, h]`.
- mask_mod is called with (b, h, q_idx, kv_idx, seqlen_info, aux_tensors), where seqlen_info is
  None, and must be affine (`flashattn.torch.affine_mask`). As in FlashAttention-4, it replaces
  causal and window_size.
- num_splits, pack_gqa, max_seqlen_k, min_seqlen_k, scheduler_metadata, seqlen_k_per_split and
  disable_scheduler_metadata are not used, nor is max_seqlen_q without page_table: the compiler
  chooses.
- qv, gather_kv_indices, score_mod_bwd, aux_scalars, block_sparse_tensors and, without
  score_mod, aux_tensors must be None: UnsupportedError names what is not. The compiler
  differentiates score_mod.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from torch import Tensor

from ..masks import Mask
from . import _core

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]

#: The version of FlashAttention-4 whose arguments these are.
__version__ = "4.0.0"


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qv: Optional[Tensor] = None,
    gather_kv_indices: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[Optional[int]] = (None, None),
    learnable_sink: Optional[Tensor] = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    score_mod: Optional[Callable[..., Any]] = None,
    score_mod_bwd: Optional[Callable[..., Any]] = None,
    mask_mod: Optional[Callable[..., Any]] = None,
    aux_tensors: Optional[List[Tensor]] = None,
    aux_scalars: Optional[Tuple[Any, ...]] = None,
    block_sparse_tensors: Any = None,
    block_sparse_tensors_bwd: Any = None,
    return_lse: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Computes attention of q, `[B, Nq, Hq, D]`, to k, `[B, Nk, Hkv, D]`, and v, `[B, Nk, Hkv,
    Dv]`.

    Returns:
      (o, lse): `[B, Nq, Hq, Dv]`, and `[B, Hq, Nq]`, f32, or None.
    """
    _core.refuse(
        qv=qv, gather_kv_indices=gather_kv_indices, score_mod_bwd=score_mod_bwd,
        aux_tensors=None if score_mod else aux_tensors or None, aux_scalars=aux_scalars or None,
        block_sparse_tensors=block_sparse_tensors,
        block_sparse_tensors_bwd=block_sparse_tensors_bwd,
    )  # fmt: skip
    return _core.attend(
        q, k, v, scale=softmax_scale, softcap=softcap, deterministic=deterministic,
        sink=learnable_sink, return_lse=return_lse or _requires_grad(q, k, v),
        aux_tensors=aux_tensors or (),
        **_scores(q, k, causal, window_size, score_mod, mask_mod, False),
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qv: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    max_seqlen_q: Any = None,
    max_seqlen_k: Any = None,
    min_seqlen_k: Optional[int] = None,
    seqused_q: Optional[Tensor] = None,
    seqused_k: Optional[Tensor] = None,
    gather_kv_indices: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Sequence[Optional[int]] = (None, None),
    learnable_sink: Optional[Tensor] = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Optional[bool] = None,
    deterministic: bool = False,
    score_mod: Optional[Callable[..., Any]] = None,
    score_mod_bwd: Optional[Callable[..., Any]] = None,
    mask_mod: Optional[Callable[..., Any]] = None,
    block_sparse_tensors: Any = None,
    aux_tensors: Optional[List[Tensor]] = None,
    aux_scalars: Optional[Tuple[Any, ...]] = None,
    return_lse: bool = False,
    scheduler_metadata: Any = None,
    seqlen_k_per_split: Optional[int] = None,
    disable_scheduler_metadata: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Computes attention of sequences of different lengths. With cu_seqlens_q, q is `[Tq, Hq, D]`
    and holds the rows of sequence b from `cu_seqlens_q[b]` on; without, q is `[B, Nq, Hq, D]`.
    The same holds for cu_seqlens_k, k and v. Sequence b uses its first `seqused_q[b]` queries and
    `seqused_k[b]` keys. With page_table, `[B, P]`, k and v are pools of pages, `[pages, S, Hkv,
    D]`, and sequence b has all P * S keys without seqused_k. Such calls have no gradients.

    Returns:
      (o, lse): `[Tq, Hq, Dv]` or `[B, Nq, Hq, Dv]`, and `[Hq, Tq]` or `[B, Hq, Nq]`, f32, or None.
      Rows that do not count have o = 0 and lse = -inf, unless page_table and a max_seqlen_q of at
      most 16 are given: rows of no sequence are then not written.
    """
    _core.refuse(
        qv=qv, gather_kv_indices=gather_kv_indices, score_mod_bwd=score_mod_bwd,
        aux_tensors=None if score_mod else aux_tensors or None, aux_scalars=aux_scalars or None,
        block_sparse_tensors=block_sparse_tensors,
    )  # fmt: skip
    lengths = cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table
    is_packed = any(length is not None for length in lengths)
    return _core.attend(
        q, k, v, scale=softmax_scale, softcap=softcap, deterministic=deterministic,
        sink=learnable_sink, return_lse=return_lse or _requires_grad(q, k, v),
        aux_tensors=aux_tensors or (),
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
        seqused_k=seqused_k, page_table=page_table, max_seqlen_q=max_seqlen_q,
        **_scores(q, k, causal, window_size, score_mod, mask_mod, is_packed),
    )  # fmt: skip


def _requires_grad(*tensors: Tensor) -> bool:
    return any(tensor.requires_grad for tensor in tensors)


def _scores(
    q: Tensor,
    k: Tensor,
    is_causal: bool,
    window_size: Sequence[Optional[int]],
    score_mod: Optional[Callable[..., Any]],
    mask_mod: Optional[Callable[..., Any]],
    is_packed: bool,
) -> Dict[str, Any]:
    """Returns the mask, the alignment and the score_mod of a call. FlashAttention-4's functions
    count queries from 0, so queries are aligned with the first key where a mask does not require
    otherwise."""
    if mask_mod is not None:
        mask: Optional[Mask] = _core.shown_by(mask_mod)
    else:
        left, right = window_size
        right = 0 if is_causal else right
        if left is not None and right is not None and left + right < 0:
            left, right = None, 0 if is_causal else None
        mask = _core.window_of(left, right)
    is_aligned = mask_mod is not None or mask is None
    scores: Dict[str, Any] = {
        "mask": mask,
        "score_mod": _core.scores_of(score_mod, q, k, is_aligned, is_packed),
    }
    if mask_mod is not None or (is_aligned and score_mod is not None):
        scores["align"] = "top_left"
    return scores
