"""Rule R1 for what is known at run time of q, k, v and the outputs."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from . import _module, _tensors
from ._library import DEVICE_CPU
from ._tensors import View
from .errors import ArgumentError, UnsupportedError

ALIGNMENT = 16  # bytes that a GPU moves at once


class Views(NamedTuple):
    """Checked operands; strides of dimensions of one element are as in a dense tensor."""

    q: View
    k: View
    v: View
    o: View
    lse_shape: Tuple[int, ...]
    has_lse: bool
    rows: str


def device_name(device: int) -> str:
    return "the CPU" if device == DEVICE_CPU else f"cuda:{device}" if device >= 0 else "no device"


def check_inputs(q: View, k: View, v: View, layout: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Rule R1 for what is known at run time. Gives the shapes of o and lse."""
    for name, view in (("q", q), ("k", k), ("v", v)):
        if len(view.shape) != 4:
            raise ArgumentError(f"expected {name!r} of rank 4 but got rank {len(view.shape)}")
        if view.element not in _module.ELEMENT_BYTES:
            hint = (
                "; dtype='bf16' says that it holds the bits of bf16"
                if view.element == "uint16"
                else ""
            )
            raise UnsupportedError(
                f"expected element type f16, bf16 or f32 of {name!r} but got {view.element}{hint}"
            )
        if view.element != q.element:
            raise ArgumentError(
                f"expected element type {q.element} of {name!r} as in 'q' but got {view.element}"
            )
        if view.device != q.device:
            raise ArgumentError(
                f"expected {name!r} on {device_name(q.device)} as 'q' but got {device_name(view.device)}"
            )
        _check_strides(name, view)
    head, length = (1, 2) if layout == "bhsd" else (2, 1)
    for name, what, found, other, expected in (
        ("k", "batch size", k.shape[0], "q", q.shape[0]),
        ("v", "batch size", v.shape[0], "q", q.shape[0]),
        ("v", "head count", v.shape[head], "k", k.shape[head]),
        ("v", "length", v.shape[length], "k", k.shape[length]),
        ("k", "head dimension", k.shape[3], "q", q.shape[3]),
    ):
        if found != expected:
            raise ArgumentError(
                f"expected {what} of {name!r} to be {expected} as in {other!r} but got {found}"
            )
    if q.shape[3] < 1 or v.shape[3] < 1:
        raise ArgumentError(
            f"expected head dimensions of at least 1 but got {q.shape[3]} of 'q' and {v.shape[3]} of 'v'"
        )
    query_heads, key_heads = q.shape[head], k.shape[head]
    if key_heads == 0 and query_heads != 0:
        raise ArgumentError("expected at least 1 key/value head but got 0")
    if key_heads and query_heads % key_heads:
        raise ArgumentError(
            "expected the query head count to be a multiple of the key/value head count, "
            f"{key_heads}, but got {query_heads}"
        )
    return q.shape[:3] + v.shape[3:], (q.shape[0], query_heads, q.shape[length])


def _check_strides(name: str, view: View) -> None:
    if 0 in view.shape:
        return
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {name!r} but got {view.strides[-1]}"
        )
    for size, stride in zip(view.shape, view.strides):
        if size > 1 and stride < 0:
            raise ArgumentError(
                f"expected strides of at least 0 of {name!r} but got {view.strides}"
            )


def check_outputs(
    q: View,
    k: View,
    v: View,
    o: View,
    lse: Optional[View],
    o_shape: Tuple[int, ...],
    lse_shape: Tuple[int, ...],
) -> Views:
    for name, view, shape, element in (
        ("o", o, o_shape, q.element),
        ("lse", lse, lse_shape, "f32"),
    ):
        if view is None:
            continue
        if view.shape != shape:
            raise ArgumentError(
                f"expected shape {list(shape)} of {name!r} but got {list(view.shape)}"
            )
        if view.element != element:
            raise ArgumentError(
                f"expected element type {element} of {name!r} but got {view.element}"
            )
        if view.device != q.device:
            raise ArgumentError(
                f"expected {name!r} on {device_name(q.device)} as 'q' but got {device_name(view.device)}"
            )
        if not view.writable:
            raise ArgumentError(f"expected {name!r} that can be written but got a read-only one")
        _check_strides(name, view)
        if 0 not in shape and any(
            size > 1 and stride == 0 for size, stride in zip(shape, view.strides)
        ):
            raise ArgumentError(
                f"expected distinct elements of {name!r} but got strides {list(view.strides)}"
            )
    if lse is not None and _settle(lse)[0].strides != _tensors._dense_strides(lse_shape):
        raise ArgumentError(f"expected a contiguous 'lse' but got strides {list(lse.strides)}")

    settled = [_settle(view) for view in (q, k, v, o)]
    is_cpu = q.device == DEVICE_CPU
    if all(dense for _, dense, _ in settled):
        rows = "dense"
    elif not is_cpu and all(aligned for _, _, aligned in settled):
        rows = "aligned"
    else:
        rows = "strided"
    # A GPU is promised whole chunks of dense rows too.
    if rows == "dense" and not is_cpu and not all(aligned for _, _, aligned in settled):
        rows = "strided"
    views = [view for view, _, _ in settled]
    return Views(views[0], views[1], views[2], views[3], lse_shape, lse is not None, rows)


def _settle(view: View) -> Tuple[View, bool, bool]:
    """The view with the strides that do not count as in a dense tensor; whether it is dense;
    whether its rows begin at multiples of 16 bytes."""
    dense = _tensors._dense_strides(view.shape)
    if 0 in view.shape:
        return view._replace(strides=dense), True, True
    strides = tuple(d if n == 1 else s for n, s, d in zip(view.shape, view.strides, dense))
    size = _module.ELEMENT_BYTES[view.element]
    aligned = view.pointer % ALIGNMENT == 0 and all(
        n == 1 or s * size % ALIGNMENT == 0 for n, s in zip(view.shape[:-1], strides)
    )
    return view._replace(strides=strides), strides == dense, aligned
