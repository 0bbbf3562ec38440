"""The operands of attention other than q, k and v: their checks, and their properties that are compiled in.

The library defines these operands (`Library.roles`).
"""

from __future__ import annotations

import ctypes
import difflib
import functools
from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _aux, _library, _module, _scales, _symbols, _tensors, _torch
from ._checks import (
    ALIGNMENT, Sizes, check_contiguous, check_strides, check_view, with_batch, with_dense_ones,
)  # fmt: skip
from ._library import DEVICE_CPU, PAGE, SCALES, Role
from ._texts import show
from ._tensors import View
from .errors import ArgumentError, KeywordError, UnsupportedError

_OFFSETS = 1 << 31


class Extras(NamedTuple):
    """Checked operands, in the order of the function's arguments."""

    operands: Tuple[_module.Operand, ...]
    values: Tuple[Union[View, int], ...]  #: views of tensors, and the integers of scalars


@functools.lru_cache(maxsize=None)
def roles(op: str = "attention") -> Tuple[Role, ...]:
    """Returns the optional inputs of an op, in order, without the scale, which every kernel takes, and without the
    symbols of masks."""
    left_out = ("scale", *_symbols.CLAUSES)
    found = _library.get().roles(op)
    return tuple(r for r in found if r.is_optional and not r.is_output and r.name not in left_out)


def roles_with(
    operands: Collection[str], op: str = "attention", score_mod: Optional[str] = None
) -> Dict[str, Role]:
    """Returns the roles of all operands of an op by name, in a call with `operands`, some of which may pack
    sequences, be in pages or be symbols of a mask, and with the text of a score_mod."""
    known = {role.name: role for role in _library.get().roles(op)}
    symbols = _symbols.roles_of(operands, known)
    found = (*known.values(), *symbols.values(), *_aux.roles_of(score_mod).values())
    placing = [name for name in operands if name in _module.STARTS or name == "page_table"]
    if placing:
        found = tuple(role._replace(dims=_module.dims_with(role.dims, placing)) for role in found)
    return {role.name: role for role in found}


def check_sequences(operands: Iterable[str], layout: str) -> None:
    """Checks that the operands with these names go together, and with the layout, if sequences differ in
    length."""
    names = set(operands)
    if layout == "thd" and "cu_seqlens_q" not in names:
        raise ArgumentError("expected cu_seqlens_q with layout thd but got None")
    for name in _module.PLACES:
        if name in names and "cu_seqlens_k" in names:
            raise ArgumentError(f"expected no {name} with cu_seqlens_k, which packs the keys, but got one")
    if "page_table" in names and "kv_len" not in names:
        raise ArgumentError("expected kv_len with page_table but got None")
    for name in ("cu_seqlens_q", "cu_seqlens_k", "q_len", *_module.PLACES):
        for other in ("bias", "attn_mask"):
            if name in names and other in names:
                raise ArgumentError(
                    f"expected no {other} with {name} but got one; mask= and score_mod= apply to each sequence"
                )


def check_rows(
    of_rows: Sequence[str], q: Any, k: Any, align: str, layout: str, operands: Mapping[str, Any]
) -> None:
    """Checks that the parts `Mask._of_rows` of a mask fit a call: sequences are not packed and, except for `tree`,
    query i is at position i. Raises ArgumentError."""
    given = {name for name, value in operands.items() if value is not None}
    for part in of_rows:
        for name in _module.STARTS:
            if name in given:
                hint = "" if part == "tree" else f"; use {_PACKED}"
                raise ArgumentError(f"expected no {name} with the mask {part} but got one{hint}")
        for name in ("kv_len", "leftpad_k"):
            is_shifted = name in given and align == "bottom_right" and not given & {"q_len", "offset", "offsets"}
            if is_shifted and part != "tree":
                raise ArgumentError(
                    f"expected align top_left, or q_len, in a call with {name} and the mask {part} but got {align}"
                )
    axis = -2 if layout == "bhsd" else -3
    sizes = [getattr(x, "shape", ())[axis:][:1] for x in (q, k)]
    if all(sizes):
        pages = getattr(operands.get("page_table"), "shape", (1,))[-1]
        _symbols.check_square(of_rows, sizes[0][0], sizes[1][0] * pages)


#: The mask of documents in packed sequences.
_PACKED = 'affine_set("(p, k)[nq, nk, u, w] : (u - w == 0)", per_query=[ids], per_key=[ids])'


def limit_queries(most: Any, operands: Mapping[str, Any]) -> Optional[int]:
    """Returns the number of queries for which a call with this `max_seqlen_q` compiles a kernel: a power of 2, or
    None if the kernels do not depend on it."""
    if isinstance(most, bool) or not isinstance(most, (int, numpy.integer)) or most < 0:
        raise ArgumentError(f"expected an integer of at least 0 as max_seqlen_q but got {most!r}")
    if operands.get("cu_seqlens_q") is None:
        raise ArgumentError("expected cu_seqlens_q with max_seqlen_q but got None")
    if operands.get("cu_seqlens_k") is not None or most > _module.MAX_FEW_QUERIES:
        return None
    return 1 << max(int(most) - 1, 0).bit_length()


#: Keywords of other attention functions, and the equivalent in this package.
_ELSEWHERE = {
    "is_causal": "mask=flashattn.causal",
    "causal": "mask=flashattn.causal",
    "keep": "attn_mask=",
    "key_padding_mask": "kv_len= or attn_mask=",
    "attn_bias": "bias=",
    "alibi_slopes": "score_mod= and aux_tensors=",
    "softmax_scale": "scale=",
    "sm_scale": "scale=",
    "logits_soft_cap": "softcap=",
    "window_size": "mask=flashattn.window(left, right)",
    "return_softmax_lse": "return_lse=True",
    "dout": "do, the sixth argument,",
    "enable_gqa": "none: the head counts determine it",
    "seqused_k": "kv_len=",
    "max_seqlen_q": "none: only flashattn.attention reads it",
    "max_seqlen_k": "none: the tensors' shapes determine it",
    "page_table": "none: only flashattn.attention reads pages",
    "leftpad_k": "none: only flashattn.attention shifts keys",
    "k_scale": "none: the function reads no keys of 8 bits",
    "v_scale": "none: the function reads no values of 8 bits",
    "k_descale": "k_scale=",
    "v_descale": "v_scale=",
    "cache_batch_idx": "page_table=, with one column, and kv_len=",
    "cache_leftpad": "leftpad_k=",
    "num_splits": "none: the compiler splits the keys if that is faster",
    "dropout_p": "none: nothing is dropped out",
    "seqused_q": "q_len=",
    "cu_seqlens_q": "none: only flashattn.attention takes packed sequences",
    "cu_seqlens_k": "none: only flashattn.attention takes packed sequences",
    "block_table": "page_table=",
    "cache_seqlens": "kv_len=, or flashattn.torch.decode",
    "deterministic": "torch.use_deterministic_algorithms(True) before",
    "return_attn_probs": "return_lse=True",
    "sinks": "sink_logits=, or mask=flashattn.sink(n)",
}


def check_keywords(function: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """Raises KeywordError for an unknown keyword, with the equivalent in this package if there is one."""
    known = list(known)
    for name in unknown:
        if name in known:
            continue
        if _symbols.clause_of(name) in _symbols.CLAUSES:
            name_of = "mask=flashattn.affine_set(text, per_sequence=[...], per_query=[...], per_key=[...])"
            raise KeywordError(f"{function}() got an unexpected keyword argument {name!r}; expected {name_of}")
        close = [f"{other}=" for other in difflib.get_close_matches(name, known)]
        expected = _ELSEWHERE.get(name) or " or ".join(close)
        if name in _module.STARTS and "cu_seqlens" in known:
            expected = "cu_seqlens="
        hint = f"; expected {expected}" if expected else ""
        raise KeywordError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def given(function: str, operands: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the operands in the keyword arguments of `function` that are not None. Raises KeywordError for an
    unknown keyword."""
    names = [role.name for role in roles()]
    found = dict(operands)
    if function == "compile":  # an operand is not given by its value
        check_keywords(function, operands, names)
    else:
        check_keywords(function, operands, [name for name in names if name != "offsets"])
        found["offset"], found["offsets"] = split_offset(operands.get("offset"))
    return {name: found[name] for name in names if found.get(name) is not None}


def split_offset(offset: Any) -> Tuple[Any, Any]:
    """Returns the offset of a call as the operand `offset`, one number, or `offsets`, an array."""
    is_array = isinstance(offset, (list, tuple)) or getattr(offset, "ndim", 0) > 0
    return (None, offset) if is_array else (offset, None)


def normalize(
    operands: Mapping[str, Any], op: str = "attention", like: Any = None
) -> Tuple[Tuple[str, ...], Tuple[Any, ...]]:
    """Returns the names and the values of the operands that are not None. `operands` are in the order of the
    function's arguments, as the results are. Scalars become integers, and lists become arrays. NumPy arrays of
    another integer or float type are converted to the operand's type, unless the operand allows several
    types. If the queries `like` are a tensor of torch on a GPU, arrays of NumPy are copied there."""
    table = _table(op)
    found = {
        name: _settle_value(table[name], value) if name in table else value
        for name, value in operands.items() if value is not None
    }  # fmt: skip
    if getattr(like, "is_cuda", False):
        found = {name: _torch.to_device(value, like) for name, value in found.items()}
    return tuple(found), tuple(found.values())


@functools.lru_cache(maxsize=None)
def _table(op: str) -> Dict[str, Role]:
    return {role.name: role for role in roles(op)}


def _settle_value(role: Role, value: Any) -> Any:
    if role.is_scalar:
        return check_scalar(role.name, value)
    if isinstance(value, (list, tuple)):
        try:
            value = numpy.asarray(value)
        except ValueError:
            raise ArgumentError(
                f"expected {role.name!r} to be an array but got lists of different lengths"
            ) from None
    elif not isinstance(value, numpy.ndarray) or len(role.elements) > 1:
        return value  # not converted: a bias of float64 may be large
    kind = value.dtype.kind
    if "f32" in role.elements and kind in "fiu" and value.dtype != numpy.float32:
        return value.astype(numpy.float32)
    if "i32" in role.elements and kind in "iu" and value.dtype != numpy.int32:
        if value.size and not -_OFFSETS <= value.min() <= value.max() < _OFFSETS:
            raise ArgumentError(
                f"expected {role.name!r} from -2147483648 to 2147483647 but got {value.min()} to "
                f"{value.max()}"
            )
        return value.astype(numpy.int32)
    return value


def check_options(softcap: Any) -> Optional[float]:
    return None if softcap is None else _module.check_factor("softcap", softcap)


def check_scalar(name: str, given: Any) -> int:
    """Returns a position (rule A3), an integer of 32 bits. Raises ArgumentError for any other value."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise ArgumentError(f"expected an integer {name} but got {given!r}")
    try:
        value = given.__index__()
    except TypeError:  # an array of several elements
        raise ArgumentError(f"expected an integer {name} but got {given!r}") from None
    if not -_OFFSETS <= value < _OFFSETS:
        raise ArgumentError(f"expected an {name} from -2147483648 to 2147483647 but got {show(value)}")
    return value


def check(
    operands: Mapping[str, Any],
    q: View,
    sizes: Sizes,
    bf16_bits: bool,
    compiled: Optional[_module.Problem] = None,
    op: str = "attention",
    has_gradient: bool = False,
    layout: str = "bhsd",
    score_mod: Optional[str] = None,
    elements: Optional[Mapping[str, str]] = None,
) -> Extras:
    """Checks the operands against rule R1 and against `compiled`, the problem for which a kernel was compiled, if
    any. `score_mod` is the text of the score_mod, and `elements` are the types of k and v. `has_gradient`: the
    gradient of the bias is requested, so an expanded bias is not treated as broadcast (rule B5). Raises ArgumentError
    and UnsupportedError."""
    found: List[_module.Operand] = []
    values: List[Union[View, int]] = []
    names = {name for name, value in operands.items() if value is not None}
    names.update(operand.name for operand in (compiled.operands if compiled else ()))
    known = roles_with(names, op, score_mod)
    for role in (known[name] for name in _ordered(op, score_mod, names)):
        name, value = role.name, operands.get(role.name)
        expected = compiled.operand(name) if compiled else None
        if value is None:
            if expected:
                raise ArgumentError(f"expected {name}, with which the kernel was compiled, but got None")
            continue
        if compiled and not expected:
            raise ArgumentError(f"expected no {name}, without which the kernel was compiled, but got one")
        if role.is_scalar:
            values.append(check_scalar(name, value))
            found.append(_module.Operand(name, role.elements[0], role.dims))
            continue
        view = _tensors.view(name, value, bf16_bits, q.device)
        strides = view.strides
        if name in _symbols.NAMES:
            view, operand = _settle_symbol(role, view, expected, q, sizes, layout)
            values.append(view)
            found.append(operand)
            continue
        if name in SCALES:
            check_view(role, view, q, layout)
            view, operand = _scales.check(role, view, sizes, layout, elements or {}, expected)
            values.append(view)
            found.append(operand)
            continue
        view = _extend(role, view)
        check_view(role, view, q, layout)
        if expected and view.element != expected.element:
            raise ArgumentError(
                f"expected {name!r} with element type {expected.element}, as compiled, but got {view.element}"
            )
        sizes.add(role, view.shape)
        if role.broadcasts:
            is_whole = has_gradient and name == "bias"
            view, operand = _settle_broadcasts(role, view, strides, expected, is_whole)
        else:
            if role.dims:
                check_strides(name, view)
            if name == "page_table":  # of any row stride
                view = with_dense_ones(view)
            elif len(role.dims) > 1:
                check_contiguous(name, view)
            is_on_host = view.device == DEVICE_CPU or isinstance(view.device, str)
            if name in _module.STARTS and is_on_host:
                length = sizes[_module.STARTS[name]]
                check_starts(view.pointer, name, view.shape[0], length)
            view = with_batch(role, view, layout)
            operand = _module.Operand(name, view.element, role.dims)
        values.append(view)
        found.append(operand)
    return Extras(tuple(found), tuple(values))


def _ordered(op: str, score_mod: Optional[str], given: Collection[str]) -> List[str]:
    """Returns the names of the optional inputs, in the order of the function's arguments: scalars are last. Symbols of
    masks are among them if they are `given`."""
    names = [role.name for role in roles(op)]
    scalars = [role.name for role in roles(op) if role.is_scalar]
    symbols = [name for name in _symbols.NAMES if name in given]
    return [*(n for n in names if n not in scalars), *symbols, *_aux.loads_of(score_mod), *scalars]


def _settle_symbol(
    role: Role, view: View, compiled: Optional[_module.Operand], q: View, sizes: Sizes, layout: str
) -> Tuple[View, _module.Operand]:
    """Checks a symbol of a mask (rules Y1 and Y2). Returns the view with all dimensions and with size 1 in those that
    are broadcast, and the operand that is compiled in."""
    shape, strides = (_symbols.extend(x, role.dims, fill) for x, fill in ((view.shape, 1), (view.strides, 0)))
    if layout == "thd" and role.is_packed and shape[:1] == (1,):
        shape, strides = shape[1:], strides[1:]  # as the caller's other tensors
    view = view._replace(shape=shape, strides=strides)
    check_view(role, view, q, layout)
    last = role.dims[-1]
    if last in "NK":
        expected = sizes[last] if last == "N" or not sizes.is_paged else sizes["T"] * sizes[PAGE]
        if view.shape[-1] != expected:
            name = "query length" if last == "N" else "key length"
            raise ArgumentError(f"expected {name} of {role.name!r} to be {expected} but got {view.shape[-1]}")
    sizes.add(role, view.shape)
    view = with_batch(role, view, layout)
    return _settle_broadcasts(role, view, view.strides, compiled, False, last not in "NK")


def check_starts(pointer: int, name: str, count: int, length: int, most: Optional[int] = None) -> None:
    """Checks the values of starts in host memory (rules S2 and S7)."""
    if not pointer or not count:
        return
    memory = memoryview((ctypes.c_int32 * count).from_address(pointer))
    starts = numpy.frombuffer(memory, numpy.int32)
    if starts[0] >= 0 and starts[-1] <= length and (starts[1:] >= starts[:-1]).all():
        longest = 0 if most is None else int((starts[1:] - starts[:-1]).max())
        if most is None or longest <= most:
            return
        raise ArgumentError(
            f"expected sequences of at most {most} rows in {name!r}, as in max_seqlen_q, but got {longest}"
        )
    wrong = numpy.flatnonzero((starts < 0) | (starts > length))
    if wrong.size:
        raise ArgumentError(
            f"expected starts from 0 to {length} in {name!r} but got {starts[wrong[0]]}"
        )
    wrong = numpy.flatnonzero(starts[1:] < starts[:-1])
    if wrong.size:
        last = starts[wrong[0]]
        raise ArgumentError(
            f"expected starts that do not decrease in {name!r} but got {starts[wrong[0] + 1]} after {last}"
        )


def settle_gradient(role: Role, view: View) -> Tuple[View, _module.Operand]:
    """Returns the view of the gradient of an operand, an output, and the operand that is compiled in."""
    if role.broadcasts:
        return _settle_broadcasts(role, _extend(role, view), view.strides, None, is_whole=True)
    return view, _module.Operand(role.name, view.element, role.dims)


def _extend(role: Role, view: View) -> View:
    """Returns the view of an operand that broadcasts with the rank of the scores."""
    rank = len(role.dims)
    if role.broadcasts and len(view.shape) > rank:
        raise ArgumentError(
            f"expected {role.name!r} of rank {rank} at most but got rank {len(view.shape)}"
        )
    missing = rank - len(view.shape) if role.broadcasts else 0
    return view._replace(shape=(1,) * missing + view.shape, strides=(0,) * missing + view.strides)


def _settle_broadcasts(
    role: Role,
    view: View,
    given: Tuple[int, ...],
    compiled: Optional[_module.Operand],
    is_whole: bool,
    may_last: bool = True,
) -> Tuple[View, _module.Operand]:
    """Returns the view with size 1 in every broadcast dimension, and the operand that is compiled in. `given` are
    the strides of the caller's tensor. `is_whole`: dimensions of stride 0 are not broadcast. `may_last`: the last
    dimension may be broadcast."""
    shape, strides = view.shape, view.strides
    is_empty = 0 in shape
    # An expanded dimension, which has stride 0, counts as broadcast.
    broadcast = tuple(n == 1 or (s == 0 and n > 1 and not is_whole) for n, s in zip(shape, strides))
    if not may_last:
        broadcast = (*broadcast[:-1], False)
    if compiled:
        broadcast = compiled.broadcast
    shape = tuple(
        1 if same and n != 0 and (s == 0 or n == 1) else n
        for n, s, same in zip(shape, strides, broadcast)
    )
    if not is_empty and not broadcast[-1] and strides[-1] != 1 and shape[-1] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {role.name!r} but got {strides[-1]}; copy it, "
            "as with .contiguous() or numpy.ascontiguousarray()"
        )
    if not is_empty and any(s < 0 and not same for s, same in zip(strides, broadcast)):
        raise ArgumentError(f"expected strides of at least 0 of {role.name!r} but got {given}")
    dense = _tensors._dense_strides(shape)
    strides = tuple(d if same or is_empty else s for s, d, same in zip(strides, dense, broadcast))
    # A GPU uses vector loads for aligned rows.
    size = _module.ELEMENT_BYTES.get(view.element, 1)
    aligned = (
        view.element != "i32"
        and view.device != DEVICE_CPU
        and not broadcast[-1]
        and not is_empty
        and view.pointer % ALIGNMENT == 0
        and all(same or s * size % ALIGNMENT == 0 for s, same in zip(strides[:-1], broadcast))
    )
    view = view._replace(shape=shape, strides=strides)
    return view, _module.Operand(role.name, view.element, role.dims, broadcast, aligned)


def parse_operands(
    given: Mapping[str, Any], problem: _module.Problem, symbols: _symbols.Symbols = ()
) -> Tuple[_module.Operand, ...]:
    """Returns the operands of `flashattn.compile` for the rest of its problem, with the symbols of its mask. An operand
    that broadcasts is given by its shape, or by a pair of element type and shape if several types are allowed. For any
    other operand, `given` states whether launches pass the operand."""
    found = []
    has_aligned_rows, score_mod = problem.rows == "aligned", problem.score_mod
    rows = {"k_scale": (problem.d, problem.k_element), "v_scale": (problem.dv, problem.v_element)}
    tensors = dict(symbols)
    known = roles_with((*given, *tensors), score_mod=score_mod)
    loads = _aux.loads_of(score_mod)
    for role in (known[name] for name in _ordered("attention", score_mod, tensors)):
        if role.name in tensors:
            found.append(_parse_symbol(role, tensors[role.name]))
            continue
        if not given.get(role.name) and role.name not in loads:
            continue
        if role.name in SCALES:
            columns, element = rows[role.name]
            shape = given[role.name]
            found.append(_scales.parse(role, shape, problem.layout, columns, element or problem.element))
        elif role.broadcasts:
            found.append(_parse_broadcasts(role, given[role.name], has_aligned_rows))
        else:
            found.append(_module.Operand(role.name, role.elements[0], role.dims))
    return tuple(found)


def _parse_symbol(role: Role, tensor: Any) -> _module.Operand:
    """Returns the operand of a mask's tensor, of which only the shape counts."""
    shape = (1,) if type(tensor) is int else tuple(tensor.shape)
    sizes = zip(_symbols.extend(shape, role.dims, 1), role.dims)
    broadcast = tuple(n == 1 and dim not in "NK" for n, dim in sizes)
    return _module.Operand(role.name, "i32", role.dims, broadcast)


def _parse_broadcasts(role: Role, given: Any, has_aligned_rows: bool) -> _module.Operand:
    """Parses a shape, in which each size is 1 if it is broadcast and None otherwise, or a pair of type and shape."""
    name, rank = role.name, len(role.dims)
    element, shape = role.elements[0], given
    if len(role.elements) > 1:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ArgumentError(f"expected {name} to be a pair (dtype, shape) but got {given!r}")
        element, shape = given
        element = _tensors.parse_element(getattr(element, "__name__", element))
        if element not in role.elements:
            raise UnsupportedError(f"expected {name} with dtype f16, bf16 or f32 but got {element}")
    else:
        has_aligned_rows = False
    if (
        not isinstance(shape, (tuple, list))
        or len(shape) != rank
        or any(size not in (1, None) for size in shape)
    ):
        raise ArgumentError(
            f"expected a shape of {rank} sizes, each 1 or None, for {name} but got {shape!r}"
        )
    broadcast = tuple(size == 1 for size in shape)
    aligned = has_aligned_rows and not broadcast[-1]
    return _module.Operand(name, element, role.dims, broadcast, aligned)
