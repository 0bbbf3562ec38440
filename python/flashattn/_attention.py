"""`flashattn.attention`: checks, plans and launches.

A call that was made before with tensors of the same kind, sizes and strides finds its *plan*: the
kernel, and the C structures that describe the tensors but for their addresses. What is left of such
a call is to find the plan, to allocate the outputs and one call into the library. Plans are found
in two ways: the library compares the tensors with those of the last few plans of the thread, where
their type shows them to C (torch from 2.10 on); a dictionary has all plans, but its key costs three
times as much.
"""

from __future__ import annotations

import sys
import threading
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy

from . import _features, _kernel, _library, _module, _tensors, _trace
from ._checks import ALIGNMENT, Views, check_inputs, check_outputs, device_name
from ._library import DEVICE_CPU, pack_addresses, pack_call, pack_matched, pack_objects
from ._tensors import View
from .errors import ArgumentError, UnsupportedError

#: Plans are small, but lengths may vary without end.
_MAX_PLANS = 4096


#: Plans that tensors are compared with, one by one.
_MAX_RECENT = 4


class _Fields(tuple):
    """A mapping's items, which a plan can be found by."""


class _State(threading.local):
    """The plans of a thread."""

    def __init__(self):
        self.plans: Dict[Any, _Plan] = {}
        #: The plans used last, none twice.
        self.recent: List[_Plan] = []


_state = _State()

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
        "kernel", "device", "launch", "launch_head", "match", "match_head", "tensors", "options", "o_shape",
        "lse_shape", "like_o", "like_lse", "is_empty",
    )  # fmt: skip

    def __init__(self, kernel: _kernel.Kernel, views: Views, extras: _features.Extras):
        self.kernel = kernel
        self.device = views.q.device
        self.launch, self.match = kernel._library.launch, kernel._library.match
        self.o_shape, self.lse_shape = views.o.shape, views.lse_shape
        self.is_empty = 0 in self.o_shape
        #: What `torch.empty_like` makes o and lse of.
        self.like_o = self.like_lse = None
        #: The caller's.
        self.options: Any = None
        rows = [views.q, views.k, views.v, views.o]
        first = 5 if views.has_lse else 4
        count = first + len(extras.values)
        self.tensors = (_library.Tensor * max(5, count))()
        is_aligned = all(view.pointer % ALIGNMENT == 0 for view in rows)
        self.match_head = _library.match_head(_exchange, self.tensors, self.device, is_aligned)
        self.launch_head = _library.launch_head(kernel._handle, self.tensors, count)
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


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask=None,
    scale: Optional[float] = None,
    align: str = "bottom_right",
    layout: str = "bhsd",
    return_lse: bool = False,
    out: Any = None,
    schedule: Any = None,
    dtype: Any = None,
    stream: Any = None,
    bias: Any = None,
    keep: Any = None,
    softcap: Optional[float] = None,
    sink_logits: Any = None,
    kv_len: Any = None,
    offset: Optional[int] = None,
    score_mod: Any = None,
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
      scale: factor of the scores; None is `1 / sqrt(D)`.
      align: where query 0 stands when Nq and Nk differ: at Nk - Nq ("bottom_right") or 0
        ("top_left").
      layout: "bhsd", or "bshd" where the sequence comes before the heads in q, k, v and o.
      return_lse: also give the natural-log log-sum-exp of each row's scores, `[B, Hq, Nq]`, f32.
      out: where to write: o, or (o, lse) with return_lse. It must not overlap the inputs.
      schedule: fields of a schedule to pin, as a mapping or as the attribute's text:
        `{"tile_m": 64, "tile_n": 64}`, or `{"tile_n": 80, "roles": {"consumers": 3}}` for
        warpgroups with roles on Hopper. What is left out follows from the rest. None takes the
        tuner's finding (FLASHATTN_TUNED=0: not) or the compiler's choice.
      dtype: "bf16" says that arrays of uint16 hold the bits of bf16. Arrays of ml_dtypes.bfloat16
        say so themselves.
      stream: a CUDA stream or its address; None is the caller's current one. The call returns when
        the work is on the stream, and never waits. On the CPU it returns when all is done.

      bias: added to the scores, f16, bf16 or f32, of any shape that broadcasts to
        `[B, Hq, Nq, Nk]`, whatever the layout; what is broadcast is not repeated in memory. Like
        q, k and v it is read where it lies, and so are keep, sink_logits and kv_len.
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
      ArgumentError: shapes, types, devices, strides or names that do not fit.
      TraceError: a score_mod that does what no operation stands for, such as `if` on a score.
      CompileError, UnsupportedError: the compiler's diagnostic, at the first call of a kind.
      DeviceError: no library, no driver, no device, a launch that failed.

    Warns:
      UserWarning: a mask that hides whole rows whatever the lengths, at the first call of a kind.
    """
    # A plan is found by everything that it was made from.
    if schedule is not None and schedule.__class__ is not str:
        schedule = _hashable(schedule)
    options: Tuple[Any, ...] = (
        mask,
        scale,
        align,
        layout,
        return_lse,
        schedule,
        dtype,
        out is None,
    )
    if not (
        bias is keep is softcap is sink_logits is kv_len is offset is None and score_mod is None
    ):
        options += (
            _features.check_options(softcap),
            None if score_mod is None else _trace.text_of(score_mod),
        )
        operands = {
            "bias": bias,
            "keep": keep,
            "sink_logits": sink_logits,
            "kv_len": kv_len,
            "offset": offset,
        }
        operands = {name: value for name, value in operands.items() if value is not None}
        if operands:
            return _call_operands(q, k, v, out, stream, options, operands)
    kind = type(q)
    if kind is _Tensor and type(k) is kind and type(v) is kind:
        return _call_torch(q, k, v, out, stream, options)
    if kind is numpy.ndarray and type(k) is kind and type(v) is kind:
        return _call_numpy(q, k, v, out, stream, options)
    return _attend(q, k, v, out, stream, options, None)


def _hashable(fields: Any) -> Any:
    if not isinstance(fields, Mapping):
        return fields
    return _Fields((name, _hashable(value)) for name, value in fields.items())


def _mapping(fields: Any) -> Any:
    """What `_hashable` made it of."""
    if not isinstance(fields, _Fields):
        return fields
    return {name: _mapping(value) for name, value in fields}


def _call_torch(q: Any, k: Any, v: Any, out: Any, stream: Any, options: Tuple[Any, ...]) -> Any:
    # Asked about anew at each call.
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return _attend(q, k, v, out, stream, options, None)
    has_lse = options[4]
    o: Any = None
    lse: Any = None
    o_id = lse_id = 0
    if out is not None:
        pair = out if has_lse else (out,)
        if (
            type(pair) is not tuple
            or len(pair) != (2 if has_lse else 1)
            or any(type(t) is not _Tensor for t in pair)
        ):
            return _attend(q, k, v, out, stream, options, None)
        o, lse = pair if has_lse else (out, None)
        o_id, lse_id = id(o), id(lse) if has_lse else 0
    plan = key = None
    match = 0
    try:
        for recent in _state.recent:
            if recent.options == options:
                match = recent.match(
                    recent.match_head + pack_objects(id(q), id(k), id(v), o_id, lse_id)
                )
                if match:
                    plan = recent
                    break
        else:
            key = _torch_key(q, k, v, o, lse, options)
            plan = _state.plans.get(key)
    except (TypeError, ValueError, RuntimeError, BufferError):
        key = None  # what cannot be compared, hashed or shown to C is refused by name
    if plan is None:
        return _attend(q, k, v, out, stream, options, key)
    if key is not None and _exchange and not plan.is_empty:
        others = [recent for recent in _state.recent if recent is not plan]
        _state.recent = [plan, *others[: _MAX_RECENT - 1]]
    o_at = lse_at = 0
    if o is None:
        o = _empty_like(plan.like_o)
        o_at = o.data_ptr()
        if has_lse:
            lse = _empty_like(plan.like_lse)
            lse_at = lse.data_ptr()
    if match and stream is None:
        call = pack_matched(match, o_at, lse_at)
    elif plan.is_empty:
        return (o, lse) if has_lse else o
    else:
        if stream is not None:
            stream = _tensors.stream_pointer(stream)
        elif plan.device >= 0:
            stream = _raw_stream(plan.device)
        lse_at = lse.data_ptr() if has_lse else 0
        call = pack_call(
            0, stream or 0, q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse_at
        )
    status = plan.launch(plan.launch_head + call)
    if status:
        plan.kernel._library.fail(status)
    return (o, lse) if has_lse else o


def _torch_key(q: Any, k: Any, v: Any, o: Any, lse: Any, options: Tuple[Any, ...]) -> Any:
    """All that a plan was made from. Addresses enter by their alignment only."""
    # Every attribute read of a tensor costs the host about 0.1 us, so each is read once.
    key = (
        q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.is_cuda,
        q.get_device(), k.get_device(), v.get_device(),
        (q.data_ptr() | k.data_ptr() | v.data_ptr()) & (ALIGNMENT - 1), options,
    )  # fmt: skip
    for t in () if o is None else (o,) if lse is None else (o, lse):
        bits = t.data_ptr() & (ALIGNMENT - 1)
        key += (t.dtype, t.shape, t.stride(), t.get_device(), bits)  # type: ignore[assignment]
    return key


def _call_numpy(q: Any, k: Any, v: Any, out: Any, stream: Any, options: Tuple[Any, ...]) -> Any:
    has_lse = options[4]
    if out is not None:
        return _attend(q, k, v, out, stream, options, None)
    q_at, k_at, v_at = (
        q.__array_interface__["data"][0], k.__array_interface__["data"][0], v.__array_interface__["data"][0]
    )  # fmt: skip
    key = (
        q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape, q.strides, k.strides, v.strides,
        (q_at | k_at | v_at) & (ALIGNMENT - 1), options,
    )  # fmt: skip
    try:
        plan = _state.plans.get(key)
    except TypeError:  # what cannot be hashed is refused by name
        return _attend(q, k, v, None, stream, options, None)
    if plan is None:
        return _attend(q, k, v, None, stream, options, key)
    o = numpy.empty(plan.o_shape, q.dtype)
    lse = numpy.empty(plan.lse_shape, numpy.float32) if has_lse else None
    if not plan.is_empty:
        o_at = o.__array_interface__["data"][0]
        lse_at = lse.__array_interface__["data"][0] if lse is not None else 0
        status = plan.launch(plan.launch_head + pack_call(0, 0, q_at, k_at, v_at, o_at, lse_at))
        if status:
            plan.kernel._library.fail(status)
    return (o, lse) if has_lse else o


def _call_operands(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: Tuple[Any, ...],
    operands: Dict[str, Any],
) -> Any:
    """A call with operands beyond q, k and v. Those of torch find their plan by its key."""
    # In the order of the function's arguments.
    given = [(role, operands[role.name]) for role in _features.roles() if role.name in operands]
    others = [value for role, value in given if not role.is_scalar]
    if out is not None or any(type(t) is not _Tensor for t in (q, k, v, *others)):
        return _attend(q, k, v, out, stream, options, None, operands)
    if any(t.requires_grad for t in (q, k, v, *others)):
        return _attend(q, k, v, out, stream, options, None, operands)
    plan = key = None
    options += (tuple(operands),)
    try:
        key = _torch_key(q, k, v, None, None, options)
        for t in others:
            bits = t.data_ptr() & (ALIGNMENT - 1)
            key += (t.dtype, t.shape, t.stride(), t.get_device(), bits)
        plan = _state.plans.get(key)
    except (TypeError, ValueError, RuntimeError):
        key = None
    if plan is None:
        return _attend(q, k, v, out, stream, options, key, operands)
    o = _empty_like(plan.like_o)
    lse = _empty_like(plan.like_lse) if options[4] else None
    if not plan.is_empty:
        if stream is not None:
            stream = _tensors.stream_pointer(stream)
        elif plan.device >= 0:
            stream = _raw_stream(plan.device)
        words = [t.data_ptr() for t in ((q, k, v, o) if lse is None else (q, k, v, o, lse))]
        for role, value in given:
            words.append(
                _features.check_scalar(role.name, value) & ((1 << 64) - 1)
                if role.is_scalar
                else value.data_ptr()
            )
        status = plan.launch(plan.launch_head + pack_addresses(stream or 0, words))
        if status:
            plan.kernel._library.fail(status)
    return (o, lse) if options[4] else o


def _attend(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: Any,
    options: Tuple[Any, ...],
    key: Any,
    operands: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """The call in full. With a `key`, the next one like it finds the plan."""
    mask, scale, align, layout, return_lse, schedule, dtype, _ = options[:8]
    softcap, score_mod = options[8:10] if len(options) > 8 else (None, None)
    _learn_torch()
    scale = _module.check_options(mask, scale, align, layout)
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
        scale,
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
    plan = _Plan(_kernel.cached(problem, views["q"].device), checked, extras)
    if stream is None:
        stream = _stream_of(q, views["q"])
    else:
        stream = _tensors.stream_pointer(stream)
    _start(plan, (*views.values(), o_view, lse_view), extras, stream)
    # What torch allocates is aligned; a plan without out= counts on it.
    if key is not None and (out is not None or o_view.pointer % ALIGNMENT == 0):
        plan.options = options
        plan.like_o, plan.like_lse = like_o, like_lse
        plans = _state.plans
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        plans[key] = plan
    return (o, lse) if return_lse else o


def launch_kernel(
    kernel: _kernel.Kernel, q, k, v, out, lse, stream, operands: Mapping[str, Any]
) -> None:
    """`Kernel.launch`."""
    plan, views, extras = _plan_of(kernel, q, k, v, out, lse, operands)
    stream = _stream_of(q, views[0]) if stream is None else _tensors.stream_pointer(stream)
    _start(plan, views, extras, stream)


def measure_workspace(
    kernel: _kernel.Kernel, q, k, v, out, lse, operands: Mapping[str, Any]
) -> int:
    """`Kernel.get_workspace_bytes`."""
    plan, views, extras = _plan_of(kernel, q, k, v, out, lse, operands)
    if plan.is_empty:
        return 0
    words = [view.pointer for view in views if view is not None] + extras.words()
    for tensor, word in zip(plan.tensors, words):
        tensor.scalar = word  # counts where the argument is one
    return kernel._library.workspace(kernel._handle, plan.tensors, len(words))


def _plan_of(
    kernel: _kernel.Kernel, q, k, v, out, lse, operands: Mapping[str, Any]
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
    plan: _Plan, views: Tuple[Optional[View], ...], extras: _features.Extras, stream: int
) -> None:
    if plan.is_empty:
        return
    words = [view.pointer for view in views if view is not None] + extras.words()
    status = plan.launch(plan.launch_head + pack_addresses(stream, words))
    if status:
        plan.kernel._library.fail(status)


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
    if view.device == DEVICE_CPU:
        return 0
    if _tensors.is_torch(tensor):
        return _raw_stream(view.device)
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
