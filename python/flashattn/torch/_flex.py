"""FlexAttention with the same functions and block masks: `flashattn.torch.flex_attention`.

Conditions of a `mask_mod` that are affine in the positions, and in integers that depend on the batch, on the query or
on the key, become sets of pairs, whose hidden tiles cost nothing. Other conditions are computed once and read as
`attn_mask`. A `score_mod` is compiled, except for captured tensors: a factor of the score multiplies queries or keys,
a summand is a bias.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .._attention import attention
from .._tensors import check_layouts
from .._trace import _is_number
from ..errors import ArgumentError, TraceError, UnsupportedError
from ..masks import Mask
from ._graph import Node, Shown, compute, fingerprint, graph_of, indices, outside
from ._scores import is_one, place, split
from ._sets import Sets, log_dense

try:
    from torch.nn.attention.flex_attention import BlockMask, noop_mask
except ImportError:  # before torch 2.5
    BlockMask = noop_mask = None  # type: ignore[assignment, misc]
try:
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest
except ImportError:  # before torch 2.9
    AuxOutput = AuxRequest = None  # type: ignore[assignment, misc]

#: The largest head dimension on GPUs.
_MAX_HEAD_DIM = 256
_MASK_ARGUMENTS = ("b", "h", "p", "k")


def affine_mask(mask_mod: Callable[..., Any]) -> Mask:
    """Returns the mask of the pairs that `mask_mod(b, h, q_idx, kv_idx)` shows, for `flashattn.attention`
    with `align="top_left"`.

    The function must be affine: it may add, subtract and compare positions, multiply them by integers and
    divide them by positive integers (`//`, `%`), and compare absolute values. It may combine conditions by `&`,
    `|`, `~`, `^` and `torch.where`. It must not read tensors, the batch or the head.

    Raises:
      TraceError: the function is not affine; the message names the rule that it breaks.
    """
    node = graph_of(mask_mod, "mask_mod", _MASK_ARGUMENTS)
    return Sets().mask_of(node)


def _conjuncts(node: Any) -> List[Any]:
    if isinstance(node, Node) and node.op == "&":
        return [part for arg in node.args for part in _conjuncts(arg)]
    return [node]


def _expand(values: Any, device: Any, dtype: torch.dtype) -> Tensor:
    """Returns a result of `compute` as a tensor of four dimensions."""
    tensor = torch.as_tensor(values, device=device).to(dtype)
    return tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))


class _Pairs(NamedTuple):
    """The pairs that a block mask shows in a call."""

    sources: Sequence[Any]  #: the graph of the mask_mod, or the block lists; kept alive for fingerprints
    mask: Optional[Mask]  #: with `attn_mask`, the arguments of `flashattn.attention`; reads captured tensors
    attn_mask: Optional[Tensor]

    def shown(self, sizes: Any, device: Any) -> Optional[Tensor]:
        """Returns all visible pairs as a Boolean tensor."""
        if isinstance(self.sources[0], Tensor):
            return self.attn_mask
        return _expand(compute(self.sources[0], indices(*sizes, device)), device, torch.bool)


def _pairs_of(node: Any, sizes: Any, kv_heads: int, device: Any) -> Tuple[Optional[Mask], Optional[Tensor]]:
    """Returns the mask and the `attn_mask` whose intersection is the mask_mod."""
    sets = Sets(sizes, kv_heads, device)
    mask: Optional[Mask] = None
    attn_mask: Optional[Tensor] = None
    for part in _conjuncts(node):
        if part is True:
            continue
        try:
            mask = sets.both(mask, sets.mask_of(part))
        except TraceError as error:
            log_dense(error)
            found = _expand(compute(part, indices(*sizes, device)), device, torch.bool)
            attn_mask = found if attn_mask is None else attn_mask & found
    return mask, attn_mask


def _listed(block_mask: Any, rows: int, keys: int) -> Tensor:
    """Returns the pairs of the listed blocks as a Boolean tensor."""
    blocks = block_mask.to_dense().bool()
    for dim, size in ((-2, block_mask.BLOCK_SIZE[0]), (-1, block_mask.BLOCK_SIZE[1])):
        blocks = blocks.repeat_interleave(size, dim)
    return blocks[..., :rows, :keys].contiguous()


#: For each block mask, the pairs of its latest calls, by everything on which they depend. Boolean tensors
#: take memory, so only `_MAX_KNOWN` results are kept.
_known: "weakref.WeakKeyDictionary[Any, Dict[Any, _Pairs]]" = weakref.WeakKeyDictionary()
_MAX_KNOWN = 4


def _find_pairs(block_mask: Any, sizes: Any, kv_heads: int, device: Any) -> _Pairs:
    if BlockMask is None or not isinstance(block_mask, BlockMask):
        raise ArgumentError(
            f"expected block_mask to be a BlockMask but got {type(block_mask).__name__}; use torch's "
            "create_block_mask for a mask_mod"
        )
    lengths = tuple(block_mask.seq_lengths)
    if lengths[0] < sizes[2] or lengths[1] < sizes[3]:
        raise ArgumentError(
            f"expected a block_mask of {sizes[2]} queries and {sizes[3]} keys but got one of "
            f"{lengths[0]} and {lengths[1]}"
        )
    for name, given, wanted in zip(("batches", "heads"), block_mask.shape, sizes):
        if given not in (1, wanted):
            raise ArgumentError(f"expected a block_mask of 1 or {wanted} {name} but got {given}")
    lists: List[Any] = []
    if block_mask.mask_mod is noop_mask:
        names = "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"
        lists = [x for x in (getattr(block_mask, name) for name in names) if x is not None]
    sources = lists or [graph_of(block_mask.mask_mod, "mask_mod", _MASK_ARGUMENTS)]
    # A captured CUDA graph runs again with other tensor contents, so its pairs are not kept.
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    seen = None if is_captured else fingerprint(sources)
    known = _known.setdefault(block_mask, {})
    key = seen, sizes, kv_heads, device
    pairs = known.pop(key, None) if seen else None
    if pairs is None:
        if lists:
            pairs = _Pairs(sources, None, _listed(block_mask, *sizes[2:]))
        else:
            pairs = _Pairs(sources, *_pairs_of(sources[0], sizes, kv_heads, device))
    if seen:
        known[key] = pairs
        while len(known) > _MAX_KNOWN:
            del known[next(iter(known))]
    return pairs


def _multiply(
    query: Tensor, key: Tensor, factor: Any, sizes: Any, shown: Shown
) -> Tuple[Tensor, Tensor]:
    """Returns queries and keys whose products are those of `query` and `key` times `factor`.

    bf16 and f16 have 8 and 11 significant bits. In these types, each product with the factor is stored as two
    numbers, the rounded product and the rounding error, side by side in the head dimension. Without the
    second number, the rounding would be an error of the score.
    """
    parts = place(factor, query.shape[1] != key.shape[1])
    is_exact = query.dtype is torch.float32
    count = 1 if is_exact else 2 if any(map(is_one, parts)) else 3
    if query.is_cuda and count * query.shape[3] > _MAX_HEAD_DIM:
        raise UnsupportedError(
            f"expected a head dimension of at most {_MAX_HEAD_DIM // count} for tensors that multiply the "
            f"score in {str(query.dtype)[6:]} but got {query.shape[3]}; the limit in float32 is "
            f"{_MAX_HEAD_DIM}"
        )
    places = indices(*sizes, query.device)
    rows, keys = (
        None if is_one(part) else _expand(compute(part, places, shown), query.device, torch.float32)
        for part in parts
    )
    if keys is not None:
        keys = keys.mT
    if is_exact:
        return (query if rows is None else query * rows), (key if keys is None else key * keys)
    (high, low), (one, rest) = _halves(query, rows), _halves(key, keys)
    if rows is None:
        return torch.cat([high, high], -1), torch.cat([one, rest], -1)
    if keys is None:
        return torch.cat([high, low], -1), torch.cat([one, one], -1)
    return torch.cat([high, low, high], -1), torch.cat([one, one, rest], -1)


def _halves(tensor: Tensor, factor: Optional[Tensor]) -> Tuple[Tensor, Any]:
    """Returns the product, rounded to the tensor's type, and the rounding error. The rounding error is a
    constant for autograd, because the rounded product carries the gradient of the whole product."""
    if factor is None:
        return tensor, None
    product = tensor.float() * factor
    high = product.to(tensor.dtype)
    return high, (product - high.float()).detach().to(tensor.dtype)


class _Compiled:
    """A graph without tensors as a score_mod that the tracer can call."""

    def __init__(self, node: Any):
        self.node = node

    def __call__(self, score: Any, b: Any, h: Any, p: Any, k: Any) -> Any:
        return compute(self.node, {"score": score, "b": b, "h": h, "p": p, "k": k})


def _wants_lse(return_aux: Any, return_lse: bool) -> bool:
    """Returns whether an `AuxRequest` requests the log-sum-exp. Raises ArgumentError, UnsupportedError."""
    if AuxRequest is None or not isinstance(return_aux, AuxRequest):
        raise ArgumentError(
            f"expected return_aux to be torch's AuxRequest or None but got {type(return_aux).__name__}"
        )
    if return_lse:
        raise ArgumentError(
            "expected return_lse or return_aux but got both; use return_aux=AuxRequest(lse=True)"
        )
    if return_aux.max_scores:
        raise UnsupportedError(
            "expected max_scores False in return_aux but got True; AuxRequest(lse=True) returns the "
            "log-sum-exp"
        )
    return bool(return_aux.lse)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Optional[Callable[..., Any]] = None,
    block_mask: Any = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Optional[Mapping[str, Any]] = None,
    *,
    return_aux: Any = None,
) -> Any:
    """Replaces `torch.nn.attention.flex_attention.flex_attention`, with gradients.

    Args:
      query: `[B, Hq, L, E]`, f16, bf16 or f32, with any strides.
      key, value: `[B, H, S, E]` and `[B, H, S, Ev]`; a batch of 1 broadcasts.
      score_mod: a function of (score, b, h, q_idx, kv_idx) that returns the new score. It may use
        operators, and the PyTorch functions that `flashattn.math` also provides. Elements of captured
        tensors, indexed by the arguments, may be added to the score, or may hide the pair with -inf. They
        may multiply the score if they depend on the query or on the key, but not on both. Captured
        tensors have gradients.
      block_mask: a result of PyTorch's `create_block_mask` or `BlockMask.from_kv_blocks`. Affine
        conditions of its mask_mod (see `affine_mask`) become sets, whose hidden tiles cost nothing. So do
        conditions on integers that depend on the batch, on the query or on the key, such as elements of
        captured tensors. Each call reads these. Other conditions become a Boolean tensor, which is computed
        again when a captured tensor or number changes; the logger "flashattn" states at level INFO why a
        condition is not a set. Without a mask_mod, the listed blocks are visible.
      scale: factor of the scores; None means `1 / sqrt(E)`.
      enable_gqa: whether Hq may be a multiple of H.
      return_lse: also return the log-sum-exp (natural logarithm) of each row, `[B, Hq, L]`, f32.
      kernel_options: ignored, because it configures PyTorch's own kernels and not the result.
      return_aux: PyTorch's `AuxRequest`; `lse=True` requests the log-sum-exp. `max_scores` is not
        supported.

    Returns:
      `[B, Hq, L, Ev]`, or a pair of this tensor and the log-sum-exp; with `return_aux`, a pair of this tensor
      and PyTorch's `AuxOutput`. A row that sees no key is 0.

    Raises:
      ArgumentError: shapes or types do not match, or the block mask is for other lengths.
      UnsupportedError: `max_scores` is requested.
      TraceError: score_mod or mask_mod uses an operation that is not supported; the message names the operation.
    """
    if torch.compiler.is_dynamo_compiling() and not (score_mod is block_mask is None):
        return outside(
            flex_attention, query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options,
            return_aux=return_aux,
        )  # fmt: skip
    if kernel_options is not None and not isinstance(kernel_options, Mapping):
        raise ArgumentError(f"expected kernel_options to be a dict or None but got {type(kernel_options).__name__}")
    wants_lse = return_lse if return_aux is None else _wants_lse(return_aux, return_lse)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4:
            given = f"rank {tensor.ndim}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ArgumentError(f"expected {name!r} to be a tensor of rank 4 but got {given}")
        if tensor.is_nested:
            check_layouts({name: tensor})
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ArgumentError(
            f"expected {query.shape[1]} heads of 'key' as in 'query' but got {key.shape[1]}; "
            "enable_gqa=True shares heads of 'key' and 'value'"
        )
    if key.shape[0] == value.shape[0] == 1 != query.shape[0]:
        key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    pairs = bias = None
    if block_mask is not None:
        pairs = _find_pairs(block_mask, sizes, key.shape[1], query.device)
    if score_mod is not None:
        node = graph_of(score_mod, "score_mod", ("score", *_MASK_ARGUMENTS))
        base, factor, added = split(node)
        shown = lambda: pairs and pairs.shown(sizes, query.device)  # noqa: E731
        if not is_one(factor):
            scale = query.shape[3] ** -0.5 if scale is None else scale
            query, key = _multiply(query, key, factor, sizes, shown)
        if added is not None:
            found = compute(added, indices(*sizes, query.device), shown)
            bias = _expand(found, query.device, torch.float32)
        if base is None:
            base = 0.0
        is_plain = isinstance(base, Node) and base.op == "score"
        score_mod = None if is_plain else _Compiled(base)
        assert isinstance(base, Node) or _is_number(base)
    found = attention(
        query, key, value, mask=pairs and pairs.mask, align="top_left", scale=scale,
        attn_mask=pairs and pairs.attn_mask, bias=bias, score_mod=score_mod, return_lse=wants_lse,
    )  # fmt: skip
    if return_aux is None:
        return found
    o, lse = found if wants_lse else (found, None)
    return o, AuxOutput(lse=lse)
