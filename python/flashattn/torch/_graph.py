"""FlexAttention's functions as graphs: the operations that `score_mod` and `mask_mod` apply to the
indices, to the score and to captured tensors.

A function is called once, with nodes that record the operators and torch functions that are applied to
them. The graph can then be evaluated by the compiler's tracer, or on tensors of indices, which broadcast.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .. import _torch, _trace
from .. import math as traced_math
from .._trace import _is_number
from ..errors import ArgumentError, FlashAttnError, TraceError

_BINARY: Dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<<": operator.lshift,
    ">>": operator.rshift,
    "minimum": traced_math.minimum, "maximum": traced_math.maximum,
}  # fmt: skip
#: The types that a value may be cast to. The operation has the name of the type.
_CASTS: Dict[torch.dtype, str] = {
    getattr(torch, name): name for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64",
    )
}  # fmt: skip
#: Methods that cast, and their types.
_CAST_METHODS = {
    "bool": "bool", "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64",
    "bfloat16": "bfloat16", "half": "float16", "float": "float32", "double": "float64",
}  # fmt: skip
#: Casts that keep all digits of a score, and therefore are linear.
WIDE = ("float32", "float64")


def _cast(dtype: torch.dtype, value: Any) -> Any:
    if isinstance(value, _trace.Traced):
        return _trace.cast(value, _CASTS[dtype])
    return value.to(dtype) if isinstance(value, Tensor) else torch.tensor(value).to(dtype).item()


_UNARY: Dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "~": operator.invert,
    **{name: functools.partial(_cast, dtype) for dtype, name in _CASTS.items()},
    **{name: getattr(traced_math, name) for name in (
        "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sigmoid", "sin",
        "sqrt", "tanh",
    )},
}  # fmt: skip
#: torch's names of these operations, without leading and trailing underscores.
_NAMES = {
    "add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "truediv": "/",
    "true_divide": "/", "divide": "/", "floor_divide": "//", "floordiv": "//", "remainder": "%",
    "mod": "%", "pow": "**", "lt": "<", "less": "<", "le": "<=", "less_equal": "<=", "gt": ">",
    "greater": ">", "ge": ">=", "greater_equal": ">=", "eq": "==", "ne": "!=", "not_equal": "!=",
    "and": "&", "bitwise_and": "&", "logical_and": "&", "or": "|", "bitwise_or": "|",
    "logical_or": "|", "xor": "^", "bitwise_xor": "^", "logical_xor": "^", "invert": "~",
    "bitwise_not": "~", "logical_not": "~", "negative": "neg", "absolute": "abs",
    "lshift": "<<", "bitwise_left_shift": "<<", "rshift": ">>", "bitwise_right_shift": ">>",
    "clamp_min": "maximum", "clamp_max": "minimum", "max": "maximum", "min": "minimum",
}  # fmt: skip
_HINT = "docs/flex-attention.md lists what a score_mod and a mask_mod may do"


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return function(*args, **options)


#: Calls a function outside the graph of `torch.compile`. With fullgraph=True, torch's error quotes the reason.
outside = _torch.outside = torch.compiler.disable(
    _call,
    reason="expected fullgraph=False for a score_mod or a block_mask, which flashattn reads itself at each call",
)


class Node:
    """A value in a function: an argument ("score", "b", "h", "p", "k"), an element of a captured tensor
    ("load"), or an operation on nodes and numbers."""

    __slots__ = ("op", "args", "needs")
    __hash__ = object.__hash__

    def __init__(self, op: str, args: Tuple[Any, ...] = ()):
        self.op, self.args = op, args
        #: The arguments that the value depends on, and "load" if it depends on a tensor.
        self.needs: FrozenSet[str] = frozenset().union(
            *(arg.needs for arg in args if isinstance(arg, Node)), () if args and op != "load" else (op,)
        )

    def __bool__(self) -> bool:
        raise TraceError(
            "expected traceable operations but got a traced value as condition (if, and, or, not, min, max "
            "or a chain of comparisons); use torch.where, &, | and ~"
        )

    def __getitem__(self, index: Any) -> "Node":
        if self.op != "load":
            raise TraceError(f"expected an index on a captured tensor but got an index on a traced value; {_HINT}")
        return _load(self.args[0], self.args[1:] + (index if isinstance(index, tuple) else (index,)))

    def __index__(self) -> int:
        raise TraceError("expected traceable operations but got a conversion of a traced value to a number; "
                         f"{_HINT}")

    __int__ = __float__ = __index__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("new_ones", "new_zeros"):  # torch's and_masks and or_masks start with these constants
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
             "pow": "**", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}  # fmt: skip
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
    """Returns a value as a node or a number. Raises TraceError."""
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
    """Returns the node of an operation on nodes, tensors and numbers."""
    args = tuple(_lift(arg, f"'{op}'") for arg in args)
    if op in ("&", "|"):
        for one, other in (args, args[::-1]):
            if isinstance(one, bool):  # a neutral or an absorbing element
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
    """Records a function or a method of torch, by its name, with arguments that contain a node."""
    plain = name.strip("_")
    if plain == "getitem":
        index = args[1]
        if isinstance(args[0], Node):
            return args[0][index]
        return _load(args[0], index if isinstance(index, tuple) else (index,))
    if plain in ("to", "type") or plain in _CAST_METHODS:
        return _record_cast(name, args, kwargs)
    if plain in ("clamp", "clip", "relu"):
        return _record_clamp(plain, args, kwargs)
    if not kwargs:
        if plain == "where" and len(args) == 3:
            return apply("where", *args)
        if plain == "square" and len(args) == 1:
            return apply("*", args[0], args[0])
        if plain == "full_like" and len(args) == 2:
            return apply("where", True, args[1], args[1])  # a node, because a number may be a dimension
        if plain in ("max", "min") and not isinstance(args[-1], Node):
            args = args[:1]  # a reduction along a dimension, which is refused below
        op = _NAMES.get(plain, plain)
        if op in _BINARY and len(args) == 2 or op in _UNARY and len(args) == 1:
            return apply(op, *args)
        if plain.startswith("r") and _NAMES.get(plain[1:]) in _BINARY and len(args) == 2:
            return apply(_NAMES[plain[1:]], *args[::-1])
    raise TraceError(f"expected traceable operations but got torch's {name}; {_HINT}")


def _record_cast(name: str, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    given = (*args[1:], *kwargs.values())
    type = _CAST_METHODS.get(name.strip("_"))
    if type is None and len(given) == 1 and isinstance(given[0], torch.dtype):
        type = _CASTS.get(given[0])
    elif given:
        type = None
    if type is None:
        raise TraceError(
            "expected a cast to a Boolean, integer or float type but got torch's "
            f"{name}({', '.join(map(str, given))}); {_HINT}"
        )
    if type in ("int32", "int64") and _is_index(args[0]):
        return args[0]
    return apply(type, args[0])


def _record_clamp(name: str, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Records a clamp with optional bounds. `relu` is a clamp with the lower bound 0."""
    value, *bounds = args
    low, high = (*bounds, None, None)[:2] if name != "relu" else (0, None)
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    value = value if low is None else apply("maximum", value, low)
    return value if high is None else apply("minimum", value, high)


def _is_index(value: Any) -> bool:
    """Returns whether the value is an integer computed from indices, which a cast to 32 or 64 bits keeps."""
    if not isinstance(value, Node):
        return not isinstance(value, bool) and _trace._type_of(value) == "i32"
    if value.op in ("b", "h", "p", "k"):
        return True
    operations = ("neg", "+", "-", "*", "//", "%", "minimum", "maximum", "abs")
    return value.op in operations and all(map(_is_index, value.args))


class _Recording(TorchFunctionMode):
    """Records calls that torch dispatches by tensors alone, such as a tensor that is indexed by a node."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = [x for arg in args for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        if any(isinstance(x, Node) for x in (*flat, *(kwargs or {}).values())):
            return _record(getattr(func, "__name__", str(func)), args, kwargs or {})
        return func(*args, **(kwargs or {}))


def graph_of(function: Callable[..., Any], what: str, arguments: Tuple[str, ...]) -> Any:
    """Returns the result of `function`, a `what` with these arguments: a node or a number. Raises TraceError,
    which names the operation that cannot be traced. Other exceptions of the function propagate."""
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
            f"expected traceable operations in {what} but got {type(error).__name__}: {error}"
        ) from error
    if isinstance(result, Tensor) and result.ndim == 0 and result.dtype is torch.bool:
        return bool(result)
    return _lift(result, f"what {what} returns")


def fingerprint(values: Sequence[Any]) -> Any:
    """Returns a key for the results of `compute` on these graphs, with the current contents of captured
    tensors. The key is valid while the graphs are alive. Returns None if torch does not count the writes to
    a captured tensor."""
    known: Dict[int, int] = {}
    found: List[Any] = []

    def visit(x: Any) -> Any:
        if isinstance(x, Tensor):
            return id(x), x.data_ptr(), x._version
        if not isinstance(x, Node):
            return type(x), repr(x)
        if id(x) not in known:
            operation = x.op, *map(visit, x.args)
            known[id(x)] = len(found)
            found.append(operation)
        return known[id(x)]

    try:
        return (*map(visit, values), *found)
    except RuntimeError:  # inference tensors have no version counter
        return None


#: Returns the pairs that a mask shows as a tensor that broadcasts to the scores; None for all pairs.
Shown = Callable[[], Optional[Tensor]]


def _element(tensor: Tensor, indices: Tuple[Any, ...], shown: Shown) -> Tensor:
    """Returns the elements of a captured tensor at tensors of indices. An index past the end reads element 0
    if the mask hides the pair. For a visible pair, it is an error on the CPU; on a GPU it also reads element
    0, because the host does not wait for the GPU."""
    within: List[Any] = []
    for index, size in zip(indices, tensor.shape):
        if not isinstance(index, Tensor):
            within.append(index)
            continue
        if index.device != tensor.device:
            raise ArgumentError(
                f"expected a captured tensor on {index.device} as 'query' but got {tensor.device}"
            )
        is_past = (index < -size) | (index >= size)
        if index.is_cpu and is_past.any():
            pairs = shown()
            is_read = is_past if pairs is None else is_past & pairs
            if is_read.any():
                raise ArgumentError(
                    f"expected indices from {-size} to {size - 1} of a captured tensor of shape "
                    f"{list(tensor.shape)} but got {int(index.expand(is_read.shape)[is_read][0])}"
                )
        within.append(torch.where(is_past, 0, index))
    try:
        return tensor[tuple(within)]
    except IndexError as error:
        raise ArgumentError(
            f"expected indices into a captured tensor of shape {list(tensor.shape)} but got {error}"
        ) from None


def indices(batch: int, heads: int, rows: int, keys: int, device: Any) -> Any:
    """Returns each argument of a function as a tensor of indices. The tensors broadcast to the scores."""
    shapes = {"b": (batch, 1, 1, 1), "h": (heads, 1, 1), "p": (rows, 1), "k": (keys,)}
    return {
        name: torch.arange(shape[0], dtype=torch.int32, device=device).reshape(shape)
        for name, shape in shapes.items()
    }


def compute(node: Any, values: Mapping[str, Any], shown: Shown = lambda: None) -> Any:
    """Evaluates a graph on the `values` of its arguments: traced values, or tensors of indices, which
    broadcast. Raises ArgumentError if the index of a `shown` pair is past the end of a captured tensor."""
    known: Dict[int, Any] = {}

    def visit(x: Any) -> Any:
        if not isinstance(x, Node):
            return x
        if id(x) not in known:
            if x.op == "load":
                found = _element(x.args[0], tuple(map(visit, x.args[1:])), shown)
            elif not x.args:
                found = values[x.op]
            elif x.op == "where":
                found = traced_math.where(*map(visit, x.args))
            else:
                found = {**_BINARY, **_UNARY}[x.op](*map(visit, x.args))
            known[id(x)] = found
        return known[id(x)]

    return visit(node)
