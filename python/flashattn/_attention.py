"""`flashattn.attention`: checks, plans and launches.

A call that was made before with tensors of the same kind, sizes and strides finds its *plan*: the
kernel, and the C structures that describe the tensors but for their addresses. What is left of such
a call is to find the plan, to allocate the outputs and one call into the library, which checks what
addresses decide: alignment, and that outputs share no memory with anything. Plans are found in two
ways: the library compares the tensors with those of the last few plans, where their type shows them
to C (torch from 2.10 on); a dictionary has all plans, but its key costs three times as much.
"""

from __future__ import annotations

import sys
from typing import Any, List, Literal, Mapping, Optional, Tuple, TypeVar, Union, overload

import numpy

from . import _cache, _features, _kernel, _library, _module, _tensors, _trace
from ._checks import ALIGNMENT, Views, check_inputs, check_outputs, device_name
from ._library import DEVICE_CPU, pack_objects
from ._tensors import View
from .errors import ArgumentError, UnsupportedError
from .masks import Mask

#: Plans that tensors are compared with, one by one.
_MAX_RECENT = 4


_WORD = (1 << 64) - 1  #: bits of what stands for an argument in a launch

#: A tensor of the caller's library.
_Given = TypeVar("_Given")


class _Fields(tuple):
    """A mapping's items, which a plan can be found by."""


# Of torch, once the user has imported it: the class, the function that gives a device's current
# stream as an integer, and the address of the table that shows tensors to C, 0 where there is none.
_Tensor: Any = None
_empty_like: Any = None
_raw_stream: Any = None
_grad_enabled: Any = None
_exchange = 0


class _Plan:
    """A kernel with arguments that need only addresses. Never changes once it is in use."""

    __slots__ = (
        "kernel", "library", "device", "launch", "launch_head", "pack", "match", "match_head", "pack_matched",
        "tensors", "options", "o_shape", "lse_shape", "like_o", "like_lse", "is_empty", "scale_bits",
    )  # fmt: skip

    def __init__(self, kernel: _kernel.Kernel, views: Views, extras: _features.Extras):
        #: None in a plan that the kernel itself keeps.
        self.kernel: Optional[_kernel.Kernel] = kernel
        self.library = kernel._library
        self.device = views.q.device
        self.scale_bits = kernel._scale_bits  #: for who brings no scale
        self.launch, self.match = kernel._library.launch, kernel._library.match
        self.o_shape, self.lse_shape = views.o.shape, views.lse_shape
        self.is_empty = 0 in self.o_shape
        #: What `torch.empty_like` makes o and lse of.
        self.like_o = self.like_lse = None
        #: The caller's.
        self.options: Any = None
        rows = [views.q, views.k, views.v, views.o]
        first = 5 if views.has_lse else 4
        count = first + len(extras.values) + 1
        self.tensors = (_library.Tensor * max(5, count))()
        is_aligned = all(view.pointer % ALIGNMENT == 0 for view in rows)
        self.match_head = _library.match_head(_exchange, self.tensors, self.device, is_aligned)
        self.launch_head = _library.launch_head(kernel._handle, self.tensors, count)
        self.pack, self.pack_matched = _library.packers(count)
        for index, view in [*enumerate(rows), *enumerate(extras.values, first)]:
            if isinstance(view, int):  # a scalar, which each launch brings
                continue
            tensor, rank = self.tensors[index], len(view.shape)
            tensor.rank, tensor.elementType = rank, _library.ELEMENT_TYPES[view.element]
            tensor.sizes[:rank] = view.shape
            tensor.strides[:rank] = view.strides
        if not views.has_lse:
            return
        lse = self.tensors[4]
        lse.rank, lse.elementType = 3, _library.ELEMENT_TYPES["f32"]
        lse.sizes[:3] = self.lse_shape
        lse.strides[:3] = _tensors._dense_strides(self.lse_shape)

    def start(self, stream: int, words: List[int]) -> None:
        """Launches with the addresses of q, k, v, o and lse and what stands for operands and scale."""
        if self.is_empty:
            return
        status = self.launch(self.launch_head + self.pack(0, stream, *words))
        if status:
            self.library.fail(status)


@overload
def attention(
    q: _Given,
    k: Any,
    v: Any,
    *,
    mask: Optional[Mask] = ...,
    scale: Optional[float] = ...,
    align: _module.Align = ...,
    layout: _module.Layout = ...,
    return_lse: Literal[False] = ...,
    out: Any = ...,
    schedule: Optional[_kernel.Schedule] = ...,
    dtype: Any = ...,
    stream: Any = ...,
    bias: Any = ...,
    keep: Any = ...,
    softcap: Optional[float] = ...,
    sink_logits: Any = ...,
    kv_len: Any = ...,
    offset: Optional[int] = ...,
    score_mod: Optional[_trace.ScoreMod] = ...,
) -> _Given: ...
@overload
def attention(
    q: _Given,
    k: Any,
    v: Any,
    *,
    mask: Optional[Mask] = ...,
    scale: Optional[float] = ...,
    align: _module.Align = ...,
    layout: _module.Layout = ...,
    return_lse: Literal[True],
    out: Any = ...,
    schedule: Optional[_kernel.Schedule] = ...,
    dtype: Any = ...,
    stream: Any = ...,
    bias: Any = ...,
    keep: Any = ...,
    softcap: Optional[float] = ...,
    sink_logits: Any = ...,
    kv_len: Any = ...,
    offset: Optional[int] = ...,
    score_mod: Optional[_trace.ScoreMod] = ...,
) -> Tuple[_Given, Any]: ...
@overload
def attention(
    q: _Given,
    k: Any,
    v: Any,
    *,
    mask: Optional[Mask] = ...,
    scale: Optional[float] = ...,
    align: _module.Align = ...,
    layout: _module.Layout = ...,
    return_lse: bool,
    out: Any = ...,
    schedule: Optional[_kernel.Schedule] = ...,
    dtype: Any = ...,
    stream: Any = ...,
    bias: Any = ...,
    keep: Any = ...,
    softcap: Optional[float] = ...,
    sink_logits: Any = ...,
    kv_len: Any = ...,
    offset: Optional[int] = ...,
    score_mod: Optional[_trace.ScoreMod] = ...,
) -> Union[_Given, Tuple[_Given, Any]]: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.Layout = "bhsd",
    return_lse: bool = False,
    out: Any = None,
    schedule: Optional[_kernel.Schedule] = None,
    dtype: Any = None,
    stream: Any = None,
    bias: Any = None,
    keep: Any = None,
    softcap: Optional[float] = None,
    sink_logits: Any = None,
    kv_len: Any = None,
    offset: Optional[int] = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    **unknown: Any,
) -> Any:
    """`softmax(mask(score_mod(softcap(scale * q k^T)) + bias)) v`, without the matrix of scores ever
    in memory.

    On a GPU up to 16 queries read the keys in parts at once, and each number of them has a kernel of
    its own.

    Args:
      q: queries, `[B, Hq, Nq, D]`, f16, bf16 or f32: an array of NumPy (runs on the CPU), a tensor
        of PyTorch on either, or anything with `__cuda_array_interface__` or DLPack. Any strides
        with a unit last one; nothing is copied.
      k: keys, `[B, Hkv, Nk, D]`, where Hq is a multiple of Hkv: query head h reads key head
        `h // (Hq // Hkv)`.
      v: values, `[B, Hkv, Nk, Dv]`.
      mask: visible pairs, such as `flashattn.causal`; None shows all.
      scale: factor of the scores, from 1e-18 to 1e18; None is `1 / sqrt(D)`. May change from call
        to call: one kernel takes them all.
      align: where query 0 stands when Nq and Nk differ: at Nk - Nq ("bottom_right") or 0
        ("top_left").
      layout: "bhsd", or "bshd" where the sequence comes before the heads in q, k, v and o.
      return_lse: also give the natural-log log-sum-exp of each row's scores, `[B, Hq, Nq]`, f32.
      out: where to write: o, or (o, lse) with return_lse. No byte of either may belong to another
        tensor of the call; views that lie between each other, as the slices of a packed q, k, v and
        o do, are fine. The call costs no more than one that makes its outputs.
      schedule: fields of a schedule to pin, as a mapping or as the attribute's text:
        `{"tile_m": 64, "tile_n": 64}`, or `{"tile_n": 80, "roles": {"consumers": 3}}` for
        warpgroups with roles on Hopper. What is left out follows from the rest; where the sizes of
        the tiles do not, the compiler chooses them: `{"tile_m": 16}`. None takes the
        tuner's finding (FLASHATTN_TUNED=0: not) or the compiler's choice.
      dtype: "bf16" says that arrays of uint16 hold the bits of bf16. Arrays of ml_dtypes.bfloat16
        say so themselves.
      stream: a CUDA stream or its address; None is the caller's current one. The call returns when
        the work is on the stream, and never waits. On the CPU it returns when all is done.

      bias: added to the scores, f16, bf16 or f32, of any shape that broadcasts to
        `[B, Hq, Nq, Nk]`, whatever the layout; what is broadcast is not repeated in memory. Like
        q, k and v it is read where it lies, and so are keep, sink_logits and kv_len. On the CPU
        each of these four may be a list, and sink_logits and kv_len arrays of float64 and int64,
        which are copied.
      keep: bool, broadcasts as bias does; False hides a pair that the mask shows.
      softcap: c, where scores s become `c * tanh(s / c)` before score_mod and bias.
      sink_logits: `[Hq]`, f32: a logit of each query head that joins the denominator only. A row
        that sees no key has it as its lse.
      kv_len: `[B]`, i32: keys at or past it do not exist, whatever k and v hold there.
        "bottom_right" puts query 0 at kv_len - Nq.
      offset: where query 0 stands, in place of what `align` says. May change from call to call.
      score_mod: a function of (score, b, h, p, k), the scaled and capped score of query head h of
        batch b, the query's position p and the key k, that gives the score: such as
        `lambda score, b, h, p, k: score + flashattn.math.exp2(-h) * (k - p)`. It is called with
        values that record operators and functions of `flashattn.math`, and compiled; numbers that
        it captures are compiled in. b, h, p and k are integers of 32 bits, score is f32, and where
        integers meet floats they become f32.

    Returns:
      o, `[B, Hq, Nq, Dv]`, or (o, lse). A row that sees no key is 0, and its lse -inf.

    Raises:
      ArgumentError: shapes, types, devices, strides or names that do not fit; an output that shares
        memory with another tensor. KeywordError, a TypeError too: a keyword that there is none of.
      TraceError: a score_mod that does what no operation stands for, such as `if` on a score.
      CompileError, UnsupportedError: the compiler's diagnostic, at the first call of a kind.
      LibraryError: no library.
      DeviceError: no driver, no device, a launch that failed.

    Warns:
      UserWarning: a mask that hides whole rows whatever the lengths, at the first call of a kind.
    """
    if unknown:
        _features.check_keywords("attention", unknown, attention.__kwdefaults__)
    if schedule is not None and schedule.__class__ is not str:
        schedule = _hashable(schedule)
    names = values = ()
    text = None
    if not (
        bias is keep is softcap is sink_logits is kv_len is offset is None and score_mod is None
    ):
        softcap = _features.check_options(softcap)
        text = None if score_mod is None else _trace.text_of(score_mod)
        names, values = _features.settle(
            bias=bias, keep=keep, sink_logits=sink_logits, kv_len=kv_len, offset=offset
        )
    # A plan is found by everything that it was made from.
    options = (mask, align, layout, return_lse, schedule, dtype, softcap, text, names, out is None)
    if out is None:
        outs: Tuple[Any, ...] = ()
    elif not return_lse:
        outs = (out,)
    else:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    kind = type(q)
    if kind is numpy.ndarray:
        plan, key, words = _find_numpy((q, k, v, *outs, *values), options, _cache.cache.plans)
    elif kind is _Tensor:
        return _call_torch(q, k, v, out, outs, values, scale, stream, options)
    else:
        plan = key = None
    if plan is None:
        return _attend(q, k, v, out, stream, options, key, values, scale)
    words.append(plan.scale_bits if scale is None else _module.scale_bits(scale))
    plan.kernel._used = _cache.tick()
    if out is None:
        o = numpy.empty(plan.o_shape, q.dtype)
        if return_lse:
            lse = numpy.empty(plan.lse_shape, numpy.float32)
            words[3:3] = o.__array_interface__["data"][0], lse.__array_interface__["data"][0]
            out = o, lse
        else:
            words.insert(3, o.__array_interface__["data"][0])
            out = o
    if stream is not None:
        _tensors.stream_pointer(stream)
    plan.start(0, words)
    return out


def _hashable(fields: Any) -> Any:
    if not isinstance(fields, Mapping):
        return fields
    return _Fields((name, _hashable(value)) for name, value in fields.items())


def _mapping(fields: Any) -> Any:
    """What `_hashable` made it of."""
    if not isinstance(fields, _Fields):
        return fields
    return {name: _mapping(value) for name, value in fields}


_Found = Tuple[Optional[_Plan], Any, List[int]]


def _find_numpy(tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, _Plan]) -> _Found:
    """The plan of arrays and scalars; its key, by which it can be kept; and the words of a launch but
    for the scale."""
    key: List[Any] = [options]
    words: List[int] = []
    bits = 0
    for t in tensors:
        kind = t.__class__
        if kind is int:
            key.append(kind)
            words.append(t & _WORD)
            continue
        if kind is not numpy.ndarray:
            return None, None, words
        at, is_read_only = t.__array_interface__["data"]
        words.append(at)
        bits |= at
        key += t.dtype, t.shape, t.strides, is_read_only
    # Addresses enter by their alignment only.
    key.append(bits & (ALIGNMENT - 1))
    found = tuple(key)
    try:
        return plans.get(found), found, words
    except TypeError:  # what cannot be hashed is refused by name
        return None, None, words


def _find_torch(tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, _Plan]) -> _Found:
    """The same of tensors of torch. Each attribute read costs the host about 0.1 us."""
    key: List[Any] = [options]
    words: List[int] = []
    try:
        for t in tensors:
            kind = t.__class__
            if kind is int:
                key.append(kind)
                words.append(t & _WORD)
                continue
            if kind is not _Tensor or t.requires_grad:
                return None, None, words
            at = t.data_ptr()
            words.append(at)
            key += t.dtype, t.shape, t.stride(), t.get_device(), t.is_cuda, at & (ALIGNMENT - 1)
        found = tuple(key)
        return plans.get(found), found, words
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None, None, words  # what cannot be hashed or has no address is refused by name


def _call_torch(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    outs: Tuple[Any, ...],
    values: Tuple[Any, ...],
    scale: Any,
    stream: Any,
    options: Tuple[Any, ...],
) -> Any:
    # What is asked about anew at each call.
    for t in (k, v, *outs):
        if t.__class__ is not _Tensor:
            return _attend(q, k, v, out, stream, options, None, values, scale)
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return _attend(q, k, v, out, stream, options, None, values, scale)
    plan: Optional[_Plan] = None
    key = None
    words: List[int] = []
    match = 0
    return_lse = options[3]
    if _exchange and all(value.__class__ is int for value in values):
        ids = [id(t) for t in outs] + [0] * (2 - len(outs))
        try:
            for recent in _cache.cache.recent:
                if recent.options == options:
                    match = recent.match(
                        recent.match_head + pack_objects(id(q), id(k), id(v), *ids)
                    )
                    if match:
                        plan = recent
                        break
        except (TypeError, ValueError, RuntimeError, BufferError):
            match = 0  # what cannot be compared or shown to C is refused by name
    if plan is None:
        plan, key, words = _find_torch((q, k, v, *outs, *values), options, _cache.cache.plans)
    if plan is None:
        return _attend(q, k, v, out, stream, options, key, values, scale)
    assert plan.kernel is not None
    bits = plan.scale_bits if scale is None else _module.scale_bits(scale)
    plan.kernel._used = _cache.tick()
    if not match and _exchange and not plan.is_empty:
        others = [recent for recent in _cache.cache.recent if recent is not plan]
        _cache.cache.recent = [plan, *others[: _MAX_RECENT - 1]]
    at = [0] * len(outs)
    if out is None:
        o = out = _empty_like(plan.like_o)
        at = [o.data_ptr()]
        if return_lse:
            lse = _empty_like(plan.like_lse)
            at.append(lse.data_ptr())
            out = o, lse
    if match and stream is None:
        given = [value & _WORD for value in values]
        status = plan.launch(plan.launch_head + plan.pack_matched(match, *at, *given, bits))
        if status:
            plan.library.fail(status)
        return out
    if match:
        words = [t.data_ptr() for t in (q, k, v, *outs)] + [value & _WORD for value in values]
    if not outs:
        words[3:3] = at
    words.append(bits)
    plan.start(_stream_or(stream, plan.device), words)
    return out


def _stream_or(stream: Any, device: int) -> int:
    """The caller's stream, or the current one of torch."""
    if stream is not None:
        return _tensors.stream_pointer(stream)
    return _raw_stream(device) if device >= 0 else 0


def _attend(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: Tuple[Any, ...],
    key: Any,
    values: Tuple[Any, ...],
    scale: Any,
) -> Any:
    """The call in full. With a `key`, the next one like it finds the plan."""
    mask, align, layout, return_lse, schedule, dtype, softcap, score_mod, names, _ = options
    operands = dict(zip(names, values))
    _learn_torch()
    _module.check_options(mask, align, layout)
    scale_bits = None if scale is None else _module.scale_bits(scale)
    bf16_bits = False
    if dtype is not None:
        bf16_bits = _tensors.parse_element(getattr(dtype, "__name__", dtype)) == "bf16"
        if not bf16_bits:
            raise ArgumentError(f"expected dtype bf16 or None but got {dtype!r}")
    views = {
        name: _tensors.view(name, tensor, bf16_bits)
        for name, tensor in (("q", q), ("k", k), ("v", v))
    }
    _refuse_gradients(q=q, k=k, v=v, **operands)
    roles = {role.name: role for role in _library.get().roles()}
    sizes = check_inputs(views, roles, layout)
    extras = _features.check(operands, views["q"], sizes, bf16_bits)
    o_shape, lse_shape = sizes.shape(roles["o"]), sizes.shape(roles["lse"])
    element = views["q"].element

    o, lse = _split_out(out, return_lse)
    like_o = like_lse = None
    if key is not None and out is None and _tensors.is_torch(q):
        like_o = _tensors.shape_like(q, o_shape, element)
        like_lse = _tensors.shape_like(q, lse_shape, "f32") if return_lse else None
    if o is None:
        o = _tensors.empty_like("o", views["q"], q, o_shape, element)
    if return_lse and lse is None:
        lse = _tensors.empty_like("lse", views["q"], q, lse_shape, "f32")
    o_view = _tensors.view("o", o, bf16_bits)
    lse_view = _tensors.view("lse", lse, False) if return_lse else None
    checked = check_outputs(views, {"o": o_view, "lse": lse_view}, roles, sizes)

    is_cpu = views["q"].device == DEVICE_CPU
    queries = None
    if not is_cpu and schedule is None:
        queries = _module.few_queries(sizes["N"])
    problem = _module.Problem(
        element,
        sizes["D"],
        sizes["V"],
        mask,
        align,
        layout,
        bool(return_lse),
        _kernel.format_schedule(_mapping(schedule), element, is_cpu),
        checked.rows,
        None if is_cpu else _module.grouped_heads(sizes["H"], sizes["G"]),
        softcap=softcap,
        score_mod=score_mod,
        operands=extras.operands,
        queries=queries,
    )
    kernel = _kernel.cached(problem, views["q"].device)
    plan = _Plan(kernel, checked, extras)
    if stream is None:
        stream = _stream_of(q, views["q"])
    else:
        stream = _tensors.stream_pointer(stream)
    _start(plan, (*views.values(), o_view, lse_view), extras, scale_bits, stream)
    # What torch allocates is aligned; a plan without out= counts on it.
    if key is not None and (out is not None or o_view.pointer % ALIGNMENT == 0):
        plan.options = options
        plan.like_o, plan.like_lse = like_o, like_lse
        _cache.cache.keep_plan(kernel, key, plan)
    return (o, lse) if return_lse else o


def launch_kernel(
    kernel: _kernel.Kernel,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    scale: Any,
    stream: Any,
    operands: Mapping[str, Any],
) -> None:
    """`Kernel.launch`."""
    bits = kernel._scale_bits if scale is None else _module.scale_bits(scale)
    names, values = _features.settle(**operands) if operands else ((), ())
    tensors = (q, k, v, out, *values) if lse is None else (q, k, v, out, lse, *values)
    kind = type(q)
    plan, key = None, None
    words: List[int] = []
    if kind is numpy.ndarray:
        plan, key, words = _find_numpy(tensors, (names, lse is None), kernel._plans)
    elif kind is _Tensor:
        plan, key, words = _find_torch(tensors, (names, lse is None), kernel._plans)
    if plan is not None:
        plan.start(_stream_or(stream, plan.device), [*words, bits])
        return
    plan, views, extras = _plan_of(kernel, q, k, v, out, lse, dict(zip(names, values)))
    stream = _stream_of(q, views[0]) if stream is None else _tensors.stream_pointer(stream)
    _start(plan, views, extras, bits, stream)
    if key is not None:
        plan.kernel = None  # which would never go if it kept itself
        if len(kernel._plans) >= _cache.MAX_PLANS:
            kernel._plans.clear()
        kernel._plans[key] = plan


def measure_workspace(
    kernel: _kernel.Kernel, q: Any, k: Any, v: Any, out: Any, lse: Any, operands: Mapping[str, Any]
) -> int:
    """`Kernel.get_workspace_bytes`."""
    names, values = _features.settle(**operands)
    plan, views, extras = _plan_of(kernel, q, k, v, out, lse, dict(zip(names, values)))
    if plan.is_empty:
        return 0
    words = [view.pointer for view in views if view is not None] + extras.words()
    words.append(kernel._scale_bits)
    for tensor, word in zip(plan.tensors, words):
        tensor.scalar = word  # counts where the argument is one
    return kernel._library.workspace(kernel._handle, plan.tensors, len(words))


def _plan_of(
    kernel: _kernel.Kernel, q: Any, k: Any, v: Any, out: Any, lse: Any, operands: Mapping[str, Any]
) -> Tuple[_Plan, Tuple[Optional[View], ...], _features.Extras]:
    """A plan of the caller's own, with what it was made from."""
    _learn_torch()
    if not kernel.is_launchable:
        raise UnsupportedError(
            f"the kernel cannot be launched: {kernel._info.not_launchable_reason}"
        )
    problem = kernel.problem
    if problem.lse and lse is None:
        raise ArgumentError("expected lse for a kernel with return_lse but got None")
    if not problem.lse and lse is not None:
        raise ArgumentError("expected no lse for a kernel without return_lse but got one")
    bits = problem.element == "bf16"
    views = {
        name: _tensors.view(name, tensor, bits) for name, tensor in (("q", q), ("k", k), ("v", v))
    }
    q_view, o_view = views["q"], _tensors.view("o", out, bits)
    lse_view = _tensors.view("lse", lse, False) if lse is not None else None
    _refuse_gradients(q=q, k=k, v=v, **operands)
    roles = {role.name: role for role in _library.get().roles()}
    sizes = check_inputs(views, roles, problem.layout)
    for name, width, found in (
        ("D", problem.d, sizes["D"]),
        ("Dv", problem.dv, sizes["V"]),
        ("Nq", problem.queries, sizes["N"]),
    ):
        if width is not None and width != found:
            raise ArgumentError(f"expected {name} to be {width}, as compiled, but got {found}")
    if q_view.element != problem.element:
        raise ArgumentError(
            f"expected element type {problem.element}, as compiled, but got {q_view.element}"
        )
    if q_view.device != kernel._info.device:
        raise ArgumentError(
            f"expected tensors on {device_name(kernel._info.device)}, as compiled, but got "
            f"{device_name(q_view.device)}"
        )
    checked = check_outputs(views, {"o": o_view, "lse": lse_view}, roles, sizes)
    if _module.ROWS.index(checked.rows) > _module.ROWS.index(problem.rows):
        raise ArgumentError(
            f"expected {problem.rows} rows, as compiled, but got {checked.rows} ones"
        )
    extras = _features.check(operands, q_view, sizes, bits, problem)
    return _Plan(kernel, checked, extras), (*views.values(), o_view, lse_view), extras


def _start(
    plan: _Plan,
    views: Tuple[Optional[View], ...],
    extras: _features.Extras,
    scale_bits: Optional[int],
    stream: int,
) -> None:
    words = [view.pointer for view in views if view is not None] + extras.words()
    plan.start(stream, [*words, plan.scale_bits if scale_bits is None else scale_bits])


def _learn_torch() -> None:
    """Finds torch where the user has imported it; never imports it."""
    global _Tensor, _empty_like, _raw_stream, _grad_enabled, _exchange
    if _Tensor is not None:
        return
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return
    _raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if _raw_stream is None:
        _raw_stream = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
    _grad_enabled = torch.is_grad_enabled
    _empty_like = torch.empty_like
    # Its own table: packages lend older versions one, which may know nothing of CUDA's streams.
    if hasattr(torch._C, "_dlpack_exchange_api"):
        _exchange = _library.exchange_address(torch.Tensor)
    _Tensor = torch.Tensor


def _stream_of(tensor: Any, view: View) -> int:
    if _tensors.is_torch(tensor):
        return _stream_or(None, view.device)
    return _tensors.current_stream(view)


def _refuse_gradients(**tensors: Any) -> None:
    for name, tensor in tensors.items():
        if _tensors.is_torch(tensor) and tensor.requires_grad and _grad_enabled():
            raise UnsupportedError(
                f"expected tensors without gradients but got {name!r} with requires_grad; "
                "call it under torch.no_grad(), or on tensor.detach()"
            )


def _split_out(out: Any, return_lse: bool) -> Tuple[Any, Any]:
    if out is None:
        return None, None
    if not return_lse:
        if isinstance(out, (tuple, list)):
            raise ArgumentError(
                "expected one tensor as out but got a pair; return_lse=True takes (o, lse)"
            )
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(
            "expected out to be a pair (o, lse) with return_lse but got " + type(out).__name__
        )
    return out[0], out[1]
