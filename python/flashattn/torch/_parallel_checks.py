"""The checks of the tensors of `context_parallel`. Ranks that found an invalid tensor only after their first message
would leave others waiting, so each call is checked before."""

from __future__ import annotations

import functools
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from torch import Tensor
from torch.distributed.tensor import DTensor

from .. import _features, _tensors, _torch
from .._checks import check_inputs
from .._library import DEVICE_CPU
from .._tensors import View
from ..errors import ArgumentError, UnsupportedError
from ._ops import _as_tensor

#: Names with what stands for their tensors.
_Views = Tuple[Tuple[str, View], ...]


def check_transforms(**tensors: Any) -> None:
    """Raises UnsupportedError for what autograd in reverse mode does not record."""
    _torch.refuse_tangents(**tensors)
    if _torch.in_transform is not None and _torch.in_transform():
        raise UnsupportedError(
            "expected context_parallel outside of torch.func but got a call in grad, vmap or another transform of it"
        )


def to_operands(given: Mapping[str, Any], q: Tensor) -> Dict[str, Tensor]:
    """Returns the operands that are not None as tensors. Raises ArgumentError."""
    found = {}
    for name, x in zip(*_features.normalize(given)):
        if isinstance(x, DTensor):
            raise ArgumentError(f"expected {name!r} to be a plain tensor but got a DTensor; pass to_local()")
        if not isinstance(x, Tensor):
            _tensors.view(name, x, False)
        found[name] = _torch.lay_out(name, _as_tensor(x, q)) if name == "kv_len" else _as_tensor(x, q)
    for name, x in found.items():
        if x.device != q.device:
            raise ArgumentError(f"expected {name!r} on {q.device} as 'q' but got {x.device}")
    return found


def check_tensors(
    rows: Sequence[Tensor], given: Mapping[str, Tensor], symbols: Sequence[Tuple[str, Any]], layout: str,
    score_mod: Optional[str], lengths: Tuple[int, int],
) -> None:  # fmt: skip
    """Checks types and sizes as `flashattn.attention` does.

    Args:
      rows: this rank's q, k and v.
      given: the operands.
      symbols: those of the mask.
      score_mod: its text.
      lengths: the numbers of queries and keys of the whole sequence.
    """
    named = dict(zip("qkv", rows))
    _tensors.check_layouts({**named, **given})
    numbers = {name: x for name, x in symbols if not isinstance(x, int)}
    views = (tuple((name, _view_of(x)) for name, x in some.items()) for some in (named, given, numbers))
    _check_views(*views, layout, score_mod, lengths)


def _view_of(x: Any) -> View:
    """Returns a view without memory, and with dense strides: the launches read copies of other tensors."""
    device: Any = DEVICE_CPU
    if isinstance(x, Tensor) and x.device.type != "cpu":
        device = x.device.index if x.device.type == "cuda" else str(x.device)
    shape = tuple(x.shape)
    return View(0, shape, _tensors._dense_strides(shape), _tensors.parse_element(x.dtype), device)


@functools.lru_cache(maxsize=256)
def _check_views(
    rows: _Views, given: _Views, symbols: _Views, layout: str, score_mod: Optional[str], lengths: Tuple[int, int]
) -> None:
    own, axis = dict(rows), 2 if layout == "bhsd" else 1
    roles = _features.roles_with(tuple(own), "attention", score_mod)
    check_inputs(own, roles, layout)

    def with_rows(name: str, count: int) -> View:
        shape = own[name].shape
        shape = (*shape[:axis], count, *shape[axis + 1 :])
        return own[name]._replace(shape=shape, strides=_tensors._dense_strides(shape))

    keys = {name: with_rows(name, lengths[1]) for name in "kv"}
    for q, operands in ((own["q"], given), (with_rows("q", lengths[0]), symbols)):
        sizes = check_inputs({"q": q, **keys}, roles, layout)
        # The host copies what is not on the device.
        operands = tuple((name, x._replace(device=q.device)) for name, x in operands)
        _features.check(dict(operands), q, sizes, False, layout=layout, score_mod=score_mod)
