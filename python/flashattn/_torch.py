"""The functions of PyTorch that the package uses, once the user has imported PyTorch. Nothing here imports it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Iterable, Sequence, Union

import numpy

from . import _tensors
from ._trace import AUX
from .errors import UnsupportedError

#: None until PyTorch is imported: torch.Tensor, torch.empty_like, a function that returns the current stream of a
#: device as an integer, and torch.is_grad_enabled.
Tensor: Any = None
empty_like: Any = None
raw_stream: Any = None
grad_enabled: Any = None
#: The address of the DLPackExchangeAPI, through which C reads tensors; 0 if there is none.
exchange = 0
#: Functions that return whether PyTorch traces the caller, and whether Dynamo does.
is_compiling: Any = None
in_dynamo: Any = None
#: Functions that return whether any autocast is on, and the number of active dispatch modes.
any_autocast: Any = None
count_modes: Any = None
#: A function that returns whether `torch.jit.trace` records.
is_tracing: Any = None


class _NoForwardMode:
    """Replaces torch.autograd.forward_ad if it does not exist: no level is active."""

    _current_level = -1


forward_ad: Any = _NoForwardMode


class _NoProfiler:
    """Replaces torch.autograd.profiler if it does not exist: no profiler runs."""

    _is_profiler_enabled = False


profiler: Any = _NoProfiler
#: A function that returns whether a call is in `vmap`, `grad` or another transform of torch.func.
in_transform: Any = None
#: `attend` and `record` of `flashattn.torch._ops` and `outside` of `flashattn.torch._graph`, once these are imported.
attend: Any = None
record: Any = None
outside: Any = None
#: Imports `flashattn.torch._ops`, which requires PyTorch. The package sets it.
import_operators: Any = None


def detect_torch() -> None:
    """Sets the variables of this module if the user has imported PyTorch."""
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
    # An older PyTorch without these functions does not support the operators of this package either.
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
    # PyTorch's own table only: packages add a table to older versions, which may not support CUDA streams.
    if hasattr(torch._C, "_dlpack_exchange_api"):
        exchange = _exchange_address(torch.Tensor)
    Tensor = torch.Tensor


def _exchange_address(kind: type) -> int:
    """Returns the address of the DLPackExchangeAPI of a tensor type; 0 if there is none."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    try:
        return get_pointer(capsule, b"dlpack_exchange_api") or 0
    except ValueError:  # a capsule of another name, and so another table
        return 0


def stream_or(stream: Any, device: Union[int, str]) -> int:
    """Returns the caller's stream, or the current stream of PyTorch if `stream` is None."""
    if stream is not None:
        return _tensors.stream_pointer(stream)
    return 0 if isinstance(device, str) or device < 0 else raw_stream(device)


def stream_of(stream: Any, tensor: Any, view: Any) -> int:
    """Returns the caller's stream, or the current stream of the tensor's library if `stream` is None."""
    if stream is not None:
        return _tensors.stream_pointer(stream)
    if _tensors.is_torch(tensor):
        return stream_or(None, view.device)
    return _tensors.current_stream(view)


def needs_gradient(tensor: Any) -> bool:
    """Returns whether autograd would record an operation on the tensor."""
    return _tensors.is_torch(tensor) and bool(tensor.requires_grad) and bool(grad_enabled())


def refuse_gradients(**tensors: Any) -> None:
    """Raises UnsupportedError if autograd would have to record the call, which it cannot."""
    refuse_tangents(**tensors)
    for name, tensor in tensors.items():
        if needs_gradient(tensor):
            raise UnsupportedError(
                f"expected tensors without gradients but got {name!r} with requires_grad; "
                "make the call under torch.no_grad(), or on tensor.detach()"
            )


def refuse_forward_mode(*_: Any) -> Any:
    raise UnsupportedError(
        "expected gradients in reverse mode but got forward mode; use torch.func.grad or vjp"
    )


def refuse_tangents(**tensors: Any) -> None:
    """Raises UnsupportedError if a tensor has a forward-mode tangent, which would be lost."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors.values():
        if _tensors.is_torch(tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            refuse_forward_mode()


def with_rows(tensor: Any) -> Any:
    """Returns the tensor if its last stride is 1, as kernels require, and a copy otherwise."""
    if not tensor.shape or tensor.shape[-1] == 1 or tensor.stride()[-1] == 1:
        return tensor
    return tensor.contiguous()


def _with_pairs(tensor: Any) -> Any:
    """Returns the same for a tensor that broadcasts to the scores. An expanded last dimension is not copied, unless
    the tensor requires a gradient."""
    is_expanded = tensor.shape and tensor.stride()[-1] == 0 and not tensor.requires_grad
    return tensor if is_expanded else with_rows(tensor)


def _dense(tensor: Any) -> Any:
    return tensor.contiguous()


def _lengths(tensor: Any) -> Any:
    """Returns lengths as 32-bit integers, which can represent every position."""
    if str(tensor.dtype) == "torch.int64":
        tensor = tensor.clamp(-(1 << 31), (1 << 31) - 1).int()
    return tensor.contiguous()


def _entries(tensor: Any) -> Any:
    """Returns a page table as 32-bit integers with rows of stride 1."""
    return with_rows(_lengths(tensor) if str(tensor.dtype) == "torch.int64" else tensor)


_LAYOUTS = {
    "bias": _with_pairs, "attn_mask": _with_pairs, "sink_logits": _dense, "kv_len": _lengths,
    "q_len": _lengths, "cu_seqlens_q": _lengths, "cu_seqlens_k": _lengths, "offsets": _lengths,
    "leftpad_k": _lengths, "page_table": _entries, "lse": _dense, "d_lse": _dense,
    "k_scale": _with_pairs, "v_scale": _with_pairs,
    **dict.fromkeys(AUX, _dense),
}  # fmt: skip


def lay_out(name: str, tensor: Any) -> Any:
    """Returns an input in a layout that kernels read, copied if necessary. Other types than PyTorch tensors are
    returned unchanged."""
    return _LAYOUTS.get(name, with_rows)(tensor) if _tensors.is_torch(tensor) else tensor


def to_device(value: Any, like: Any) -> Any:
    """Returns an array of NumPy as a tensor on the device of `like`; other values unchanged."""
    if not isinstance(value, numpy.ndarray):
        return value
    return sys.modules["torch"].tensor(numpy.ascontiguousarray(value), device=like.device)


def _never() -> bool:
    return False


def operators() -> Any:
    """Returns `attend`, with the operators that it needs registered."""
    if attend is None:
        import_operators()
    return attend


def has_to_dispatch(tensors: Sequence[Any]) -> bool:
    """Returns whether PyTorch must dispatch a call: if a tensor requires a gradient, or `_has_operator`."""
    return _has_operator(tensors) or any(map(needs_gradient, tensors))


def _has_operator(tensors: Iterable[Any]) -> bool:
    """Returns whether a call goes through the operator for other reasons than gradients: tensors of a subclass, such as
    fake tensors, or on the device meta; a dispatch mode; `vmap`, `grad` or `torch.jit.trace`; or autocast."""
    torch = sys.modules["torch"]
    if any_autocast() or count_modes() or in_transform() or is_tracing():
        return True
    plain = (Tensor, getattr(getattr(torch, "nn", None), "Parameter", Tensor))
    return any(type(t) not in plain or t.device.type == "meta" for t in tensors if _tensors.is_torch(t))


def event(name: str, tensors: Sequence[Any]) -> Any:
    """Returns a context in which a running profiler records an event with the name of the operator. The context
    is empty if the call goes through the operator, which the profiler records itself."""
    if _has_operator(tensors):
        return contextlib.nullcontext()
    record_event = sys.modules["torch"]._C._profiler._RecordFunctionFast
    return record_event(name, [tensor for tensor in tensors if _tensors.is_torch(tensor)])
