"""Traces a Python function of a score to the region of operations that is compiled into a kernel.

The function is called once, with values that record the operations on them. An operation that Python does
not expose to a value (`if`, `and`, a call into another library) cannot be recorded, and raises a TraceError
that names the operation.
"""

from __future__ import annotations

import inspect
import math
import numbers
import struct
import types
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .errors import FlashAttnError, TraceError

#: A function of (score, b, h, p, k), and of auxiliary tensors if there are any, that returns the new score.
ScoreMod = Union[
    Callable[[Any, Any, Any, Any, Any], Any],
    Callable[[Any, Any, Any, Any, Any, Any], Any],
    Callable[[Any, Any, Any, Any, Any, Any, Any], Any],
    Callable[[Any, Any, Any, Any, Any, Any, Any, Any], Any],
    Callable[[Any, Any, Any, Any, Any, Any, Any, Any, Any], Any],
]

_ARGUMENTS = ("score", "b", "h", "p", "k")
#: The last four arguments of the block. Their names differ from %q, %k and so on, the arguments of the func.
_INDICES = ("%batch", "%head", "%position", "%key")
_HINT = "use the functions of flashattn.math"
_TABLES = "pass a table for b and h in aux_tensors, and the values of any other table as bias"
#: The names of auxiliary tensors, which a score_mod takes after its other arguments.
AUX = ("aux0", "aux1", "aux2", "aux3")
#: The types of auxiliary tensors: pairs of an element type and a rank.
AuxTypes = Tuple[Tuple[str, int], ...]


class _Body:
    """The operations recorded so far. The same operation on the same operands is recorded once."""

    def __init__(self) -> None:
        self.lines: List[str] = []
        self.known: Dict[str, "Traced"] = {}

    def add(self, operation: str, type: str) -> "Traced":
        value = self.known.get(operation)
        if value is None:
            name = f"%v{len(self.lines)}"
            self.lines.append(f"{name} = {operation}")
            value = self.known[operation] = Traced(self, name, type)
        return value

    def index(self, which: int) -> "Traced":
        """Returns an argument of the block, one of _INDICES, as an integer."""
        return self.add(f"arith.index_cast {_INDICES[which]} : index to i32", "i32")

    def constant(self, number: Any, type: str) -> "Traced":
        if type == "i1":
            return self.add(f"arith.constant {'true' if number else 'false'}", type)
        if type == "i32":
            if not -(1 << 31) <= number < 1 << 31:
                raise TraceError(f"expected an integer of 32 bits in score_mod but got {number}")
            return self.add(f"arith.constant {int(number)} : i32", type)
        return self.add(f"arith.constant {_format_f32(float(number))} : f32", type)


def _format_f32(number: float) -> str:
    try:
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:
        bits = 0xFF800000 if number < 0 else 0x7F800000
    # NaN and infinities have no decimal text in MLIR.
    return format(number, ".17e") if bits & 0x7F800000 != 0x7F800000 else f"0x{bits:08X}"


def _is_number(value: Any) -> bool:
    # NumPy registers its number types with `numbers`, except for numpy.bool_.
    return isinstance(value, (bool, numbers.Real)) or type(value).__name__ == "bool_"


def _type_of(value: Any) -> str:
    """Returns f32, i32 or i1: the type of a traced value, or the type to which a number converts."""
    if isinstance(value, Traced):
        return value._type
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "i1"
    return "i32" if isinstance(value, numbers.Integral) else "f32"


def _describe(value: Any) -> str:
    return f"a value of {type(value).__name__}"


_RANKS = ("i1", "i32", "f32")


def _body_of(values: Tuple[Any, ...]) -> _Body:
    return next(value._body for value in values if isinstance(value, Traced))


def _convert(body: _Body, value: Any, type: str) -> "Traced":
    """Returns a traced value or a number as `type`. True is 1, and a number is true unless it is 0."""
    if not isinstance(value, Traced):
        return body.constant(value, type)
    if value._type == type:
        return value
    if type == "i1":
        zero = body.constant(0, value._type)
        compare = "cmpf une" if value._type == "f32" else "cmpi ne"
        return body.add(f"arith.{compare}, {value._name}, {zero._name} : {value._type}", "i1")
    if value._type == "i1":
        one, zero = body.constant(1, type), body.constant(0, type)
        return body.add(f"arith.select {value._name}, {one._name}, {zero._name} : {type}", type)
    if type == "f32":
        return body.add(f"arith.sitofp {value._name} : i32 to f32", type)
    return body.add(f"arith.fptosi {value._name} : f32 to i32", type)


def _promote(what: str, values: Tuple[Any, ...], least: str = "i32") -> Tuple["Traced", ...]:
    """Returns all values in the widest of their types and `least`, in the order i1, i32, f32."""
    for value in values:
        if not isinstance(value, Traced) and not _is_number(value):
            raise TraceError(
                f"expected numbers and traced values as operands of {what} in score_mod but got "
                f"{_describe(value)}"
            )
    type = _RANKS[max(_RANKS.index(least), *(_RANKS.index(_type_of(value)) for value in values))]
    body = _body_of(values)
    return tuple(_convert(body, value, type) for value in values)


def _emit(operation: str, *operands: "Traced", type: Optional[str] = None) -> "Traced":
    first = operands[0]
    names = ", ".join(operand._name for operand in operands)
    return first._body.add(f"{operation} {names} : {first._type}", type or first._type)


#: The operations for f32, i32 and i1; None if there is no operation for the type.
_BINARY: Dict[str, Tuple[Optional[str], Optional[str], Optional[str]]] = {
    "+": ("arith.addf", "arith.addi", None),
    "-": ("arith.subf", "arith.subi", None),
    "*": ("arith.mulf", "arith.muli", None),
    "/": ("arith.divf", None, None),
    "//": (None, "arith.floordivsi", None),
    "&": (None, "arith.andi", "arith.andi"),
    "|": (None, "arith.ori", "arith.ori"),
    "^": (None, "arith.xori", "arith.xori"),
    "<<": (None, "arith.shli", None),
    ">>": (None, "arith.shrsi", None),
    "minimum": ("arith.minimumf", "arith.minsi", None),
    "maximum": ("arith.maximumf", "arith.maxsi", None),
}
# A product and a sum may be contracted to one operation, which rounds once.
_CONTRACTED = ("arith.addf", "arith.subf", "arith.mulf")
_COMPARE = {"<": ("olt", "slt"), "<=": ("ole", "sle"), ">": ("ogt", "sgt"), ">=": ("oge", "sge"),
            "==": ("oeq", "eq"), "!=": ("une", "ne")}  # fmt: skip


def binary(symbol: str, lhs: Any, rhs: Any) -> "Traced":
    if symbol == "/" and not isinstance(rhs, Traced) and _is_number(rhs) and rhs and 1 / rhs:
        # Less accurate by an ulp than a division, which takes a GPU about a dozen instructions.
        return binary("*", lhs, 1 / float(rhs))
    if symbol in ("<<", ">>") and not isinstance(rhs, Traced) and _is_number(rhs):
        if not 0 <= rhs < 32:
            raise TraceError(f"expected a shift by 0 to 31 bits in score_mod but got {rhs}")
    least = "f32" if symbol == "/" else "i1" if symbol in "&|^" else "i32"
    lhs, rhs = _promote(f"'{symbol}'", (lhs, rhs), least)
    name = _BINARY[symbol][2 - _RANKS.index(lhs._type)]
    if name is None and symbol == "//":
        return _emit("math.floor", _emit("arith.divf", lhs, rhs))
    if name is None:
        raise TraceError(f"expected integers as operands of '{symbol}' in score_mod but got f32")
    value = f"{name} {lhs._name}, {rhs._name}"
    flags = " fastmath<contract>" if name in _CONTRACTED else ""
    return lhs._body.add(f"{value}{flags} : {lhs._type}", lhs._type)


def compare(symbol: str, lhs: Any, rhs: Any) -> "Traced":
    lhs, rhs = _promote(f"'{symbol}'", (lhs, rhs))
    is_float = lhs._type == "f32"
    predicate = _COMPARE[symbol][0 if is_float else 1]
    return _emit(f"arith.cmp{'f' if is_float else 'i'} {predicate},", lhs, rhs, type="i1")


def modulo(lhs: Any, rhs: Any) -> "Traced":
    """Returns the remainder as in Python, with the sign of the divisor."""
    return binary("-", lhs, binary("*", binary("//", lhs, rhs), rhs))


def power(lhs: Any, rhs: Any) -> "Traced":
    if not isinstance(rhs, Traced) and _is_number(rhs) and rhs == int(rhs) and 1 <= rhs <= 4:
        result = lhs
        for _ in range(int(rhs) - 1):
            result = binary("*", result, lhs)
        return result if _type_of(rhs) != "f32" else _convert(result._body, result, "f32")
    if not isinstance(rhs, Traced) and _is_number(rhs) and rhs == 0.5:
        return unary("math.sqrt", "'**'", lhs)
    return _emit("math.powf", *_promote("'**'", (lhs, rhs), "f32"))


def unary(operation: str, what: str, value: Any) -> "Traced":
    """Records an operation of the math dialect on a float."""
    return _emit(operation, *_promote(what, (value,), "f32"))


def absolute(value: Any) -> "Traced":
    (value,) = _promote("abs()", (value,))
    return _emit("math.absf" if value._type == "f32" else "math.absi", value)


#: The number of high bits of an i32 that a narrower type does not keep.
_NARROW = {"int8": 24, "int16": 16}


def cast(value: Any, type: str) -> "Traced":
    """Converts a traced value to an array type. A float is truncated toward zero to an integer, and rounded to a
    shorter float type. An integer loses the bits that a narrower type lacks. The result is an i32, an f32 or an
    i1; f64 is computed in f32."""
    body = value._body
    if type in ("bfloat16", "float16"):
        value, name = _convert(body, value, "f32"), "bf16" if type == "bfloat16" else "f16"
        short = body.add(f"arith.truncf {value._name} : f32 to {name}", name)
        return body.add(f"arith.extf {short._name} : {name} to f32", "f32")
    if type in ("float32", "float64", "bool"):
        return _convert(body, value, "i1" if type == "bool" else "f32")
    value = _convert(body, value, "i32")
    if type == "uint8":
        return binary("&", value, 255)
    if type in _NARROW:
        return binary(">>", binary("<<", value, _NARROW[type]), _NARROW[type])
    return value


def select(condition: Any, then: Any, otherwise: Any) -> Any:
    if not isinstance(condition, Traced):
        if not _is_number(condition):
            _promote("where()", (condition, then, otherwise))
        return then if condition else otherwise
    condition, *_ = (_convert(condition._body, condition, "i1"),)
    for value in (then, otherwise):
        if not isinstance(value, Traced) and not _is_number(value):
            _promote("where()", (condition, value))
    type = _RANKS[max(_RANKS.index(_type_of(value)) for value in (then, otherwise))]
    then, otherwise = (_convert(condition._body, value, type) for value in (then, otherwise))
    return condition._body.add(
        f"arith.select {condition._name}, {then._name}, {otherwise._name} : {type}", type
    )


def _refuse(what: str, hint: str = _HINT) -> Any:
    raise TraceError(f"expected traceable operations in score_mod but got {what}; {hint}")


_UFUNCS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/",
           "floor_divide": "//", "remainder": "%", "power": "**", "less": "<", "less_equal": "<=",
           "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
           "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}  # fmt: skip


def _apply(symbol: str, lhs: Any, rhs: Any) -> "Traced":
    if symbol in _COMPARE:
        return compare(symbol, lhs, rhs)
    special = {"%": modulo, "**": power}.get(symbol)
    return special(lhs, rhs) if special else binary(symbol, lhs, rhs)


class Traced:
    """A value inside the function: an f32, a 32-bit integer, or the truth value of a comparison."""

    __slots__ = ("_body", "_name", "_type")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, body: _Body, name: str, type: str):
        self._body, self._name, self._type = body, name, type

    def __repr__(self) -> str:
        return f"<traced {self._type}>"

    def __neg__(self):
        if self._type == "f32":
            return _emit("arith.negf", self)
        return binary("-", 0, self)

    def __pos__(self):
        return self

    def __abs__(self):
        return absolute(self)

    def __invert__(self):
        if self._type == "f32":
            raise TraceError("expected an integer as operand of '~' in score_mod but got f32")
        return binary("^", self, True if self._type == "i1" else -1)

    def __floor__(self):
        return unary("math.floor", "floor()", self)

    def __ceil__(self):
        return unary("math.ceil", "ceil()", self)

    def __bool__(self):
        _refuse(
            "a traced value as condition (if, and, or, not, min, max or a chained comparison)",
            "use where, minimum and maximum of flashattn.math, and & | ~",
        )

    def __float__(self):
        _refuse("float() or a function that calls it, such as one of Python's math")

    def __int__(self):
        _refuse("int()", "use flashattn.math.floor")

    def __index__(self):
        _refuse("an index made of a traced value", _TABLES)

    def __complex__(self):
        _refuse("complex()")

    def __round__(self, digits=None):
        _refuse("round()", "use flashattn.math.floor")

    def __iter__(self):
        _refuse("a loop over a traced value")

    def __len__(self):
        _refuse("len()")

    def __getitem__(self, key):
        _refuse("an element of a traced value")

    def __contains__(self, value):
        _refuse("in")

    def __getattr__(self, name):
        # Python looks up such names to find out which protocols an object supports.
        if name.startswith("__"):
            raise AttributeError(name)
        return _refuse(f"the attribute '{name}' of a traced value")

    def __array__(self, *_, **__):
        _refuse("an array of numpy made of a traced value", f"{_HINT}; {_TABLES}")

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        # NumPy calls this for operators with a NumPy scalar as left operand.
        symbol = _UFUNCS.get(ufunc.__name__)
        if symbol and method == "__call__" and not options:
            return _apply(symbol, *inputs)
        return _refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function, kinds, arguments, options):
        _refuse(f"numpy.{function.__name__}")

    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), options=None):
        _refuse(f"torch.{getattr(function, '__name__', function)}")


class TracedTensor:
    """An auxiliary tensor inside the function, whose elements are read by batch and head."""

    __slots__ = ("_body", "_name", "_element", "_by")

    def __init__(self, body: _Body, name: str, element: str, rank: int):
        self._body, self._name, self._element = body, name, element
        self._by: List[Optional[str]] = [None] * rank  #: the index of each dimension

    def __repr__(self) -> str:
        return f"<traced {'x'.join(['?'] * len(self._by) + [self._element])}>"

    @property
    def ndim(self) -> int:
        return len(self._by)

    def __getitem__(self, key: Any) -> Traced:
        indices = key if isinstance(key, tuple) else (key,)
        if len(indices) != len(self._by):
            raise TraceError(
                f"expected {len(self._by)} indices of {self._name!r} in score_mod but got {len(indices)}"
            )
        # The values of `trace` for the batch and the head.
        known = {
            value._name: index
            for index, value in zip(("%batch", "%head"), map(self._body.index, (0, 1)))
        }
        names = []
        for dim, index in enumerate(indices):
            name = known.get(index._name) if isinstance(index, Traced) else None
            if name is None:
                raise TraceError(
                    f"expected b or h as index of dimension {dim} of {self._name!r} in score_mod but got "
                    f"{index!r}; pass the values of a table with other indices as bias"
                )
            if self._by[dim] not in (None, name):
                raise TraceError(
                    f"expected one of b and h as index of dimension {dim} of {self._name!r} in score_mod but "
                    "got both"
                )
            self._by[dim] = name
            names.append(name)
        sizes = "?x" * len(names)
        text = f"memref.load %{self._name}[{', '.join(names)}] : memref<{sizes}{self._element}>"
        value = self._body.add(text, self._element)
        if self._element in ("f16", "bf16"):
            return self._body.add(f"arith.extf {value._name} : {self._element} to f32", "f32")
        return value

    def __iter__(self) -> Any:
        _refuse("a loop over an auxiliary tensor", "index it by b and h")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _refuse(f"the attribute '{name}' of an auxiliary tensor", "index it by b and h")


def _add_operators() -> None:
    names = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
             "pow": "**", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}  # fmt: skip
    for name, symbol in names.items():

        def forward(self, other, symbol=symbol):
            return _apply(symbol, self, other)

        def reflected(self, other, symbol=symbol):
            return _apply(symbol, other, self)

        setattr(Traced, f"__{name}__", forward)
        setattr(Traced, f"__r{name}__", reflected)
    for name, symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):  # fmt: skip
        setattr(
            Traced, f"__{name}__", lambda self, other, symbol=symbol: compare(symbol, self, other)
        )


_add_operators()


def trace(function: Callable[..., Any], aux: AuxTypes = ()) -> str:
    """Returns the block of the region `score_mod` that computes `function(score, b, h, p, k, *aux_tensors)`, with
    auxiliary tensors of the types `aux`.

    Raises TraceError, which names the operation that cannot be traced. Most exceptions of the function itself
    are propagated.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        inspect.signature(function).bind(*_ARGUMENTS, *aux)
    except TypeError:
        names = ", ".join((*_ARGUMENTS, *AUX[: len(aux)]))
        raise TraceError(
            f"expected score_mod to take ({names}) but got {name}{inspect.signature(function)}"
        ) from None
    except ValueError:  # a callable without a Python signature
        pass
    body = _Body()
    arguments: List[Any] = [Traced(body, "%score", "f32")]
    arguments += map(body.index, range(len(_INDICES)))
    arguments += [TracedTensor(body, name, *type) for name, type in zip(AUX, aux)]
    try:
        result = function(*arguments)
    except FlashAttnError:
        raise
    except (TypeError, AttributeError, IndexError) as error:
        raise TraceError(
            f"expected traceable operations in score_mod but got {type(error).__name__}: {error}; {_HINT}"
        ) from error
    if not isinstance(result, Traced) and not _is_number(result):
        raise TraceError(f"expected score_mod to return a score but got {_describe(result)}")
    result = _convert(body, result, "f32")
    if result._body is not body:
        raise TraceError("expected score_mod to return a score but got a value of another trace")
    lines = _without_unused([*body.lines, f"flashattn.yield {result._name} : f32"])
    block = ", ".join(["%score: f32", *(f"{index}: index" for index in _INDICES)])
    return f"      ^bb0({block}):\n" + "".join(f"        {line}\n" for line in lines)


def _without_unused(lines: List[str]) -> List[str]:
    """Removes operations without a use, and numbers the values in order of their creation."""
    kept: List[str] = []
    needed = set()
    for line in reversed(lines):
        result, equals, operation = line.partition(" = ")
        if equals and result not in needed:
            continue
        kept.append(line)
        text = operation if equals else line
        needed.update(word.strip(",") for word in text.split() if word.startswith("%v"))
    numbers_of = {}
    for line in reversed(kept):
        result, equals, _ = line.partition(" = ")
        if equals:
            numbers_of[result] = f"%{len(numbers_of)}"

    def rename(word: str) -> str:
        return numbers_of.get(word.strip(","), word.strip(",")) + "," * word.endswith(",")

    return [
        " ".join(rename(word) if word.startswith("%v") else word for word in line.split(" "))
        for line in reversed(kept)
    ]


_texts: Dict[Any, str] = {}
_MAX_TEXTS = 4096


def text_of(score_mod: Any, aux: AuxTypes = ()) -> str:
    """Returns `trace(score_mod, aux)`, cached by the code and the captured numbers. Raises TraceError."""
    if not callable(score_mod):
        raise TraceError(
            f"expected score_mod to be a function or None but got {type(score_mod).__name__}"
        )
    key = _key_of(score_mod)
    if key is None:
        return trace(score_mod, aux)
    key = (key, aux)
    text = _texts.get(key)
    if text is None:
        text = trace(score_mod, aux)
        if len(_texts) >= _MAX_TEXTS:
            _texts.clear()
        _texts[key] = text
    return text


def _key_of(function: Any) -> Any:
    """Returns the values on which the trace of a plain function depends. Returns None if they are not only numbers
    and functions of `flashattn.math`."""
    if type(function) is not types.FunctionType or function.__kwdefaults__:
        return None
    code = function.__code__
    values: List[Any] = list(function.__defaults__ or ())
    try:
        values += [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a captured variable without a value
        return None
    found = function.__globals__
    values += [found[name] for name in code.co_names if name in found]
    key = [code]
    for value in values:
        kind = type(value)
        if kind is int or kind is bool:
            key.append((kind, value))
        elif kind is float:
            key.append((kind, struct.pack("d", value)))
        elif value is math or (kind is types.ModuleType and value.__name__.startswith("flashattn")):
            key.append(value.__name__)
        elif getattr(value, "__module__", None) == "flashattn.math":
            key.append(value.__name__)
        else:
            return None
    # Nested functions may depend on further values.
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return None
    return tuple(key)
