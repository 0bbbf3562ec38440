"""The text of the module that one kernel is compiled from."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional, Tuple

from . import _library
from .errors import ArgumentError
from .masks import Mask

FUNCTION = "attention"
ALIGNS = ("top_left", "bottom_right")
LAYOUTS = ("bhsd", "bshd")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}

#: How rows lie in memory: `dense` where every operand is contiguous and begins at a multiple of 16
#: bytes; `aligned` for any strides with rows that begin at such multiples, which lets a GPU move 16
#: bytes at once; `strided` for any strides with a unit last one.
ROWS = ("dense", "aligned", "strided")


#: So few queries have kernels of their own, which read the keys in parts.
MAX_FEW_QUERIES = 16


class Operand(NamedTuple):
    """What is compiled in of an operand beyond q, k, v, o and lse."""

    name: str
    element: str
    broadcast: Tuple[bool, ...] = ()  #: of one that broadcasts: whether it is the same along B, Hq…
    has_aligned_rows: bool = False  #: as of ROWS


class Problem(NamedTuple):
    """All that is compiled in. Batch, lengths and strides are not: they may vary. Nor are head
    counts and the number of queries, unless they are given."""

    element: str  #: f16, bf16 or f32
    d: int  #: elements of a query or key row
    dv: int  #: elements of a value or output row
    mask: Optional[Mask] = None
    scale: Optional[float] = None  #: None is 1/sqrt(d)
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


def check_options(mask, scale, align, layout) -> Optional[float]:
    """Raises ArgumentError for what no text can be made of; gives the scale as a float or None."""
    if mask is not None and not isinstance(mask, Mask):
        raise ArgumentError(
            f"expected mask to be a flashattn mask or None but got {type(mask).__name__}"
        )
    if align not in ALIGNS:
        raise ArgumentError(f"expected align top_left or bottom_right but got {align!r}")
    if layout not in LAYOUTS:
        raise ArgumentError(f"expected layout bhsd or bshd but got {layout!r}")
    if scale is None:
        return None
    return check_factor("scale", scale)


def check_factor(name: str, number) -> float:
    """Raises ArgumentError for a scale or softcap that is none."""
    try:
        value = float(number)
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name} to be a number or None but got {number!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise ArgumentError(f"expected a finite positive {name} but got {value}")
    if not 1e-18 <= value <= 1e18:  # the verifier's bounds
        raise ArgumentError(f"expected {name} from 1e-18 to 1e18 but got {value}")
    return value


def _type_of(problem: Problem, role: _library.Role, operand: Optional[Operand] = None) -> str:
    """The memref type of an operand: what is not compiled in is `?`."""
    q_heads, kv_heads = problem.heads or ("?", "?")
    known = {"H": q_heads, "G": kv_heads, "D": problem.d, "V": problem.dv}
    if role.follows_layout:
        known["N"] = problem.queries or "?"
    sizes = [str(known.get(dim, "?")) for dim in role.dims_in(problem.layout)]
    strided = role.follows_layout and problem.rows != "dense"
    if operand is not None and role.broadcasts:
        sizes = ["1" if same else size for same, size in zip(operand.broadcast, sizes)]
        strided = True
    element = operand.element if operand else role.elements[0]
    if role.follows_layout:
        element = problem.element
    strides = f", strided<[{'?, ' * (len(sizes) - 1)}1]>" if strided else ""
    return f"memref<{'x'.join(sizes)}x{element}{strides}>"


def make_module(problem: Problem, function: str = FUNCTION) -> str:
    """One function over memrefs, its batch and lengths dynamic, and its heads unless given."""
    roles = {role.name: role for role in _library.get().roles()}
    kinds = {name: _type_of(problem, roles[name]) for name in ("q", "k", "v", "o", "lse")}
    promise = " {flashattn.aligned_rows}" if problem.rows == "aligned" else ""
    clauses = []
    if problem.mask is not None:
        clauses.append(f"mask({problem.mask})")
    if problem.scale is not None:
        # MLIR reads a float by its point; its exponent may be left out, the point may not.
        clauses.append(f"scale({format(problem.scale, '.17e')})")
    if problem.softcap is not None:
        clauses.append(f"softcap({format(problem.softcap, '.17e')})")
    if problem.align != "bottom_right":
        clauses.append(f"align({problem.align})")
    if problem.layout != "bhsd":
        clauses.append(f"layout({problem.layout})")
    if problem.schedule:
        clauses.append(f"schedule(<{problem.schedule}>)")
    arguments = ", ".join(f"%{name}: {kinds[name]}{promise}" for name in "qkvo")
    outs, out_types = "%o", kinds["o"]
    if problem.lse:
        arguments += f", %lse: {kinds['lse']}"
        outs, out_types = "%o, %lse", f"{kinds['o']}, {kinds['lse']}"
    inputs = ""
    for operand in problem.operands:
        name, role = operand.name, roles[operand.name]
        kind = "index" if role.is_scalar else _type_of(problem, role, operand)
        promised = " {flashattn.aligned_rows}" if operand.has_aligned_rows else ""
        arguments += f", %{name}: {kind}{promised}"
        inputs += f"      {name}(%{name}{'' if role.is_scalar else ' : ' + kind})\n"
    if problem.score_mod:
        inputs += f"      score_mod {{\n{problem.score_mod}      }}\n"
    head = " ".join(["flashattn.attention", *clauses])
    return (
        f"func.func @{function}({arguments}) {{\n"
        f"  {head}\n"
        f"      ins(%q, %k, %v : {kinds['q']}, {kinds['k']}, {kinds['v']})\n"
        f"{inputs}"
        f"      outs({outs} : {out_types})\n"
        f"  return\n"
        f"}}\n"
    )
