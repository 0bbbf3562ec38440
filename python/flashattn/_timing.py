"""Where the time of a first call goes: `python -m flashattn doctor --timing`.

Each shape runs in two new processes, the first of which finds nothing that an earlier one has kept
on disk: neither the library's code nor what the driver made of it. What the library tells of its
stages with FLASHATTN_TIMING, and what Python sees, becomes a table of milliseconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Tuple

import numpy

from . import _attention, _backward, _bench_features, _environment, _library, _signals
from .errors import DeviceError, FlashAttnError

#: Of the benchmark: sizes B, Hq, Hkv, Nq, Nk and D, dtype, mask and what more that has.
Shape = Dict[str, Any]


def _shape(heads: Tuple[int, int], queries: int, keys: int, d: int, mask: str = "none") -> Shape:
    return {
        "B": 1, "Hq": heads[0], "Hkv": heads[1], "Nq": queries, "Nk": keys, "D": d,
        "dtype": "f16", "mask": mask,
    }  # fmt: skip


def _label(shape: Shape) -> str:
    sizes = "({B},{Hq}/{Hkv},{Nq}:{Nk},{D})".format(**shape)
    return sizes if shape["mask"] == "none" else f"{sizes} {shape['mask']}"


#: One and two kernels to choose from, and two of which both are launched.
SHAPES = (
    _shape((4, 2), 512, 4096, 64),
    _shape((4, 2), 512, 4096, 128),
    _shape((16, 16), 4096, 4096, 128, "causal"),
    _shape((4, 2), 1, 4096, 128),
)
#: The CPU computes these in no time.
SHAPES_CPU = (_shape((4, 2), 64, 256, 64), _shape((4, 2), 1, 256, 128))

#: As the library names them, in their order.
STAGES = ("device", "parse", "passes", "host code", "kernels", "disk", "link", "driver")
COLUMNS = ("import", "context", *STAGES, "other", "first call", "next call")


#: What NumPy calls them; that 16 bits are bf16, it does not know.
_TYPES = {"f16": "<f2", "bf16": "<u2", "f32": "<f4", "i1": "|b1"}


class _DeviceArray:
    """Memory of device 0 that nobody has written to, of the driver alone."""

    def __init__(self, driver: Any, shape: Tuple[int, ...], element: str):
        pointer = ctypes.c_uint64()
        typestr = _TYPES[element]
        size = ctypes.c_size_t(numpy.dtype(typestr).itemsize * int(numpy.prod(shape)))
        _check("cuMemAlloc", driver.cuMemAlloc_v2(ctypes.byref(pointer), size))
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (pointer.value, False), "version": 3,
        }  # fmt: skip


def _check(name: str, status: int) -> None:
    if status:
        raise DeviceError(f"{name} failed with error {status} of the CUDA driver")


def _format(column: str, milliseconds: float) -> str:
    # A call of a kernel that is there takes microseconds.
    digits = 3 if column == "next call" else 1
    return f"{milliseconds:{max(7, len(column))}.{digits}f}"


def _open_driver() -> Any:
    """The driver with the context of device 0 current."""
    driver = ctypes.CDLL(_environment.variable("FLASHATTN_CUDA_DRIVER") or "libcuda.so.1")
    context = ctypes.c_void_p()
    _check("cuInit", driver.cuInit(0))
    _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))
    return driver


def _make_call(
    shape: Shape, backward: bool, make: Callable[[Tuple[int, ...], str], Any]
) -> Callable[[], Any]:
    """A call of the shape's attention, or of its gradients, with arrays by `make(shape, element)`."""
    element = shape["dtype"]
    q_shape, k_shape = (
        tuple(shape[size] for size in ("B", heads, length, "D"))
        for heads, length in (("Hq", "Nq"), ("Hkv", "Nk"))
    )
    q, k, v = (make(sizes, element) for sizes in (q_shape, k_shape, k_shape))
    bias = _bench_features.make_bias(shape, lambda *sizes: make(sizes, element))
    attn_mask = make((1, 1, shape["Nq"], shape["Nk"]), "i1") if shape.get("feature") == "attn_mask" else None
    options = _bench_features.options_of(shape, bias, attn_mask)
    options["mask"] = _bench_features.mask_of(shape)
    if element == "bf16":
        options["dtype"] = element
    o = make(q_shape, element)
    if not backward:
        return lambda: _attention.attention(q, k, v, out=o, **options)
    lse, do = make(q_shape[:3], "f32"), make(q_shape, element)
    options["out"] = tuple(make(sizes, element) for sizes in (q_shape, k_shape, k_shape))
    if bias is not None:
        options["return_d_bias"] = True
        options["out"] += (make((1, *(shape[size] for size in ("Hq", "Nq", "Nk"))), element),)
    return lambda: _backward.attention_backward(q, k, v, o, lse, do, **options)


def measure(begin: float, shape: Shape, backward: bool, on_gpu: bool) -> None:
    """What a new process does, which began to import the package at `begin`: prints milliseconds by
    the names of columns."""
    imported = time.perf_counter()
    library = _library.get()
    if on_gpu:
        driver = _open_driver()
        library.device_count()

        def make(sizes: Tuple[int, ...], element: str) -> Any:
            return _DeviceArray(driver, sizes, element)
    else:

        def make(sizes: Tuple[int, ...], element: str) -> Any:
            return numpy.ones(sizes, _TYPES[element])

    attend = _make_call(shape, backward, make)

    def call() -> float:
        start = time.perf_counter()
        attend()
        if on_gpu:
            _check("cuStreamSynchronize", driver.cuStreamSynchronize(None))
        return 1e3 * (time.perf_counter() - start)

    ready = time.perf_counter()
    took = {"import": 1e3 * (imported - begin), "context": 1e3 * (ready - imported)}
    took["first call"], took["next call"] = call(), call()
    print(json.dumps(took))


def _run(shape: Shape, backward: bool, on_gpu: bool, folder: str) -> Dict[str, float]:
    """The columns of one new process. Raises DeviceError with what it said."""
    code = "import time; begin = time.perf_counter(); from flashattn import _timing; "
    code += f"_timing.measure(begin, {shape!r}, {backward}, {on_gpu})"
    folders = {"FLASHATTN_CACHE": f"{folder}/code", "CUDA_CACHE_PATH": f"{folder}/driver"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **folders, "FLASHATTN_TIMING": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise DeviceError(f"the process for {_label(shape)} failed: {done.stderr.strip()}")
    took: Dict[str, float] = {**json.loads(done.stdout)}
    lines = r"^flashattn: (?:compile|load kernels): (.*), all .* ms$"
    for line in re.findall(lines, done.stderr, re.MULTILINE):
        for stage in line.split(", "):
            name, _, value = stage.rpartition(" ")
            took[name] = took.get(name, 0.0) + float(value)
    took["other"] = took["first call"] - sum(took.get(name, 0.0) for name in STAGES)
    return took


def first_call_ms(shape: Shape, backward: bool, on_gpu: bool) -> float:
    """Milliseconds of the first call in a new process, with what comes with the library and nothing
    that an earlier process has kept. Raises DeviceError where the process fails."""
    with _signals.temporary_folder("timing") as folder:
        return _run(shape, backward, on_gpu, folder)["first call"]


def report() -> None:
    """Prints the table. Raises DeviceError where a process fails."""
    try:
        on_gpu = _library.get().device_count() > 0
    except FlashAttnError:
        on_gpu = False
    shapes = SHAPES if on_gpu else SHAPES_CPU
    print(f"milliseconds of a new process on {'cuda:0' if on_gpu else 'the CPU'}, f16")
    width = max(map(len, map(_label, shapes)))
    print(" ".join([f"{'(B,H/G,N:K,D)':{width}}", "process", *(f"{name:>{max(7, len(name))}}" for name in COLUMNS)]))
    for shape in shapes:
        with _signals.temporary_folder("timing") as folder:
            for which in ("first", "second"):
                took = _run(shape, False, on_gpu, folder)
                cells = (_format(name, took.get(name, 0.0)) for name in COLUMNS)
                print(" ".join([f"{_label(shape):{width}} {which:>7}", *cells]), flush=True)
