"""FLOP formulas of the operators, for torch's `FlopCounterMode`."""

from __future__ import annotations

from typing import Any

from torch.utils.flop_counter import register_flop_formula


def _count(q: Any, k: Any, v: Any, layout: str, of_scores: int, of_values: int) -> int:
    """Counts all pairs, even if a mask hides some, as torch does for its own attention."""
    batch, heads, rows = q[:3] if layout == "bhsd" else (q[0], q[2], q[1])
    keys = k[2] if layout == "bhsd" else k[1]
    return int(2 * batch * heads * rows * keys * (of_scores * q[3] + of_values * v[3]))


def _forward(q: Any, k: Any, v: Any, *_: Any, layout: str = "bhsd", **__: Any) -> int:
    return _count(q, k, v, layout, 1, 1)


def _backward(
    d_o: Any, d_lse: Any, q: Any, k: Any, v: Any, *_: Any, layout: str = "bhsd", **__: Any
) -> int:
    return _count(q, k, v, layout, 3, 2)


def register(attention: Any, attention_backward: Any) -> None:
    """Registers the formulas of both operators with torch."""
    register_flop_formula(attention)(_forward)
    register_flop_formula(attention_backward)(_backward)
