"""What is used of torch, once the user has imported it; nothing here imports it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Iterable, Sequence, Union

from . import _tensors
from .errors import UnsupportedError

#: None until torch is there: the class, two functions, and what gives a device's current stream as
#: an integer.
Tensor: Any = None
empty_like: Any = None
raw_stream: Any = None
grad_enabled: Any = None
#: The address of the table that shows tensors to C, 0 where there is none.
exchange = 0
#: Whether torch traces the caller; whether it is Dynamo that reads its code.
is_compiling: Any = None
in_dynamo: Any = None
#: Whether some autocast is on; how many modes see each operator.
any_autocast: Any = None
count_modes: Any = None
#: Whether `torch.jit.trace` records; the module of forward-mode gradients, which has its level.
is_tracing: Any = None


class _NoForwardMode:
    """In place of torch's module where there is none: no dual is alive."""

    _current_level = -1


forward_ad: Any = _NoForwardMode


class _NoProfiler:
    """In place of torch's module where there is none: no profiler runs."""

    _is_profiler_enabled = False


profiler: Any = _NoProfiler
#: Whether a call is in `vmap`, `grad` or another transform of torch's.
in_transform: Any = None
#: `attend` and `record` of `flashattn.torch._ops` and `outside` of `flashattn.torch._graph`, once these are imported.
attend: Any = None
record: Any = None
outside: Any = None


def detect_torch() -> None:
    """Finds torch where the user has imported it."""
    global Tensor, empty_like, raw_stream, grad_enabled, exchange
    global is_compiling, in_dynamo, any_autocast, count_modes, in_transform, is_tracing, forward_ad, profiler
    if Tensor is not None:
        return
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return
    raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw_stream is None:
        raw_stream = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
    grad_enabled = torch.is_grad_enabled
    empty_like = torch.empty_like
    # Those that an older torch lacks it has no operators for either.
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", _never)
    in_dynamo = getattr(compiler, "is_dynamo_compiling", _never)
    any_autocast = getattr(torch._C, "_is_any_autocast_enabled", _never)
    count_modes = getattr(torch._C, "_len_torch_dispatch_stack", _never)
    is_tracing = getattr(torch._C, "_is_tracing", _never)
    autograd = getattr(torch, "autograd", None)
    forward_ad = getattr(autograd, "forward_ad", _NoForwardMode)
    if hasattr(getattr(autograd, "profiler", None), "_is_profiler_enabled"):
        profiler = autograd.profiler
    in_transform = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", _never)
    # Its own table: packages lend older versions one, which may know nothing of CUDA's streams.
    if hasattr(torch._C, "_dlpack_exchange_api"):
        exchange = _exchange_address(torch.Tensor)
    Tensor = torch.Tensor


def _exchange_address(kind: type) -> int:
    """The DLPackExchangeAPI by which a type shows its tensors to C; 0 where it has none."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    try:
        return get_pointer(capsule, b"dlpack_exchange_api") or 0
    except ValueError:  # of another name: not the table that is known here
        return 0


def stream_or(stream: Any, device: Union[int, str]) -> int:
    """The caller's stream, or the current one of torch."""
    if stream is not None:
        return _tensors.stream_pointer(stream)
    return 0 if isinstance(device, str) or device < 0 else raw_stream(device)


def stream_of(tensor: Any, view: _tensors.View) -> int:
    """The stream to launch on where the caller names none."""
    if _tensors.is_torch(tensor):
        return stream_or(None, view.device)
    return _tensors.current_stream(view)


def needs_gradient(tensor: Any) -> bool:
    """Whether torch would record what is computed of it."""
    return _tensors.is_torch(tensor) and bool(tensor.requires_grad) and bool(grad_enabled())


def refuse_gradients(**tensors: Any) -> None:
    """Raises UnsupportedError where torch would have to record what it cannot."""
    refuse_tangents(**tensors)
    for name, tensor in tensors.items():
        if needs_gradient(tensor):
            raise UnsupportedError(
                f"expected tensors without gradients but got {name!r} with requires_grad; "
                "call it under torch.no_grad(), or on tensor.detach()"
            )


def refuse_forward_mode(*_: Any) -> Any:
    raise UnsupportedError(
        "expected gradients in reverse mode but got forward mode; torch.func.grad and vjp have them"
    )


def refuse_tangents(**tensors: Any) -> None:
    """Raises UnsupportedError where forward mode would lose what it asks for."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors.values():
        if _tensors.is_torch(tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            refuse_forward_mode()


def with_rows(tensor: Any) -> Any:
    """A tensor with the unit last stride that kernels read by: a copy where it has another."""
    if not tensor.shape or tensor.shape[-1] == 1 or tensor.stride()[-1] == 1:
        return tensor
    return tensor.contiguous()


def _with_pairs(tensor: Any) -> Any:
    """The same of one that broadcasts to the scores: what is expanded is not repeated."""
    is_expanded = tensor.shape and tensor.stride()[-1] == 0 and not tensor.requires_grad
    return tensor if is_expanded else with_rows(tensor)


def _dense(tensor: Any) -> Any:
    return tensor.contiguous()


def _lengths(tensor: Any) -> Any:
    """Of 32 bits, which have every position."""
    if str(tensor.dtype) == "torch.int64":
        tensor = tensor.clamp(-(1 << 31), (1 << 31) - 1).int()
    return tensor.contiguous()


_LAYOUTS = {
    "bias": _with_pairs, "attn_mask": _with_pairs, "sink_logits": _dense, "kv_len": _lengths, "lse": _dense,
    "d_lse": _dense,
}  # fmt: skip


def lay_out(name: str, tensor: Any) -> Any:
    """An input as kernels read it, copied where it lies otherwise; what is not torch's as it is."""
    return _LAYOUTS.get(name, with_rows)(tensor) if _tensors.is_torch(tensor) else tensor


def _never() -> bool:
    return False


def operators() -> Any:
    """`attend`, with the operators that it needs."""
    if attend is None:
        from .torch import _ops  # noqa: F401  # which torch has to be there for
    return attend


def has_to_dispatch(tensors: Sequence[Any]) -> bool:
    """Whether a call is torch's to dispatch: one of tensors that require gradients, or that `_has_operator`."""
    return _has_operator(tensors) or any(map(needs_gradient, tensors))


def _has_operator(tensors: Iterable[Any]) -> bool:
    """Whether a call goes through the operator, gradients aside: one of tensors of a subclass such as fake
    ones, on the device meta, in a mode, in `vmap` or `grad`, in `torch.jit.trace`, or under autocast."""
    torch = sys.modules["torch"]
    if any_autocast() or count_modes() or in_transform() or is_tracing():
        return True
    plain = (Tensor, getattr(getattr(torch, "nn", None), "Parameter", Tensor))
    return any(type(t) not in plain or t.device.type == "meta" for t in tensors if _tensors.is_torch(t))


def event(name: str, tensors: Sequence[Any]) -> Any:
    """What a profiler that runs sees of a call: for as long as this context lasts, an event by the name of
    the operator. Where the operator itself is called, it is seen as it is."""
    if _has_operator(tensors):
        return contextlib.nullcontext()
    record_event = sys.modules["torch"]._C._profiler._RecordFunctionFast
    return record_event(name, [tensor for tensor in tensors if _tensors.is_torch(tensor)])
