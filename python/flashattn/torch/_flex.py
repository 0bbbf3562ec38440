"""FlexAttention's functions and block masks, computed here: `flashattn.torch.flex_attention`.

A `mask_mod` becomes sets of pairs as far as it is affine in the positions, whose hidden tiles cost
nothing; the rest of it is computed once and read as `keep`. A `score_mod` is compiled, but for what it
adds to the score of tensors that it captures, which is a bias.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor

from .._attention import attention
from .._trace import _is_number
from ..errors import ArgumentError, TraceError
from ..masks import Mask, affine_set
from ._graph import Node, apply, compute, graph_of

try:
    from torch.nn.attention.flex_attention import BlockMask, noop_mask
except ImportError:  # before torch 2.5
    BlockMask = noop_mask = None  # type: ignore[assignment, misc]

_MASK_ARGUMENTS = ("b", "h", "p", "k")
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def affine_mask(mask_mod: Callable[..., Any]) -> Mask:
    """The mask of the pairs that `mask_mod(b, h, q_idx, kv_idx)` shows, as `flashattn.attention` takes it
    with `align="top_left"`.

    Raises:
      TraceError: a function that is not affine, with the rule that it breaks: positions are added,
        subtracted and compared, multiplied by integers and divided by positive ones (`//`, `%`);
        conditions are joined by `&`, `|`, `~` and `^`. It reads no tensor, batch or head.
    """
    node = graph_of(mask_mod, "mask_mod", _MASK_ARGUMENTS)
    return _set_of(node)


def _affine(node: Any) -> str:
    """The text of an affine expression."""
    if not isinstance(node, Node):
        if isinstance(node, bool) or int(node) != node:
            raise TraceError(f"expected integers in an affine mask_mod but got {node}")
        return str(int(node))
    if node.op in ("p", "k"):
        return node.op
    if node.op in ("b", "h"):
        name = {"b": "batch", "h": "head"}[node.op]
        raise TraceError(f"expected an affine mask_mod to read positions alone but got the {name}")
    if node.op == "load":
        raise TraceError("expected an affine mask_mod to read positions alone but got a tensor")
    if node.op == "neg":
        return f"(-({_affine(node.args[0])}))"
    if node.op in ("+", "-"):
        return f"({_affine(node.args[0])} {node.op} {_affine(node.args[1])})"
    if node.op in ("*", "//", "%"):
        numbers = [x for x in node.args if not isinstance(x, Node)]
        if not numbers or node.op != "*" and isinstance(node.args[1], Node):
            raise TraceError(f"expected an integer as an operand of '{node.op}' but got two indices")
        if node.op != "*" and not node.args[1] > 0:
            raise TraceError(f"expected '{node.op}' by a positive integer but got {node.args[1]}")
        name = {"*": "*", "//": "floordiv", "%": "mod"}[node.op]
        # A product's constant is its second factor.
        first, second = sorted(node.args, key=lambda x: not isinstance(x, Node))
        return f"({_affine(first)} {name} {_affine(second)})"
    raise TraceError(f"expected affine operations in mask_mod but got '{node.op}'")


def _set(constraint: str) -> Mask:
    return affine_set(f"(p, k)[nq, nk] : ({constraint})")


def _set_of(node: Any, is_negated: bool = False) -> Mask:
    """The pairs for which a condition holds, or does not."""
    if isinstance(node, bool):
        return _set("k >= 0" if node != is_negated else "-k - 1 >= 0")
    if not isinstance(node, Node):
        raise TraceError(f"expected mask_mod to return a condition but got {node}")
    if node.op == "~":
        return _set_of(node.args[0], not is_negated)
    if node.op == "^":
        one, other = node.args
        return (_set_of(one) & _set_of(other, not is_negated)) | (
            _set_of(one, True) & _set_of(other, is_negated)
        )
    if node.op == "where":
        condition, *both = node.args
        then, otherwise = (_set_of(x, is_negated) for x in both)
        return (_set_of(condition) & then) | (_set_of(condition, True) & otherwise)
    if node.op in ("&", "|"):
        one, other = (_set_of(x, is_negated) for x in node.args)
        return one & other if (node.op == "&") != is_negated else one | other
    if node.op not in _NEGATED:
        raise TraceError(f"expected comparisons of positions in mask_mod but got '{node.op}'")
    op = _NEGATED[node.op] if is_negated else node.op
    one, other = map(_affine, node.args)
    if op == "==":
        return _set(f"{one} - {other} == 0")
    if op == "!=":
        return _set(f"{one} - {other} - 1 >= 0") | _set(f"{other} - {one} - 1 >= 0")
    first, second = (one, other) if op[0] == ">" else (other, one)
    return _set(f"{first} - {second} >= 0" if op.endswith("=") else f"{first} - {second} - 1 >= 0")


def _conjuncts(node: Any) -> List[Any]:
    if isinstance(node, Node) and node.op == "&":
        return [part for arg in node.args for part in _conjuncts(arg)]
    return [node]


def _indices(batch: int, heads: int, rows: int, keys: int, device: Any) -> Any:
    """Each argument of a function as a tensor; they broadcast to the scores."""
    shapes = {"b": (batch, 1, 1, 1), "h": (heads, 1, 1), "p": (rows, 1), "k": (keys,)}
    return {
        name: torch.arange(shape[0], dtype=torch.int32, device=device).reshape(shape)
        for name, shape in shapes.items()
    }


def _expand(values: Any, device: Any, dtype: torch.dtype) -> Tensor:
    """What `compute` gives, of four dimensions."""
    tensor = torch.as_tensor(values, device=device).to(dtype)
    return tensor.reshape((1,) * (4 - tensor.ndim) + tuple(tensor.shape))


def _pairs_of(block_mask: Any, sizes: Any, device: Any) -> Tuple[Optional[Mask], Optional[Tensor]]:
    """The set and the `keep` that a block mask stands for."""
    if block_mask.mask_mod is noop_mask:
        return None, _listed(block_mask, *sizes[2:])
    mask: Optional[Mask] = None
    keep: Optional[Tensor] = None
    for part in _conjuncts(graph_of(block_mask.mask_mod, "mask_mod", _MASK_ARGUMENTS)):
        if part is True:
            continue
        try:
            shown = _set_of(part)
            mask = shown if mask is None else mask & shown
        except TraceError:
            found = _expand(compute(part, _indices(*sizes, device)), device, torch.bool)
            keep = found if keep is None else keep & found
    return mask, keep


def _listed(block_mask: Any, rows: int, keys: int) -> Tensor:
    """The pairs of the blocks that are listed."""
    blocks = block_mask.to_dense().bool()
    for dim, size in ((-2, block_mask.BLOCK_SIZE[0]), (-1, block_mask.BLOCK_SIZE[1])):
        blocks = blocks.repeat_interleave(size, dim)
    return blocks[..., :rows, :keys].contiguous()


#: Of each block mask, by the sizes of the call: what it hides is computed once.
_known: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def _find_pairs(block_mask: Any, sizes: Any, device: Any) -> Tuple[Optional[Mask], Optional[Tensor]]:
    if BlockMask is None or not isinstance(block_mask, BlockMask):
        raise ArgumentError(
            f"expected block_mask to be a BlockMask but got {type(block_mask).__name__}; "
            "torch's create_block_mask makes one of a mask_mod"
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
    found = _known.setdefault(block_mask, {})
    key = (sizes, device)
    if key not in found:
        found[key] = _pairs_of(block_mask, sizes, device)
    return found[key]


#: A sum of two, either of which may be missing.
_Sum = Tuple[Any, Any]


def _split(node: Any) -> _Sum:
    """What the compiler takes of a score, and what tensors add to it; None for 0. Raises TraceError
    where it is no such sum."""
    needs = node.needs if isinstance(node, Node) else frozenset()
    if "load" not in needs:
        return node, None
    if "score" not in needs:
        return None, node
    if node.op in ("+", "-"):
        (one, bias), (other, more) = map(_split, node.args)
        return _join(node.op, one, other), _join(node.op, bias, more)
    if node.op == "neg":
        return _each(_split(node.args[0]), lambda x: apply("neg", x))
    if node.op == "float":
        return _each(_split(node.args[0]), lambda x: apply("float", x))
    if node.op in ("*", "/"):
        one, other = node.args
        if node.op == "*" and not _is_free(other):
            one, other = other, one
        if _is_free(other):
            return _each(_split(one), lambda x: apply(node.op, x, other))
    if node.op == "where":
        return _split_where(*node.args)
    raise TraceError(
        "expected what score_mod captures to be added to the score but got a tensor as operand of "
        f"'{node.op}' together with the score"
    )


def _is_free(value: Any) -> bool:
    """Whether the compiler can take it in any place: neither the score nor a tensor is in it."""
    return not isinstance(value, Node) or not value.needs & {"score", "load"}


def _each(parts: _Sum, function: Callable[[Any], Any]) -> _Sum:
    return tuple(None if part is None else function(part) for part in parts)  # type: ignore[return-value]


def _join(op: str, one: Any, other: Any) -> Any:
    if other is None:
        return one
    if one is None:
        return other if op == "+" else apply("*", other, -1)
    return apply(op, one, other)


def _split_where(condition: Any, then: Any, otherwise: Any) -> _Sum:
    if _is_free(condition):
        (one, bias), (other, more) = _split(then), _split(otherwise)
        base = apply("where", condition, *(0.0 if x is None else x for x in (one, other)))
        if bias is more is None:
            return base, None
        return base, apply("where", condition, *(0.0 if x is None else x for x in (bias, more)))
    is_hidden = [not isinstance(x, Node) and x == -math.inf for x in (then, otherwise)]
    if "score" not in condition.needs and any(is_hidden):
        # A score that is hidden by what a tensor says: -inf added to it.
        base, bias = _split(otherwise if is_hidden[0] else then)
        rest = 0.0 if bias is None else bias
        return base, apply("where", condition, *((-math.inf, rest) if is_hidden[0] else (rest, -math.inf)))  # fmt: skip
    raise TraceError(
        "expected a condition of indices, or one that hides with -inf, in score_mod but got one of a "
        "tensor between two scores"
    )


class _Compiled:
    """A score_mod of a graph without tensors, as the tracer takes it."""

    def __init__(self, node: Any):
        self.node = node

    def __call__(self, score: Any, b: Any, h: Any, p: Any, k: Any) -> Any:
        return compute(self.node, {"score": score, "b": b, "h": h, "p": p, "k": k})


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Optional[Callable[..., Any]] = None,
    block_mask: Any = None,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention`, computed here, with gradients.

    Args:
      query: `[B, Hq, L, E]`, f16, bf16 or f32, of any strides.
      key, value: `[B, H, S, E]` and `[B, H, S, Ev]`; a batch of 1 is that of all.
      score_mod: `(score, b, h, q_idx, kv_idx)` to the score, of operators and of functions of torch
        that `flashattn.math` has too. Elements of captured tensors, indexed by the arguments, may be
        added to the score or hide it with -inf; they have gradients.
      block_mask: of torch's `create_block_mask` or `BlockMask.from_kv_blocks`. What its mask_mod says in
        sets (`affine_mask`) costs nothing where it hides; the rest is computed at the first call
        with the block mask, and read as truth values. Without a mask_mod the listed blocks count.
      scale: factor of the scores; None is `1 / sqrt(E)`.
      enable_gqa: whether Hq may be a multiple of H.
      return_lse: also give the natural-log log-sum-exp of each row, `[B, Hq, L]`, f32.

    Returns:
      `[B, Hq, L, Ev]`, or it and the log-sum-exp. A row that sees no key is 0.

    Raises:
      ArgumentError: shapes or types that do not fit, a block mask of other lengths.
      TraceError: a score_mod or mask_mod that does what cannot be computed, with what that is.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4:
            given = f"rank {tensor.ndim}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ArgumentError(f"expected {name!r} to be a tensor of rank 4 but got {given}")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ArgumentError(
            f"expected {query.shape[1]} heads of 'key' as in 'query' but got {key.shape[1]}; "
            "enable_gqa=True shares heads of 'key' and 'value'"
        )
    if key.shape[0] == value.shape[0] == 1 != query.shape[0]:
        key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    mask = keep = bias = None
    if block_mask is not None:
        mask, keep = _find_pairs(block_mask, sizes, query.device)
    if score_mod is not None:
        node = graph_of(score_mod, "score_mod", ("score", *_MASK_ARGUMENTS))
        base, added = _split(node)
        if added is not None:
            bias = _expand(compute(added, _indices(*sizes, query.device)), query.device, torch.float32)
        if base is None:
            base = 0.0
        is_plain = isinstance(base, Node) and base.op == "score"
        score_mod = None if is_plain else _Compiled(base)
        assert isinstance(base, Node) or _is_number(base)
    return attention(
        query, key, value, mask=mask, align="top_left", scale=scale, keep=keep, bias=bias,
        score_mod=score_mod, return_lse=return_lse,
    )  # fmt: skip
