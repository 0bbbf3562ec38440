"""An implementation for torch's hook for flash attention. torch calls it in place of its own kernels."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from .._attention import attention
from .._backward import attention_backward
from .._options import OPERANDS
from ..errors import ArgumentError, UnsupportedError
from ..masks import bounded
from ._ops import _backward, _forward

#: The argument of `torch.nn.attention.activate_flash_attention_impl`.
NAME = "flashattn"
_CAUSAL = "#flashattn.causal"
#: The operands of a call that has a bias or an attn_mask at most.
_OTHERS = (None,) * (len(OPERANDS) - 1)


def register() -> None:
    """Registers the name "flashattn" with PyTorch's hook for flash attention. The activated
    implementation replaces PyTorch's flash attention, on the CPU and on GPUs, in
    `scaled_dot_product_attention` and in `torch.nn.attention.varlen.varlen_attn`::

        flashattn.torch.register()
        torch.nn.attention.activate_flash_attention_impl("flashattn")

    `torch.nn.attention.restore_flash_attention_impl` undoes the activation. PyTorch still selects a kernel
    for each call by its own rules: calls that its flash attention does not support, such as f32 and masks on
    a GPU, use its other kernels, and `varlen_attn` may prefer cuDNN. `replace_sdpa` replaces all calls of
    `scaled_dot_product_attention`. `register` may be called more than once.

    Raises:
      UnsupportedError: this PyTorch does not have the hook.
    """
    known = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if known is None:
        raise UnsupportedError(
            "expected a torch with torch.nn.attention.register_flash_attention_impl but got "
            f"{torch.__version__}; flashattn.torch.replace_sdpa works without this function"
        )
    known(NAME, register_fn=_Active)


class _Active:
    """Overrides flash attention in torch's dispatcher until `remove` is called."""

    def __init__(self) -> None:
        self.library: Any = torch.library.Library("aten", "IMPL")
        name = "_scaled_dot_product_flash_attention"
        for op, kernel, key in (
            (name, _forward_cuda, "CUDA"),
            (name + "_backward", _backward_cuda, "CUDA"),
            (name + "_for_cpu", _forward_cpu, "CPU"),
            (name + "_for_cpu_backward", _backward_cpu, "CPU"),
            *((op, kernel, key) for op, kernel in _ROWS.items() for key in ("CPU", "CUDA")),
        ):
            if hasattr(torch.ops.aten, op):  # older releases of torch lack some
                self.library.impl(op, kernel, key)

    def remove(self) -> None:
        if self.library is not None:
            self.library._destroy()
            self.library = None


def _run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Optional[Tensor],
    scale: Optional[float],
) -> Tuple[Tensor, Tensor]:
    """Returns o and lse. o has the strides that torch expects: those of a new tensor like the query."""
    _refuse_dropout(dropout_p)
    swaps = query.stride(1) < query.stride(2)
    rows = (x.transpose(1, 2) if swaps else x for x in (query, key, value))
    o, lse = _forward(
        *rows, attn_mask, *_OTHERS, scale=scale, mask=_CAUSAL if is_causal else None, align="top_left",
        layout="bshd" if swaps else "bhsd",
    )  # fmt: skip
    o = o.transpose(1, 2) if swaps else o
    return _with_strides_of(query, o), lse


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p != 0:
        raise ArgumentError(f"expected dropout_p 0 but got {dropout_p}; pass 0.0, because dropout is not supported")


def _with_strides_of(like: Tensor, tensor: Tensor) -> Tensor:
    """Returns the values in the order of dimensions that torch expects: that of `empty_like(like)`. The sizes
    of the last dimension may differ."""
    if like.shape == tensor.shape:
        wanted = torch.empty_like(like)
    else:
        order = sorted(range(like.dim()), key=like.stride().__getitem__, reverse=True)
        wanted = torch.empty_permuted(
            tensor.shape, order, dtype=tensor.dtype, device=tensor.device
        )
    return tensor if wanted.stride() == tensor.stride() else wanted.copy_(tensor)


def _differentiate(
    d_o: Tensor,
    rows: Tuple[Tensor, Tensor, Tensor, Tensor],
    lse: Tensor,
    is_causal: bool,
    attn_mask: Optional[Tensor],
    scale: Optional[float],
    swaps: bool,
) -> Tuple[Tensor, ...]:
    if swaps:
        d_o, *rows = (x.transpose(1, 2) for x in (d_o, *rows))  # type: ignore[assignment]
    q, k, v, o = rows
    found = _backward(
        d_o, None, q, k, v, o, lse, attn_mask, *_OTHERS, scale=scale,
        mask=_CAUSAL if is_causal else None, align="top_left", layout="bshd" if swaps else "bhsd",
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    return tuple(x.transpose(1, 2) if swaps else x for x in found[:3])


def _forward_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Optional[Tensor] = None,
    scale: Optional[float] = None,
) -> Tuple[Tensor, Tensor]:
    o, lse = _run(query, key, value, dropout_p, is_causal, attn_mask, scale)
    # On the CPU, torch stores queries before heads, in lse and in the gradients.
    return o, lse.mT.contiguous().mT


def _backward_cpu(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Optional[Tensor] = None,
    scale: Optional[float] = None,
) -> Tuple[Tensor, ...]:
    rows = query, key, value, out
    return _differentiate(grad_out, rows, logsumexp, is_causal, attn_mask, scale, True)


def _forward_cuda(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: Optional[float] = None,
) -> Tuple[Any, ...]:
    if return_debug_mask:
        raise UnsupportedError("expected return_debug_mask False but got True")
    o, lse = _run(query, key, value, dropout_p, is_causal, None, scale)
    return o, lse, None, None, query.shape[2], key.shape[2], *_without_dropout(query)


def _without_dropout(query: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Returns the results of torch's forward operators that only dropout uses."""
    state = query.new_zeros(2, dtype=torch.uint64), query.new_zeros((), dtype=torch.uint64)
    return *state, query.new_empty(0)


def _backward_cuda(
    grad_out: Tensor, *inputs: Any, scale: Optional[float] = None
) -> Tuple[Tensor, ...]:
    """`inputs` are query, key, value, out and logsumexp, then further results of `_forward_cuda` with
    dropout_p and is_causal among them. The forward pass refuses a dropout_p other than 0."""
    rows, is_causal = inputs[:4], inputs[10]
    swaps = rows[0].stride(1) < rows[0].stride(2)
    found = _differentiate(grad_out, rows, inputs[4], is_causal, None, scale, swaps)
    return tuple(map(_with_strides_of, rows, found))


def _sequences(
    is_causal: bool,
    scale: Optional[float],
    bounds: Tuple[Optional[int], Optional[int]],
    cum_seq_q: Optional[Tensor],
    cum_seq_k: Optional[Tensor],
) -> Dict[str, Any]:
    """Returns the keywords of `flashattn.attention` for the arguments of torch's operators on rows, which are
    packed if cum_seq_q is given and `[B, N, H, D]` otherwise."""
    left, right = bounds
    return {
        "mask": bounded(left, 0 if is_causal else right),
        "scale": scale,
        "layout": "bshd" if cum_seq_q is None else "thd",
        "cu_seqlens_q": cum_seq_q,
        "cu_seqlens_k": cum_seq_k,
    }


def _attend_rows(
    out: Optional[Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Optional[Tensor],
    cum_seq_k: Optional[Tensor],
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: Optional[float] = None,
    window_size_left: Optional[int] = None,
    window_size_right: Optional[int] = None,
    seqused_k: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    block_table: Optional[Tensor] = None,
    num_splits: Optional[int] = None,
) -> Tuple[Tensor, Tensor]:
    """Returns o, which is `out` unless that is None, and lse, `[Hq, T]` or `[B, Hq, N]`. max_q only
    counts with block_table, and the kernels decide how to split the keys, whatever num_splits is."""
    _refuse_dropout(dropout_p)
    if return_debug_mask:
        raise UnsupportedError("expected return_debug_mask False but got True")
    if alibi_slopes is not None:
        raise UnsupportedError(
            "expected alibi_slopes None but got a tensor; pass a score_mod or a bias to flashattn.attention"
        )
    keywords = _sequences(
        is_causal, scale, (window_size_left, window_size_right), cum_seq_q, cum_seq_k
    )
    if block_table is not None:  # the keys are in pages, and their starts only say how many there are
        starts = keywords.pop("cu_seqlens_k")
        if seqused_k is None and starts is not None:
            seqused_k = starts.diff()
        keywords["page_table"] = block_table
        if cum_seq_q is not None:
            keywords["max_seqlen_q"] = max(max_q, 1)
    both = None
    if out is not None:
        *batch, length, heads = query.shape[:-1]
        both = out, query.new_empty((*batch, heads, length), dtype=torch.float32)
    with torch.no_grad(), torch._C._DisableAutocast():
        o, lse = attention(
            query, key, value, kv_len=seqused_k, return_lse=True, out=both, **keywords
        )
    return o, lse


def _forward_rows(query: Tensor, *arguments: Any, **options: Any) -> Tuple[Tensor, ...]:
    o, lse = _attend_rows(None, query, *arguments, **options)
    return _with_strides_of(query, o), lse, *_without_dropout(query)


def _forward_into(*arguments: Any, **options: Any) -> Tensor:
    return _attend_rows(*arguments, **options)[1]


def _backward_rows(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Optional[Tensor],
    cum_seq_k: Optional[Tensor],
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: Optional[float] = None,
    window_size_left: Optional[int] = None,
    window_size_right: Optional[int] = None,
) -> Tuple[Tensor, ...]:
    keywords = _sequences(
        is_causal, scale, (window_size_left, window_size_right), cum_seq_q, cum_seq_k
    )
    with torch.no_grad():
        found = attention_backward(
            query, key, value, out, logsumexp, grad_out,
            deterministic=torch.are_deterministic_algorithms_enabled(), **keywords,
        )  # fmt: skip
    return tuple(map(_with_strides_of, (query, key, value), found))


#: The operators of `varlen_attn`, and of `scaled_dot_product_attention` for nested tensors.
_ROWS = {
    "_flash_attention_forward": _forward_rows,
    "_flash_attention_forward_no_dropout_inplace": _forward_into,
    "_flash_attention_backward": _backward_rows,
}
