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
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy

from . import _kernel, _library, _module, _tensors
from ._library import DEVICE_CPU, pack_call, pack_matched, pack_objects
from ._tensors import View
from .errors import ArgumentError, UnsupportedError

_ALIGNMENT = 16  # bytes that a GPU moves at once

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

    def __init__(self, kernel: _kernel.Kernel, views: "_Views"):
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
        self.tensors = (_library.Tensor * 5)()
        is_aligned = all(view.pointer % _ALIGNMENT == 0 for view in rows)
        self.match_head = _library.match_head(_exchange, self.tensors, self.device, is_aligned)
        self.launch_head = _library.launch_head(
            kernel._handle, self.tensors, 5 if views.has_lse else 4
        )
        for tensor, view in zip(self.tensors, rows):
            tensor.rank, tensor.elementType = 4, _library.ELEMENT_TYPES[view.element]
            tensor.sizes[:] = view.shape
            tensor.strides[:] = view.strides
        lse = self.tensors[4]
        lse.rank, lse.elementType = 3, _library.ELEMENT_TYPES["f32"]
        lse.sizes[:3] = self.lse_shape
        lse.strides[:3] = _tensors._dense_strides(self.lse_shape)


class _Views(NamedTuple):
    """Checked operands; strides of dimensions of one element are as in a dense tensor."""

    q: View
    k: View
    v: View
    o: View
    lse_shape: Tuple[int, ...]
    has_lse: bool
    rows: str


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
) -> Any:
    """`softmax(mask(scale * q k^T)) v`, without the matrix of scores ever in memory.

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

    Returns:
      o, `[B, Hq, Nq, Dv]`, or (o, lse). A row that sees no key is 0, and its lse -inf.

    Raises:
      ArgumentError: shapes, types, devices, strides or names that do not fit.
      CompileError, UnsupportedError: the compiler's diagnostic, at the first call of a kind.
      DeviceError: no library, no driver, no device, a launch that failed.
    """
    # A plan is found by everything that it was made from.
    if schedule is not None and schedule.__class__ is not str:
        schedule = _hashable(schedule)
    options = (mask, scale, align, layout, return_lse, schedule, dtype, out is None)
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
        (q.data_ptr() | k.data_ptr() | v.data_ptr()) & (_ALIGNMENT - 1), options,
    )  # fmt: skip
    for t in () if o is None else (o,) if lse is None else (o, lse):
        bits = t.data_ptr() & (_ALIGNMENT - 1)
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
        (q_at | k_at | v_at) & (_ALIGNMENT - 1), options,
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


def _attend(
    q: Any, k: Any, v: Any, out: Any, stream: Any, options: Tuple[Any, ...], key: Any
) -> Any:
    """The call in full. With a `key`, the next one like it finds the plan."""
    mask, scale, align, layout, return_lse, schedule, dtype, _ = options
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
    _refuse_gradients(q, k, v)
    shapes = _check_inputs(views["q"], views["k"], views["v"], layout)
    o_shape, lse_shape = shapes
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
    checked = _check_outputs(
        views["q"], views["k"], views["v"], o_view, lse_view, o_shape, lse_shape
    )

    is_cpu = views["q"].device == DEVICE_CPU
    head_dim = 1 if layout == "bhsd" else 2
    queries = None
    if not is_cpu and schedule is None:
        queries = _module.few_queries(o_shape[3 - head_dim])
    problem = _module.Problem(
        element,
        views["q"].shape[3],
        views["v"].shape[3],
        mask,
        scale,
        align,
        layout,
        bool(return_lse),
        _kernel.format_schedule(_mapping(schedule), element, is_cpu),
        checked.rows,
        _module.grouped_heads(o_shape[head_dim], views["k"].shape[head_dim]),
        queries,
    )
    plan = _Plan(_kernel.cached(problem, views["q"].device), checked)
    if stream is None:
        stream = _stream_of(q, views["q"])
    else:
        stream = _tensors.stream_pointer(stream)
    _start(plan, views["q"], views["k"], views["v"], o_view, lse_view, stream)
    # What torch allocates is aligned; a plan without out= counts on it.
    if key is not None and (out is not None or o_view.pointer % _ALIGNMENT == 0):
        plan.options = options
        plan.like_o, plan.like_lse = like_o, like_lse
        plans = _state.plans
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        plans[key] = plan
    return (o, lse) if return_lse else o


def launch_kernel(kernel: _kernel.Kernel, q, k, v, out, lse, stream) -> None:
    """`Kernel.launch`."""
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
    q_view, k_view, v_view, o_view = (
        _tensors.view(name, tensor, bits)
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", out))
    )
    lse_view = _tensors.view("lse", lse, False) if lse is not None else None
    _refuse_gradients(q, k, v)
    o_shape, lse_shape = _check_inputs(q_view, k_view, v_view, problem.layout)
    for name, width, found in (
        ("D", problem.d, q_view.shape[3]),
        ("Dv", problem.dv, v_view.shape[3]),
        ("Nq", problem.queries, lse_shape[2]),
    ):
        if width is not None and width != found:
            raise ArgumentError(f"expected {name} to be {width}, as compiled, but got {found}")
    if q_view.element != problem.element:
        raise ArgumentError(
            f"expected element type {problem.element}, as compiled, but got {q_view.element}"
        )
    if q_view.device != kernel._info.device:
        raise ArgumentError(
            f"expected tensors on {_device_name(kernel._info.device)}, as compiled, but got "
            f"{_device_name(q_view.device)}"
        )
    views = _check_outputs(q_view, k_view, v_view, o_view, lse_view, o_shape, lse_shape)
    if _module.ROWS.index(views.rows) > _module.ROWS.index(problem.rows):
        raise ArgumentError(f"expected {problem.rows} rows, as compiled, but got {views.rows} ones")
    stream = _stream_of(q, q_view) if stream is None else _tensors.stream_pointer(stream)
    _start(_Plan(kernel, views), q_view, k_view, v_view, o_view, lse_view, stream)


def _start(
    plan: _Plan, q: View, k: View, v: View, o: View, lse: Optional[View], stream: int
) -> None:
    if plan.is_empty:
        return
    lse_at = lse.pointer if lse is not None else 0
    status = plan.launch(
        plan.launch_head + pack_call(0, stream, q.pointer, k.pointer, v.pointer, o.pointer, lse_at)
    )
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


def _refuse_gradients(*tensors: Any) -> None:
    for name, tensor in zip("qkv", tensors):
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


def _device_name(device: int) -> str:
    return "the CPU" if device == DEVICE_CPU else f"cuda:{device}" if device >= 0 else "no device"


def _check_inputs(
    q: View, k: View, v: View, layout: str
) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Rule R1 for what is known at run time. Gives the shapes of o and lse."""
    for name, view in (("q", q), ("k", k), ("v", v)):
        if len(view.shape) != 4:
            raise ArgumentError(f"expected {name!r} of rank 4 but got rank {len(view.shape)}")
        if view.element not in _module.ELEMENT_BYTES:
            hint = (
                "; dtype='bf16' says that it holds the bits of bf16"
                if view.element == "uint16"
                else ""
            )
            raise UnsupportedError(
                f"expected element type f16, bf16 or f32 of {name!r} but got {view.element}{hint}"
            )
        if view.element != q.element:
            raise ArgumentError(
                f"expected element type {q.element} of {name!r} as in 'q' but got {view.element}"
            )
        if view.device != q.device:
            raise ArgumentError(
                f"expected {name!r} on {_device_name(q.device)} as 'q' but got {_device_name(view.device)}"
            )
        _check_strides(name, view)
    head, length = (1, 2) if layout == "bhsd" else (2, 1)
    for name, what, found, other, expected in (
        ("k", "batch size", k.shape[0], "q", q.shape[0]),
        ("v", "batch size", v.shape[0], "q", q.shape[0]),
        ("v", "head count", v.shape[head], "k", k.shape[head]),
        ("v", "length", v.shape[length], "k", k.shape[length]),
        ("k", "head dimension", k.shape[3], "q", q.shape[3]),
    ):
        if found != expected:
            raise ArgumentError(
                f"expected {what} of {name!r} to be {expected} as in {other!r} but got {found}"
            )
    if q.shape[3] < 1 or v.shape[3] < 1:
        raise ArgumentError(
            f"expected head dimensions of at least 1 but got {q.shape[3]} of 'q' and {v.shape[3]} of 'v'"
        )
    query_heads, key_heads = q.shape[head], k.shape[head]
    if key_heads == 0 and query_heads != 0:
        raise ArgumentError("expected at least 1 key/value head but got 0")
    if key_heads and query_heads % key_heads:
        raise ArgumentError(
            "expected the query head count to be a multiple of the key/value head count, "
            f"{key_heads}, but got {query_heads}"
        )
    return q.shape[:3] + v.shape[3:], (q.shape[0], query_heads, q.shape[length])


def _check_strides(name: str, view: View) -> None:
    if 0 in view.shape:
        return
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        raise ArgumentError(
            f"expected unit stride in the last dimension of {name!r} but got {view.strides[-1]}"
        )
    for size, stride in zip(view.shape, view.strides):
        if size > 1 and stride < 0:
            raise ArgumentError(
                f"expected strides of at least 0 of {name!r} but got {view.strides}"
            )


def _check_outputs(
    q: View,
    k: View,
    v: View,
    o: View,
    lse: Optional[View],
    o_shape: Tuple[int, ...],
    lse_shape: Tuple[int, ...],
) -> _Views:
    for name, view, shape, element in (
        ("o", o, o_shape, q.element),
        ("lse", lse, lse_shape, "f32"),
    ):
        if view is None:
            continue
        if view.shape != shape:
            raise ArgumentError(
                f"expected shape {list(shape)} of {name!r} but got {list(view.shape)}"
            )
        if view.element != element:
            raise ArgumentError(
                f"expected element type {element} of {name!r} but got {view.element}"
            )
        if view.device != q.device:
            raise ArgumentError(
                f"expected {name!r} on {_device_name(q.device)} as 'q' but got {_device_name(view.device)}"
            )
        if not view.writable:
            raise ArgumentError(f"expected {name!r} that can be written but got a read-only one")
        _check_strides(name, view)
        if 0 not in shape and any(
            size > 1 and stride == 0 for size, stride in zip(shape, view.strides)
        ):
            raise ArgumentError(
                f"expected distinct elements of {name!r} but got strides {list(view.strides)}"
            )
    if lse is not None and _settle(lse)[0].strides != _tensors._dense_strides(lse_shape):
        raise ArgumentError(f"expected a contiguous 'lse' but got strides {list(lse.strides)}")

    settled = [_settle(view) for view in (q, k, v, o)]
    is_cpu = q.device == DEVICE_CPU
    if all(dense for _, dense, _ in settled):
        rows = "dense"
    elif not is_cpu and all(aligned for _, _, aligned in settled):
        rows = "aligned"
    else:
        rows = "strided"
    # A GPU is promised whole chunks of dense rows too.
    if rows == "dense" and not is_cpu and not all(aligned for _, _, aligned in settled):
        rows = "strided"
    views = [view for view, _, _ in settled]
    return _Views(views[0], views[1], views[2], views[3], lse_shape, lse is not None, rows)


def _settle(view: View) -> Tuple[View, bool, bool]:
    """The view with the strides that do not count as in a dense tensor; whether it is dense;
    whether its rows begin at multiples of 16 bytes."""
    dense = _tensors._dense_strides(view.shape)
    if 0 in view.shape:
        return view._replace(strides=dense), True, True
    strides = tuple(d if n == 1 else s for n, s, d in zip(view.shape, view.strides, dense))
    size = _module.ELEMENT_BYTES[view.element]
    aligned = view.pointer % _ALIGNMENT == 0 and all(
        n == 1 or s * size % _ALIGNMENT == 0 for n, s in zip(view.shape[:-1], strides)
    )
    return view._replace(strides=strides), strides == dense, aligned
