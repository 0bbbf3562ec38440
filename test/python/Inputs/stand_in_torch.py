"""As much of torch as flashattn asks for, without torch: tensors that are addresses with a shape.

`install()` makes it the torch that the process has imported. With `exchange`, its tensors show
themselves to C by a DLPackExchangeAPI as torch's do from 2.10 on.
"""

import ctypes
import sys
import types

from flashattn import _cache, _tensors, _torch

STREAM = 0x500  # the current one of device 0; others follow
STRIDED = "torch.strided"


class Device:
    def __init__(self, kind, index):
        self.type, self.index = kind, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))


class Tensor:
    """On the CPU where `device` is -1: `memory` keeps what the address belongs to."""

    made = 0x900000
    layout = STRIDED
    is_nested = False

    def __init__(self, shape, at, dtype="torch.float16", device=0, strides=None, memory=None):
        self.shape, self.at, self.dtype, self.memory = tuple(shape), at, dtype, memory
        self.device = Device("cuda", device) if device >= 0 else Device("cpu", None)
        self.strides, self.requires_grad = strides or _tensors._dense_strides(self.shape), False

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.at

    def contiguous(self):
        assert self.strides == _tensors._dense_strides(self.shape), "expected no copy"
        return self

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    def get_device(self):
        return self.device.index if self.is_cuda else -1

    def untyped_storage(self):
        return types.SimpleNamespace(resize_=lambda size: None)


def empty(shape, dtype, device):
    count = 1
    for size in shape:
        count *= size
    if device.type == "cpu":
        memory = (ctypes.c_float * max(count, 1))()
        return Tensor(shape, ctypes.addressof(memory), dtype, -1, memory=memory)
    Tensor.made += 0x1000
    return Tensor(shape, Tensor.made, dtype, device.index)


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI."""

    Describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_tensors._DLTensor))
    Stream = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
    )
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("unused", ctypes.c_void_p * 3),
        ("describe", Describe),
        ("stream", Stream),
    ]


described = []  # tensors that C asked about


def _describe(tensor, found):
    described.append(tensor)
    rank = len(tensor.shape)
    tensor.dims = (ctypes.c_int64 * (2 * rank))(*tensor.shape, *tensor.strides)
    dims = ctypes.addressof(tensor.dims)
    kind = tensor.dtype.rsplit(".", 1)[-1]
    found[0] = _tensors._DLTensor(
        tensor.at - 8, 2 if tensor.is_cuda else 1, max(tensor.get_device(), 0), rank,
        4 if kind == "bfloat16" else 2, int(kind[-2:]), 1,
        ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(dims + 8 * rank, ctypes.POINTER(ctypes.c_int64)), 8,
    )  # fmt: skip
    return 0


def _current_stream(kind, device, stream):
    stream[0] = STREAM + device
    return 0


_NAME = b"dlpack_exchange_api"


def _make_capsule(exchange):
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    make.restype = ctypes.py_object
    return make(ctypes.addressof(exchange), _NAME, None)


def install(test, exchange, major=1):
    """For as long as `test` runs."""
    kind = type("Tensor", (Tensor,), {})
    if exchange:
        kind.table = _Exchange(
            major=major,
            describe=_Exchange.Describe(_describe),
            stream=_Exchange.Stream(_current_stream),
        )
        kind.__dlpack_c_exchange_api__ = _make_capsule(kind.table)
    make = lambda *args, **fields: _as(kind, empty(*args, **fields))  # noqa: E731
    torch = types.ModuleType("torch")
    torch.Tensor, torch.float32, torch.strided = kind, "torch.float32", STRIDED
    torch.empty = make
    torch.empty_like = lambda t: make(t.shape, t.dtype, t.device)
    torch.is_grad_enabled = lambda: True
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: STREAM + device)
    if exchange:
        torch._C._dlpack_exchange_api = lambda: kind.__dlpack_c_exchange_api__
    sys.modules["torch"] = torch
    _forget()
    test.addCleanup(sys.modules.pop, "torch", None)
    test.addCleanup(_forget)
    del described[:]
    return kind


def _as(kind, tensor):
    tensor.__class__ = kind
    return tensor


def _forget():
    _torch.Tensor, _torch.exchange = None, 0
    forget_plans()


def forget_plans():
    _cache.cache.plans.clear()
    _cache.cache.recent = []
