"""Attention in plain arithmetic, for comparison. Shares nothing with the compiler but a mask's text."""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple

import numpy

from .masks import Mask


def visible(mask: Optional[Mask], positions: Any, keys: Any, nq: int, nk: int) -> Any:
    """Whether each pair of `positions` and `keys`, integer arrays that broadcast, is visible."""
    if mask is None:
        return (positions + keys) == (positions + keys)
    if mask._kind:
        parts = [visible(part, positions, keys, nq, nk) for part in mask._parts]
        result = parts[0]
        for part in parts[1:]:
            result = (result | part) if mask._kind == "any_of" else (result & part)
        return result
    text = str(mask)
    if text == "#flashattn.causal":
        return keys <= positions
    numbers = dict(re.findall(r"(left|right) = (\d+)", text))
    if text.startswith("#flashattn.window"):
        result = visible(None, positions, keys, nq, nk)
        if "left" in numbers:
            result = result & (keys >= positions - int(numbers["left"]))
        if "right" in numbers:
            result = result & (keys <= positions + int(numbers["right"]))
        return result
    if text.startswith("#flashattn.sink"):
        return (keys < int(text[len("#flashattn.sink<") : -1])) & visible(
            None, positions, keys, nq, nk
        )
    return _in_set(text, positions, keys, nq, nk)


def _in_set(text: str, positions: Any, keys: Any, nq: int, nk: int) -> Any:
    match = re.fullmatch(
        r'#flashattn\.set<"\((\w+), *(\w+)\)(?:\[(\w+), *(\w+)\])? *: *\((.*)\)">', text
    )
    assert match, text
    p, k, q_count, k_count, constraints = match.groups()
    # Python's // and % round as floordiv and mod do; -(-a // b) rounds up.
    constraints = re.sub(r"\bfloordiv\b", "//", re.sub(r"\bmod\b", "%", constraints))
    assert "ceildiv" not in constraints, text
    names = {p: positions, k: keys, q_count or "nq": nq, k_count or "nk": nk}
    result = visible(None, positions, keys, nq, nk)
    for constraint in constraints.split(","):
        result = result & eval(constraint, {"__builtins__": {}}, names)  # noqa: S307
    return result


def count_visible(mask: Optional[Mask], nq: int, nk: int, align: str = "bottom_right") -> int:
    """The visible pairs of one head."""
    offset = nk - nq if align == "bottom_right" else 0
    keys, total = numpy.arange(nk)[None, :], 0
    for first in range(0, nq, 256):
        rows = numpy.arange(first, min(nq, first + 256))[:, None] + offset
        total += int(numpy.count_nonzero(visible(mask, rows, keys, nq, nk)))
    return total


def attention_head(
    q: numpy.ndarray,
    k: numpy.ndarray,
    v: numpy.ndarray,
    seen: numpy.ndarray,
    scale: float,
    round_to: Any = None,
    softcap: Optional[float] = None,
    modify: Any = None,
    bias: Any = 0,
    sink: float = -numpy.inf,
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """o and lse of one head in the type of `q` (rules A2, A5, A6); `round_to` rounds the
    probabilities, `modify` is a score modification of the array of scores."""
    with numpy.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scores = (q @ k.T) * q.dtype.type(scale)
        if softcap is not None:
            cap = q.dtype.type(softcap)
            scores = cap * numpy.tanh(scores / cap)
        if modify is not None:
            scores = numpy.broadcast_to(modify(scores), scores.shape)
        scores = (scores + numpy.asarray(bias, q.dtype)).astype(q.dtype)
        scores = numpy.where(seen, scores, -numpy.inf)
        top = numpy.maximum(scores.max(axis=1, initial=-numpy.inf), q.dtype.type(sink))
        base = numpy.where(numpy.isfinite(top), top, 0)
        weights = numpy.exp(scores - base[:, None])
        total = weights.sum(axis=1) + numpy.exp(q.dtype.type(sink) - base)
        probabilities = weights / numpy.where(total > 0, total, 1)[:, None]
        if round_to is not None:
            probabilities = round_to(probabilities)
        return probabilities @ v, top + numpy.log(total)


def bf16_from_f32(values: numpy.ndarray) -> numpy.ndarray:
    """The bits of bf16, rounded to nearest even, as uint16. NaN is not expected."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def f32_from_bf16(bits: numpy.ndarray) -> numpy.ndarray:
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def rounder(element: str) -> Any:
    """Rounds float arrays to f16, bf16 or f32 and gives them back in their own type."""
    if element == "bf16":
        return lambda values: f32_from_bf16(bf16_from_f32(values)).astype(values.dtype)
    kind = numpy.float16 if element == "f16" else numpy.float32
    return lambda values: values.astype(kind).astype(values.dtype)


def check_head(
    o: numpy.ndarray,
    q: numpy.ndarray,
    k: numpy.ndarray,
    v: numpy.ndarray,
    seen: numpy.ndarray,
    scale: float,
    element: str,
    **features: Any,
) -> Tuple[float, float]:
    """The greatest error of one head's `o` against float64, and the bound on it: twice that of
    plain arithmetic in float32 with rounded probabilities and results, plus 1e-5. Operands are
    float32; `features` are those of `attention_head`.
    """
    exact, _ = attention_head(
        *(x.astype(numpy.float64) for x in (q, k, v)), seen, scale, **features
    )
    round_to = rounder(element)
    naive, _ = attention_head(q, k, v, seen, scale, round_to, **features)
    bound = 2 * float(numpy.abs(round_to(naive) - exact).max(initial=0)) + 1e-5
    error = numpy.abs(o.astype(numpy.float64) - exact)
    return float("inf") if numpy.isnan(error).any() else float(error.max(initial=0)), bound
