"""Functions for `score_mod`. They accept traced values, numbers, NumPy arrays and torch tensors, so that
a `score_mod` can also be called directly on arrays."""

from __future__ import annotations

import builtins
import sys
from typing import Any, List

import numpy

from . import _trace
from ._trace import Traced

__all__ = [
    "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "maximum", "minimum", "rsqrt",
    "sigmoid", "sin", "sqrt", "tanh", "where",
]  # fmt: skip


def __dir__() -> List[str]:
    return sorted(__all__)


def _is_traced(*values: Any) -> bool:
    return any(isinstance(value, Traced) for value in values)


def _outside(name: str, *values: Any) -> Any:
    """Computes the function of numbers and arrays: by torch if a value is a tensor, otherwise by NumPy."""
    torch = sys.modules.get("torch")
    tensors = [v for v in values if torch is not None and isinstance(v, torch.Tensor)]
    if torch is None or not tensors:
        result = getattr(numpy, name)(*values)
        return result.item() if isinstance(result, numpy.generic) else result
    values = tuple(
        v if isinstance(v, torch.Tensor) else torch.as_tensor(v, device=tensors[0].device)
        for v in values
    )
    return getattr(torch, name)(*values)


def _unary(name: str, value: Any) -> Any:
    return (
        _trace.unary(f"math.{name}", f"{name}()", value)
        if _is_traced(value)
        else _outside(name, value)
    )


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` if the condition holds, otherwise `otherwise`, elementwise. Both values are computed."""
    if _is_traced(condition, then, otherwise):
        return _trace.select(condition, then, otherwise)
    return _outside("where", condition, then, otherwise)


def minimum(x: Any, y: Any) -> Any:
    """The smaller operand; NaN if either operand is NaN."""
    return _trace.binary("minimum", x, y) if _is_traced(x, y) else _outside("minimum", x, y)


def maximum(x: Any, y: Any) -> Any:
    """The greater operand; NaN if either operand is NaN."""
    return _trace.binary("maximum", x, y) if _is_traced(x, y) else _outside("maximum", x, y)


def abs(x: Any) -> Any:
    """The absolute value. Python's built-in `abs` accepts traced values too."""
    return builtins.abs(x)


def exp(x: Any) -> Any:
    """e to the power of x."""
    return _unary("exp", x)


def exp2(x: Any) -> Any:
    """2 to the power of x."""
    return _unary("exp2", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return _unary("log", x)


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return _unary("log2", x)


def sqrt(x: Any) -> Any:
    """The square root."""
    return _unary("sqrt", x)


def rsqrt(x: Any) -> Any:
    """1 over the square root."""
    return _trace.unary("math.rsqrt", "rsqrt()", x) if _is_traced(x) else 1 / sqrt(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _unary("tanh", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return 1 / (1 + exp(-x))


def sin(x: Any) -> Any:
    """The sine of an angle in radians."""
    return _unary("sin", x)


def cos(x: Any) -> Any:
    """The cosine of an angle in radians."""
    return _unary("cos", x)


def erf(x: Any) -> Any:
    """The error function."""
    if _is_traced(x):
        return _trace.unary("math.erf", "erf()", x)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.erf(x)
    from math import erf as erf_of_number

    result = numpy.vectorize(erf_of_number, otypes=[float])(x)
    return result.item() if result.ndim == 0 else result


def floor(x: Any) -> Any:
    """The greatest integer that is not above x, as a float."""
    return _unary("floor", x)


def ceil(x: Any) -> Any:
    """The least integer that is not below x, as a float."""
    return _unary("ceil", x)
