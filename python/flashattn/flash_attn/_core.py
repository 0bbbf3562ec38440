"""From the arguments of FlashAttention's functions, of any generation, to calls of
`flashattn.attention`."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import _torch
from .._attention import attention
from .._backward import attention_backward
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask, bounded
from ..torch import affine_mask, append, decode
from ..torch._append import newest, rotate
from ..torch._ops import NARROW, cast_rows, refuse_narrow

#: The arguments of a function that flashattn does not support: the value that turns each off, and
#: what to do.
_REFUSED: Dict[str, Tuple[Any, str]] = {
    "dropout_p": (0, "pass 0.0, because dropout is not supported"),
    "qv": (None, "concatenate it to q, and the latent values to k"),
    "gather_kv_indices": (None, "gather the keys before the call"),
    "score_mod_bwd": (None, "the compiler differentiates score_mod"),
    "aux_tensors": (None, "pass score_mod, which reads them by batch and head"),
    "aux_scalars": (None, "let score_mod capture the numbers"),
    "block_sparse_tensors": (None, "an affine mask_mod skips hidden tiles by itself"),
    "block_sparse_tensors_bwd": (None, "an affine mask_mod skips hidden tiles by itself"),
}  # fmt: skip


def refuse(**given: Any) -> None:
    """Raises UnsupportedError for the first argument whose value is not the one that turns it
    off."""
    for name, value in given.items():
        off, advice = _REFUSED[name]
        if value is off or (off is not None and value == off):
            continue
        is_small = isinstance(value, (int, float, str))
        found = str(value) if is_small else f"a value of type {type(value).__name__}"
        raise UnsupportedError(f"expected {name} {off} but got {found}; {advice}")


def mask_of(
    is_causal: bool,
    window_size: Sequence[Optional[int]],
    attention_chunk: int = 0,
) -> Optional[Mask]:
    """Returns the mask of FlashAttention's arguments; None shows all pairs. A bound of the window
    that is negative or None is no bound."""
    if len(window_size) != 2:
        raise ArgumentError(f"expected window_size (left, right) but got {window_size!r}")
    left, right = window_size
    mask = bounded(left, 0 if is_causal else right)
    if attention_chunk > 0:
        start = f"{attention_chunk} * (p floordiv {attention_chunk})"
        chunk = _set_of(f"k - {start} >= 0", f"{start} + {attention_chunk - 1} - k >= 0")
        mask = chunk if mask is None else mask & chunk
    return mask


def window_of(left: Optional[int], right: Optional[int]) -> Optional[Mask]:
    """Returns the mask `p - left <= k <= p + right`, of bounds that may be negative. None is no
    bound."""
    if (left or 0) >= 0 and (right or 0) >= 0:
        return mask_of(False, (left, right))
    constraints = [] if left is None else [f"k - p + {left} >= 0"]
    constraints += [] if right is None else [f"p + {right} - k >= 0"]
    return _set_of(*constraints)


def _set_of(*constraints: str) -> Mask:
    """Returns the mask of constraints in p and k. Not by affine_set, which torch.compile cannot
    follow into the library."""
    return Mask(f'#flashattn.set<"(p, k)[nq, nk] : ({", ".join(constraints)})">')


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: Optional[float],
    mask: Optional[Mask],
    softcap: Optional[float],
    deterministic: bool,
    return_lse: bool,
    sink: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    seqused_q: Optional[Tensor] = None,
    seqused_k: Optional[Tensor] = None,
    score_mod: Optional[Callable[..., Any]] = None,
    aux_tensors: Sequence[Tensor] = (),
    align: str = "bottom_right",
    page_table: Optional[Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Returns o and, with return_lse, lse. Sequences are packed if `cu_seqlens_q`, `cu_seqlens_k`
    or `seqused_q` is given. A side without starts is then batched. With `page_table`, k and v are
    pools of pages, without gradients, and `cu_seqlens_k` only says how many keys a sequence has.
    `max_seqlen_q` counts with `page_table` alone."""
    _check_rows(q=q, k=k, v=v)
    options: Dict[str, Any] = {
        "mask": mask,
        "scale": scale,
        "softcap": softcap or None,
        "kv_len": seqused_k,
        **scales_of(k, v, k_descale, v_descale, q, q_descale),
    }
    if score_mod is not None:
        options["score_mod"] = score_mod
    if aux_tensors:
        options["aux_tensors"] = tuple(aux_tensors)
    if align != "bottom_right":
        options["align"] = align
    head_dim, value_dim = q.shape[-1], v.shape[-1]
    multiple = _multiple_of(q)
    if head_dim % multiple or value_dim % multiple:
        options["scale"] = head_dim**-0.5 if scale is None else scale
        q, k, v = (_pad_head_dim(tensor, multiple) for tensor in (q, k, v))
    batch: Optional[int] = None
    if page_table is not None:
        if seqused_k is None and cu_seqlens_k is not None:
            seqused_k = cu_seqlens_k.diff()
        elif seqused_k is None:
            full = k.shape[1] * page_table.shape[1]
            seqused_k = torch.full(page_table.shape[:1], full, dtype=torch.int32, device=q.device)
        options.update(
            layout="bshd" if cu_seqlens_q is None else "thd", cu_seqlens_q=cu_seqlens_q,
            q_len=seqused_q, kv_len=seqused_k, page_table=page_table,
        )  # fmt: skip
        if cu_seqlens_q is not None and seqused_q is None:
            options["max_seqlen_q"] = limit_of(max_seqlen_q)
    elif cu_seqlens_q is None and cu_seqlens_k is None and seqused_q is None:
        options["layout"] = "bshd"
    else:
        if cu_seqlens_q is None:
            batch = q.shape[0]
            cu_seqlens_q, (q,) = _pack(q)
        if cu_seqlens_k is None:
            cu_seqlens_k, (k, v) = _pack(k, v)
        options.update(
            layout="thd", cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, q_len=seqused_q
        )
    sink = None if sink is None else sink.float()
    if deterministic and page_table is None and _records(q, k, v, sink):
        o, lse = _attend_deterministic(q, k, v, sink, options)
    elif return_lse:
        o, lse = attention(q, k, v, sink_logits=sink, return_lse=True, **options)
    else:
        o, lse = attention(q, k, v, sink_logits=sink, **options), None
    if o.shape[-1] != value_dim:
        o = o[..., :value_dim]
    if batch is not None:
        o = o.reshape(batch, -1, *o.shape[1:])
        lse = None if lse is None else lse.reshape(lse.shape[0], batch, -1).transpose(0, 1)
    return o, lse if return_lse else None


def scales_of(
    k: Tensor,
    v: Tensor,
    k_descale: Optional[Tensor],
    v_descale: Optional[Tensor],
    q: Optional[Tensor] = None,
    q_descale: Optional[Tensor] = None,
) -> Dict[str, Any]:
    """Returns descales as options of `flashattn.attention`. Both those of q and those of k multiply the scores."""
    found: Dict[str, Any] = {}
    for name, tensor, descale in (("q", q, q_descale), ("k", k, k_descale), ("v", v, v_descale)):
        if descale is None:
            continue
        _check_rows(**{f"{name}_descale": descale})
        if tensor is None or tensor.dtype not in NARROW:
            raise ArgumentError(
                f"expected no {name}_descale with {name!r} of {tensor.dtype} but got one; only elements "
                "of 8 bits have scales"
            )
        if descale.ndim != 2:
            raise ArgumentError(f"expected {name}_descale of rank 2 but got rank {descale.ndim}")
        found[f"{name}_scale"] = descale
    of_queries = found.pop("q_scale", None)
    if of_queries is not None:
        found["k_scale"] = of_queries * found.get("k_scale", 1)
    return found


def alibi_of(
    alibi_slopes: Optional[Tensor], q: Tensor, is_causal: bool, starts: Optional[Tensor] = None
) -> Dict[str, Any]:
    """Returns the options of `attend` that add `-slope * |p - k|` to the scores, with a slope for
    each query head, or for each batch element (with `starts`, each sequence) and query head."""
    if alibi_slopes is None:
        return {}
    _check_rows(q=q, alibi_slopes=alibi_slopes)
    if alibi_slopes.dtype != torch.float32:
        raise ArgumentError(
            f"expected alibi_slopes of type torch.float32 but got {alibi_slopes.dtype}"
        )
    batch, heads = q.shape[0] if starts is None else starts.shape[0] - 1, q.shape[-2]
    if alibi_slopes.shape not in ((heads,), (batch, heads)):
        raise ArgumentError(
            f"expected alibi_slopes of shape {[heads]} or {[batch, heads]} but got "
            f"{list(alibi_slopes.shape)}"
        )
    score_mod = _alibi_of_past if is_causal else _alibi
    return {"score_mod": score_mod, "aux_tensors": (alibi_slopes.detach(),)}


def _alibi(score: Any, b: Any, h: Any, p: Any, k: Any, slopes: Any) -> Any:
    return score - (slopes[h] if slopes.ndim == 1 else slopes[b, h]) * abs(p - k)


def _alibi_of_past(score: Any, b: Any, h: Any, p: Any, k: Any, slopes: Any) -> Any:
    """`_alibi` for a mask that shows no key after the query."""
    return score + (slopes[h] if slopes.ndim == 1 else slopes[b, h]) * (k - p)


def _multiple_of(q: Tensor) -> int:
    """Returns the number of which head dimensions are multiples in kernels for GPUs. Rows that products read begin at
    multiples of 16 bytes."""
    return 16 if q.dtype in NARROW else 8


def _pad_head_dim(tensor: Tensor, multiple: int) -> Tensor:
    """Returns a copy of tensor with zeros after each row, as FlashAttention makes."""
    if tensor.dtype in NARROW:
        return _pad_head_dim(tensor.view(torch.uint8), multiple).view(tensor.dtype)
    return torch.nn.functional.pad(tensor, (0, -tensor.shape[-1] % multiple))


def _check_rows(**given: Any) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"expected {name!r} to be a tensor of torch but got {type(tensor).__name__}"
            )


def _pack(*tensors: Tensor) -> Tuple[Tensor, Tuple[Tensor, ...]]:
    """Returns the starts of batches of equal length, and tensors `[B, N, H, D]` as `[B * N, H,
    D]`."""
    for tensor in tensors:
        if tensor.dim() != 4:
            raise ArgumentError(f"expected a tensor of rank 4 but got {tensor.dim()}")
    batch, rows = tensors[0].shape[:2]
    starts = torch.arange(batch + 1, dtype=torch.int32, device=tensors[0].device) * rows
    return starts, tuple(tensor.flatten(0, 1) for tensor in tensors)


def _records(*tensors: Optional[Tensor]) -> bool:
    """Returns whether autograd records a call whose gradients PyTorch's own setting leaves free to
    differ."""
    return (
        torch.is_grad_enabled()
        and not torch.are_deterministic_algorithms_enabled()
        and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    )


def _attend_outside(
    q: Tensor, k: Tensor, v: Tensor, sink: Optional[Tensor], options: Dict[str, Any]
) -> Tuple[Tensor, Tensor]:
    kind = q.device.type
    if torch.is_autocast_enabled(kind):
        q, k, v = cast_rows(kind, (q, k, v))
    results: Tuple[Tensor, Tensor] = _Deterministic.apply(q, k, v, sink, options)
    return results


#: Dynamo would follow the function into its backward pass, which reads the addresses of tensors.
_attend_deterministic = torch.compiler.disable(  # type: ignore[no-untyped-call, unused-ignore]
    _attend_outside,
    reason="expected fullgraph=False for deterministic=True; a graph has reproducible gradients by "
    "torch.use_deterministic_algorithms(True)",
)


class _Deterministic(torch.autograd.Function):
    """Attention whose gradients are bitwise reproducible, whatever PyTorch's global setting is."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Optional[Tensor], options: Dict[str, Any]
    ) -> Tuple[Tensor, Tensor]:
        o, lse = attention(q, k, v, sink_logits=sink, return_lse=True, **options)
        ctx.save_for_backward(q, k, v, o, lse, sink)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable  # type: ignore[misc, untyped-decorator, unused-ignore]
    def backward(ctx: Any, d_o: Optional[Tensor], d_lse: Optional[Tensor]) -> Tuple[Any, ...]:
        q, k, v, o, lse, sink = ctx.saved_tensors
        options, needs = dict(ctx.options), list(ctx.needs_input_grad)
        refuse_narrow((q, k, v), needs)
        found = attention_backward(
            q, k, v, o, lse, torch.zeros_like(o) if d_o is None else d_o, d_lse=d_lse,
            sink_logits=sink, return_d_sink_logits=bool(needs[3]),
            deterministic=True, **options,
        )  # fmt: skip
        found = (*found, None, None)[:5] if len(found) == 3 else (*found, None)
        return tuple(x if need else None for x, need in zip(found, needs))


def with_cache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Optional[Tensor],
    v: Optional[Tensor],
    cache_seqlens: Any,
    *,
    scale: Optional[float],
    mask: Optional[Mask],
    softcap: Optional[float],
    return_lse: bool,
    page_table: Optional[Tensor] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k_new: Optional[Tensor] = None,
    rotary: Tuple[Optional[Tensor], Optional[Tensor]] = (None, None),
    rotary_interleaved: bool = True,
    rotary_seqlens: Optional[Tensor] = None,
    alibi: Mapping[str, Any] = MappingProxyType({}),
    max_seqlen_q: Optional[int] = None,
    q_descale: Optional[Tensor] = None,
    k_descale: Optional[Tensor] = None,
    v_descale: Optional[Tensor] = None,
) -> Any:
    """Returns o, or (o, lse), of queries against caches, to which k and v are appended first.
    `alibi` is a result of `alibi_of`. Lengths and positions in the cache include its left padding,
    as in FlashAttention."""
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
    _check_rows(**{name: x for name, x in given.items() if x is not None or name not in ("k", "v")})
    if (k is None) != (v is None):
        raise ArgumentError(
            f"expected 'k' and 'v' or neither but got {'k' if v is None else 'v'!r} alone"
        )
    scales = scales_of(k_cache, v_cache, k_descale, v_descale, q, q_descale)
    cos, sin = rotary
    is_new = k is not None and v is not None
    for name, value in (
        ("rotary_cos", cos), ("rotary_sin", sin), ("cu_seqlens_k_new", cu_seqlens_k_new)
    ):  # fmt: skip
        if value is not None and not is_new:
            raise ArgumentError(f"expected 'k' and 'v' with {name} but got None")
    if cache_seqlens is None and is_new:
        raise ArgumentError("expected cache_seqlens with k and v but got None")
    if page_table is not None and cache_batch_idx is not None:
        page_table, cache_batch_idx = page_table[cache_batch_idx.long()], None
    if cache_batch_idx is not None:
        page_table = cache_batch_idx.unsqueeze(-1)
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    if cache_seqlens is None:
        cache_seqlens = k_cache.shape[1] * (1 if page_table is None else page_table.shape[1])
    if not isinstance(cache_seqlens, Tensor):
        cache_seqlens = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    value_dim = v_cache.shape[-1]
    multiple = _multiple_of(q)
    is_padded = bool(q.shape[-1] % multiple or value_dim % multiple)
    is_plain = cos is None and cu_seqlens_q is cu_seqlens_k_new is cache_leftpad is None
    is_plain = is_plain and not is_padded
    # Scales of queries, which k_scale includes, are not those by which new rows are divided.
    is_copied = k is None or v is None or (k.dtype in NARROW and v.dtype in NARROW)
    is_plain = is_plain and (is_copied or q.dtype not in NARROW)
    if is_plain and not alibi and (k is None or k.shape[1] == q.shape[1]):
        lengths = cache_seqlens if k is None else cache_seqlens + k.shape[1]
        return decode(
            q, k_cache, v_cache, lengths, k, v, page_table=page_table, mask=mask, scale=scale,
            softcap=softcap or None, layout="bshd", return_lse=return_lse, **scales,
        )  # fmt: skip
    _torch.refuse_gradients(**given)
    lengths = cache_seqlens
    first = cache_seqlens if rotary_seqlens is None else rotary_seqlens
    if k is not None and v is not None:
        lengths = cache_seqlens + (
            k.shape[1] if cu_seqlens_k_new is None else cu_seqlens_k_new.diff()
        )
        positions = None
        if cos is not None and rotary_seqlens is not None:
            own = newest(lengths, k.shape[:-2], cu_seqlens_k_new)
            shift = rotary_seqlens - cache_seqlens
            positions = (own.key + shift[own.sequence]).view(k.shape[:-2])
        append(
            k_cache, v_cache, k, v, lengths, page_table=page_table, cu_seqlens_k=cu_seqlens_k_new,
            rotary_cos=cos, rotary_sin=sin, rotary_interleaved=rotary_interleaved,
            positions=positions, layout="bshd" if cu_seqlens_k_new is None else "thd",
            **scales_of(
                k_cache, v_cache, *(
                    None if x.dtype in NARROW else descale for x, descale in ((k, k_descale), (v, v_descale))
                )
            ),
        )  # fmt: skip
    if cos is not None and sin is not None:
        q = _rotate_queries(q, cos, sin, first, mask, cu_seqlens_q, rotary_interleaved)
    if cache_leftpad is not None:
        lengths = lengths - cache_leftpad
    if is_padded:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        q, k_cache, v_cache = (_pad_head_dim(tensor, multiple) for tensor in (q, k_cache, v_cache))
    found = attention(
        q, k_cache, v_cache, mask=mask, scale=scale, softcap=softcap or None, kv_len=lengths,
        layout="bshd" if cu_seqlens_q is None else "thd", cu_seqlens_q=cu_seqlens_q,
        page_table=page_table, leftpad_k=cache_leftpad, return_lse=return_lse,
        max_seqlen_q=None if cu_seqlens_q is None else limit_of(max_seqlen_q), **alibi, **scales,
    )  # fmt: skip
    if not is_padded:
        return found
    return (found[0][..., :value_dim], found[1]) if return_lse else found[..., :value_dim]


def limit_of(most: Any) -> Optional[int]:
    """Returns the `max_seqlen_q` of a call that keeps FlashAttention's promise: at least 1 row. A number that
    is a tensor is not read."""
    return None if most is None or isinstance(most, Tensor) else max(int(most), 1)


def _rotate_queries(
    q: Tensor,
    cos: Tensor,
    sin: Tensor,
    first: Tensor,
    mask: Optional[Mask],
    cu_seqlens_q: Optional[Tensor],
    interleaved: bool,
) -> Tensor:
    """Rotates queries by the angles of the positions from `first` on, or of `first` alone if no
    mask orders them, as FlashAttention does."""
    if cu_seqlens_q is None:
        places = first.unsqueeze(-1)
        if mask is not None:
            places = places + torch.arange(q.shape[1], device=q.device)
        return rotate(q, cos, sin, places.long(), interleaved)
    own = newest(first + cu_seqlens_q.diff(), q.shape[:-2], cu_seqlens_q)
    places = own.key if mask is not None else first.long()[own.sequence]
    return rotate(q, cos, sin, places, interleaved)


def scores_of(
    score_mod: Optional[Callable[..., Any]], q: Tensor, k: Tensor, is_aligned: bool, is_packed: bool
) -> Optional[Callable[..., Any]]:
    """Returns FlashAttention-4's `score_mod` as one of `flashattn.attention`. `is_aligned` says
    that position p of a query is its index, as FlashAttention-4 counts."""
    if score_mod is None:
        return None
    modify = score_mod
    shift, sizes = 0, None
    if not is_packed:
        sizes = SimpleNamespace(seqlen_q=q.shape[1], seqlen_k=k.shape[1])
        shift = 0 if is_aligned else k.shape[1] - q.shape[1]
    elif not is_aligned:
        raise UnsupportedError(
            "score_mod with causal or window_size is not supported for sequences of different lengths; "
            "pass the score_mod to flashattn.attention"
        )

    def modified(score: Any, b: Any, h: Any, p: Any, key: Any, *aux: Any) -> Any:
        index = p - shift if shift else p
        return modify(score, b, h, q_idx=index, kv_idx=key, seqlen_info=sizes, aux_tensors=aux)

    return modified


def shown_by(mask_mod: Callable[..., Any]) -> Mask:
    """Returns FlashAttention-4's `mask_mod` as a mask of the indices of queries and keys."""
    return affine_mask(lambda b, h, q_idx, kv_idx: mask_mod(b, h, q_idx, kv_idx, None, ()))


def combine(
    out_partial: Tensor,
    lse_partial: Tensor,
    out: Optional[Tensor],
    out_dtype: Optional[torch.dtype],
) -> Tuple[Tensor, Tensor]:
    """Returns o and lse of parts that have seen different keys. What a part that has seen no key
    holds is ignored."""
    top = lse_partial.amax(0)
    weights = torch.exp(lse_partial - top.masked_fill(top == -torch.inf, 0))
    total = weights.sum(0)
    lse = top + total.log()
    shares = (weights / total.masked_fill(total == 0, 1)).unsqueeze(-1)
    parts = torch.where(shares > 0, out_partial.to(torch.float32) * shares, 0)
    found = parts.sum(0).to(out_dtype or (out_partial.dtype if out is None else out.dtype))
    if out is None:
        return found, lse
    if out.dtype != found.dtype:
        raise ArgumentError(f"expected out of type {found.dtype} but got {out.dtype}")
    return out.copy_(found), lse
