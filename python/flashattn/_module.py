"""The text of the module that one kernel is compiled from."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, get_args

from . import _library, _torch
from ._texts import show
from .errors import ArgumentError
from .masks import Mask, causal

Align = Literal["top_left", "bottom_right"]
ALIGNS = get_args(Align)
Layout = Literal["bhsd", "bshd"]
LAYOUTS = get_args(Layout)
#: Outputs of the backward that are there on request.
GRADIENTS = ("d_bias", "d_sink_logits")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4}

#: How rows lie in memory: `dense` where every operand is contiguous and begins at a multiple of 16
#: bytes; `aligned` for any strides with rows that begin at such multiples, which lets a GPU move 16
#: bytes at once; `strided` for any strides with a unit last one.
Rows = Literal["dense", "aligned", "strided"]
ROWS = get_args(Rows)


#: So few queries have kernels of their own: on a GPU they read the keys in parts, on the CPU they
#: are a tile of as few rows, with those of heads that share keys.
MAX_FEW_QUERIES = 16
MAX_FEW_QUERIES_CPU = 4


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
    #: "attention", or "attention_backward", whose operands end with the gradients of operands
    op: str = "attention"
    deterministic: bool = False

    def operand(self, name: str) -> Optional[Operand]:
        """What is compiled in of an operand, None where it is left out."""
        return next((operand for operand in self.operands if operand.name == name), None)


def few_queries(queries: int, is_cpu: bool) -> Optional[int]:
    """`Problem.queries` for so many: given where they are few."""
    return queries if 1 <= queries <= (MAX_FEW_QUERIES_CPU if is_cpu else MAX_FEW_QUERIES) else None


def grouped_heads(
    q: int, kv: int, queries: Optional[int], is_cpu: bool
) -> Optional[Tuple[int, int]]:
    """`Problem.heads` for so many heads, with `Problem.queries`: given where several share a
    key/value head, on the CPU of few queries alone, whose rows are a tile; and on a GPU of few
    queries always, which says how few rows of a tile these are."""
    if kv <= 0 or q < kv:
        return None
    counts = queries is not None and (q > kv or not is_cpu)
    return (q, kv) if counts or (q > kv and not is_cpu) else None


def canonicalize(problem: Problem, is_cpu: bool) -> Problem:
    """The problem of more calls that has the same kernel: without a mask that hides nothing, as a
    causal one of the last query alone, and on a GPU without heads where no schedule counts on their
    ratio. With many queries those count on it that join the tiles of a band, and lists that an attn_mask of
    each head gives."""
    operands = {operand.name for operand in problem.operands}
    if problem.op != "attention" or problem.schedule is not None:
        return problem
    if problem.mask == causal and problem.queries == 1:
        if problem.align == "bottom_right" and "offset" not in operands:
            problem = problem._replace(mask=None)
    is_even = problem.mask in (None, causal) and "attn_mask" not in operands
    many = problem.queries is None and not is_cpu
    return problem._replace(heads=None) if many and is_even else problem


def check_options(mask: Any, align: Any, layout: Any) -> None:
    """Raises ArgumentError for what no text can be made of."""
    if mask is not None and not isinstance(mask, Mask):
        hint = "; attn_mask= takes an array of truth values" if hasattr(mask, "dtype") else ""
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
    """Raises ArgumentError for a scale or softcap that is none, and UnsupportedError for a tensor whose
    gradient would be lost."""
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


#: The tensors that an op always takes, inputs and outputs, by what their dimensions count.
_INPUTS = {"q": "BHND", "k": "BGKD", "v": "BGKV"}
_TENSORS = {
    "attention": (_INPUTS, {"o": "BHNV"}),
    "attention_backward": (
        {**_INPUTS, "o": "BHNV", "lse": "BHN", "d_o": "BHNV"},
        {f"d{name}": dims for name, dims in _INPUTS.items()},
    ),
}


def _type_of(problem: Problem, operand: Operand) -> str:
    """The type of an operand: sizes that are not compiled in are `?`."""
    if not operand.dims:
        return operand.element
    q_heads, kv_heads = problem.heads or ("?", "?")
    known = {"H": q_heads, "G": kv_heads, "D": problem.d, "V": problem.dv}
    has_rows, dims, strides = operand.dims[-1] in "DV", operand.dims, ""
    if has_rows:
        known["N"] = problem.queries or "?"
        if problem.layout == "bshd":
            dims = dims[0] + dims[2] + dims[1] + dims[3]
    sizes = [str(known.get(dim, "?")) for dim in dims]
    if operand.broadcast:
        sizes = ["1" if same else size for same, size in zip(operand.broadcast, sizes)]
    if operand.broadcast or (has_rows and problem.rows != "dense"):
        strides = f", strided<[{'?, ' * (len(sizes) - 1)}1]>"
    return f"memref<{'x'.join(sizes)}x{operand.element}{strides}>"


def _clauses(problem: Problem) -> str:
    """What stands between the op's name and its operands."""
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
    if problem.deterministic:
        clauses.append("deterministic")
    if problem.schedule:
        clauses.append(f"schedule(<{problem.schedule}>)")
    return " ".join(clauses)


_check_mask = functools.lru_cache(maxsize=1024)(lambda text: _library.get().explain_mask(text))
_check_score_mod = functools.lru_cache(maxsize=1024)(
    lambda text: _library.get().explain_score_mod(text)
)


def _check(problem: Problem, function: Optional[str]) -> None:
    words = [problem.op, problem.element, problem.align, problem.layout, problem.rows]
    for operand in problem.operands:
        words += [operand.name, operand.element, *operand.dims]
    for word in words if function is None else [*words, function]:
        if not isinstance(word, str) or not (word.isascii() and word.isidentifier()):
            raise ArgumentError(f"expected a word in the problem of a kernel but got {word!r}")
    for number in (problem.d, problem.dv, problem.queries, *(problem.heads or ())):
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
    """One function over memrefs, its batch and lengths dynamic, and its heads unless given; by
    default of the op's name. Its arguments are the tensors that the op always takes, lse, the
    operands, of a gradient the outputs, and the scale. Raises ArgumentError for a field that would be
    more of the text than it stands for: a problem may have come from a file."""

    _check(problem, function)

    def make(names: Mapping[str, str]) -> List[Operand]:
        is_aligned = problem.rows == "aligned"
        return [
            Operand(
                name,
                problem.element if dims[-1] in "DV" else "f32",
                dims,
                has_aligned_rows=is_aligned and dims[-1] in "DV",
            )
            for name, dims in names.items()
        ]

    inputs, outputs = map(make, _TENSORS[problem.op])
    if problem.lse:
        outputs.append(Operand("lse", "f32", "BHN"))
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
        return f"      {clause}({names}{' : ' + types if types else ''})\n"

    score_mod = f"      score_mod {{\n{problem.score_mod}      }}\n" if problem.score_mod else ""
    return (
        f"func.func @{function or problem.op}({', '.join(map(declare, arguments))}, %scale: f32) {{\n"
        f"  flashattn.{problem.op} {_clauses(problem)}\n"
        f"{use('ins', inputs)}"
        f"{''.join(use(operand.name, [operand]) for operand in extras)}"
        f"{score_mod}"
        f"{use('outs', outputs)}"
        f"{''.join(use(operand.name, [operand]) for operand in gradients)}"
        f"  return\n"
        f"}}\n"
    )
