"""Padding of batches, with the names and arguments of FlashAttention's `bert_padding`, by
operations of PyTorch."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input"]


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Returns the rows `indices` of the first dimension."""
    return input.index_select(0, indices)


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Returns `first_axis_dim` rows: those at `indices` are `values`, the others are 0."""
    return values.new_zeros((first_axis_dim, *values.shape[1:])).index_copy(0, indices, values)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Removes padding, and reads the number of rows that remain on the host.

    Args:
      hidden_states: `[B, N, ...]`.
      attention_mask: `[B, N]`, bool or integers, 1 for a row that counts.
      unused_mask: the same for rows that do not count but stay where they are.

    Returns:
      the rows that remain, `[T, ...]`; their indices in `[B * N, ...]`; the starts of the
      sequences, `[B + 1]`, i32; the greatest length; and the number of rows of each sequence that
      count, `[B]`, i32.
    """
    used = attention_mask.sum(-1, dtype=torch.int32)
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    indices = kept.flatten().nonzero().flatten()
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, starts, int(lengths.max()), used


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Undoes `unpad_input`: returns `[batch, seqlen, ...]`, which is 0 where a row was removed."""
    rows = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return rows.reshape(batch, seqlen, *hidden_states.shape[1:])
