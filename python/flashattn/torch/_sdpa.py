"""A replacement for `torch.nn.functional.scaled_dot_product_attention`, with the same arguments."""

from __future__ import annotations

import functools
import math
from types import FunctionType
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .._attention import attention
from .._module import Align
from .._tensors import check_layouts
from ..errors import ArgumentError, KeywordError
from ..masks import causal


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Replaces `torch.nn.functional.scaled_dot_product_attention`, with the same arguments.

    Args:
      query: `[..., Hq, L, E]`, f16, bf16 or f32, with any strides. A tensor of three dimensions holds
        the heads of one batch element.
      key, value: `[..., H, S, E]` and `[..., H, S, Ev]`; leading dimensions and heads broadcast.
      attn_mask: bool, where False hides a pair, or numbers that are added to the scores. It broadcasts
        to `[..., Hq, L, S]` and is read in place. A `CausalBias` of torch.nn.attention.bias becomes a
        causal mask, whose hidden tiles cost nothing.
      dropout_p: must be 0.
      is_causal: whether query i sees only keys 0 to i, even if L and S differ.
      scale: factor of the scores; None means `1 / sqrt(E)`.
      enable_gqa: whether Hq may be a multiple of H.

    Returns:
      `[..., Hq, L, Ev]`. Its strides follow those of query: if query is a transposed `[B, L, Hq, E]`,
      so is the result. A row that sees no key is 0.

    Raises:
      ArgumentError: dropout_p is not 0, both attn_mask and is_causal are given, or shapes or types do not
        match.
      UnsupportedError: a type or a head dimension that no kernel supports.
    """
    return _attend(attention, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _attend(
    compute: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Runs `sdpa` by `compute`, a function with the arguments of `flashattn.attention`."""
    if dropout_p != 0:
        raise ArgumentError(f"expected dropout_p 0 but got {dropout_p}; pass 0.0, because dropout is not supported")
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        _check_rows(query=query, key=key, value=value)
    if query.is_nested or key.is_nested or value.is_nested:
        check_layouts({"query": query, "key": key, "value": value})
    align: Align = "top_left"
    if attn_mask is not None:
        _check_mask(attn_mask, is_causal)
    if isinstance(attn_mask, CausalBias):
        if attn_mask.variant == CausalVariant.LOWER_RIGHT:
            align = "bottom_right"
        attn_mask, is_causal = None, True
    sizes, key_sizes, value_sizes = query.shape, key.shape, value.shape
    fits = (
        len(sizes) == len(key_sizes) == len(value_sizes) == 4
        and sizes[0] == key_sizes[0] == value_sizes[0]
        and (enable_gqa or sizes[1] == key_sizes[1] == value_sizes[1])
    )
    shape = None
    if not fits:
        _check_rows(query=query, key=key, value=value)
        shape, query, key, value, attn_mask = _flatten(query, key, value, attn_mask, enable_gqa)
    is_boolean = attn_mask is not None and attn_mask.dtype is torch.bool
    # If query is a transposed `[B, L, Hq, E]`, so are o and all gradients, and the projections before and
    # after attention need no copies.
    swaps = query.shape[1] > 1 and 0 < query.stride(1) < query.stride(2)
    if swaps:
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    o = compute(
        query,
        key,
        value,
        mask=causal if is_causal else None,
        align=align,
        layout="bshd" if swaps else "bhsd",
        scale=scale,
        attn_mask=attn_mask if is_boolean else None,
        bias=None if is_boolean else attn_mask,
    )
    o = o.transpose(1, 2) if swaps else o
    return o if shape is None else o.reshape(shape)


def _check_rows(**given: Any) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"expected {name!r} to be a tensor of torch but got {type(tensor).__name__}"
            )
        if tensor.dim() < 2:
            raise ArgumentError(f"expected {name!r} of rank 2 at least but got rank {tensor.dim()}")


def _check_mask(attn_mask: Any, is_causal: bool) -> None:
    if is_causal:
        raise ArgumentError(
            "expected attn_mask or is_causal but got both; put the causal mask into attn_mask"
        )
    if not isinstance(attn_mask, Tensor):
        raise ArgumentError(
            f"expected attn_mask to be a tensor of torch or None but got {type(attn_mask).__name__}"
        )
    if attn_mask.dtype is not torch.bool and not attn_mask.is_floating_point():
        raise ArgumentError(
            "expected attn_mask of a Boolean or floating-point type but got "
            f"{attn_mask.dtype}; convert it, as with .bool()"
        )


def _flatten(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], enable_gqa: bool
) -> Tuple[Any, Tensor, Tensor, Tensor, Optional[Tensor]]:
    """Returns the shape of the result, and tensors of four dimensions: leading dimensions are broadcast and
    flattened, and without enable_gqa heads are broadcast too."""
    is_flat = query.dim() == key.dim() == value.dim() == 2
    tensors = [x if x.dim() > 2 else x[None] for x in (query, key, value)]
    heads = [x.shape[-3] for x in tensors]
    try:
        leading = torch.broadcast_shapes(*(x.shape[:-3] for x in tensors))
        if not enable_gqa:
            heads = [torch.broadcast_shapes(*((h,) for h in heads))[0]] * 3
    except RuntimeError:
        shapes = ", ".join(str(list(x.shape)) for x in (query, key, value))
        raise ArgumentError(
            "expected leading dimensions and heads of 'query', 'key' and 'value' that broadcast but "
            f"got {shapes}; enable_gqa=True shares heads of 'key' and 'value'"
        ) from None
    count = math.prod(leading)
    query, key, value = (
        x.expand(*leading, h, *x.shape[-2:]).reshape(count, h, *x.shape[-2:])
        for x, h in zip(tensors, heads)
    )
    if attn_mask is not None and attn_mask.dim() > 3 and len(leading) != 1:
        attn_mask = attn_mask.expand(*leading, *attn_mask.shape[-3:])
        attn_mask = attn_mask.reshape(count, *attn_mask.shape[-3:])
    rows = query.shape[2], value.shape[3]
    return (rows if is_flat else (*leading, heads[0], *rows)), query, key, value, attn_mask


def _without_dispatch(function: Any, attend: Any) -> Any:
    """Returns a copy of a torch function written in Python that skips the dispatch to modes and calls `attend`
    in place of torch's attention. torch's own function does not change."""
    found = {
        **function.__globals__,
        "has_torch_function": lambda tensors: False,
        scaled_dot_product_attention.__name__: attend,
    }
    return FunctionType(function.__code__, found, function.__name__, function.__defaults__)


_multi_head = torch.nn.functional.multi_head_attention_forward


def _replacements(attend: Any) -> Dict[Any, Any]:
    """Returns what replaces the functions that call attention. A mode sees calls of these functions, but no calls
    inside them."""
    return {scaled_dot_product_attention: attend, _multi_head: _without_dispatch(_multi_head, attend)}


_REPLACED = _replacements(sdpa)


class replace_sdpa(TorchFunctionMode):
    """A context manager that replaces `torch.nn.functional.scaled_dot_product_attention` by `sdpa`, for
    all callers, including PyTorch's own modules::

        with flashattn.torch.replace_sdpa():
            logits = model(tokens)

    A call that `sdpa` refuses raises an error; it does not fall back to PyTorch's implementation.
    `torch.nn.MultiheadAttention` calls the function only with `need_weights=False`.

    Args:
      mesh: if the rows of a sequence are cut over a mesh, the arguments `mesh`, `dim`, `shards`, `length` and `scheme`
        of `flashattn.torch.context_parallel`, which then computes every call. In torch's own context manager
        `context_parallel`, which cuts the tensors of a model, `shards="zigzag"` is torch's order of rows, and
        "contiguous" that without its load balancing.
    """

    def __init__(self, mesh: Any = None, **options: Any) -> None:
        super().__init__()
        if mesh is None:
            if options:
                raise ArgumentError(f"expected mesh with {next(iter(options))} but got None")
            self._replaced = _REPLACED
            return
        from ._parallel import context_parallel

        unknown = [name for name in options if name not in ("dim", "shards", "length", "scheme")]
        if unknown:
            raise KeywordError(f"replace_sdpa() got an unexpected keyword argument {unknown[0]!r}")
        compute = functools.partial(context_parallel, mesh=mesh, **options)
        self._replaced = _replacements(functools.partial(_attend, compute))

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return self._replaced.get(func, func)(*args, **(kwargs or {}))
