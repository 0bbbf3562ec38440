"""A replacement for `jax.nn.dot_product_attention`, with the same arguments."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import jax
import jax.numpy as jnp

from .. import _tensors
from ..errors import ArgumentError
from ..masks import Mask, causal, window
from ._attention import as_array, attention


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: Optional[float] = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: Union[None, int, Tuple[int, int]] = None,
    implementation: Optional[str] = None,
    return_residual: bool = False,
) -> Any:
    """Replaces `jax.nn.dot_product_attention`, with the same arguments.

    Args:
      query: `[B, T, N, H]`, f16, bf16 or f32; an array of three dimensions is one batch element.
      key, value: `[B, S, K, H]` and `[B, S, K, Hv]`; N is a multiple of K.
      bias: numbers that are added to the scores; it broadcasts to `[B, N, T, S]` and has gradients.
      mask: bool, where False hides a pair; it broadcasts as bias does.
      scale: a Python number, the factor of the scores; None means `1 / sqrt(H)`.
      is_causal: whether query i sees only keys 0 to i, even if T and S differ.
      query_seq_lengths: `[B]`, int32: output rows from this index on are 0.
      key_value_seq_lengths: `[B]`, int32: keys from this index on are ignored.
      local_window_size: the numbers of keys that a query sees to the left and to the right of its own
        position; a single number applies to both sides.
      implementation: must be None.
      return_residual: also return the log-sum-exp of each row, `[B, T, N]`, in the type of key, without
        gradients.

    Returns:
      `[B, T, N, Hv]`, or a pair of this array and the log-sum-exp. For a row that sees no key, the output is
      0 and the log-sum-exp is -inf; jax.nn returns the mean of all values for such a row.

    Raises:
      ArgumentError: implementation is not None, or shapes or types do not match.
      UnsupportedError: a type that no kernel supports.
    """
    if implementation is not None:
        raise ArgumentError(
            f"expected implementation None but got {implementation!r}; "
            "jax.nn.dot_product_attention has other implementations"
        )
    rows = [as_array(n, x) for n, x in (("query", query), ("key", key), ("value", value))]
    for name, x in zip(("query", "key", "value"), rows):
        if x.ndim not in (3, 4):
            raise ArgumentError(f"expected {name!r} of rank 3 or 4 but got rank {x.ndim}")
    is_single = rows[0].ndim == 3
    rows = [x[None] if x.ndim == 3 else x for x in rows]
    batch, length = rows[0].shape[:2]
    attn_mask = None
    if mask is not None:
        attn_mask = as_array("mask", mask)
        if attn_mask.dtype != bool:
            raise ArgumentError(
                f"expected a Boolean mask but got {attn_mask.dtype}; bias= takes numbers"
            )
    if query_seq_lengths is not None:
        query_seq_lengths = _lengths("query_seq_lengths", query_seq_lengths, batch)
        if bias is not None or attn_mask is not None:  # which numbers of queries exclude
            seen = (jnp.arange(length) < query_seq_lengths[:, None])[:, None, :, None]
            attn_mask = seen if attn_mask is None else attn_mask & seen
            query_seq_lengths = None
    if key_value_seq_lengths is not None:
        key_value_seq_lengths = _lengths("key_value_seq_lengths", key_value_seq_lengths, batch)
    found = attention(
        *rows,
        mask=_mask_of(is_causal, local_window_size),
        align="top_left",
        layout="bshd",
        scale=scale,
        bias=None if bias is None else _as_bias(bias),
        attn_mask=attn_mask,
        kv_len=key_value_seq_lengths,
        q_len=query_seq_lengths,
        return_lse=return_residual,
    )
    if not return_residual:
        return found[0] if is_single else found
    o, lse = found
    lse = jax.lax.stop_gradient(jnp.swapaxes(lse, 1, 2).astype(rows[1].dtype))
    return (o[0], lse[0]) if is_single else (o, lse)


def _lengths(name: str, given: Any, batch: int) -> Any:
    found = as_array(name, given)
    if found.shape != (batch,) or found.dtype != jnp.int32:
        raise ArgumentError(
            f"expected {name} of shape [{batch}] and type int32 but got "
            f"{list(found.shape)} and {found.dtype}"
        )
    return found


def _as_bias(given: Any) -> Any:
    """Returns the bias in a type that kernels read. Other types become f32, the type of the scores."""
    bias = as_array("bias", given)
    if bias.dtype == bool or jnp.issubdtype(bias.dtype, jnp.complexfloating):
        raise ArgumentError(
            f"expected a numeric bias but got {bias.dtype}; mask= takes Booleans"
        )
    is_read = _tensors.parse_element(bias.dtype) in ("f16", "bf16", "f32")
    return bias if is_read else bias.astype(jnp.float32)


def _mask_of(is_causal: bool, sizes: Any) -> Optional[Mask]:
    if sizes is None:
        return causal if is_causal else None
    if not isinstance(sizes, (tuple, list)):
        sizes = (sizes, sizes)
    if len(sizes) != 2:
        raise ArgumentError(
            f"expected local_window_size to be one or two integers but got {sizes!r}"
        )
    found = window(left=sizes[0], right=sizes[1])
    return found & causal if is_causal else found
