"""Splits a score_mod into a function of the score, which is compiled, and the effects of captured tensors:
factors that multiply the score before the function, and a bias that is added after it.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

from .._trace import _is_number
from ..errors import TraceError
from ._graph import WIDE, Node, apply


class Parts(NamedTuple):
    """A score_mod as the sum `base + bias`. In `base`, "score" stands for the score times `factor`."""

    base: Any  #: compiled; reads no tensors; None for 0
    factor: Any = 1  #: depends on indices and tensors, not on the score
    bias: Any = None  #: depends on indices and tensors, not on the score; None for 0


def split(node: Any) -> Parts:
    """Splits the result of a score_mod. Raises TraceError if that is impossible; the message names the
    operation that reads a tensor."""
    if _is_free(node, "load"):
        return Parts(node)
    if _is_free(node, "score"):
        return Parts(None, bias=node)
    if node.op in ("+", "-"):
        return _combine(lambda *both: _join(node.op, *both), *map(split, node.args))
    if node.op in ("neg", *WIDE):
        return _each(split(node.args[0]), lambda x: apply(node.op, x))
    if node.op in ("*", "/"):
        one, other = node.args
        if node.op == "*" and not _is_free(other, "score"):
            one, other = other, one
        if _is_free(other, "score", "load"):
            return _each(split(one), lambda x: apply(node.op, x, other))
        if _is_free(other, "score"):
            return _scale(split(one), other if node.op == "*" else apply("/", 1.0, other))
    if node.op == "where" and _is_free(node.args[0], "score"):
        return _split_where(*node.args)
    return _split_other(node)


def is_one(value: Any) -> bool:
    return not isinstance(value, Node) and bool(value == 1)


def _is_free(value: Any, *needs: str) -> bool:
    """Returns whether the value depends on none of `needs`."""
    return not isinstance(value, Node) or value.needs.isdisjoint(needs)


def _is_same(one: Any, other: Any) -> bool:
    """Returns whether two values are structurally equal, such as an expression that a function repeats."""
    if not (isinstance(one, Node) and isinstance(other, Node)):
        return one is other or _is_number(one) and _is_number(other) and one == other
    is_alike = one.op == other.op and len(one.args) == len(other.args)
    return one is other or is_alike and all(map(_is_same, one.args, other.args))


def _join(op: str, one: Any, other: Any) -> Any:
    """Returns a sum or a difference. None stands for 0."""
    if other is None:
        return one
    if one is None:
        return other if op == "+" else apply("*", other, -1)
    return apply(op, one, other)


def _choose(condition: Any, *both: Any) -> Any:
    """Returns a select of two values. None stands for 0."""
    if all(x is None for x in both):
        return None
    return apply("where", condition, *(0.0 if x is None else x for x in both))


def _times(one: Any, other: Any) -> Any:
    return other if is_one(one) else one if is_one(other) else apply("*", one, other)


def _each(parts: Parts, function: Callable[[Any], Any]) -> Parts:
    """Applies a linear function to both summands."""
    base, bias = (None if x is None else function(x) for x in (parts.base, parts.bias))
    return Parts(base, parts.factor, bias)


def _combine(function: Callable[[Any, Any], Any], one: Parts, other: Parts) -> Parts:
    """Combines two splits by `function`, which is linear in both values. None stands for 0."""
    bias = function(one.bias, other.bias)
    if _is_free(other.base, "score") or _is_same(one.factor, other.factor):
        return Parts(function(one.base, other.base), one.factor, bias)
    if _is_free(one.base, "score"):
        return Parts(function(one.base, other.base), other.factor, bias)
    # Both bases use the score, with different factors: combine these to one factor of one score.
    (slope, shift), (more, rest) = _linear(one.base), _linear(other.base)
    factor = function(_times(slope, one.factor), _times(more, other.factor))
    return Parts(_join("+", Node("score"), function(shift, rest)), factor, bias)


def _linear(node: Any) -> Sequence[Any]:
    """Returns (slope, shift) of a value that is linear in the score; None stands for 0. Raises TraceError."""
    if _is_free(node, "score"):
        return None, node
    if node.op == "score":
        return 1, None
    one, *others = node.args
    if node.op in ("+", "-"):
        return tuple(_join(node.op, *both) for both in zip(*map(_linear, node.args)))
    if node.op in ("neg", *WIDE):
        return tuple(x if x is None else apply(node.op, x) for x in _linear(one))
    if node.op in ("*", "/"):
        if node.op == "*" and _is_free(one, "score"):
            one, others = others[0], [one]
        if _is_free(others[0], "score"):
            return tuple(x if x is None else apply(node.op, x, *others) for x in _linear(one))
    if node.op == "where" and _is_free(one, "score"):
        return tuple(_choose(one, *both) for both in zip(*map(_linear, others)))
    raise TraceError(
        f"expected captured tensors to multiply the score before {node.op!r} but got one that multiplies "
        f"the result of {node.op!r}"
    )


def _scale(parts: Parts, other: Any) -> Parts:
    """Multiplies a split by a value that does not depend on the score."""
    for factor in factors(other):
        if _is_free(factor, "load"):
            parts = _each(parts, lambda x, factor=factor: apply("*", x, factor))
            continue
        slope, shift = _linear(parts.base)
        bias = _join("+", shift, parts.bias)
        parts = Parts(
            _times(Node("score"), slope),
            _times(parts.factor, factor),
            bias if bias is None else apply("*", bias, factor),
        )
    return parts


def factors(node: Any) -> List[Any]:
    """Returns the factors of a product."""
    if isinstance(node, Node):
        if node.op == "*":
            return [x for arg in node.args for x in factors(arg)]
        if node.op == "/":
            return factors(node.args[0]) + [apply("/", 1.0, x) for x in factors(node.args[1])]
        if node.op == "neg":
            return [-1.0, *factors(node.args[0])]
        if node.op in WIDE:
            return factors(node.args[0])
    return [] if is_one(node) else [node]


def _split_where(condition: Any, then: Any, otherwise: Any) -> Parts:
    """Splits a select whose condition does not depend on the score."""
    if _is_free(condition, "load"):
        return _combine(lambda *both: _choose(condition, *both), split(then), split(otherwise))
    is_hidden = [not isinstance(x, Node) and x == -math.inf for x in (then, otherwise)]
    if any(is_hidden):
        # A condition that reads a tensor hides the score: the bias is -inf.
        base, factor, bias = split(otherwise if is_hidden[0] else then)
        rest = 0.0 if bias is None else bias
        both = (-math.inf, rest) if is_hidden[0] else (rest, -math.inf)
        return Parts(base, factor, apply("where", condition, *both))
    raise TraceError(
        "expected a condition on indices, or a score of -inf, in score_mod but got a condition on a tensor "
        "that selects between two scores"
    )


def _split_other(node: Node) -> Parts:
    """Splits another operation, whose operands may be the score times a factor, but have no bias."""
    parts = [split(arg) for arg in node.args]
    if any(part.bias is not None for part in parts):
        raise TraceError(
            "expected captured tensors to multiply the score or to be added to it but got one as operand of "
            f"{node.op!r} together with the score"
        )
    first, *others = [part.factor for part in parts if not _is_free(part.base, "score")]
    if not all(_is_same(first, other) for other in others):
        raise TraceError(
            f"expected all scores in {node.op!r} to have the same factor but got different factors"
        )
    return Parts(apply(node.op, *(part.base for part in parts)), first)


def place(factor: Any, shares_heads: bool) -> Tuple[Any, Any]:
    """Splits a factor into a factor of queries and a factor of keys. With `shares_heads`, several query heads
    share a key head. Raises TraceError for a term that depends on the query and on the key."""
    of_rows: Any = 1
    of_keys: Any = 1
    for term in factors(factor):
        needs = term.needs if isinstance(term, Node) else frozenset()
        if "k" not in needs:
            of_rows = _times(of_rows, term)
        elif "p" in needs:
            raise TraceError(
                "expected a factor of the score that depends on the query or on the key but got one that "
                "depends on both"
            )
        elif "h" in needs and shares_heads:
            raise TraceError(
                "expected the same factor of a key for all query heads that share a head of 'key' but got "
                "one for each query head"
            )
        else:
            of_keys = _times(of_keys, term)
    return of_rows, of_keys
