"""The symbols of masks (rules Y1 and Y2): tensors whose elements are numbers in a mask's sets, one number for each
sequence, query or key.

In the text of a mask, they are the symbols "sequence0", "query0", "key0" and so on, after nq and nk. In calls, they are
operands named "per_sequence0", "per_query0", "per_key0" and so on, which are the clauses of the op with a number.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from typing import Any, Dict, Iterable, List, Mapping, Protocol, Sequence, Tuple, Union

import numpy

from . import _tensors
from ._library import PACKED, Role
from ._texts import show
from .errors import ArgumentError


class Tensor(Protocol):
    """An array of NumPy, PyTorch, JAX or CuPy."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> Any: ...


#: Numbers that a mask reads, and those with a number for each position.
Numbers = Union[int, Sequence[int], Tensor]
Positions = Union[Sequence[int], Sequence[Sequence[int]], Tensor]

#: The clauses of the op, in the order of the symbols.
CLAUSES = ("per_sequence", "per_query", "per_key")
#: The most operands of a clause.
LIMIT = 8
#: The names of operands in the order of the function's arguments.
NAMES = tuple(f"{clause}{number}" for clause in CLAUSES for number in range(LIMIT))
#: The arguments of torch's operators, which are in the order in which the text of a mask names the operands.
ARGUMENTS = tuple(f"symbol{number}" for number in range(len(NAMES)))
#: The operands of a mask: names and tensors in order. An int stands for a tensor with this one element.
Symbols = Tuple[Tuple[str, Any], ...]

_MOST_RANK = {"per_sequence": 1, "per_query": 3, "per_key": 3}
_HEADER = re.compile(r"\(p, k\)\[nq, nk((?:, (?:sequence|query|key)\d)+)\]")
_SET = re.compile(r"\s*\(([^()]*)\)\s*\[([^\[\]]*)\]\s*:(.*)", re.DOTALL)
#: A name in a set.
WORD = re.compile(r"[A-Za-z_][\w$.]*")
_BOUND = 1 << 31


def constant(function: Any) -> Any:
    """Returns a function of texts and numbers that caches its results, and whose results torch.compile takes as
    constants."""
    cached = functools.lru_cache(maxsize=4096)(function)

    def call(*args: Any) -> Any:
        return cached(*args)

    call._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return functools.update_wrapper(call, function)


def clause_of(name: str) -> str:
    """Returns the clause of an operand."""
    return name.rstrip("0123456789")


@constant
def names_in(text: str) -> Tuple[str, ...]:
    """Returns the names of the operands that the text of a mask reads, in order."""
    longest = max(_HEADER.findall(text), key=len, default="")
    return tuple(f"per_{word}" for word in longest.split(", ")[1:])


def among(operands: Mapping[str, Any]) -> Tuple[Any, ...]:
    """Returns the symbols among the operands of a call, in order."""
    return tuple(value for name, value in operands.items() if name.startswith("per_"))


def words_of(names: Iterable[str]) -> str:
    return ", ".join(["nq", "nk", *(name[len("per_") :] for name in names)])


def canonical(text: str, counts: Tuple[int, ...]) -> str:
    """Returns the text of a set in which the symbols after nq and nk have the names of this module. `counts` are the
    numbers of symbols of each clause. Raises ArgumentError."""
    match = _SET.fullmatch(text)
    if not match:
        raise ArgumentError(
            f"expected an integer set such as (p, k)[nq, nk, n] : (k - n >= 0) with tensors but got {text!r}"
        )
    dims, symbols = ([word.strip() for word in part.split(",")] for part in match.groups()[:2])
    given, wanted = [*dims, *symbols], symbols[2:]
    for word in given:
        if not WORD.fullmatch(word) or given.count(word) > 1:
            raise ArgumentError(f"expected different names of dimensions and symbols but got {word!r} in {text!r}")
    if len(dims) != 2 or len(symbols) < 2:
        raise ArgumentError(f"expected the dimensions (p, k) and the symbols [nq, nk, ...] but got {text!r}")
    if len(wanted) != sum(counts):
        raise ArgumentError(f"expected {_tensors_for(wanted)} but got {sum(counts)}")
    names = [f"{clause}{number}" for clause, count in zip(CLAUSES, counts) for number in range(count)]
    words = dict(zip(given, ("p", "k", "nq", "nk", *(name[len("per_") :] for name in names))))
    body = WORD.sub(lambda found: words.get(found.group(), found.group()), match.group(3))
    return f"(p, k)[{words_of(names)}] :{body}"


def check_none(text: str) -> None:
    """Raises ArgumentError for the text of a set that has symbols after nq and nk."""
    match = _SET.fullmatch(text)
    extra = [word.strip() for word in match.group(2).split(",")][2:] if match else []
    if extra:
        raise ArgumentError(
            f"expected {_tensors_for(extra)} but got none; pass per_sequence=, per_query= or per_key="
        )


def _tensors_for(words: Sequence[str]) -> str:
    if not words:
        return "no tensors for a set without symbols after nq and nk"
    many = "s" * (len(words) > 1)
    return f"{len(words)} tensor{many} for the symbol{many} {', '.join(words)}"


@constant
def rename(text: str, names: Tuple[Tuple[str, str], ...], present: Tuple[str, ...]) -> str:
    """Returns the text of a set whose symbols are those of the operands `present`. `names` are the old and the new
    names of the symbols that the set reads. A set without symbols stays as it is."""
    match = _HEADER.search(text)
    if not match:
        return text
    words = {old[len("per_") :]: new[len("per_") :] for old, new in names}
    body = WORD.sub(lambda found: words.get(found.group(), found.group()), text[match.end() :])
    return f"{text[: match.start()]}(p, k)[{words_of(present)}]{body}"


def unify(both: Sequence[Symbols]) -> Tuple[Symbols, List[Tuple[Tuple[str, str], ...]]]:
    """Returns one list of the symbols of two masks, and the old and the new names for each of them. The same tensor in
    the same clause is the same symbol. Raises ArgumentError."""
    known: Dict[str, List[Any]] = {clause: [] for clause in CLAUSES}
    renamed = []
    for symbols in both:
        names = []
        for name, tensor in symbols:
            clause = name[:-1]
            tensors = known[clause]
            at = 0
            while at < len(tensors) and not _is_same(tensors[at], tensor):
                at += 1
            if at == len(tensors):
                tensors.append(tensor)
            names.append((name, f"{clause}{at}"))
        renamed.append(tuple(names))
    for clause, tensors in known.items():
        check_count(clause, tensors)
    found = [(f"{clause}{at}", x) for clause, tensors in known.items() for at, x in enumerate(tensors)]
    return tuple(found), renamed


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is int and type(other) is int and one == other)


def check_count(clause: str, tensors: Sequence[Any]) -> None:
    if len(tensors) > LIMIT:
        raise ArgumentError(f"expected at most {LIMIT} tensors of {clause} in a mask but got {len(tensors)}")


def check_square(of_rows: Iterable[str], nq: int, nk: int) -> None:
    """Checks the numbers of queries and keys of a mask with these `Mask._of_rows`. Raises ArgumentError."""
    for part in of_rows:
        if part != "tree" and nq != nk:
            raise ArgumentError(
                f"expected as many keys as queries with the mask {part} but got {nk} keys and {nq} queries"
            )


def settle_all(clause: str, given: Any) -> List[Any]:
    """Returns the tensors that `affine_set` takes for a clause. Raises ArgumentError."""
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise ArgumentError(f"expected {clause} to be a list of tensors but got {type(given).__name__}")
    check_count(clause, given)
    return [settle(clause, f"{clause}[{at}]", tensor) for at, tensor in enumerate(given)]


def settle(clause: str, name: str, value: Any) -> Any:
    """Returns an argument as a tensor of 32-bit integers of a valid rank or, for `per_sequence`, as an int. A tensor of
    this type is returned itself; another one is converted. Raises ArgumentError."""
    if isinstance(value, (bool, int, numpy.bool_, numpy.integer)):
        if clause != "per_sequence":
            raise ArgumentError(f"expected {name} to be a tensor of integers but got {show(value)}")
        number = int(value)
        if not -_BOUND < number < _BOUND:
            raise ArgumentError(f"expected {name} between -2147483648 and 2147483648 but got {show(number)}")
        return number
    if isinstance(value, (list, tuple)):
        try:
            value = numpy.asarray(value)
        except ValueError:
            raise ArgumentError(f"expected {name} to be a tensor but got lists of different lengths") from None
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise ArgumentError(f"expected {name} to be a tensor of integers but got {type(value).__name__}")
    rank, most = len(value.shape), _MOST_RANK[clause]
    if rank > most or (rank == 0 and most > 1):
        wanted = "0 or 1" if most == 1 else f"1 to {most}"
        raise ArgumentError(f"expected {name} of rank {wanted} but got rank {rank}")
    return as_int32(name, value)


_NARROW = ("i1", "i8", "int16", "uint8")
_WIDE = ("int64", "uint16", "uint32", "uint64")


def as_int32(name: str, value: Any) -> Any:
    """Returns a tensor of integers as one of 32 bits, converted if necessary. A GPU clamps wider numbers; those of
    arrays of NumPy are checked. Raises ArgumentError."""
    element = _tensors.parse_element(value.dtype)
    if element == "i32":
        return value
    if element not in (*_NARROW, *_WIDE):
        raise ArgumentError(f"expected {name} to be a tensor of integers but got one of {element}")
    if _tensors.is_torch(value):
        torch = sys.modules["torch"]
        if element in _WIDE:
            value = value.to(torch.int64).clamp(1 - _BOUND, _BOUND - 1)
        return value.to(torch.int32)
    if isinstance(value, numpy.ndarray) and element in _WIDE and value.size:
        least, greatest = operator.index(value.min()), operator.index(value.max())
        if not -_BOUND < least <= greatest < _BOUND:
            raise ArgumentError(
                f"expected {name} between -2147483648 and 2147483648 but got {least} to {greatest}"
            )
    if not hasattr(value, "astype"):
        raise ArgumentError(f"expected {name} with element type i32 but got {element}")
    if element in _WIDE and not isinstance(value, numpy.ndarray):
        value = value.clip(None if element.startswith("u") else 1 - _BOUND, _BOUND - 1)
    return value.astype("int32")


def operands_of(symbols: Symbols, like: Any) -> Symbols:
    """Returns the symbols of a mask as operands of a call whose queries are `like`: each int becomes a tensor."""
    for _, value in symbols:
        if type(value) is int:
            return tuple((n, _constant(x, like) if type(x) is int else x) for n, x in symbols)
    return symbols


def _constant(value: int, like: Any) -> Any:
    if not _tensors.is_torch(like):
        return numpy.full(1, value, numpy.int32)
    torch = sys.modules["torch"]
    device = like.device
    if (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or device.type not in ("cpu", "cuda")
        or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    ):
        return torch.full((1,), value, dtype=torch.int32, device=device)
    return _constant_on(value, device)


@functools.lru_cache(maxsize=1024)
def _constant_on(value: int, device: Any) -> Any:
    torch = sys.modules["torch"]
    with torch.inference_mode(False):  # autograd may save the tensor
        return torch.full((1,), value, dtype=torch.int32, device=device)


def roles_of(names: Iterable[str], roles: Mapping[str, Role]) -> Dict[str, Role]:
    """Returns the roles of the symbols among `names`, in order. `roles` are those of the op, with one per clause."""
    given = set(names)
    return {name: roles[clause_of(name)]._replace(name=name) for name in NAMES if name in given}


def extend(given: Sequence[Any], dims: str, fill: Any) -> Tuple[Any, ...]:
    """Returns the sizes or the strides of a symbol for all of its dimensions, with `fill` for those that are missing.
    `dims` are the letters of its role. The first of two dimensions is the batch or, if sequences are packed, the
    head."""
    missing = len(dims) - len(given)
    at = 0 if missing == 2 or len(dims) == 1 or dims[0] == PACKED else 1
    return (*given[:at], *(fill,) * missing, *given[at:])


def split(mask: Any, like: Any) -> Tuple[Any, Symbols]:
    """Returns a mask of a call whose queries are `like` without its tensors, and the tensors."""
    if not mask._symbols:
        return mask, ()
    return mask._pattern, operands_of(mask._symbols, like)


def join(operands: Mapping[str, Any], options: Any) -> Tuple[Dict[str, Any], Any]:
    """Returns the operands of a call without the symbols, and its options, in whose mask they are."""
    symbols = tuple((name, value) for name, value in operands.items() if name in NAMES)
    if not symbols:
        return dict(operands), options
    mask = options.mask
    mask = type(mask)(mask._text, mask._kind, mask._parts, symbols)
    return {n: x for n, x in operands.items() if n not in NAMES}, options._replace(mask=mask)
