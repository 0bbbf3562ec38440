"""Keys and values of 8 bits, and their scales, from those of 16 or 32 bits (rule F1)."""

from __future__ import annotations

import sys
from typing import Any, Literal, Optional, Tuple, TypeVar, get_args

import numpy

from . import _module, _tensors, _torch
from ._scales import BLOCK
from .errors import ArgumentError, UnsupportedError

Per = Literal["tensor", "head", "row"]
#: The greatest number of each type. That of int8 has the opposite, too.
MOST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0, "i8": 127.0}
#: The least scale: less is not a normal number.
_LEAST = float(numpy.finfo(numpy.float32).tiny)

#: The tensor type of the caller's library.
_Given = TypeVar("_Given")


def quantize(
    x: _Given,
    dtype: Any = "float8_e4m3fn",
    *,
    per: Per = "tensor",
    columns: Optional[int] = None,
    layout: _module.Layout = "bhsd",
) -> Tuple[_Given, Any]:
    """Rounds keys or values to 8 bits. `attention` takes the result as k with k_scale, or as v with v_scale:

        k8, k_scale = flashattn.quantize(k)
        o = flashattn.attention(q, k8, v, k_scale=k_scale)

    The scale of a block is the greatest magnitude in it, divided by the greatest number of the type, or 1 if all of the
    block is 0. Elements are divided by their scale in f32, clamped to the type's range, and rounded to the nearest, to
    even if there are two. A block with infinities or NaN has such a scale, and all of its values are NaN.

    Args:
      x: `[B, Hkv, N, D]`, f16, bf16 or f32: an array of NumPy or JAX, or a tensor of PyTorch.
      dtype: "float8_e4m3fn", "float8_e5m2" or "int8", or such a dtype. For arrays of NumPy, the types of float8 are
        those of the package ml_dtypes.
      per: what has a scale of its own: "tensor", all of x; "head", each batch element and head; or "row", each row of
        each head.
      columns: the columns of a block: each of them has scales of its own. A divisor of D that is a multiple of 16;
        None means all columns.
      layout: as in `attention`. For "thd", x is `[T, Hkv, D]`.

    Returns:
      x of 8 bits, and its scales, f32: `[B or 1, Hkv or 1, N or 1, D / columns]` in the order of the layout, without
      the first dimension for "thd".

    Raises:
      ArgumentError: an argument is not one of those above.
      UnsupportedError: the type of x is not supported, the package ml_dtypes is missing, or x requires a gradient.
    """
    element = parse_dtype("dtype", dtype)
    _module.check_options(None, "bottom_right", layout)
    if per not in get_args(Per):
        raise ArgumentError(f"expected per tensor, head or row but got {per!r}")
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise ArgumentError(f"expected 'x' to be an array of numpy, torch or jax but got {type(x).__name__}")
    rank, found = 3 if layout == "thd" else 4, _tensors.parse_element(x.dtype)
    if len(x.shape) != rank:
        raise ArgumentError(f"expected 'x' of rank {rank} but got rank {len(x.shape)}")
    if found not in _module.FLOATS:
        raise UnsupportedError(f"expected 'x' with element type f16, bf16 or f32 but got {found}")
    width = x.shape[-1]
    if columns is None:
        columns = width
    elif isinstance(columns, bool) or not isinstance(columns, int) or columns < 1 or width % columns or (
        columns % BLOCK and columns != width
    ):
        raise ArgumentError(
            f"expected columns that are a multiple of {BLOCK} and a divisor of {width} but got {columns!r}"
        )
    _torch.refuse_gradients(x=x)
    rows = {"bhsd": 2, "bshd": 1, "thd": 0}[layout]
    axes = {"tensor": tuple(range(rank - 1)), "head": (rows,), "row": ()}[per]
    return of_blocks(x, element, axes, columns)


def parse_dtype(name: str, dtype: Any) -> str:
    """Returns a type of 8 bits by its name in MLIR. Raises ArgumentError."""
    element = _tensors.parse_element(getattr(dtype, "__name__", dtype))
    if element not in _tensors.NARROW:
        raise ArgumentError(f"expected {name} {', '.join(_tensors.NARROW.values())} but got {element}")
    return element


def of_blocks(x: Any, element: str, axes: Tuple[int, ...], columns: int) -> Tuple[Any, Any]:
    """Returns the elements of 8 bits, and a scale for each block: all of the `axes`, and some columns."""
    blocks = x.shape[-1] // max(columns, 1)
    most = MOST[element]
    if _tensors.is_torch(x):
        torch = sys.modules["torch"]
        x = x.detach().to(torch.float32)
        by_block = x.unflatten(-1, (blocks, columns)) if x.shape[-1] else x.unsqueeze(-1)
        empty = by_block.numel() == 0
        greatest = by_block.abs().sum((*axes, -1), keepdim=True) if empty else by_block.abs().amax((*axes, -1), True)
        scale = _settled(greatest / most)
        return round_to(by_block / scale, element).reshape(x.shape), scale.squeeze(-1)
    library: Any = numpy if isinstance(x, numpy.ndarray) else sys.modules["jax.numpy"]
    x = library.asarray(x, numpy.float32)
    by_block = x.reshape(*x.shape[:-1], blocks, columns)
    with numpy.errstate(invalid="ignore"):
        scale = _settled(library.abs(by_block).max((*axes, -1), keepdims=True, initial=0) / numpy.float32(most))
        return round_to(by_block / scale, element).reshape(x.shape), scale[..., 0]


def _settled(scale: Any) -> Any:
    """Returns scales by which elements can be divided."""
    if _tensors.is_torch(scale):
        return scale.masked_fill(scale < _LEAST, 1)
    library: Any = numpy if isinstance(scale, numpy.ndarray) else sys.modules["jax.numpy"]
    return library.where(scale < _LEAST, numpy.float32(1), scale)


def divide(x: Any, scale: Any, element: str) -> Any:
    """Returns a tensor of torch, in blocks, as elements of 8 bits for given scales. With a scale of 0, all values are
    0, whatever is stored."""
    torch = sys.modules["torch"]
    return round_to(x.to(torch.float32) / scale.masked_fill(scale == 0, 1), element)


def round_to(x: Any, element: str) -> Any:
    """Rounds f32 to elements of 8 bits, to the nearest, and clamps them to the range of the type."""
    most, name = MOST[element], _tensors.NARROW[element]
    if _tensors.is_torch(x):
        dtype = getattr(sys.modules["torch"], name)
        if element == "i8":
            return x.nan_to_num(0, most, -most).round().clamp(-most, most).to(dtype)
        return x.clamp(-most, most).to(dtype)
    library: Any = numpy if isinstance(x, numpy.ndarray) else sys.modules["jax.numpy"]
    x = library.clip(x, numpy.float32(-most), numpy.float32(most))
    if element == "i8":
        return library.rint(library.nan_to_num(x)).astype(numpy.int8)
    return x.astype(_numpy_type(name))


def _numpy_type(name: str) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(
            f"expected the package ml_dtypes, which has {name} for NumPy, but found none"
        ) from None
    return getattr(ml_dtypes, name)
