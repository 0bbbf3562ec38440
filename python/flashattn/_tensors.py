"""Views of tensors of NumPy, PyTorch, CuPy and any library with DLPack, without a copy."""

from __future__ import annotations

import ctypes
import operator
import sys
from typing import Any, Mapping, NamedTuple, Optional, Tuple, Union

import numpy

from ._library import DEVICE_CPU
from .errors import ArgumentError, UnsupportedError

_ELEMENTS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "bool": "i1",
    "int32": "i32",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "f32",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "int8": "i8",
}
#: The types of keys and values of 8 bits, with their names in NumPy, PyTorch and JAX (rule F1).
NARROW = {"f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "i8": "int8"}


class View(NamedTuple):
    """The memory of a tensor."""

    pointer: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  #: in elements
    element: str  #: f16, bf16, f32, i1, i32, one of NARROW, or the library's name of another type
    device: Union[int, str]  #: DEVICE_CPU, the number of a CUDA device, or a model, whose memory is the host's
    writable: bool = True
    stream: Optional[int] = None  #: the stream of the producer's work, if the producer states one
    owner: Any = None  #: keeps the memory alive as long as the view


def parse_element(name: Any) -> str:
    """Returns f16, bf16, f32, i1, i32 or one of NARROW for a type's name in NumPy, PyTorch or MLIR, and other names
    unchanged."""
    text = str(name).rsplit(".", 1)[-1]
    return _ELEMENTS.get(text, text)


def view(name: str, tensor: Any, bf16_bits: bool, device: Union[None, int, str] = None) -> View:
    """Returns the view of an argument. `bf16_bits`: uint16 arrays hold the bits of bf16. `device`: if it is a
    model, it is the device of tensors in host memory.

    Raises ArgumentError if the argument is not a tensor, or is on a device without support.
    """
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(tensor, jax.core.Tracer):
        raise ArgumentError(
            f"expected {name!r} to be a concrete array but got a JAX tracer; use flashattn.jax"
        )
    if isinstance(tensor, numpy.ndarray):
        found = _numpy_view(name, tensor)
    elif isinstance(tensor, View):  # its memory is not allocated yet
        found = tensor
    elif is_torch(tensor):
        found = _torch_view(name, tensor)
    elif hasattr(tensor, "__cuda_array_interface__"):
        found = _interface_view(name, tensor)
    elif hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        found = _dlpack_view(name, tensor)
    else:
        raise ArgumentError(
            f"expected {name!r} to be an array of numpy, a tensor of torch, or an object with "
            f"__cuda_array_interface__ or __dlpack__ but got {type(tensor).__name__}"
        )
    if bf16_bits and found.element == "uint16":
        found = found._replace(element="bf16")
    if isinstance(device, str) and found.device == DEVICE_CPU:
        found = found._replace(device=device)
    return found


def _numpy_view(name: str, array: numpy.ndarray) -> View:
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise ArgumentError(
            f"expected strides of {name!r} that are multiples of {size} bytes but got {array.strides}"
        )
    pointer, _ = array.__array_interface__["data"]
    if pointer % size:
        raise ArgumentError(
            f"expected {name!r} at an address that is a multiple of {size} bytes but got {pointer:#x}"
        )
    if not array.dtype.isnative:
        raise ArgumentError(
            f"expected {name!r} in the byte order of this machine but got {array.dtype.str}"
        )
    return View(
        pointer,
        array.shape,
        tuple(stride // size for stride in array.strides),
        parse_element(array.dtype.name),
        DEVICE_CPU,
        array.flags.writeable,
    )


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def check_layouts(tensors: Mapping[str, Any]) -> None:
    """Raises ArgumentError for a PyTorch tensor without strides, such as a nested or a sparse tensor."""
    for name, tensor in tensors.items():
        if not is_torch(tensor):
            continue
        if tensor.is_nested:
            raise ArgumentError(
                f"expected {name!r} to be a tensor with strides but got a nested one; pass "
                ".to_padded_tensor(0), with the lengths as kv_len="
            )
        if tensor.layout is not sys.modules["torch"].strided:
            raise ArgumentError(
                f"expected {name!r} to be a tensor with strides but got layout {tensor.layout}; convert it, "
                "as with .to_dense()"
            )


def _torch_view(name: str, tensor: Any) -> View:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise ArgumentError(
            f"expected {name!r} on the CPU or a CUDA device but got device {tensor.device}"
        )
    return View(
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        parse_element(tensor.dtype),
        DEVICE_CPU if kind == "cpu" else tensor.get_device(),
    )


def _dense_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _interface_view(name: str, tensor: Any) -> View:
    interface = tensor.__cuda_array_interface__
    try:
        dtype = numpy.dtype(interface["typestr"])
        shape = tuple(map(operator.index, interface["shape"]))
        strides = interface.get("strides")
        strides = None if strides is None else tuple(map(operator.index, strides))
        pointer, read_only = interface["data"]
        pointer = operator.index(pointer)
        is_whole = dtype.itemsize > 0 and len(strides or shape) == len(shape) and min(shape, default=0) >= 0
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise ArgumentError(
            f"expected {name!r} to have a typestr, shape, strides and data in its "
            f"__cuda_array_interface__ but got {interface!r}"
        )
    if not dtype.isnative:
        raise ArgumentError(
            f"expected {name!r} in the byte order of this machine but got {dtype.str}"
        )
    if strides is None:
        strides = _dense_strides(shape)
    else:
        if any(stride % dtype.itemsize for stride in strides):
            raise ArgumentError(
                f"expected strides of {name!r} that are multiples of {dtype.itemsize} bytes but got {strides}"
            )
        strides = tuple(stride // dtype.itemsize for stride in strides)
    # The interface has no letter for some types, such as bf16, which only the tensor's dtype states.
    element = parse_element(
        getattr(tensor, "dtype", dtype.name) if dtype.kind == "V" else dtype.name
    )
    device = getattr(getattr(tensor, "device", None), "id", None)
    if device is None and hasattr(tensor, "__dlpack_device__"):
        device = int(tensor.__dlpack_device__()[1])
    return View(
        pointer,
        shape,
        strides,
        element,
        int(device or 0),
        not read_only,
        interface.get("stream"),
        tensor,
    )


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED = 1, 2, 3, 13
_DL_INT, _DL_FLOAT, _DL_BFLOAT, _DL_BOOL = 0, 2, 4, 6
_DL_NARROW = {10: "f8E4M3FN", 12: "f8E5M2"}


def _dlpack_view(name: str, tensor: Any) -> View:
    try:
        kind, ordinal = map(int, tensor.__dlpack_device__())
    except (TypeError, ValueError):
        raise ArgumentError(f"expected {name!r} to return its DLPack device, a type and a number, but got "
                            "another value") from None
    if kind not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_CUDA_MANAGED):
        raise ArgumentError(
            f"expected {name!r} on the CPU or a CUDA device but got DLPack device type {kind}"
        )
    # -1: no synchronization, which is the responsibility of the caller.
    capsule = tensor.__dlpack__(stream=-1) if kind != _DL_CPU else tensor.__dlpack__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    # The capsule is not consumed: its destructor frees the managed tensor when the view is deleted.
    try:
        address = get_pointer(capsule, b"dltensor")
    except ValueError:
        raise ArgumentError(f"expected {name!r} to return a DLPack capsule but got {capsule!r}") from None
    managed = ctypes.cast(address, ctypes.POINTER(_DLTensor)).contents
    shape = tuple(managed.shape[i] for i in range(managed.ndim))
    strides = (
        tuple(managed.strides[i] for i in range(managed.ndim))
        if managed.strides
        else _dense_strides(shape)
    )
    code = {_DL_INT: "i", _DL_FLOAT: "f", _DL_BFLOAT: "bf"}.get(managed.code)
    element = (
        f"{code}{managed.bits}" if code else f"DLPack type {managed.code} of {managed.bits} bits"
    )
    if managed.code == _DL_BOOL and managed.bits == 8:
        element = "i1"
    if managed.bits == 8:
        element = _DL_NARROW.get(managed.code, element)
    if managed.lanes != 1:
        element += f"x{managed.lanes}"
    return View(
        (managed.data or 0) + managed.byte_offset,
        shape,
        strides,
        element,
        DEVICE_CPU if kind in (_DL_CPU, _DL_CUDA_HOST) else int(ordinal),
        True,
        None,
        (tensor, capsule),
    )


def stream_pointer(stream: Any) -> int:
    """Returns the CUstream of an integer, or of a stream of PyTorch or CuPy. Raises ArgumentError."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if not 0 <= stream < 1 << 64:
            raise ArgumentError(f"expected a CUDA stream or its address but got {stream}")
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise ArgumentError(f"expected a CUDA stream or its address but got {type(stream).__name__}")


def current_stream(found: View) -> int:
    """Returns the stream of a launch if the caller passes none: the current stream of the producer."""
    if found.device == DEVICE_CPU or isinstance(found.device, str):
        return 0
    if found.stream is not None:
        return found.stream
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(_producer(found), cupy.ndarray):
        return int(cupy.cuda.get_current_stream().ptr)
    return 0


def _producer(found: View) -> Any:
    return found.owner[0] if isinstance(found.owner, tuple) else found.owner


def empty_like(name: str, like: View, original: Any, shape: Tuple[int, ...], element: str) -> Any:
    """Returns a new tensor of the library of `original`."""
    is_narrow = hasattr(original, "dtype") and parse_element(original.dtype) in NARROW
    if is_torch(original):
        torch = sys.modules["torch"]
        dtype = torch.float32 if element == "f32" else torch.bfloat16 if is_narrow else original.dtype
        return torch.empty(shape, dtype=dtype, device=original.device)
    if isinstance(original, numpy.ndarray):
        # The package that defines arrays of f8 defines bf16, too.
        other = numpy.dtype("bfloat16") if is_narrow else original.dtype
        return numpy.empty(shape, numpy.float32 if element == "f32" else other)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(original, cupy.ndarray):
        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, cupy.float32 if element == "f32" else original.dtype)
    if (like.device == DEVICE_CPU or isinstance(like.device, str)) and element in ("f16", "f32"):
        return numpy.empty(shape, numpy.float16 if element == "f16" else numpy.float32)
    raise UnsupportedError(
        f"expected out= for {name!r}, because tensors of type {type(original).__name__} cannot be allocated "
        "here, but got None"
    )


def shape_like(original: Any, shape: Tuple[int, ...], element: str) -> Any:
    """Returns a PyTorch tensor without memory, a template for `torch.empty_like`, which is the fastest way to
    allocate a tensor."""
    tensor = empty_like("o", View(0, (), (), element, 0), original, shape, element)
    tensor.untyped_storage().resize_(0)
    return tensor
