"""Rotary position embedding, with the arguments of FlashAttention's function, by operations of
PyTorch."""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from ...torch._append import rotate

__all__ = ["apply_rotary_emb", "apply_rotary_emb_func"]


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: Union[int, Tensor] = 0,
    cu_seqlens: Optional[Tensor] = None,
    max_seqlen: Optional[int] = None,
) -> Tensor:
    """Rotates pairs of elements of each row by the angles of its position. It computes in f32.

    Args:
      x: `[B, N, H, D]`, or `[T, H, D]` with cu_seqlens.
      cos, sin: `[positions, R / 2]`. Only the first R elements of a row are rotated.
      interleaved: a pair is elements 2i and 2i + 1; otherwise, elements i and i + R / 2.
      inplace: write to x.
      seqlen_offsets: the position of the first row of each sequence, a number or `[B]`.
      cu_seqlens: the starts of packed sequences, `[B + 1]`. The host does not read them.
      max_seqlen: not used.

    Returns:
      a tensor like x.
    """
    found = rotate(x, cos, sin, _positions(x, seqlen_offsets, cu_seqlens), interleaved)
    return x.copy_(found) if inplace else found


def _positions(x: Tensor, offsets: Union[int, Tensor], cu_seqlens: Optional[Tensor]) -> Tensor:
    """Returns the position of each row: `[B or 1, N]`, or `[T]`."""
    rows = torch.arange(x.shape[-3], device=x.device)
    if cu_seqlens is None:
        return rows + (offsets.unsqueeze(-1) if isinstance(offsets, Tensor) else offsets)
    sequences = torch.searchsorted(cu_seqlens, rows.to(cu_seqlens.dtype), right=True) - 1
    sequences = sequences.clamp(0, max(cu_seqlens.shape[0] - 2, 0))
    return (
        rows
        - cu_seqlens[sequences]
        + (offsets[sequences] if isinstance(offsets, Tensor) else offsets)
    )


#: FlashAttention's older name of the function.
apply_rotary_emb_func = apply_rotary_emb
