"""Appending keys and values to caches, by operations of PyTorch on the device: the host reads no tensor, so a
CUDA graph can capture them."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .. import _features, _module, _quantize, _scales, _tensors, _torch
from .._library import SCALES
from ..errors import ArgumentError
from ._ops import NARROW


def append(
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    kv_len: Optional[Tensor] = None,
    *,
    page_table: Optional[Tensor] = None,
    slot_mapping: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    positions: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    rotary_interleaved: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    layout: _module.Layout = "bhsd",
    **unknown: Any,
) -> None:
    """Writes the keys and values of the newest tokens into caches, without gradients. A row that has no place is
    not written: one whose index among the keys of its sequence is negative or past the capacity, or whose page
    does not exist. The host reads no tensor.

    Args:
      k_cache, v_cache: `[B, Hkv, capacity, D]` and `[B, Hkv, capacity, Dv]`, or pools of pages,
        `[pages, Hkv, S, D]` and `[pages, Hkv, S, Dv]`; of any strides. Each has the type of the new rows, or 8 bits,
        to which they are rounded.
      k, v: the new rows: `[B, Hkv, n, D]` and `[B, Hkv, n, Dv]`, or, with layout "thd", `[T, Hkv, D]` and
        `[T, Hkv, Dv]`.
      kv_len: `[B]`, i32 or i64: the number of keys of each sequence, including the new ones, which become its
        last. None with slot_mapping.
      page_table: `[B, P]`, i32 or i64: key j of sequence b is row `j % S` of page `page_table[b, j // S]`. With
        P = 1, an entry is the index of the sequence in the caches.
      slot_mapping: the place of each new row, `[B, n]` or `[T]`, i32 or i64: `page * S + row`, where S is the
        capacity of caches without pages. -1 skips a row. It takes the place of kv_len, page_table and
        cu_seqlens_k.
      cu_seqlens_k: `[B+1]`, i32 or i64, with layout "thd": sequence b has the new rows from cu_seqlens_k[b] to
        cu_seqlens_k[b+1]. Rows of no sequence are not written.
      rotary_cos, rotary_sin: `[positions, R / 2]`: the new keys are rotated by the angles of their positions,
        as by `flashattn.flash_attn.layers.rotary.apply_rotary_emb`, and written as they are then; `k` stays.
      rotary_interleaved: rotate elements 2i and 2i + 1, and not i and i + R / 2.
      positions: the position of each new row, `[B, n]` or `[T]`; by default its index among the keys of its
        sequence. Required for a rotation with slot_mapping.
      k_scale, v_scale: the k_scale and v_scale of later calls of `attention`, for a cache of 8 bits. A number, or a
        tensor with one row, is read: new rows are divided by it, and clamped to the range of the type. A tensor with
        as many rows as the cache, `[B, Hkv or 1, capacity, X]` or `[pages, Hkv or 1, S, X]`, is written: each block of
        a new row gets a scale as by `quantize`.
      layout: "bhsd"; "bshd" if the sequence axis precedes the heads axis in every tensor; or "thd" if this holds
        for the caches, and the new rows are packed.

    Raises:
      ArgumentError: shapes, types or devices do not match.
      UnsupportedError: k or v requires a gradient.
    """
    if unknown:
        _features.check_keywords("append", unknown, append.__kwdefaults__ or ())
    _module.check_options(None, "bottom_right", layout)
    given = {
        "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "kv_len": kv_len, "page_table": page_table,
        "slot_mapping": slot_mapping, "cu_seqlens_k": cu_seqlens_k, "positions": positions,
        "rotary_cos": rotary_cos, "rotary_sin": rotary_sin,
    }  # fmt: skip
    _check(given, layout)
    own_layout: Any = "bhsd" if layout == "bhsd" else "bshd"
    scales = []
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None and not isinstance(scale, (int, float, Tensor)):
            raise ArgumentError(f"expected {name!r} to be a number or a tensor of torch but got {type(scale).__name__}")
        scales.append(_scales.settle(name, scale, own_layout, k))
    if torch.is_grad_enabled() or _torch.forward_ad._current_level >= 0:
        _torch.refuse_gradients(k=k, v=v)
    if layout == "bhsd":
        k_cache, v_cache, k, v = (x.transpose(1, 2) for x in (k_cache, v_cache, k, v))
        scales = [None if x is None else x.transpose(1, 2) for x in scales]
    rows = k.shape[:-2]
    capacity = k_cache.shape[1]
    sequence = None
    if slot_mapping is not None:
        slots = slot_mapping.reshape(-1).to(torch.int64)
        places = Places(slots.div(max(capacity, 1), rounding_mode="floor"), slots % max(capacity, 1), slots >= 0)
    else:
        assert kv_len is not None
        own = newest(kv_len, rows, cu_seqlens_k)
        sequence = own.sequence
        if positions is None and rotary_cos is not None:
            positions = own.key
        places = own.places(page_table, capacity)
    if rotary_cos is not None and rotary_sin is not None and positions is not None:
        k = rotate(k, rotary_cos, rotary_sin, positions.reshape(rows), rotary_interleaved)
    batch = 0 if kv_len is None else kv_len.shape[0]
    checked = [
        check_scale(name, scale, cache, new, batch, page_table is not None, layout)
        for name, scale, cache, new in zip(("k_scale", "v_scale"), scales, (k_cache, v_cache), (k, v))
    ]
    with torch.no_grad():
        for cache, new, scale in zip((k_cache, v_cache), (k, v), checked):
            new, found = to_narrow(new.reshape(-1, *new.shape[-2:]), cache, scale, sequence)
            places.write(cache, new)
            if found is not None and scale is not None:
                places.write(scale.tensor, found)


class Scale(NamedTuple):
    """The scale of a cache."""

    tensor: Tensor  #: in layout bshd
    is_written: bool  #: whether it has a scale for each row


def check_scale(
    name: str, scale: Optional[Tensor], cache: Tensor, new: Tensor, batch: int, is_paged: bool, layout: str
) -> Optional[Scale]:
    """Checks the scale of a cache and of its new rows. All tensors are in layout bshd, and `layout` is the caller's.
    `batch` is the number of sequences, or 0 if it is not known. Raises ArgumentError."""
    of = SCALES[name]
    if scale is None:
        return None
    if cache.dtype not in NARROW:
        raise ArgumentError(
            f"expected no {name!r} with '{of}_cache' of {_tensors.parse_element(cache.dtype)} but got one"
        )
    if new.dtype in NARROW:
        raise ArgumentError(
            f"expected no {name!r} with {of!r} of {_tensors.parse_element(new.dtype)}, which is copied, but got one"
        )
    if scale.dtype != torch.float32:
        raise ArgumentError(
            f"expected {name!r} with element type f32 but got {_tensors.parse_element(scale.dtype)}"
        )
    if scale.device != cache.device:
        raise ArgumentError(f"expected {name!r} on {cache.device} as '{of}_cache' but got {scale.device}")
    pages, capacity, heads, width = cache.shape
    _scales.check_blocks(name, scale.shape[-1], width)
    found = list(scale.shape[:3])
    # A cache of one row has scales of sequences, except for pages.
    is_of_sequences = found[1] == 1 and (capacity != 1 or found[0] in (1, batch) or not is_paged)
    wanted = [[1, batch or 1], [1], [1, heads]] if is_of_sequences else [[pages], [capacity], [1, heads]]
    if any(n not in allowed for n, allowed in zip(found, wanted)):
        order = (0, 2, 1) if layout == "bhsd" else (0, 1, 2)
        shape = ", ".join(" or ".join(map(str, sorted(set(wanted[i])))) for i in order)
        raise ArgumentError(
            f"expected {name!r} of shape [{shape}, {scale.shape[3]}] but got "
            f"{[*(found[i] for i in order), scale.shape[3]]}"
        )
    if not is_of_sequences and any(n > 1 and not s for n, s in zip(scale.shape, scale.stride())):
        raise ArgumentError(
            f"expected a writable {name!r} but got an expanded tensor with strides {list(scale.stride())}"
        )
    return Scale(scale, not is_of_sequences)


def to_narrow(
    new: Tensor, cache: Tensor, scale: Optional[Scale], sequence: Optional[Tensor]
) -> Tuple[Tensor, Optional[Tensor]]:
    """Returns new rows, `[rows, H, D]`, in the type of a cache, and their scales, `[rows, H or 1, X]`, if they are to
    be written. `sequence` are the sequences of rows; None if there is one scale for all sequences."""
    if cache.dtype == new.dtype:
        return new, None
    element = _tensors.parse_element(cache.dtype)
    if scale is None:
        return _quantize.round_to(new.to(torch.float32), element), None
    blocks = scale.tensor.shape[-1]
    if scale.is_written:
        axes = () if scale.tensor.shape[2] > 1 or new.shape[1] == 1 else (1,)
        return _quantize.of_blocks(new, element, axes, new.shape[-1] // blocks)
    scales = scale.tensor[:, 0]
    if sequence is not None and scales.shape[0] > 1:
        scales = scales[sequence]
    by_block = new.unflatten(-1, (blocks, new.shape[-1] // blocks))
    return _quantize.divide(by_block, scales.unsqueeze(-1), element).flatten(-2), None


class Places(NamedTuple):
    """Where the rows of some tokens lie in caches."""

    page: Tensor  #: `[rows]`, i64
    row: Tensor  #: `[rows]`, i64: row of the page
    exists: Tensor  #: `[rows]`, bool

    def write(self, cache: Tensor, new: Tensor) -> None:
        """Writes `new`, `[rows, H, D]`, to `cache`, `[pages, S, H, D]`. A row without a place repeats the write of
        a row with a place, or writes back what is there, because indices on a device are all written."""
        if 0 in cache.shape or 0 in new.shape:
            return
        if cache.dtype == new.dtype and cache.element_size() == 1:
            cache, new = cache.view(torch.uint8), new.view(torch.uint8)
        exists = self.exists & (self.page >= 0) & (self.page < cache.shape[0])
        some = exists.to(torch.uint8).argmax()
        chosen = torch.where(exists, torch.arange(exists.shape[0], device=exists.device), some)
        page = self.page[chosen].clamp(0, cache.shape[0] - 1)
        row = self.row[chosen].clamp(0, cache.shape[1] - 1)
        new = torch.where(exists[chosen].reshape(-1, 1, 1), new[chosen].to(cache.dtype), cache[page[:1], row[:1]])
        cache.index_put_((page, row), new)


class Rows(NamedTuple):
    """The newest rows of sequences."""

    sequence: Tensor  #: `[rows]`, i64: the sequence of each row
    key: Tensor  #: `[rows]`, i64: its index among the keys of its sequence
    exists: Tensor  #: `[rows]`, bool

    def places(self, page_table: Optional[Tensor], capacity: int) -> Places:
        """Returns where the rows lie in caches of `capacity` rows, or in pages of as many."""
        exists = self.exists & (self.key >= 0)
        if page_table is None:
            return Places(self.sequence, self.key, exists & (self.key < capacity))
        columns = page_table.shape[1]
        if columns == 0 or capacity == 0:
            return Places(self.sequence, self.key, torch.zeros_like(exists))
        exists = exists & (self.key < columns * capacity)
        column = self.key.div(capacity, rounding_mode="floor").clamp(0, columns - 1)
        return Places(page_table[self.sequence, column].to(torch.int64), self.key % capacity, exists)


def newest(kv_len: Tensor, rows: Any, starts: Optional[Tensor] = None) -> Rows:
    """Returns the rows of the newest tokens: `rows` are `(B, n)`, or `(T,)` with the starts of the sequences."""
    device, batch = kv_len.device, kv_len.shape[0]
    lengths = kv_len.to(torch.int64)
    if starts is None:
        count = rows[1]
        index = lengths[:, None] + torch.arange(-count, 0, device=device)
        sequence = torch.arange(batch, device=device)[:, None].expand(batch, count)
        return Rows(sequence.flatten(), index.flatten(), torch.ones_like(index, dtype=torch.bool).flatten())
    at = torch.arange(rows[0], device=device)
    starts = starts.to(torch.int64)
    # The last start at most a row's number is that of its sequence, because empty sequences have no row.
    sequence = torch.searchsorted(starts, at, right=True) - 1
    exists = (sequence >= 0) & (sequence < batch)
    sequence = sequence.clamp(0, batch - 1)
    return Rows(sequence, lengths[sequence] - starts[sequence + 1] + at, exists)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """Rotates pairs of elements of the rows of `x`, `[…, H, D]`, by the angles of their positions, `[…]` or a shape
    that broadcasts to it. It computes in f32. Only as many elements as the angles belong to are rotated."""
    positions = positions.clamp(0, max(cos.shape[0] - 1, 0))
    c, s = (table[positions].float().unsqueeze(-2) for table in (cos, sin))
    rotated = x[..., : 2 * cos.shape[-1]].float()
    one, other = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, dim=-1)
    pairs = one * c - other * s, one * s + other * c
    found = torch.stack(pairs, -1).flatten(-2) if interleaved else torch.cat(pairs, -1)
    rest = x[..., found.shape[-1] :]
    if x.dtype not in NARROW:
        return torch.cat((found.to(x.dtype), rest), dim=-1)
    found = _quantize.round_to(found, _tensors.parse_element(x.dtype))
    return torch.cat((found.view(torch.uint8), rest.view(torch.uint8)), dim=-1).view(x.dtype)


def _check(given: Any, layout: str) -> None:
    """Checks types, devices and shapes of the arguments of `append`."""
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) and (tensor is not None or name in ("k_cache", "v_cache", "k", "v")):
            raise ArgumentError(f"expected {name!r} to be a tensor of torch but got {type(tensor).__name__}")
    k_cache, v_cache, k, v = (given[name] for name in ("k_cache", "v_cache", "k", "v"))
    _check_arguments(given, layout)
    rank = 3 if layout == "thd" else 4
    for name, tensor in given.items():
        if tensor is not None and tensor.device != k.device:
            raise ArgumentError(f"expected {name!r} on {k.device} as 'k' but got {tensor.device}")
    for name, tensor, expected in (("k", k, rank), ("v", v, rank), ("k_cache", k_cache, 4), ("v_cache", v_cache, 4)):
        if tensor.ndim != expected:
            raise ArgumentError(f"expected {name!r} of rank {expected} but got rank {tensor.ndim}")
        own = v if name == "v_cache" else k  # rows of 8 bits are copied
        is_narrow = own.dtype == tensor.dtype if own.dtype in NARROW else tensor.dtype in NARROW
        if tensor.dtype != k.dtype and not is_narrow:
            raise ArgumentError(f"expected {name!r} of type {k.dtype} as 'k' but got {tensor.dtype}")
        if "cache" in name and any(n > 1 and not s for n, s in zip(tensor.shape, tensor.stride())):
            raise ArgumentError(
                f"expected a writable {name!r} but got an expanded tensor with strides {list(tensor.stride())}"
            )
    if layout == "bhsd":
        k_cache, v_cache, k, v = (x.transpose(1, 2) for x in (k_cache, v_cache, k, v))
    *rows, heads, _ = k.shape
    pages, capacity = k_cache.shape[:2]
    starts, table = given["cu_seqlens_k"], given["page_table"]
    batch = rows[0] if starts is None else starts.numel() - 1
    if given["slot_mapping"] is None and table is None:
        pages = batch
    for name, tensor, wanted in (
        ("v", v, [*rows, heads, v.shape[-1]]),
        ("k_cache", k_cache, [pages, capacity, heads, k.shape[-1]]),
        ("v_cache", v_cache, [pages, capacity, heads, v.shape[-1]]),
    ):
        if list(tensor.shape) != wanted:
            found, shape = list(tensor.shape), wanted
            if layout == "bhsd":
                found[1], found[2], shape[1], shape[2] = found[2], found[1], shape[2], shape[1]
            raise ArgumentError(f"expected {name!r} of shape {shape} but got {found}")
    for name, shape in (
        ("kv_len", [batch]), ("cu_seqlens_k", [max(batch, 0) + 1]), ("slot_mapping", rows), ("positions", rows),
        ("page_table", [batch, table.shape[1] if table is not None and table.ndim == 2 else "P"]),
    ):  # fmt: skip
        if given[name] is not None:
            _check_integers(name, given[name], shape)
    if given["rotary_cos"] is not None:
        check_angles(given["rotary_cos"], given["rotary_sin"], k.shape[-1])


def _check_arguments(given: Any, layout: str) -> None:
    """Checks that the arguments of `append` go together."""
    by_slot = given["slot_mapping"] is not None
    for name in ("kv_len", "page_table", "cu_seqlens_k"):
        if by_slot and given[name] is not None:
            raise ArgumentError(f"expected no {name} with slot_mapping but got one")
    if not by_slot and given["kv_len"] is None:
        raise ArgumentError("expected kv_len or slot_mapping but got None")
    if not by_slot and (given["cu_seqlens_k"] is not None) != (layout == "thd"):
        found = "None" if layout == "thd" else f"layout {layout}"
        raise ArgumentError(f"expected cu_seqlens_k and layout thd together but got {found}")
    cos, sin = given["rotary_cos"], given["rotary_sin"]
    if (cos is None) != (sin is None):
        missing = "rotary_cos" if cos is None else "rotary_sin"
        raise ArgumentError(f"expected rotary_cos and rotary_sin or neither but got None as {missing}")
    if cos is not None and by_slot and given["positions"] is None:
        raise ArgumentError("expected positions with rotary_cos and slot_mapping but got None")


def _check_integers(name: str, tensor: Tensor, shape: Any) -> None:
    if list(tensor.shape) != shape:
        raise ArgumentError(f"expected {name!r} of shape {shape} but got {list(tensor.shape)}")
    if tensor.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(
            f"expected {name!r} with element type int32 or int64 but got {str(tensor.dtype)[6:]}"
        )


def check_angles(cos: Tensor, sin: Tensor, head_dim: int) -> None:
    """Checks the shapes of tables of angles."""
    if cos.ndim != 2 or 2 * cos.shape[1] > head_dim or cos.shape[0] == 0:
        raise ArgumentError(
            f"expected rotary_cos of shape [positions, at most {head_dim // 2}] but got {list(cos.shape)}"
        )
    if sin.shape != cos.shape:
        raise ArgumentError(f"expected rotary_sin of shape {list(cos.shape)} but got {list(sin.shape)}")
