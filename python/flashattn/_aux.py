"""Auxiliary tensors, which a `score_mod` reads by batch and head (rule A10).

Further on, they are operands named "aux0", "aux1" and so on. The text of the score_mod says which of them it
reads, and by which index each dimension is read.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from . import _tensors, _torch, _trace
from ._library import Role
from .errors import ArgumentError, UnsupportedError

#: The element types that a score_mod can read.
ELEMENTS = ("f16", "bf16", "f32", "i32", "i1")
_LIMIT = len(_trace.AUX)
_MAX_RANK = 2
_LOAD = re.compile(r"memref\.load %(aux\d)\[([%\w, ]*)\] : memref<((?:\?x)*)(\w+)>")
_LETTERS = {"%batch": "B", "%head": "H"}


class Load(NamedTuple):
    """What the text of a score_mod says about an auxiliary tensor."""

    element: str
    dims: str  #: a letter for each dimension: B or H, whose index is read


def loads_of(text: Optional[str]) -> Dict[str, Load]:
    """Returns the auxiliary tensors that the text of a score_mod reads, by name and in the order of names. Raises
    ArgumentError for a text that no trace returns."""
    found = {}
    for name, indices, sizes, element in _LOAD.findall(text or ""):
        if element not in ELEMENTS:
            raise ArgumentError(
                f"expected '{name}' in a score_mod with dynamic sizes and element type "
                f"{', '.join(ELEMENTS[:-1])} or i1 but got '{sizes}{element}'"
            )
        names = [index for index in indices.split(", ") if index]
        found[name] = Load(element, "".join(_LETTERS.get(index, "?") for index in names))
    return dict(sorted(found.items()))


def roles_of(text: Optional[str]) -> Dict[str, Role]:
    """Returns the roles of the auxiliary tensors that the text of a score_mod reads."""
    return {
        name: Role(
            name, load.dims, (load.element,), like_first=False, is_scalar=False, is_output=False,
            is_optional=True, broadcasts=False, follows_layout=False,
        )
        for name, load in loads_of(text).items()
    }  # fmt: skip


def reads_batch(text: Optional[str]) -> bool:
    """Returns whether the result of a score_mod depends on the batch."""
    return text is not None and text.count("%batch") > 1  # the block declares it once


def prepare(score_mod: Any, aux_tensors: Any) -> Tuple[Optional[str], Dict[str, Any]]:
    """Returns the text of a score_mod, and the auxiliary tensors that it reads, by name. Raises ArgumentError,
    TraceError, and UnsupportedError for a tensor whose gradient would be lost."""
    if score_mod is None:
        if aux_tensors:
            raise ArgumentError("expected score_mod with aux_tensors but got None")
        return None, {}
    if aux_tensors is None:
        return _trace.text_of(score_mod), {}
    if not isinstance(aux_tensors, (tuple, list)):
        raise ArgumentError(
            f"expected aux_tensors to be a tuple of arrays but got {type(aux_tensors).__name__}"
        )
    _check_count(aux_tensors)
    tensors = dict(zip(_trace.AUX, map(_settle, aux_tensors)))
    types = tuple(_type_of(name, tensor) for name, tensor in tensors.items())
    text = _trace.text_of(score_mod, types)
    tensors = {name: tensors[name] for name in loads_of(text)}
    _torch.refuse_gradients(**tensors)
    return text, tensors


def select(text: Optional[str], aux_tensors: Sequence[Any]) -> Dict[str, Any]:
    """Returns the auxiliary tensors of a launch that the text of a compiled score_mod reads, by name."""
    _check_count(aux_tensors)
    tensors = dict(zip(_trace.AUX, map(_settle, aux_tensors)))
    return {name: tensors[name] for name in loads_of(text) if name in tensors}


def parse(score_mod: Any, aux_tensors: Any) -> Optional[str]:
    """Returns the text of a score_mod for `flashattn.compile`, where `aux_tensors` are pairs of an element type
    and a rank."""
    if score_mod is None or not aux_tensors:
        return prepare(score_mod, aux_tensors or None)[0]
    _check_count(aux_tensors)
    types = []
    for name, given in zip(_trace.AUX, aux_tensors):
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ArgumentError(f"expected {name!r} to be a pair (dtype, rank) but got {given!r}")
        dtype, rank = given
        element = _tensors.parse_element(getattr(dtype, "__name__", dtype))
        types.append(_check_type(name, element, rank))
    return _trace.text_of(score_mod, tuple(types))


def _check_count(aux_tensors: Sequence[Any]) -> None:
    if len(aux_tensors) > _LIMIT:
        raise ArgumentError(f"expected at most {_LIMIT} aux_tensors but got {len(aux_tensors)}")


def _settle(tensor: Any) -> Any:
    """Returns a list as an array, and an array of float64 as one of float32."""
    if isinstance(tensor, (list, tuple)):
        try:
            tensor = numpy.asarray(tensor)
        except ValueError:
            raise ArgumentError(
                "expected aux_tensors to be arrays but got lists of different lengths"
            ) from None
    if isinstance(tensor, numpy.ndarray) and tensor.dtype == numpy.float64:
        return tensor.astype(numpy.float32)
    return tensor


def _type_of(name: str, tensor: Any) -> Tuple[str, int]:
    """Returns the element type and the rank of a tensor, which may be a tracer of torch or JAX."""
    if hasattr(tensor, "dtype") and hasattr(tensor, "shape"):
        return _check_type(name, _tensors.parse_element(tensor.dtype), len(tensor.shape))
    view = _tensors.view(name, tensor, False)
    return _check_type(name, view.element, len(view.shape))


def _check_type(name: str, element: str, rank: Any) -> Tuple[str, int]:
    if element not in ELEMENTS:
        names = f"{', '.join(ELEMENTS[:-1])} or bool"
        raise UnsupportedError(f"expected {name!r} with element type {names} but got {element}")
    if rank not in range(_MAX_RANK + 1):
        raise ArgumentError(f"expected {name!r} of rank {_MAX_RANK} at most but got rank {rank}")
    return element, rank


def types_in(text: str) -> List[Tuple[str, int]]:
    """Returns the element type and the rank of %aux0, %aux1 and so on as far as the text names them."""
    loads = loads_of(text)
    last = max((_trace.AUX.index(name) for name in loads if name in _trace.AUX), default=-1)
    unread = Load("f32", "")
    found = (loads.get(name, unread) for name in _trace.AUX[: last + 1])
    return [(load.element, len(load.dims)) for load in found]
