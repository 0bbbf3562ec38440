"""FLOP formulas of the operators, for torch's `FlopCounterMode`."""

from __future__ import annotations

from typing import Any

from torch.utils.flop_counter import register_flop_formula

from .._module import STARTS
from .._options import OPERANDS


def _count(
    q: Any, k: Any, v: Any, operands: Any, layout: str, of_scores: int, of_values: int
) -> int:
    """Counts all pairs, even if a mask hides some, as torch does for its own attention. Packed sequences count
    as if they had equal lengths, and keys in pages as if all pages were full, because formulas see shapes only."""
    given = {name: shape for name, shape in zip(OPERANDS, operands) if shape is not None}
    starts = [shape for name, shape in given.items() if name in STARTS]
    at = -2 if layout == "bhsd" else -3
    heads = q[-3] if layout == "bhsd" else q[-2]
    batch = starts[0][0] - 1 if starts else q[0]
    rows, keys = (x[at] * (x[0] if len(x) == 4 else 1) for x in (q, k))
    if "page_table" in given:
        keys = k[at] * given["page_table"][0] * given["page_table"][1]
    return int(2 * heads * rows * keys * (of_scores * q[-1] + of_values * v[-1]) // max(batch, 1))


def _forward(q: Any, k: Any, v: Any, *operands: Any, layout: str = "bhsd", **__: Any) -> int:
    return _count(q, k, v, operands, layout, 1, 1)


def _backward(
    d_o: Any, d_lse: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *operands: Any,
    layout: str = "bhsd", **__: Any,
) -> int:  # fmt: skip
    return _count(q, k, v, operands, layout, 3, 2)


def register(attention: Any, attention_backward: Any) -> None:
    """Registers the formulas of both operators with torch."""
    register_flop_formula(attention)(_forward)
    register_flop_formula(attention_backward)(_backward)
