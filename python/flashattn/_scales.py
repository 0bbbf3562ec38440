"""The scales of keys and values of 8 bits, `k_scale` and `v_scale` (rule F1)."""

from __future__ import annotations

import sys
from typing import Any, Mapping, Optional, Tuple

import numpy

from . import _arrays, _module, _tensors, _torch
from ._checks import Sizes
from ._library import ALL_ROWS, PACKED, PAGE, POOL, SCALES, Role
from ._tensors import View
from .errors import ArgumentError

#: A block of a row has a multiple of this number of elements.
BLOCK = 16


def settle(name: str, value: Any, layout: str, like: Any) -> Any:
    """Returns a scale as kernels take it: a tensor of rank 4 in the order of the layout, which is that of "bshd" for
    "thd". A number becomes a tensor on the device of `like`. No element of a tensor is read. Raises ArgumentError, and
    UnsupportedError for a tensor whose gradient would be lost."""
    if value is None:
        return None
    if isinstance(value, (int, float, numpy.generic)) and not isinstance(value, bool):
        return _full(float(value), like)
    if isinstance(value, (list, tuple)):
        try:
            value = numpy.asarray(value)
        except ValueError:
            raise ArgumentError(f"expected {name!r} to be an array but got lists of different lengths") from None
    if not hasattr(value, "shape"):
        if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
            return value
        raise ArgumentError(f"expected {name!r} to be a number or a tensor but got {type(value).__name__}")
    if _tensors.is_torch(value):
        _torch.refuse_gradients(**{name: value})
    rank = len(value.shape)
    if rank not in ((0, 2, 3, 4) if layout == "thd" else (0, 2, 4)):
        wanted = "0, 2, 3 or 4" if layout == "thd" else "0, 2 or 4"
        raise ArgumentError(f"expected {name!r} of rank {wanted} but got rank {rank}")
    if rank == 0:
        return value.reshape(1, 1, 1, 1)
    if rank == 2:  # [B, Hkv]
        return value[:, :, None, None] if layout == "bhsd" else value[:, None, :, None]
    return value[None] if rank == 3 else value


def _full(number: float, like: Any) -> Any:
    if _tensors.is_torch(like):
        torch = sys.modules["torch"]
        return torch.full((1, 1, 1, 1), number, dtype=torch.float32, device=like.device)
    found = numpy.full((1, 1, 1, 1), number, numpy.float32)
    cupy = sys.modules.get("cupy")
    return cupy.asarray(found) if cupy is not None and isinstance(like, cupy.ndarray) else found


def _rows(layout: str) -> int:
    """Returns the dimension of the rows."""
    return 2 if layout == "bhsd" else 1


def _fit(role: Role, view: View, layout: str, sizes: Sizes) -> Role:
    """Returns the role of a scale of this shape: one for all rows of a sequence, or the role itself, of scales that are
    arranged like the rows."""
    if view.shape[_rows(layout)] != 1:
        return role
    # Scales of pages of one row look like scales of sequences.
    if role.dims[0] == POOL and sizes[PAGE] == 1 and view.shape[0] not in (1, sizes["B"]):
        return role
    return role._replace(dims=f"BG{ALL_ROWS}{role.dims[-1]}")


def refuse(name: str, element: str) -> None:
    """Raises ArgumentError for a scale of keys or values that have not 8 bits."""
    raise ArgumentError(f"expected no {name!r} with {SCALES[name]!r} of {element} but got one")


def check_blocks(name: str, blocks: int, columns: int) -> None:
    """Checks the number of scales of a row of `columns` elements. Raises ArgumentError."""
    if blocks < 1 or (blocks > 1 and columns % (blocks * BLOCK)):
        raise ArgumentError(
            f"expected {name!r} with one scale of a row of {columns}, or scales of blocks of a multiple of {BLOCK} "
            f"elements, but got {blocks} scales"
        )


def check(
    role: Role, view: View, sizes: Sizes, layout: str, elements: Mapping[str, str], compiled: Optional[_module.Operand]
) -> Tuple[View, _module.Operand]:
    """Checks a scale (rule F1). Returns the view that the kernel reads, with size 1 in every broadcast dimension, and
    the operand that is compiled in. `elements` are the types of k and v. Raises ArgumentError."""
    name, of, rows = role.name, SCALES[role.name], _rows(layout)
    if elements[of] not in _tensors.NARROW:
        refuse(name, elements[of])
    if len(view.shape) != 4:
        raise ArgumentError(f"expected {name!r} of rank 4 but got rank {len(view.shape)}")
    if compiled is None or ALL_ROWS in compiled.dims:  # otherwise, of rows also if there is one
        role = _fit(role, view, layout, sizes)
    is_of_rows = ALL_ROWS not in role.dims
    blocks = view.shape[-1]
    check_blocks(name, blocks, sizes["D" if of == "k" else "V"])
    if is_of_rows and role.dims[0] == POOL and view.shape[0] != sizes[POOL]:
        raise ArgumentError(f"expected number of pages of {name!r} to be {sizes[POOL]} but got {view.shape[0]}")
    sizes.add(role, view.shape)
    if any(stride < 0 for size, stride in zip(view.shape, view.strides) if size > 1):
        raise ArgumentError(f"expected strides of at least 0 of {name!r} but got {view.strides}")
    # An expanded dimension, which has stride 0, counts as broadcast.
    same = [n == 1 or (s == 0 and n > 1) for n, s in zip(view.shape, view.strides)]
    same[rows] = not is_of_rows
    if is_of_rows and role.dims[0] in (PACKED, POOL):
        same[0] = role.dims[0] == PACKED
    if not same[-1] and view.strides[-1] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {name!r} but got {view.strides[-1]}; copy it, as with "
            ".contiguous() or numpy.ascontiguousarray()"
        )
    found = _module.Operand(name, view.element, role.dims, tuple(same), blocks=1 if same[-1] else blocks)
    if compiled is not None:
        # A size that is not broadcast may be 1, too. The launch compares it with those of other operands.
        is_other = any(wanted and not one for one, wanted in zip(same, compiled.broadcast))
        if is_other or found.blocks != compiled.blocks or found.dims != compiled.dims:
            wanted = _shape_of(compiled)
            raise ArgumentError(f"expected {name!r} of shape {wanted}, as compiled, but got {_shape_of(found)}")
        found, same = compiled, list(compiled.broadcast)
    shape = tuple(1 if is_same and n else n for n, is_same in zip(view.shape, same))
    dense = _tensors._dense_strides(shape)
    strides = tuple(d if is_same or 0 in shape else s for s, d, is_same in zip(view.strides, dense, same))
    return view._replace(shape=shape, strides=strides), found


def _shape_of(operand: _module.Operand) -> str:
    """Returns the shape that is compiled in, as `flashattn.compile` takes it."""
    *sizes, _ = (1 if same else None for same in operand.broadcast)
    return str((*sizes, operand.blocks))


def parse(role: Role, shape: Any, layout: str, columns: int, element: str) -> _module.Operand:
    """Returns the operand of a shape for `flashattn.compile`: 1 for each broadcast dimension and None for the others,
    but the number of scales of a row for the last. `columns` and `element` are those of the rows."""
    name = role.name
    if element not in _tensors.NARROW:
        refuse(name, element)
    is_shape = isinstance(shape, (tuple, list)) and len(shape) == 4 and all(n in (1, None) for n in shape[:3])
    if not is_shape or isinstance(shape[3], bool) or not isinstance(shape[3], int) or shape[3] < 1:
        raise ArgumentError(
            f"expected a shape of 3 sizes, each 1 or None, and the number of scales of a row for {name} but got "
            f"{shape!r}"
        )
    blocks = shape[3]
    check_blocks(name, blocks, columns)
    is_of_rows = shape[_rows(layout)] is None
    same = [n == 1 for n in shape[:3]] + [blocks == 1]
    if is_of_rows and role.dims[0] in (PACKED, POOL):
        same[0] = role.dims[0] == PACKED
    dims = role.dims if is_of_rows else f"BG{ALL_ROWS}{role.dims[-1]}"
    return _module.Operand(name, "f32", dims, tuple(same), blocks=blocks)


def dequantize(x: Any, scale: Any, like: Any, layout: str, starts: Optional[Any] = None) -> Any:
    """Returns the values of a tensor of torch or JAX of 8 bits in the type of `like`. `scale` is a result of `settle`,
    and `starts` are those of packed sequences."""
    found = _cast(x, "float32")
    if scale is None:
        return _cast(found, like.dtype)
    rows = _rows(layout)
    if found.ndim == 3:
        found = found[None]
    if starts is not None and scale.shape[rows] == 1 and scale.shape[0] > 1:
        index = _arrays.count(found.shape[rows], starts)
        # Rows of no sequence have no effect, so any scale will do.
        sequence = (_arrays.search(starts, index, right=True) - 1).clip(0, scale.shape[0] - 1)
        scale = scale.squeeze(rows)[sequence]
        scale = (scale if rows == 1 else scale.swapaxes(0, 1))[None]
    blocks = scale.shape[-1]
    found = found.reshape(*found.shape[:-1], blocks, found.shape[-1] // blocks) * scale[..., None]
    return _cast(found.reshape(x.shape), like.dtype)


def widen(
    q: Any, k: Any, v: Any, scales: Mapping[str, Any], like: Any, layout: str, starts: Optional[Any]
) -> Tuple[Any, Any, Any]:
    """Returns q, k and v with copies of those that have 8 bits: their values in the type of q or, if q has 8 bits, of
    `like`. `scales` are the k_scale and v_scale of a caller, and `starts` are those of packed keys. Raises
    ArgumentError."""
    elements = {
        name: _tensors.parse_element(x.dtype) if hasattr(x, "dtype") else ""
        for name, x in zip(("q", "k", "v"), (q, k, v))
    }
    if elements["q"] in _tensors.NARROW and elements["q"] != "i8":
        q = _cast(q, like.dtype)
    rows = {"k": k, "v": v}
    for name, given in scales.items():
        of = SCALES[name]
        if elements[of] not in _tensors.NARROW:
            if given is not None:
                refuse(name, elements[of])
            continue
        scale = settle(name, given, layout, rows[of])
        if scale is not None:
            _check_shape(name, scale, rows[of], layout, starts)
        rows[of] = dequantize(rows[of], scale, q, layout, starts)
    return q, rows["k"], rows["v"]


def _check_shape(name: str, scale: Any, x: Any, layout: str, starts: Optional[Any]) -> None:
    """Checks a result of `settle` for a tensor that `dequantize` reads."""
    element = _tensors.parse_element(scale.dtype)
    if element != "f32":
        raise ArgumentError(f"expected {name!r} with element type f32 but got {element}")
    sizes = list(x.shape) if len(x.shape) == 4 else [1, *x.shape]
    sizes[_rows(layout)] = 1 if scale.shape[_rows(layout)] == 1 else sizes[_rows(layout)]
    if starts is not None and sizes[_rows(layout)] == 1:
        sizes[0] = len(starts) - 1
    if any(n not in (1, size) for n, size in zip(scale.shape[:3], sizes)):
        wanted = ", ".join("1" if size == 1 else f"1 or {size}" for size in sizes[:3])
        raise ArgumentError(f"expected {name!r} of shape [{wanted}, …] but got {list(scale.shape)}")
    check_blocks(name, scale.shape[3], x.shape[-1])


def _cast(x: Any, dtype: Any) -> Any:
    if not _tensors.is_torch(x):
        return x.astype(dtype)
    return x.to(sys.modules["torch"].float32 if dtype == "float32" else dtype)
