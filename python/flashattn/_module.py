"""The text of the MLIR module from which a kernel is compiled."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from typing import Any, Dict, Iterable, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, get_args

from . import _aux, _library, _sets, _symbols, _torch
from ._library import PACKED, PAGE, POOL, SCALES
from ._tensors import NARROW
from ._texts import show
from ._trace import AUX
from .errors import ArgumentError
from .masks import Mask, causal

Align = _sets.Align
ALIGNS = _sets.ALIGNS
#: The layouts of kernels, and of calls with a batch dimension.
KernelLayout = Literal["bhsd", "bshd"]
KERNEL_LAYOUTS = get_args(KernelLayout)
#: The layouts of calls. "thd" is "bshd" without the batch dimension of packed rows.
Layout = Literal["bhsd", "bshd", "thd"]
LAYOUTS = get_args(Layout)
#: The operands that pack sequences, with the letter of the rows that they pack (rule S1).
STARTS = {"cu_seqlens_q": "N", "cu_seqlens_k": "K"}
#: The operands that say where keys are, and exclude gradients (rules P1 and P3).
PLACES = ("page_table", "leftpad_k")
#: Optional outputs of the backward pass.
GRADIENTS = ("d_bias", "d_sink_logits")
#: The fields of a schedule that are pinned, as a mapping or as the text of the attribute.
Schedule = Union[str, Mapping[str, Any]]
#: The types of queries and outputs, and those of all rows.
FLOATS = ("f16", "bf16", "f32")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, **dict.fromkeys(NARROW, 1)}

#: The layout of rows in memory. `dense`: every operand is contiguous and, on a GPU, its rows begin at
#: multiples of 16 bytes. `aligned`: any strides with rows that begin at multiples of 16 bytes, for 16-byte
#: accesses of a GPU. `strided`: any strides whose last one is 1.
Rows = Literal["dense", "aligned", "strided"]
ROWS = get_args(Rows)


#: Each number of queries up to these limits has its own kernel. On a GPU, the kernel is split-KV. On the CPU,
#: the kernel has a tile of as few rows, with the query heads of a group packed.
MAX_FEW_QUERIES = 16
MAX_FEW_QUERIES_CPU = 4


class Operand(NamedTuple):
    """The properties of an operand that are compiled in."""

    name: str
    element: str
    dims: str  #: a letter for each dimension, as in `_library.Role`; "" for a scalar
    broadcast: Tuple[bool, ...] = ()  #: for an operand that broadcasts: whether each dimension is broadcast
    has_aligned_rows: bool = False  #: whether rows are `aligned`, as in ROWS
    blocks: int = 1  #: for one of SCALES: the number of scales of a row


class Problem(NamedTuple):
    """All properties that are compiled in. Batch size, lengths, strides and scale are not: one kernel serves all
    values. Head counts and the number of queries are compiled in only if they are given."""

    element: str  #: f16, bf16 or f32
    d: int  #: elements of a query or key row
    dv: int  #: elements of a value or output row
    mask: Optional[Mask] = None
    align: Align = "bottom_right"
    layout: KernelLayout = "bhsd"
    lse: bool = False
    schedule: Optional[str] = (
        None  #: fields of #flashattn.schedule; None leaves the choice to the compiler
    )
    rows: str = "dense"
    heads: Optional[Tuple[int, int]] = (
        None  #: query heads and key/value heads; a schedule may depend on their ratio
    )
    softcap: Optional[float] = None
    operands: Tuple[Operand, ...] = ()  #: in the order of the function's arguments
    score_mod: Optional[str] = None  #: the region's block, as `_trace.trace` returns it
    #: Nq, or the most queries of a packed sequence; for up to 16 queries, a schedule may be split-KV
    queries: Optional[int] = None
    #: "attention", or "attention_backward", whose operands end with the GRADIENTS
    op: str = "attention"
    deterministic: bool = False
    #: With a page_table: the number of rows of a page, or None if the table has one column (rule P4).
    page_size: Optional[int] = None
    invariant: bool = False
    o_element: Optional[str] = None  #: the type of o, f32, if it is not `element`
    k_element: Optional[str] = None  #: the type of k, one of 8 bits, if it is not `element`
    v_element: Optional[str] = None  #: the same for v

    def operand(self, name: str) -> Optional[Operand]:
        """Returns the properties of an operand that are compiled in; None if the operand is absent."""
        return next((operand for operand in self.operands if operand.name == name), None)


def few_queries(queries: int, is_cpu: bool) -> Optional[int]:
    """Returns `Problem.queries`: the number of queries up to MAX_FEW_QUERIES, and None beyond."""
    return queries if 1 <= queries <= (MAX_FEW_QUERIES_CPU if is_cpu else MAX_FEW_QUERIES) else None


def grouped_heads(
    q: int, kv: int, queries: Optional[int], is_cpu: bool
) -> Optional[Tuple[int, int]]:
    """Returns `Problem.heads` for these head counts and `Problem.queries`. On a GPU, the result is not None if
    several query heads share a key/value head, or if queries are few, because a schedule then depends on the
    number of rows in a tile. On the CPU, both conditions are required: such heads are packed into one tile."""
    if kv <= 0 or q < kv:
        return None
    counts = queries is not None and (q > kv or not is_cpu)
    return (q, kv) if counts or (q > kv and not is_cpu) else None


def canonicalize(problem: Problem, is_cpu: bool) -> Problem:
    """Returns a problem with the same kernel that more calls share. It has no mask if the mask hides nothing,
    such as a causal mask of only the last query. On a GPU it has no heads if no schedule depends on their
    ratio. With many queries, only two kinds of schedule depend on the ratio: packed heads, for a band of
    visible pairs, and tile lists, for an attn_mask of each head."""
    operands = {operand.name for operand in problem.operands}
    if problem.op != "attention" or problem.schedule is not None:
        return problem
    if problem.mask == causal and problem.queries == 1:
        if problem.align == "bottom_right" and not operands & {"offset", "offsets"}:
            problem = problem._replace(mask=None)
    is_even = problem.mask in (None, causal) and "attn_mask" not in operands
    # Without cu_seqlens_k, one of the kernels is for sequences with few queries.
    is_served = "cu_seqlens_q" in operands and "cu_seqlens_k" not in operands
    many = problem.queries is None and not is_cpu and not is_served
    return problem._replace(heads=None) if many and is_even else problem


def check_options(mask: Any, align: Any, layout: Any, layouts: Sequence[str] = LAYOUTS) -> None:
    """Raises ArgumentError for an option that has no text in a module."""
    if mask is not None and not isinstance(mask, Mask):
        hint = "; attn_mask= takes a Boolean array" if hasattr(mask, "dtype") else ""
        raise ArgumentError(
            f"expected mask to be a flashattn mask or None but got {type(mask).__name__}{hint}"
        )
    if align not in ALIGNS:
        raise ArgumentError(f"expected align top_left or bottom_right but got {align!r}")
    if layout not in layouts:
        names = f"{', '.join(layouts[:-1])} or {layouts[-1]}"
        raise ArgumentError(f"expected layout {names} but got {layout!r}")


def _format_fields(fields: Mapping[str, Any]) -> str:
    """Returns the text of fields, as in `a = 1, b = true, mapping = hopper<c = 2>` for a dict in which the name of
    a machine's mapping has a dict of its fields."""
    parts = []
    for name, value in fields.items():
        if name in ("cpu", "mma_sync", "hopper"):
            if value is None:
                continue
            if isinstance(value, Mapping):
                value = f"<{_format_fields(value)}>"
            elif not (isinstance(value, str) and value.startswith("<")):
                raise ArgumentError(
                    f"expected schedule field {name} to be a mapping or a text in <> but got {value!r}"
                )
            name, value = "mapping", f"{name}{value}"
        elif isinstance(value, bool):
            value = str(value).lower()
        parts.append(f"{name} = {value}")
    return ", ".join(parts)


def format_schedule(schedule: Optional[Schedule], element: str, is_cpu: bool) -> Optional[str]:
    """Returns the fields of a schedule as text. The library completes the missing fields."""
    if schedule is None:
        return None
    if isinstance(schedule, Mapping):
        schedule = _format_fields(schedule)
    if not isinstance(schedule, str):
        raise ArgumentError(
            f"expected schedule to be a mapping, a text or None but got {type(schedule).__name__}"
        )
    return _library.get().complete_schedule(schedule, element, is_cpu)


@functools.lru_cache(maxsize=1024)
def _bits_of(scale: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", check_factor("scale", scale)))[0])


def scale_bits(scale: Any) -> int:
    """Returns the word for a scale in a launch: the bits of an f32. Raises ArgumentError."""
    # Any other object may convert to another number next time, so the cache is not keyed by it.
    return _bits_of(scale if scale.__class__ is float else check_factor("scale", scale))


def check_factor(name: str, number: Any) -> float:
    """Returns a scale or softcap as a float. Raises ArgumentError if it is invalid, and UnsupportedError for a
    tensor whose gradient would be lost."""
    _torch.refuse_gradients(**{name: number})
    try:
        if isinstance(number, (str, bytes)):
            raise ValueError
        value = float(number)
    except OverflowError:
        raise ArgumentError(f"expected {name} from 1e-18 to 1e18 but got {show(number)}") from None
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name} to be a number or None but got {number!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise ArgumentError(f"expected a finite positive {name} but got {value}")
    if not 1e-18 <= value <= 1e18:  # the verifier's bounds
        raise ArgumentError(f"expected {name} from 1e-18 to 1e18 but got {value}")
    return value


#: The required inputs and outputs of each op, with the letters of their dimensions.
_INPUTS = {"q": "BHND", "k": "BGKD", "v": "BGKV"}
_TENSORS = {
    "attention": (_INPUTS, {"o": "BHNV"}),
    "attention_backward": (
        {**_INPUTS, "o": "BHNV", "lse": "BHN", "d_o": "BHNV"},
        {f"d{name}": dims for name, dims in _INPUTS.items()},
    ),
}


def dims_with(dims: str, operands: Iterable[str]) -> str:
    """Returns the dimensions of an operand of a call with `operands`: the batch dimension has the letter PACKED
    if the sequences of its rows are packed, and k and v are pools if the call has a page_table."""
    operands = set(operands)
    if dims[:1] == "B" and any(STARTS.get(name, "-") in dims for name in operands):
        return PACKED + dims[1:]
    if dims in _POOLS and "page_table" in operands:
        return _POOLS[dims]
    return dims


#: The dimensions of k and v and of scales of their rows, and those of pools (rule P1).
_POOLS = {f"BGK{last}": f"{POOL}G{PAGE}{last}" for last in "DVXY"}


def _type_of(problem: Problem, operand: Operand) -> str:
    """Returns the type of an operand, with `?` for sizes that are not compiled in."""
    if not operand.dims and operand.name not in AUX:
        return operand.element
    q_heads, kv_heads = problem.heads or ("?", "?")
    # A packed batch is static, so that the compiler needs no other (rule S1).
    known = {"H": q_heads, "G": kv_heads, "D": problem.d, "V": problem.dv, PACKED: 1}
    known[PAGE], known["T"] = (problem.page_size, "?") if problem.page_size else ("?", 1)
    if operand.name in AUX:
        known = {}  # as in the text of the score_mod
    has_rows, dims, strides = operand.dims[-1:] in ("D", "V"), operand.dims, ""
    if has_rows:
        known["N"] = "?" if PACKED in dims else problem.queries or "?"
    if operand.name in SCALES:
        # A static number of rows of 1 would be that of a scale for all rows.
        known.update({PAGE: "?", dims[-1]: operand.blocks})
    if problem.layout == "bshd" and (has_rows or operand.name in SCALES):
        dims = dims[0] + dims[2] + dims[1] + dims[3]
    sizes = [str(known.get(dim, "?")) for dim in dims]
    if operand.broadcast:
        sizes = ["1" if same else size for same, size in zip(operand.broadcast, sizes)]
    if operand.broadcast or operand.name == "page_table" or (has_rows and problem.rows != "dense"):
        strides = f", strided<[{'?, ' * (len(sizes) - 1)}1]>"
    return f"memref<{'x'.join([*sizes, operand.element])}{strides}>"


def _clauses(problem: Problem) -> str:
    """Returns the clauses between the op's name and its operands."""
    clauses = []
    if problem.mask is not None:
        clauses.append(f"mask({problem.mask})")
    clauses.append("scale(%scale)")
    if problem.softcap is not None:
        # In MLIR, a float needs a decimal point, but no exponent.
        clauses.append(f"softcap({format(problem.softcap, '.17e')})")
    if problem.align != "bottom_right":
        clauses.append(f"align({problem.align})")
    if problem.layout != "bhsd":
        clauses.append(f"layout({problem.layout})")
    if problem.deterministic:
        clauses.append("deterministic")
    if problem.invariant:
        clauses.append("invariant")
    if problem.queries and problem.operand("cu_seqlens_q"):
        clauses.append(f"max_seqlen_q({problem.queries})")
    if problem.schedule:
        clauses.append(f"schedule(<{problem.schedule}>)")
    return " ".join(clauses)


_check_mask = functools.lru_cache(maxsize=1024)(lambda text: _library.get().explain_mask(text))
_check_score_mod = functools.lru_cache(maxsize=1024)(
    lambda text: _library.get().explain_score_mod(text, _aux.types_in(text))
)


def _check(problem: Problem, function: Optional[str]) -> None:
    words = [problem.op, problem.element, problem.align, problem.layout, problem.rows]
    elements = problem.o_element, problem.k_element, problem.v_element
    words += [element for element in elements if element is not None]
    for operand in problem.operands:
        words += [operand.name, operand.element, *operand.dims]
    for word in words if function is None else [*words, function]:
        if not isinstance(word, str) or not (word.isascii() and word.isidentifier()):
            raise ArgumentError(f"expected a word in the problem of a kernel but got {word!r}")
    numbers = (problem.d, problem.dv, problem.queries, problem.page_size, *(problem.heads or ()))
    for number in (*numbers, *(operand.blocks for operand in problem.operands)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise ArgumentError(f"expected an integer in the problem of a kernel but got {number!r}")
    if problem.softcap is not None:
        check_factor("softcap", problem.softcap)
    for name, text, check in (
        ("mask", None if problem.mask is None else str(problem.mask), _check_mask),
        ("score_mod", problem.score_mod, _check_score_mod),
    ):
        reason = "" if text is None else check(text)
        if reason:
            shown = text if len(text) < 80 else f"{text[:80]}…"
            raise ArgumentError(
                f"expected the text of a {name} but got {shown!r}: {reason.splitlines()[0]}"
            )


def make_module(problem: Problem, function: Optional[str] = None) -> str:
    """Returns the text of a function on memrefs, named `function` or, by default, like the op. Batch size and
    lengths are dynamic, and so are head counts unless they are given. The arguments of a forward pass are the
    inputs, the outputs, the other operands and the scale; those of a backward pass are the inputs, the other
    operands, the outputs and the scale. Raises ArgumentError for a field whose text would add other code to
    the module, because a problem may come from a file."""

    _check(problem, function)
    names_given = [operand.name for operand in problem.operands]
    elements = {"o": problem.o_element, "k": problem.k_element, "v": problem.v_element}

    def make(names: Mapping[str, str]) -> List[Operand]:
        is_aligned = problem.rows == "aligned"
        return [
            Operand(
                name,
                elements.get(name) or (problem.element if dims[-1] in "DV" else "f32"),
                dims_with(dims, names_given),
                has_aligned_rows=is_aligned and dims[-1] in "DV",
            )
            for name, dims in names.items()
        ]

    inputs, outputs = map(make, _TENSORS[problem.op])
    if problem.lse:
        outputs.append(Operand("lse", "f32", dims_with("BHN", names_given)))
    extras = [operand for operand in problem.operands if operand.name not in GRADIENTS]
    gradients = [operand for operand in problem.operands if operand.name in GRADIENTS]
    if problem.op == "attention":
        arguments = [*inputs, *outputs, *extras]
    else:
        arguments = [*inputs, *extras, *outputs, *gradients]

    def declare(operand: Operand) -> str:
        promise = " {flashattn.aligned_rows}" if operand.has_aligned_rows else ""
        return f"%{operand.name}: {_type_of(problem, operand)}{promise}"

    def use(clause: str, operands: Sequence[Operand]) -> str:
        names = ", ".join(f"%{operand.name}" for operand in operands)
        types = ", ".join(_type_of(problem, operand) for operand in operands if operand.dims)
        clause = "offset" if clause == "offsets" else clause
        return f"      {clause}({names}{' : ' + types if types else ''})\n"

    def use_all(operands: Sequence[Operand]) -> str:
        """Returns the clauses of the operands: one for each, but one for all symbols of a kind."""
        clauses: Dict[str, List[Operand]] = {}
        for operand in operands:
            is_symbol = operand.name in _symbols.NAMES
            clause = _symbols.clause_of(operand.name) if is_symbol else operand.name
            clauses.setdefault(clause, []).append(operand)
        return "".join(itertools.starmap(use, clauses.items()))

    score_mod = f"      score_mod {{\n{problem.score_mod}      }}\n" if problem.score_mod else ""
    return (
        f"func.func @{function or problem.op}({', '.join(map(declare, arguments))}, %scale: f32) {{\n"
        f"  flashattn.{problem.op} {_clauses(problem)}\n"
        f"{use('ins', inputs)}"
        f"{use_all([operand for operand in extras if operand.name not in AUX])}"
        f"{score_mod}"
        f"{use('outs', outputs)}"
        f"{use_all(gradients)}"
        f"  return\n"
        f"}}\n"
    )
