"""FlexAttention's functions as graphs: what `score_mod` and `mask_mod` do to their indices, to the score
and to the tensors that they capture.

A function is called once, with nodes that write down the operators and the functions of torch that
meet them. What is written down can be computed again: by the compiler's tracer, or on tensors of
indices, which broadcast.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, FrozenSet, Mapping, Optional, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .. import math as traced_math
from .._trace import _is_number
from ..errors import ArgumentError, FlashAttnError, TraceError

_BINARY: Dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "minimum": traced_math.minimum, "maximum": traced_math.maximum,
}  # fmt: skip
_UNARY: Dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "~": operator.invert, "float": lambda x: x * 1.0,
    **{name: getattr(traced_math, name) for name in (
        "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sigmoid", "sin",
        "sqrt", "tanh",
    )},
}  # fmt: skip
#: Other names of the same in torch, without underscores around them.
_NAMES = {
    "add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "truediv": "/",
    "true_divide": "/", "divide": "/", "floor_divide": "//", "floordiv": "//", "remainder": "%",
    "mod": "%", "pow": "**", "lt": "<", "less": "<", "le": "<=", "less_equal": "<=", "gt": ">",
    "greater": ">", "ge": ">=", "greater_equal": ">=", "eq": "==", "ne": "!=", "not_equal": "!=",
    "and": "&", "bitwise_and": "&", "logical_and": "&", "or": "|", "bitwise_or": "|",
    "logical_or": "|", "xor": "^", "bitwise_xor": "^", "logical_xor": "^", "invert": "~",
    "bitwise_not": "~", "logical_not": "~", "negative": "neg", "absolute": "abs",
}  # fmt: skip
_HINT = "docs/flex-attention.md lists what a score_mod and a mask_mod may do"


class Node:
    """A value of a function: an argument of it ("score", "b", "h", "p", "k"), an element of a tensor
    that it captures ("load"), or an operation on such."""

    __slots__ = ("op", "args", "needs")
    __hash__ = object.__hash__

    def __init__(self, op: str, args: Tuple[Any, ...] = ()):
        self.op, self.args = op, args
        #: The arguments that it depends on, and "load" where it does on a tensor.
        self.needs: FrozenSet[str] = frozenset().union(
            *(arg.needs for arg in args if isinstance(arg, Node)), () if args and op != "load" else (op,)
        )

    def __bool__(self) -> bool:
        raise TraceError(
            "expected operations that trace but got the truth of a traced value (if, and, or, not, min, "
            "max or a chain of comparisons); torch.where, and & | ~ are for conditions"
        )

    def __getitem__(self, index: Any) -> "Node":
        if self.op != "load":
            raise TraceError(f"expected a captured tensor to be indexed but got a value; {_HINT}")
        return _load(self.args[0], self.args[1:] + (index if isinstance(index, tuple) else (index,)))

    def __index__(self) -> int:
        raise TraceError(f"expected operations that trace but got a number made of a value; {_HINT}")

    __int__ = __float__ = __index__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("new_ones", "new_zeros"):  # the neutral element of torch's and_masks, or_masks
            return lambda *_, **__: name == "new_ones"
        if name == "device":
            return torch.device("cpu")
        return lambda *args, **kwargs: _record(name, (self, *args), kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, kinds: Any, args: Any = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        return _record(getattr(function, "__name__", str(function)), args, kwargs or {})


def _add_operators() -> None:
    names = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
             "pow": "**", "and": "&", "or": "|", "xor": "^"}  # fmt: skip
    for name, op in names.items():
        setattr(Node, f"__{name}__", lambda self, other, op=op: apply(op, self, other))
        setattr(Node, f"__r{name}__", lambda self, other, op=op: apply(op, other, self))
    for name, op in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):  # fmt: skip
        setattr(Node, f"__{name}__", lambda self, other, op=op: apply(op, self, other))
    for name, op in (("neg", "neg"), ("invert", "~"), ("abs", "abs")):
        setattr(Node, f"__{name}__", lambda self, op=op: apply(op, self))
    Node.__pos__ = lambda self: self  # type: ignore[attr-defined]


_add_operators()


def _lift(value: Any, what: str) -> Any:
    """A node or a number."""
    if isinstance(value, Tensor):
        value = _load(value, ())
    if isinstance(value, Node):
        if value.op == "load" and value.args[0].ndim != len(value.args) - 1:
            raise TraceError(
                f"expected a captured tensor of shape {list(value.args[0].shape)} to be indexed in "
                f"each dimension in {what} but got {len(value.args) - 1} indices"
            )
        return value
    if not _is_number(value):
        raise TraceError(
            f"expected numbers, tensors and traced values in {what} but got {type(value).__name__}; {_HINT}"
        )
    return value


def apply(op: str, *args: Any) -> Any:
    """The operation on nodes, tensors and numbers, of which one at least is a node."""
    args = tuple(_lift(arg, f"'{op}'") for arg in args)
    if op in ("&", "|"):
        for one, other in (args, args[::-1]):
            if isinstance(one, bool):  # with the neutral element, or the other one
                return other if one == (op == "&") else one
    return Node(op, args)


def _load(tensor: Tensor, indices: Tuple[Any, ...]) -> Node:
    for index in indices:
        if not (isinstance(index, Node) or _is_number(index)) or isinstance(index, (bool, float)):
            raise TraceError(
                f"expected integers as indices of a captured tensor but got {type(index).__name__}; {_HINT}"
            )
    if len(indices) > tensor.ndim:
        raise TraceError(
            f"expected at most {tensor.ndim} indices of a captured tensor but got {len(indices)}"
        )
    return Node("load", (tensor, *indices))


def _record(name: str, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A function or a method of torch, by its name, on what holds a node."""
    plain = name.strip("_")
    if plain == "getitem":
        index = args[1]
        if isinstance(args[0], Node):
            return args[0][index]
        return _load(args[0], index if isinstance(index, tuple) else (index,))
    if plain in ("to", "type", "float", "double", "int", "long"):
        dtype = {"float": torch.float32, "double": torch.float64, "int": torch.int32, "long": torch.int64}.get(  # fmt: skip
            plain, args[1] if len(args) > 1 else kwargs.get("dtype")
        )
        if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
            return apply("float", args[0])
        if isinstance(dtype, torch.dtype) and not args[0].needs & {"score", "load"}:
            return args[0]  # indices are integers
    elif not kwargs:
        if plain == "where" and len(args) == 3:
            return apply("where", *args)
        if plain == "square" and len(args) == 1:
            return apply("*", args[0], args[0])
        op = _NAMES.get(plain, plain)
        if op in _BINARY and len(args) == 2 or op in _UNARY and len(args) == 1:
            return apply(op, *args)
        if plain.startswith("r") and _NAMES.get(plain[1:]) in _BINARY and len(args) == 2:
            return apply(_NAMES[plain[1:]], *args[::-1])
    raise TraceError(f"expected operations that trace but got torch's {name}; {_HINT}")


class _Recording(TorchFunctionMode):
    """Sees the calls in which tensors alone decide, such as an element of one at a node."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = [x for arg in args for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        if any(isinstance(x, Node) for x in (*flat, *(kwargs or {}).values())):
            return _record(getattr(func, "__name__", str(func)), args, kwargs or {})
        return func(*args, **(kwargs or {}))


def graph_of(function: Callable[..., Any], what: str, arguments: Tuple[str, ...]) -> Any:
    """What `function`, a `what` of these arguments, returns: a node or a number. Raises TraceError,
    which names what does not trace; what the function itself raises stays."""
    if not callable(function):
        raise TraceError(
            f"expected {what} to be a function or None but got {type(function).__name__}"
        )
    try:
        with _Recording():
            result = function(*map(Node, arguments))
    except FlashAttnError:
        raise
    except (TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise TraceError(
            f"expected operations that trace in {what} but got {type(error).__name__}: {error}"
        ) from error
    if isinstance(result, Tensor) and result.ndim == 0 and result.dtype is torch.bool:
        return bool(result)
    return _lift(result, f"what {what} returns")


def _element(tensor: Tensor, indices: Tuple[Any, ...]) -> Tensor:
    """The elements of a captured tensor at tensors of indices."""
    for index in indices:
        if isinstance(index, Tensor) and index.device != tensor.device:
            raise ArgumentError(
                f"expected a captured tensor on {index.device} as 'query' but got {tensor.device}"
            )
    try:
        return tensor[indices]
    except IndexError as error:
        raise ArgumentError(
            f"expected indices into a captured tensor of shape {list(tensor.shape)} but got {error}"
        ) from None


def compute(node: Any, values: Mapping[str, Any]) -> Any:
    """The graph on `values` of its arguments: traced ones, or tensors of indices that broadcast."""
    known: Dict[int, Any] = {}

    def visit(x: Any) -> Any:
        if not isinstance(x, Node):
            return x
        if id(x) not in known:
            if x.op == "load":
                found = _element(x.args[0], tuple(map(visit, x.args[1:])))
            elif not x.args:
                found = values[x.op]
            elif x.op == "where":
                found = traced_math.where(*map(visit, x.args))
            else:
                found = {**_BINARY, **_UNARY}[x.op](*map(visit, x.args))
            known[id(x)] = found
        return known[id(x)]

    return visit(node)
