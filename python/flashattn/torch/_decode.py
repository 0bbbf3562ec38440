"""Decoding as operators of torch: `flashattn::decode` computes attention of few queries to K/V caches, and
`flashattn::decode.append` first writes the newest keys and values into the caches.

The number of keys of each sequence is a tensor, which no operator copies to the host. A compiled or
captured step therefore serves all lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .. import _features, _module, _scales, _symbols, _tensors, _torch
from .._library import SCALES
from .._options import OPERANDS, schema_of
from ..errors import ArgumentError, UnsupportedError
from ..masks import Mask, causal
from ._append import append
from ._ops import NARROW, _as_tensor, _forward, _library, check_rows, is_seen, output_like

_OPTIONS = f"float? scale=None, {schema_of('mask', 'layout', 'softcap', 'invariant')}"
_library.define(
    "decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor kv_len, Tensor? sink_logits, "
    "Tensor? page_table=None, Tensor[]? symbols=None, Tensor? k_scale=None, Tensor? v_scale=None, *, "
    f"{_OPTIONS}) -> (Tensor o, Tensor lse)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.define(
    "decode.append(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor kv_len, "
    "Tensor? sink_logits, Tensor k, Tensor v, Tensor? page_table=None, Tensor[]? symbols=None, "
    f"Tensor(c!)? k_scale=None, Tensor(d!)? v_scale=None, *, {_OPTIONS}) -> (Tensor o, Tensor lse)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_decode_op = torch.ops.flashattn.decode.default
_append_op = torch.ops.flashattn.decode.append


class _Inputs(NamedTuple):
    """The tensor arguments of the operators, in order. `decode` has no k and v."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    kv_len: Tensor
    sink_logits: Optional[Tensor]
    k: Optional[Tensor] = None
    v: Optional[Tensor] = None
    page_table: Optional[Tensor] = None
    symbols: Optional[Sequence[Tensor]] = None  #: the tensors that the mask reads
    k_scale: Optional[Tensor] = None
    v_scale: Optional[Tensor] = None


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    kv_len: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    *,
    page_table: Optional[Tensor] = None,
    mask: Optional[Mask] = causal,
    scale: Optional[float] = None,
    softcap: Optional[float] = None,
    sink_logits: Optional[Tensor] = None,
    layout: _module.KernelLayout = "bhsd",
    return_lse: bool = False,
    invariant: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    **unknown: Any,
) -> Any:
    """Computes attention of the newest n tokens of each sequence to the keys and values in caches,
    without gradients.

    Args:
      q: queries, `[B, Hq, n, D]`, f16, bf16 or f32, or with caches of 8 bits f8E4M3FN or f8E5M2. Query i is at
        position `kv_len[b] - n + i`.
      k_cache, v_cache: `[B, Hkv, capacity, D]` and `[B, Hkv, capacity, Dv]`, each of the type of q or of 8 bits.
        Elements after the last key of a sequence are ignored.
      kv_len: `[B]`, i32 or i64: the number of keys of each sequence, including the keys of the newest
        tokens. The tensor stays on its device, so the host does not wait for a GPU.
      k, v: keys and values of the newest tokens, `[B, Hkv, n, D]` and `[B, Hkv, n, Dv]`, of the type of q, or of 8
        bits as the caches. They are first written into the caches, from index `kv_len[b] - n` on. None if the caches
        already contain them.
      page_table: `[B, P]`, i32 or i64: the caches are pools of pages, `[pages, Hkv, S, D]` and
        `[pages, Hkv, S, Dv]`, as in `flashattn.attention`. The capacity of a sequence is P * S. New rows for
        pages that do not exist are not written.
      mask: the visible pairs of a query and a key, as in `flashattn.attention`; None shows all pairs. The
        `per_key` tensors of a mask have the capacity of a sequence.
      scale, softcap, sink_logits: as in `flashattn.attention`.
      layout: "bhsd", or "bshd" if the sequence axis precedes the heads axis in every tensor.
      return_lse: also return the log-sum-exp (natural logarithm) of each row's scores, `[B, Hq, n]`, f32.
      invariant: as in `flashattn.attention`.
      k_scale, v_scale: of caches of 8 bits, as in `flashattn.attention`. New rows that are not of 8 bits are rounded,
        and their scales written, as in `append`.

    Returns:
      o, `[B, Hq, n, Dv]`, or (o, lse). For a row that sees no key, o is 0 and lse is -inf.

    Raises:
      ArgumentError: shapes, types or devices do not match; on the CPU, also if a length exceeds the
        capacity of the caches. On a GPU, new keys past the end of a cache fail on the device, like other
        indices out of bounds.
      UnsupportedError: tensors that require gradients, a type or a head dimension that no kernel supports.
    """
    if unknown:
        _features.check_keywords("decode", unknown, decode.__kwdefaults__ or ())
    if (k is None) != (v is None):
        found = "'v'" if k is None else "'k'"
        raise ArgumentError(f"expected 'k' and 'v' or neither but got {found} alone")
    _module.check_options(mask, "bottom_right", layout, _module.KERNEL_LAYOUTS)
    inputs = _Inputs(q, k_cache, v_cache, kv_len, sink_logits, k, v, page_table)
    for name, tensor in zip(_Inputs._fields[:8], inputs):
        is_left_out = tensor is None and name in ("sink_logits", "k", "v", "page_table")
        if not (is_left_out or isinstance(tensor, Tensor)):
            raise ArgumentError(
                f"expected {name!r} to be a tensor of torch but got {type(tensor).__name__}"
            )
        if tensor is not None and tensor.is_nested:
            _tensors.check_layouts({name: tensor})
    _torch.refuse_gradients(scale=scale, softcap=softcap)
    if k_scale is not None or v_scale is not None:
        given = (_scales.settle(n, x, layout, q) for n, x in (("k_scale", k_scale), ("v_scale", v_scale)))
        inputs = inputs._replace(**dict(zip(SCALES, given)))
    symbols: Sequence[Tensor] = ()
    if mask is not None and mask._symbols:
        lengths = {"kv_len": kv_len, "page_table": page_table}
        mask, named = _symbols.split(mask, q)
        _features.check_rows(mask._of_rows, q, k_cache, "bottom_right", layout, lengths)
        symbols = [_as_tensor(x, q) for x in _symbols.among(dict(named)) if x is not None]
        inputs = inputs._replace(symbols=symbols)
    options = {
        "scale": None if scale is None else float(scale),
        "mask": None if mask is None else str(mask),
        "layout": layout,
        "softcap": softcap,
        "invariant": bool(invariant),
    }
    if is_seen((*inputs, *symbols)) or _torch.in_transform():
        o, lse = (
            _decode_op(*inputs[:5], *inputs[7:], **options) if k is None else _append_op(*inputs, **options)
        )
    else:
        if torch.is_grad_enabled() or _torch.forward_ad._current_level >= 0:
            _torch.refuse_gradients(**{n: x for n, x in inputs._asdict().items() if n != "symbols"})
        if _torch.profiler._is_profiler_enabled:
            with _torch.event("flashattn::decode", inputs):
                o, lse = _compute(inputs, **options)
        else:
            o, lse = _compute(inputs, **options)
    return (o, lse) if return_lse else o


def _without_new(function: Any) -> Any:
    """Returns a function of the arguments of `decode` from one of those of `decode.append`."""

    def call(*inputs: Any, **options: Any) -> Any:
        return function(*inputs[:5], None, None, *inputs[5:], **options)

    return call


def _decode(*inputs: Any, **options: Any) -> Tuple[Tensor, Tensor]:
    return _compute(_Inputs(*inputs), **options)


def _compute(
    given: _Inputs, layout: Any = "bhsd", softcap: Any = None, **options: Any
) -> Tuple[Tensor, Tensor]:
    """The implementation of both operators."""
    _module.check_options(None, "bottom_right", layout, _module.KERNEL_LAYOUTS)
    softcap = _features.check_options(softcap)
    rows_dim = 2 if layout == "bhsd" else 1
    _check_kinds(given)
    _check_sizes(given, rows_dim)
    q, k_cache, v_cache, kv_len, sink_logits, k, v, page_table, symbols, k_scale, v_scale = given
    if k is not None and v is not None:
        is_copied = k_cache.dtype == k.dtype and v_cache.dtype == v.dtype
        if page_table is None and is_copied and k.dtype not in NARROW and v.dtype not in NARROW:
            append_dense(kv_len, (k_cache, k), (v_cache, v), rows_dim=rows_dim)
        else:
            own = [None if x.dtype in NARROW else scale for x, scale in ((k, k_scale), (v, v_scale))]
            append(
                k_cache, v_cache, k, v, kv_len, page_table=page_table, layout=layout, k_scale=own[0], v_scale=own[1]
            )  # fmt: skip
    operands = {
        "sink_logits": sink_logits, "kv_len": kv_len.to(torch.int32), "page_table": page_table,
        "k_scale": k_scale, "v_scale": v_scale,
    }  # fmt: skip
    return _forward(
        q, k_cache, v_cache, *map(operands.get, OPERANDS), *(symbols or ()), layout=layout, softcap=softcap, **options,
    )  # fmt: skip


def append_dense(kv_len: Tensor, *pairs: Tuple[Tensor, Tensor], rows_dim: int = 1) -> None:
    """Writes the rows of the newest tokens into caches. `pairs` are a cache and its new rows, which become its
    last of the `kv_len[b]` rows of each sequence."""
    places = _places(kv_len, pairs[0][1].shape[rows_dim], rows_dim)
    for cache, new in pairs:
        cache.scatter_(rows_dim, places.expand(new.shape), new)


def _places(kv_len: Tensor, count: int, rows_dim: int) -> Tensor:
    """Returns the cache indices of the newest `count` tokens of each sequence. They broadcast to k and v."""
    ends = kv_len.reshape(-1, 1, 1, 1)
    if count == 1:  # the usual case: saves two operators, each of which costs some us on the host and a GPU
        return ends.to(torch.int64) - 1
    shape = (1, 1, count, 1) if rows_dim == 2 else (1, count, 1, 1)
    return ends + torch.arange(-count, 0, device=kv_len.device).reshape(shape)


def _check_kinds(given: _Inputs) -> None:
    """Checks ranks, types and devices, which do not depend on sizes; fake tensors are checked too."""
    q, kv_len = given.q, given.kv_len
    new = {} if given.k is None or given.v is None else {"k": given.k, "v": given.v}
    check_rows(q, "", ("k_cache", "v_cache", *new), k_cache=given.k_cache, v_cache=given.v_cache, **new)
    for name, cache in (("k_scale", given.k_cache), ("v_scale", given.v_cache)):
        if getattr(given, name) is not None and cache.dtype not in NARROW:
            _scales.refuse(name, _tensors.parse_element(cache.dtype))
    table = given.page_table
    for name, tensor in (("kv_len", kv_len), ("sink_logits", given.sink_logits), ("page_table", table)):
        if tensor is not None and tensor.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {tensor.device}")
    if kv_len.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(
            f"expected 'kv_len' with element type int32 or int64 but got {str(kv_len.dtype)[6:]}"
        )
    if table is not None and (table.ndim != 2 or table.dtype not in (torch.int32, torch.int64)):
        raise ArgumentError(
            f"expected 'page_table' of rank 2 and element type int32 or int64 but got rank {table.ndim} and "
            f"{str(table.dtype)[6:]}"
        )


def _check_sizes(given: _Inputs, rows_dim: int) -> None:
    """Checks sizes and, on the CPU, the lengths. Lengths on a GPU are never read."""
    q, k_cache, v_cache, kv_len = given[:4]
    table = given.page_table
    batch, count, head_dim, value_dim = q.shape[0], q.shape[rows_dim], q.shape[3], v_cache.shape[3]
    heads, size = k_cache.shape[3 - rows_dim], k_cache.shape[rows_dim]
    slots = batch if table is None else k_cache.shape[0]
    capacity = size if table is None else size * table.shape[1]

    def rows(number: int, width: int, first: int = batch) -> Tuple[int, ...]:
        return (first, heads, number, width) if rows_dim == 2 else (first, number, heads, width)

    for name, tensor, shape in (
        ("k_cache", k_cache, rows(size, head_dim, slots)),
        ("v_cache", v_cache, rows(size, value_dim, slots)),
        ("kv_len", kv_len, (batch,)),
        ("page_table", table, (batch, 0 if table is None else table.shape[1])),
        ("k", given.k, rows(count, head_dim)),
        ("v", given.v, rows(count, value_dim)),
    ):
        if tensor is not None and tensor.shape != shape:
            raise ArgumentError(f"expected {name!r} of shape {list(shape)} but got {list(tensor.shape)}")
    if heads == 0 or q.shape[3 - rows_dim] % heads:
        raise ArgumentError(
            f"expected heads of 'q' to be a multiple of {heads}, the heads of 'k_cache', but got "
            f"{q.shape[3 - rows_dim]}"
        )
    if given.k is not None:
        for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            if any(n > 1 and not s for n, s in zip(cache.shape, cache.stride())):
                raise ArgumentError(
                    f"expected a writable {name!r} but got an expanded tensor with strides "
                    f"{list(cache.stride())}"
                )
    if kv_len.is_cpu and batch:
        lengths = kv_len.tolist()
        least, most = min(lengths), max(lengths)
        low = 0 if given.k is None else count
        if least < low or most > capacity:
            raise ArgumentError(
                f"expected 'kv_len' from {low} to {capacity}, the capacity of the caches, but got "
                f"{least} to {most}"
            )


def _fake(*inputs: Any, layout: str = "bhsd", **options: Any) -> Tuple[Tensor, Tensor]:
    given = _Inputs(*inputs)
    _check_kinds(given)
    q = given.q
    batch, heads, count = q.shape[:3] if layout == "bhsd" else (q.shape[i] for i in (0, 2, 1))
    return (
        output_like(q, (*q.shape[:3], given.v_cache.shape[3])),
        q.new_empty((batch, heads, count), dtype=torch.float32),
    )


def _unbatched(info: Any, in_dims: Any, *inputs: Any, **options: Any) -> Any:
    raise UnsupportedError(
        "expected decoding outside of vmap but got batched tensors; their first dimension is the batch"
    )


def _without_gradients(op: Any, names: Sequence[str]) -> Any:
    """Returns the autograd kernel of `op`, which refuses tensors that require gradients. `names` are those of its
    arguments."""

    def kernel(*inputs: Any, **options: Any) -> Any:
        _torch.refuse_gradients(**dict(zip(names, inputs)))
        with torch._C._AutoDispatchBelowAutograd():
            return op(*inputs, **options)

    return kernel


for _op, _name, _new in ((_decode_op, "decode", ()), (_append_op, "decode.append", ("k", "v"))):
    _of = (lambda function: function) if _new else _without_new
    torch.library.register_fake(f"flashattn::{_name}", _of(_fake), lib=_library)
    torch.library.register_vmap(f"flashattn::{_name}", _unbatched, lib=_library)
    _library.impl(
        _name, _without_gradients(_op, (*_Inputs._fields[:5], *_new, "page_table")), "Autograd"
    )
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _of(_decode), _key)

if torch.distributed.is_available():
    from . import _sharding

    _sharding.refuse(_decode_op, _append_op)
