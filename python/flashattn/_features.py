"""The operands of attention beyond q, k and v: checks, and what of them is compiled in."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _module, _tensors
from ._checks import ALIGNMENT, device_name
from ._library import DEVICE_CPU
from ._tensors import View
from .errors import ArgumentError, UnsupportedError

_DIMS = ("batch size", "head count", "query length", "key length")
_OFFSETS = 1 << 31


class Operands(NamedTuple):
    """As the caller gives them."""

    bias: Any = None
    keep: Any = None
    sink_logits: Any = None
    kv_len: Any = None
    offset: Any = None


class Extras(NamedTuple):
    """Checked operands, in the order of the function's arguments; a scalar has no view."""

    views: Tuple[Tuple[str, Optional[View]], ...]
    fields: Dict[str, Any]  #: of a Problem
    offset: Optional[int]

    def words(self) -> List[int]:
        """What stands for them in a packed launch: addresses, and the offset's 64 bits."""
        return [
            view.pointer if view is not None else (self.offset or 0) & ((1 << 64) - 1)
            for _, view in self.views
        ]


NO_EXTRAS = Extras((), {}, None)


def check_options(softcap: Any) -> Optional[float]:
    return None if softcap is None else _module.check_factor("softcap", softcap)


def check_offset(offset: Any) -> int:
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise ArgumentError(f"expected an integer offset but got {offset!r}")
    try:
        value = offset.__index__()
    except TypeError:  # an array of several
        raise ArgumentError(f"expected an integer offset but got {offset!r}") from None
    if not -_OFFSETS <= value < _OFFSETS:
        raise ArgumentError(f"expected an offset from -2147483648 to 2147483647 but got {value}")
    return value


def check(
    operands: Operands,
    q: View,
    k: View,
    layout: str,
    bf16_bits: bool,
    compiled: Optional[_module.Problem] = None,
) -> Extras:
    """Rule R1 for what is known at run time, and that the operands are those of the problem that a
    kernel was compiled for. Raises ArgumentError and UnsupportedError."""
    head, length = (1, 2) if layout == "bhsd" else (2, 1)
    scores = (q.shape[0], q.shape[head], q.shape[length], k.shape[length])
    views: List[Tuple[str, Optional[View]]] = []
    fields: Dict[str, Any] = {}
    offset = None
    for name in _module.FEATURE_OPERANDS:
        value = getattr(operands, name)
        expected = getattr(compiled, name) if compiled else None
        if value is None:
            if expected:
                raise ArgumentError(f"expected {name} for a kernel with it but got None")
            continue
        if compiled and not expected:
            raise ArgumentError(f"expected no {name} for a kernel without it but got one")
        if name == "offset":
            offset = check_offset(value)
            views.append((name, None))
            fields[name] = True
            continue
        view = _tensors.view(name, value, bf16_bits)
        if view.device != q.device:
            raise ArgumentError(
                f"expected {name!r} on {device_name(q.device)} as 'q' but got {device_name(view.device)}"
            )
        if name in ("bias", "keep"):
            view, fields[name] = _check_scores(name, view, scores, expected)
        else:
            _check_numbers(name, view, scores)
            fields[name] = True
        views.append((name, view))
    return Extras(tuple(views), fields, offset)


def _check_numbers(name: str, view: View, scores: Tuple[int, ...]) -> None:
    element, dim = ("f32", 1) if name == "sink_logits" else ("i32", 0)
    if len(view.shape) != 1:
        raise ArgumentError(f"expected {name!r} of rank 1 but got rank {len(view.shape)}")
    if view.element != element:
        raise ArgumentError(f"expected element type {element} of {name!r} but got {view.element}")
    if view.shape[0] != scores[dim]:
        raise ArgumentError(
            f"expected {_DIMS[dim]} of {name!r} to be {scores[dim]} as in 'q' but got {view.shape[0]}"
        )
    if view.shape[0] > 1 and view.strides[0] != 1:
        raise ArgumentError(f"expected unit stride of {name!r} but got {view.strides[0]}")


def _check_scores(
    name: str, view: View, scores: Tuple[int, ...], compiled: Optional[_module.Operand]
) -> Tuple[View, _module.Operand]:
    """`bias` or `keep` as of rank 4, of size 1 where it is broadcast, and what is compiled in."""
    rank = len(view.shape)
    if rank > 4:
        raise ArgumentError(f"expected {name!r} of rank 4 at most but got rank {rank}")
    if name == "keep" and view.element != "i1":
        raise ArgumentError(f"expected element type bool of 'keep' but got {view.element}")
    if name == "bias" and view.element not in _module.ELEMENT_BYTES:
        raise UnsupportedError(
            f"expected element type f16, bf16 or f32 of 'bias' but got {view.element}"
        )
    if compiled and view.element != compiled.element:
        raise ArgumentError(
            f"expected element type {compiled.element} of {name!r}, as compiled, but got {view.element}"
        )
    shape = (1,) * (4 - rank) + view.shape
    strides = (0,) * (4 - rank) + view.strides
    for what, size, expected in zip(_DIMS, shape, scores):
        if size not in (1, expected):
            raise ArgumentError(f"expected {what} of {name!r} to be 1 or {expected} but got {size}")
    is_empty = 0 in shape
    # What an expanded tensor repeats is read once.
    broadcast = tuple(n == 1 or (s == 0 and n > 1) for n, s in zip(shape, strides))
    if compiled:
        broadcast = compiled.broadcast
    shape = tuple(
        1 if same and n != 0 and (s == 0 or n == 1) else n
        for n, s, same in zip(shape, strides, broadcast)
    )
    if not is_empty and not broadcast[3] and strides[3] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {name!r} but got {strides[3]}"
        )
    if not is_empty and any(s < 0 and not same for s, same in zip(strides, broadcast)):
        raise ArgumentError(f"expected strides of at least 0 of {name!r} but got {view.strides}")
    dense = _tensors._dense_strides(shape)
    strides = tuple(d if same or is_empty else s for s, d, same in zip(strides, dense, broadcast))
    # A GPU loads several elements of an aligned row at once.
    size = _module.ELEMENT_BYTES.get(view.element, 1)
    aligned = (
        view.device != DEVICE_CPU
        and not broadcast[3]
        and not is_empty
        and view.pointer % ALIGNMENT == 0
        and all(same or s * size % ALIGNMENT == 0 for s, same in zip(strides[:3], broadcast))
    )
    view = view._replace(shape=shape, strides=strides)
    return view, _module.Operand(view.element, broadcast, aligned)


def parse_operand(name: str, given: Any, has_aligned_rows: bool) -> Optional[_module.Operand]:
    """`bias` and `keep` of `flashattn.compile`: a shape of 4 sizes, each 1 where it is broadcast and
    otherwise None; of `bias` a pair of an element type and that."""
    if given is None:
        return None
    element, shape = "i1", given
    if name == "bias":
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ArgumentError(f"expected bias to be a pair (dtype, shape) but got {given!r}")
        element, shape = given
        element = _tensors.parse_element(getattr(element, "__name__", element))
        if element not in _module.ELEMENT_BYTES:
            raise UnsupportedError(f"expected dtype f16, bf16 or f32 of bias but got {element}")
    if (
        not isinstance(shape, (tuple, list))
        or len(shape) != 4
        or any(size not in (1, None) for size in shape)
    ):
        raise ArgumentError(f"expected a shape of 4 sizes, 1 or None, of {name} but got {shape!r}")
    broadcast = tuple(size == 1 for size in shape)
    aligned = name == "bias" and has_aligned_rows and not broadcast[3]
    return _module.Operand(element, broadcast, aligned)
