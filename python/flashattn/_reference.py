"""Reference attention in plain arithmetic, which shares only the text of masks with the compiler."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy

from . import _sets, _symbols, _tensors


def visible(
    mask: Any, positions: Any, keys: Any, nq: int, nk: int, values: Optional[Mapping[str, Any]] = None
) -> Any:
    """Returns whether each pair of `positions` and `keys`, integer arrays that broadcast, is visible. `mask` is a mask
    or its text; None shows every pair. `values` are those of the mask's symbols, which broadcast too: by default those
    of batch element 0 and of head 0.

    Raises:
      ArgumentError: the mask is not one of the dialect flashattn.
    """
    every = (0 * positions == 0) & (0 * keys == 0)  # has the shape of the pairs, which a mask of keys alone lacks
    if mask is None:
        return every
    symbols = getattr(mask, "_symbols", ())
    if values is None:
        values = values_of(mask)
    numbers = [values[name[len("per_") :]] for name, _ in symbols]
    return every & _sets.parse(str(mask))((positions, keys, nq, nk, *numbers))


def values_of(mask: Any, batch: int = 0, head: int = 0, kv_head: int = 0) -> Dict[str, Any]:
    """Returns the values of a mask's symbols for one batch element and one head: one number, or a column of numbers for
    the queries, or a row for the keys."""
    values = {}
    for name, tensor in getattr(mask, "_symbols", ()):
        found: Any = _to_numpy(tensor).astype(numpy.int64)
        if name.startswith("per_sequence"):
            found = found.reshape(-1)
            found = found[0 if len(found) == 1 else batch]
        else:
            is_query = name.startswith("per_query")
            found = found.reshape(_symbols.extend(found.shape, "BHN", 1))
            own = (batch, head if is_query else kv_head)
            found = found[tuple(0 if n == 1 else at for n, at in zip(found.shape, own))]
            found = found[:, None] if is_query else found[None, :]
        values[name[len("per_") :]] = found
    return values


def _to_numpy(tensor: Any) -> Any:
    """Returns a tensor of any library and device, or an int, as an array of NumPy."""
    if _tensors.is_torch(tensor):
        tensor = tensor.detach().cpu()
    elif hasattr(tensor, "__cuda_array_interface__") and hasattr(tensor, "get"):  # CuPy
        tensor = tensor.get()
    return numpy.asarray(tensor)


def count_visible(mask: object, nq: int, nk: int, align: str = "bottom_right") -> int:
    """Returns the number of visible pairs of one head."""
    offset = nk - nq if align == "bottom_right" else 0
    keys, total = numpy.arange(nk)[None, :], 0
    for first in range(0, nq, 256):
        rows = numpy.arange(first, min(nq, first + 256))[:, None] + offset
        total += int(numpy.count_nonzero(visible(mask, rows, keys, nq, nk)))
    return total


def shape_scores(
    q: numpy.ndarray,
    k: numpy.ndarray,
    scale: float,
    softcap: Optional[float] = None,
    modify: Any = None,
    bias: Any = 0,
    derive: bool = False,
) -> Tuple[numpy.ndarray, Any]:
    """Returns the final scores of rule A2 in the type of `q` and, with `derive`, their derivative with respect to
    the scaled scores (rule B6). `modify` is a score modification of the array of scores."""
    scores, slope = (q @ k.T) * q.dtype.type(scale), numpy.ones((), q.dtype)
    if softcap is not None:
        cap = q.dtype.type(softcap)
        capped = numpy.tanh(scores / cap)
        scores, slope = cap * capped, 1 - capped**2
    if modify is not None and derive:
        # Central differences in float64, accurate to about ten digits for any function.
        exact = scores.astype(numpy.float64)
        step = 1e-5 * (1 + numpy.abs(exact))
        rise = numpy.asarray(modify(exact + step)) - modify(exact - step)
        slope = (slope * (rise / (2 * step))).astype(q.dtype)
    if modify is not None:
        scores = numpy.broadcast_to(modify(scores), scores.shape)
    return (scores + numpy.asarray(bias, q.dtype)).astype(q.dtype), slope


def clear_uncounted(rows: numpy.ndarray, seen: numpy.ndarray) -> numpy.ndarray:
    """Returns `rows` with zeros before the first and after the last row that has a visible pair (rule A7). The
    rows correspond to the last dimension of `seen`."""
    (counted,) = numpy.nonzero(seen.any(axis=0))
    first, end = (counted[0], counted[-1] + 1) if len(counted) else (0, 0)
    index = numpy.arange(len(rows))[:, None]
    return numpy.where((index >= first) & (index < end), rows, 0).astype(rows.dtype)


def attention_head(
    q: numpy.ndarray,
    k: numpy.ndarray,
    v: numpy.ndarray,
    seen: numpy.ndarray,
    scale: float,
    round_to: Any = None,
    sink: float = -numpy.inf,
    shown: Optional[numpy.ndarray] = None,
    **features: Any,
) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Returns o and lse of one head in the type of `q` (rules A2, A5 to A8). `round_to` rounds the probabilities,
    and `features` are arguments of `shape_scores`. `shown` are the pairs that the mask alone shows, if an
    `attn_mask` hides some of them in `seen`: a NaN in v at such a pair results in NaN."""
    with numpy.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scores, _ = shape_scores(q, k, scale, **features)
        scores = numpy.where(seen, scores, -numpy.inf)
        top = numpy.maximum(scores.max(axis=1, initial=-numpy.inf), q.dtype.type(sink))
        base = numpy.where(numpy.isfinite(top), top, 0)
        weights = numpy.exp(scores - base[:, None])
        total = weights.sum(axis=1) + numpy.exp(q.dtype.type(sink) - base)
        probabilities = weights / numpy.where(total > 0, total, 1)[:, None]
        if round_to is not None:
            probabilities = round_to(probabilities)
        values = clear_uncounted(v, seen if shown is None else shown)
        return probabilities @ values, top + numpy.log(total)


#: Bounds on the relative Frobenius norm of an error.
FROBENIUS = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-5}


class HeadGradients(NamedTuple):
    """The contribution of one query head to the gradients."""

    dq: numpy.ndarray
    dk: numpy.ndarray
    dv: numpy.ndarray
    d_scores: numpy.ndarray  #: gradient of the final scores, and so of a bias
    d_sink: float


def head_gradients(
    q: numpy.ndarray,
    k: numpy.ndarray,
    v: numpy.ndarray,
    do: numpy.ndarray,
    lse: numpy.ndarray,
    delta: numpy.ndarray,
    seen: numpy.ndarray,
    scale: float,
    round_to: Any = None,
    sink: float = -numpy.inf,
    shown: Optional[numpy.ndarray] = None,
    **features: Any,
) -> HeadGradients:
    """Computes rules B1, B3, B6 and B7 in the type of `q`, for some of a head's queries and keys. `delta` is
    `sum(do * o) - d_lse` of each row. `round_to` rounds the operands of products, and `shown` is as in
    `attention_head`. For queries that see no key, only `lse` and `delta` have an effect."""
    round_to = round_to or (lambda values: values)
    shown = seen if shown is None else shown
    queries, outputs = clear_uncounted(q, shown.T), clear_uncounted(do, shown.T)
    with numpy.errstate(invalid="ignore", over="ignore"):
        scores, slope = shape_scores(q, k, scale, derive=True, **features)
        weights = numpy.where(seen, numpy.exp(scores - lse[:, None]), 0).astype(q.dtype)
        d_scores = numpy.where(seen, weights * (do @ v.T - delta[:, None]), 0).astype(q.dtype)
        inner = numpy.where(seen, d_scores * slope, 0).astype(q.dtype)
        d_sink = -float((numpy.exp(sink - lse[lse > -numpy.inf]) * delta[lse > -numpy.inf]).sum())
    inner, factor = round_to(inner), q.dtype.type(scale)
    dq = factor * (inner @ clear_uncounted(k, shown))
    dk = factor * (inner.T @ queries)
    return HeadGradients(dq, dk, round_to(weights).T @ outputs, d_scores, d_sink)


def bf16_from_f32(values: numpy.ndarray) -> numpy.ndarray:
    """Returns the bits of bf16, rounded to nearest even, as uint16. NaN is not supported."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def f32_from_bf16(bits: numpy.ndarray) -> numpy.ndarray:
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def rounder(element: str) -> Any:
    """Returns a function that rounds float arrays to f16, bf16 or f32 and keeps their type."""
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
    """Returns the largest error of one head's `o` against float64, and its bound: twice the error of plain
    arithmetic in float32 with rounded probabilities and results, plus 1e-5. Operands are float32, and
    `features` are arguments of `attention_head`.
    """
    exact, _ = attention_head(
        *(x.astype(numpy.float64) for x in (q, k, v)), seen, scale, **features
    )
    round_to = rounder(element)
    naive, _ = attention_head(q, k, v, seen, scale, round_to, **features)
    bound = 2 * float(numpy.abs(round_to(naive) - exact).max(initial=0)) + 1e-5
    error = numpy.abs(o.astype(numpy.float64) - exact)
    return float("inf") if numpy.isnan(error).any() else float(error.max(initial=0)), bound


def explain_gradient(found: Any, exact: Any, naive: Any, element: str) -> str:
    """Returns why a gradient is wrong; empty if it is right. The error may be up to three times the error of
    `naive`, plain arithmetic in the low precision, plus 1e-5. The relative error may be up to FROBENIUS, unless
    the gradient cancels, as for a row that sees one key."""
    error = numpy.abs(found.astype(numpy.float64) - exact)
    bound = 3 * float(numpy.abs(naive - exact).max(initial=0)) + 1e-5
    worst = float("inf") if numpy.isnan(error).any() else float(error.max(initial=0))
    if not worst <= bound:
        return f"error {worst:.2e} exceeds {bound:.2e}"
    size = float(numpy.linalg.norm(exact))
    cancels = numpy.abs(exact).max(initial=0) < 1e-9
    if not cancels and not numpy.linalg.norm(error) <= FROBENIUS[element] * size:
        relative = float(numpy.linalg.norm(error)) / size
        return f"relative error {relative:.2e} exceeds {FROBENIUS[element]:.0e}"
    return ""
