"""The text of the module that one kernel is compiled from."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Literal, NamedTuple, Optional, Tuple, get_args

from .errors import ArgumentError
from .masks import Mask

FUNCTION = "attention"
Align = Literal["top_left", "bottom_right"]
ALIGNS = get_args(Align)
Layout = Literal["bhsd", "bshd"]
LAYOUTS = get_args(Layout)
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}

#: How rows lie in memory: `dense` where every operand is contiguous and begins at a multiple of 16
#: bytes; `aligned` for any strides with rows that begin at such multiples, which lets a GPU move 16
#: bytes at once; `strided` for any strides with a unit last one.
Rows = Literal["dense", "aligned", "strided"]
ROWS = get_args(Rows)


#: So few queries have kernels of their own, which read the keys in parts.
MAX_FEW_QUERIES = 16


class Operand(NamedTuple):
    """What is compiled in of an operand beyond q, k, v, o and lse."""

    name: str
    element: str
    dims: str  #: what each dimension counts, as of `_library.Role`; "" for a scalar
    broadcast: Tuple[bool, ...] = ()  #: of one that broadcasts: whether it is the same along each
    has_aligned_rows: bool = False  #: as of ROWS


class Problem(NamedTuple):
    """All that is compiled in. Batch, lengths, strides and the scale are not: they may vary. Nor are
    head counts and the number of queries, unless they are given."""

    element: str  #: f16, bf16 or f32
    d: int  #: elements of a query or key row
    dv: int  #: elements of a value or output row
    mask: Optional[Mask] = None
    align: str = "bottom_right"
    layout: str = "bhsd"
    lse: bool = False
    schedule: Optional[str] = (
        None  #: fields of #flashattn.schedule; None leaves the choice to the compiler
    )
    rows: str = "dense"
    heads: Optional[Tuple[int, int]] = (
        None  #: of queries and of keys and values: a schedule may then count on their ratio
    )
    softcap: Optional[float] = None
    operands: Tuple[Operand, ...] = ()  #: in the order of the function's arguments
    score_mod: Optional[str] = None  #: the region's block, as `_trace.trace` gives it
    queries: Optional[int] = None  #: for up to 16 a schedule cuts the keys into parts

    def operand(self, name: str) -> Optional[Operand]:
        """What is compiled in of an operand, None where it is left out."""
        return next((operand for operand in self.operands if operand.name == name), None)


def grouped_heads(q: int, kv: int) -> Optional[Tuple[int, int]]:
    """`Problem.heads` for so many heads: given where several share a key/value head."""
    return (q, kv) if q > kv > 0 else None


def few_queries(queries: int) -> Optional[int]:
    """`Problem.queries` for so many on a GPU: given where they are few."""
    return queries if 1 <= queries <= MAX_FEW_QUERIES else None


def check_options(mask: Any, align: Any, layout: Any) -> None:
    """Raises ArgumentError for what no text can be made of."""
    if mask is not None and not isinstance(mask, Mask):
        hint = "; keep= takes an array of truth values" if hasattr(mask, "dtype") else ""
        raise ArgumentError(
            f"expected mask to be a flashattn mask or None but got {type(mask).__name__}{hint}"
        )
    if align not in ALIGNS:
        raise ArgumentError(f"expected align top_left or bottom_right but got {align!r}")
    if layout not in LAYOUTS:
        raise ArgumentError(f"expected layout bhsd or bshd but got {layout!r}")


@functools.lru_cache(maxsize=1024)
def _bits_of(scale: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", check_factor("scale", scale)))[0])


def scale_bits(scale: Any) -> int:
    """What stands for a scale in a launch: the bits of an f32. Raises ArgumentError."""
    # What else converts to a number may be another one next time.
    return _bits_of(scale if scale.__class__ is float else check_factor("scale", scale))


def check_factor(name: str, number: Any) -> float:
    """Raises ArgumentError for a scale or softcap that is none."""
    try:
        if isinstance(number, (str, bytes)):
            raise ValueError
        value = float(number)
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name} to be a number or None but got {number!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise ArgumentError(f"expected a finite positive {name} but got {value}")
    if not 1e-18 <= value <= 1e18:  # the verifier's bounds
        raise ArgumentError(f"expected {name} from 1e-18 to 1e18 but got {value}")
    return value


def _type_of(problem: Problem, operand: Operand) -> str:
    """The type of an operand: sizes that are not compiled in are `?`."""
    if not operand.dims:
        return operand.element
    q_heads, kv_heads = problem.heads or ("?", "?")
    known = {"H": q_heads, "G": kv_heads, "D": problem.d, "V": problem.dv}
    sizes = [str(known.get(dim, "?")) for dim in operand.dims]
    strides = ""
    if operand.broadcast:
        sizes = ["1" if same else size for same, size in zip(operand.broadcast, sizes)]
        strides = f", strided<[{'?, ' * (len(sizes) - 1)}1]>"
    return f"memref<{'x'.join(sizes)}x{operand.element}{strides}>"


def make_module(problem: Problem, function: str = FUNCTION) -> str:
    """One function over memrefs, its batch and lengths dynamic, and its heads unless given. The
    scale is its last argument."""
    strides = "" if problem.rows == "dense" else ", strided<[?, ?, ?, 1]>"
    promise = " {flashattn.aligned_rows}" if problem.rows == "aligned" else ""

    q_heads, kv_heads = problem.heads or ("?", "?")

    def rows(heads, length, width):
        dims = f"{heads}x{length}" if problem.layout == "bhsd" else f"{length}x{heads}"
        return f"memref<?x{dims}x{width}x{problem.element}{strides}>"

    queries = problem.queries or "?"
    q, k = rows(q_heads, queries, problem.d), rows(kv_heads, "?", problem.d)
    v, o = rows(kv_heads, "?", problem.dv), rows(q_heads, queries, problem.dv)
    clauses = []
    if problem.mask is not None:
        clauses.append(f"mask({problem.mask})")
    clauses.append("scale(%scale)")
    if problem.softcap is not None:
        # MLIR reads a float by its point; its exponent may be left out, the point may not.
        clauses.append(f"softcap({format(problem.softcap, '.17e')})")
    if problem.align != "bottom_right":
        clauses.append(f"align({problem.align})")
    if problem.layout != "bhsd":
        clauses.append(f"layout({problem.layout})")
    if problem.schedule:
        clauses.append(f"schedule(<{problem.schedule}>)")
    lse = f"memref<?x{q_heads}x?xf32>"
    arguments = ", ".join(f"%{name}: {kind}{promise}" for name, kind in zip("qkvo", (q, k, v, o)))
    outs, out_types = "%o", o
    if problem.lse:
        arguments += f", %lse: {lse}"
        outs, out_types = "%o, %lse", f"{o}, {lse}"
    inputs = ""
    for operand in problem.operands:
        name, kind = operand.name, _type_of(problem, operand)
        promised = " {flashattn.aligned_rows}" if operand.has_aligned_rows else ""
        arguments += f", %{name}: {kind}{promised}"
        inputs += f"      {name}(%{name}{' : ' + kind if operand.dims else ''})\n"
    arguments += ", %scale: f32"
    if problem.score_mod:
        inputs += f"      score_mod {{\n{problem.score_mod}      }}\n"
    head = " ".join(["flashattn.attention", *clauses])
    return (
        f"func.func @{function}({arguments}) {{\n"
        f"  {head}\n"
        f"      ins(%q, %k, %v : {q}, {k}, {v})\n"
        f"{inputs}"
        f"      outs({outs} : {out_types})\n"
        f"  return\n"
        f"}}\n"
    )
