"""Rule R1 at run time: checks tensors against the roles of attention's operands."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _module, _tensors
from ._library import DEVICE_CPU, PACKED, PAGE, POOL, Role
from ._tensors import View
from .errors import ArgumentError, UnsupportedError

ALIGNMENT = 16  # bytes of the widest load and store of a GPU thread

_SIZES = {
    "B": "batch size", "H": "head count", "G": "head count", "N": "query length", "K": "key length",
    "D": "head dimension", "V": "head dimension", PACKED: "batch size", POOL: "number of pages",
    PAGE: "page size", "T": "number of pages of a sequence",
}  # fmt: skip


_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32", "bool": "bool", **_tensors.NARROW,
}  # fmt: skip


class Sizes:
    """The sizes that operands share, by the letters of the dimensions (`Role.dims`)."""

    def __init__(self, layout: str):
        self._layout = layout
        self._known: Dict[str, Tuple[int, str]] = {}

    def __getitem__(self, dim: str) -> int:
        return self._known[dim][0]

    @property
    def is_paged(self) -> bool:
        """Whether keys are in pages (rule P1)."""
        return PAGE in self._known

    def add(self, role: Role, shape: Tuple[int, ...]) -> None:
        """Adds the sizes of an operand. Raises ArgumentError if a size differs from that of another operand."""
        for dim, found in zip(role.dims_in(self._layout), shape):
            if dim == PACKED:
                if found != 1:
                    raise ArgumentError(
                        f"expected batch size of {role.name!r} to be 1, as its sequences are packed, but got "
                        f"{found}"
                    )
                continue
            if dim == "C":
                self._add_starts(role.name, found)
                continue
            expected, other = self._known.setdefault(dim, (found, role.name))
            if found == expected or (role.broadcasts and found == 1):
                continue
            wanted = f"{expected} as in {other!r}"
            if role.broadcasts:
                wanted = "1" if expected == 1 else f"1 or {expected}"
            raise ArgumentError(
                f"expected {_SIZES[dim]} of {role.name!r} to be {wanted} but got {found}"
            )

    def _add_starts(self, name: str, found: int) -> None:
        """Adds the number of starts, one more than the batch size (rule S1)."""
        if found < 2:
            raise ArgumentError(f"expected at least 2 starts in {name!r} but got {found}")
        batch, other = self._known.setdefault("B", (found - 1, name))
        if found != batch + 1:
            of = f"as in {other!r}" if other in _module.STARTS else f"for batch size {batch} of {other!r}"
            raise ArgumentError(f"expected {batch + 1} starts in {name!r}, {of}, but got {found}")

    def shape(self, role: Role) -> Tuple[int, ...]:
        dims = role.dims_in(self._layout)
        return tuple(1 if dim == PACKED else self[dim] for dim in dims)


def model_chip(device: Any) -> Optional[str]:
    """Returns the chip of a model such as "model:sm_90a"; None for None. Raises ArgumentError otherwise."""
    if device is None:
        return None
    if not isinstance(device, str) or not device.startswith("model:"):
        raise ArgumentError(f"expected device to be None or 'model:sm_XX' but got {device!r}")
    return device[len("model:") :]


def device_name(device: Union[int, str]) -> str:
    if isinstance(device, str):
        return f"host memory for {device}"
    return "the CPU" if device == DEVICE_CPU else f"cuda:{device}" if device >= 0 else "no device"


def check_inputs(views: Dict[str, View], roles: Dict[str, Role], layout: str) -> Sizes:
    """Checks the required inputs and returns their sizes. Raises ArgumentError and UnsupportedError."""
    for name, view in views.items():
        check_view(roles[name], view, views["q"], layout)
        check_strides(name, view)
        if not roles[name].has_rows:
            check_contiguous(name, view)
    sizes = Sizes(layout)
    for name, view in views.items():
        sizes.add(roles[name], view.shape)
    if sizes["D"] < 1 or sizes["V"] < 1:
        raise ArgumentError(
            f"expected head dimensions of at least 1 but got {sizes['D']} of 'q' and {sizes['V']} of 'v'"
        )
    if roles["k"].is_pool and sizes[PAGE] == 0:
        raise ArgumentError("expected a page size of at least 1 but got 0")
    if sizes["G"] == 0 and sizes["H"] != 0:
        raise ArgumentError("expected at least 1 key/value head but got 0")
    if sizes["G"] and sizes["H"] % sizes["G"]:
        raise ArgumentError(
            "expected the query head count to be a multiple of the key/value head count, "
            f"{sizes['G']}, but got {sizes['H']}"
        )
    return sizes


def check_view(role: Role, view: View, q: View, layout: str) -> None:
    """Checks the rank, the element type and the device of an input."""
    name, rank = role.name, len(role.dims_in(layout))
    if len(view.shape) != rank:
        raise ArgumentError(f"expected {name!r} of rank {rank} but got rank {len(view.shape)}")
    if view.element not in role.elements:
        names = ["bool" if element == "i1" else element for element in role.elements]
        expected = any_of(names)
        wanted = _DTYPES["f32" if "f32" in names else names[-1]]
        hint = f'; convert it, as with .astype("{wanted}") or .to(torch.{wanted})'
        if name == "attn_mask" and view.element in ("f16", "bf16", "f32"):
            hint = "; bias= takes numbers"
        if len(names) > 1 and view.element == "uint16":
            hint = "; pass dtype='bf16' if it holds the bits of bf16"
        if role.or_narrow and view.element == "uint8":
            hint = "; view it, as with .view(torch.float8_e4m3fn), if it holds the bits of another type"
        if name == "q" and view.element == "i8":
            hint = "; only k and v may be int8"
        kind = UnsupportedError if len(names) > 1 else ArgumentError
        raise kind(f"expected {name!r} with element type {expected} but got {view.element}{hint}")
    or_f32 = role.or_f32 and q.element != "f32"
    is_other = (or_f32 and view.element == "f32") or (role.or_narrow and _is_narrow(view.element))
    if role.like_first and view.element != q.element and not is_other:
        wanted = f"{q.element} as in 'q'{' or f32' if or_f32 else ''}"
        if role.or_narrow:
            wanted = any_of([wanted, *_tensors.NARROW])
        raise ArgumentError(f"expected {name!r} with element type {wanted} but got {view.element}")
    _check_device(name, view, q)


def _is_narrow(element: str) -> bool:
    return element in _tensors.NARROW


def any_of(names: Sequence[str]) -> str:
    """Returns the names as in "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _check_device(name: str, view: View, q: View) -> None:
    if view.device != q.device:
        raise ArgumentError(
            f"expected {name!r} on {device_name(q.device)} as 'q' but got {device_name(view.device)}"
        )


def check_strides(name: str, view: View) -> None:
    if 0 in view.shape:
        return
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {name!r} but got {view.strides[-1]}; copy it, "
            "as with .contiguous() or numpy.ascontiguousarray()"
        )
    for size, stride in zip(view.shape, view.strides):
        if size > 1 and stride < 0:
            raise ArgumentError(
                f"expected strides of at least 0 of {name!r} but got {view.strides}"
            )


def with_batch(role: Role, view: View, layout: str) -> View:
    """Returns the view that a kernel reads: in layout thd, packed rows get a batch dimension of size 1."""
    if layout != "thd" or not role.is_packed:
        return view
    return view._replace(shape=(1, *view.shape), strides=(0, *view.strides))


def check_contiguous(name: str, view: View) -> None:
    """Checks that a tensor with one number per row, such as lse, is contiguous, as kernels require."""
    if _normalize(view)[0].strides != _tensors._dense_strides(view.shape):
        raise ArgumentError(f"expected a contiguous {name!r} but got strides {list(view.strides)}")


def check_output(
    role: Role, view: View, shape: Tuple[int, ...], elements: Sequence[str], q: View
) -> None:
    """Checks an output, which must have `shape` and one of the `elements`. Raises ArgumentError."""
    name = role.name
    if view.shape != shape:
        raise ArgumentError(f"expected shape {list(shape)} of {name!r} but got {list(view.shape)}")
    if view.element not in elements:
        raise ArgumentError(
            f"expected {name!r} with element type {' or '.join(elements)} but got {view.element}"
        )
    _check_device(name, view, q)
    if not view.writable:
        raise ArgumentError(f"expected {name!r} to be writable but got a read-only tensor")
    check_strides(name, view)
    if 0 not in shape and any(
        size > 1 and stride == 0 for size, stride in zip(shape, view.strides)
    ):
        raise ArgumentError(
            f"expected distinct elements of {name!r} but got strides {list(view.strides)}"
        )
    if not role.has_rows and not role.broadcasts:
        check_contiguous(name, view)


def normalize(views: Mapping[str, View], roles: Mapping[str, Role]) -> Tuple[Dict[str, View], str]:
    """Returns the views, in which dimensions of size 1 have the strides of a dense tensor, and the layout of
    the rows, one of `_module.ROWS`."""
    normalized = {name: _normalize(view) for name, view in views.items()}
    rows = [normalized[name] for name in views if roles[name].has_rows]
    is_cpu = rows[0][0].device == DEVICE_CPU
    is_dense = all(dense for _, dense, _ in rows)
    is_aligned = not is_cpu and all(aligned for _, _, aligned in rows)
    # On a GPU, "dense" also promises that the size of a row is a multiple of 16 bytes.
    if is_dense and (is_cpu or is_aligned):
        kind = "dense"
    else:
        kind = "aligned" if is_aligned else "strided"
    return {name: view for name, (view, _, _) in normalized.items()}, kind


def with_dense_ones(view: View) -> View:
    """Returns the view, in which dimensions of size 1 have the strides of a dense tensor."""
    dense = _tensors._dense_strides(view.shape)
    strides = tuple(d if n == 1 else s for n, s, d in zip(view.shape, view.strides, dense))
    return view._replace(strides=dense if 0 in view.shape else strides)


def _normalize(view: View) -> Tuple[View, bool, bool]:
    """Returns the view, in which dimensions of size 1 have the strides of a dense tensor; whether the view is
    dense; and whether its rows begin at multiples of 16 bytes."""
    dense = _tensors._dense_strides(view.shape)
    view = with_dense_ones(view)
    if 0 in view.shape:
        return view, True, True
    strides = view.strides
    size = _module.ELEMENT_BYTES[view.element]
    aligned = view.pointer % ALIGNMENT == 0 and all(
        n == 1 or s * size % ALIGNMENT == 0 for n, s in zip(view.shape[:-1], strides)
    )
    return view, strides == dense, aligned
