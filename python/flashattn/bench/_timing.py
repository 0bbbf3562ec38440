"""Where the time of a first call goes: `python -m flashattn doctor --timing`.

Each shape runs in two new processes. For the first, the disk caches of the library and of the driver are
empty. The result is a table of milliseconds: the stages that the library prints with FLASHATTN_TIMING, and
the times that Python measures.
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

from .. import _attention, _backward, _environment, _library, _signals
from ..errors import DeviceError, FlashAttnError
from . import _features

#: A shape of the benchmark: sizes B, Hq, Hkv, Nq, Nk and D, dtype, mask, and optional further keys.
Shape = Dict[str, Any]


def _shape(heads: Tuple[int, int], queries: int, keys: int, d: int, mask: str = "none") -> Shape:
    return {
        "B": 1, "Hq": heads[0], "Hkv": heads[1], "Nq": queries, "Nk": keys, "D": d,
        "dtype": "f16", "mask": mask,
    }  # fmt: skip


def _label(shape: Shape) -> str:
    sizes = "({B},{Hq}/{Hkv},{Nq}:{Nk},{D})".format(**shape)
    return sizes if shape["mask"] == "none" else f"{sizes} {shape['mask']}"


#: Shapes with one kernel, with a choice of two kernels, and with two kernels that are both launched.
SHAPES = (
    _shape((4, 2), 512, 4096, 64),
    _shape((4, 2), 512, 4096, 128),
    _shape((16, 16), 4096, 4096, 128, "causal"),
    _shape((4, 2), 1, 4096, 128),
)
#: Shapes whose computation takes the CPU a negligible time.
SHAPES_CPU = (_shape((4, 2), 64, 256, 64), _shape((4, 2), 1, 256, 128))

#: The names of the stages in the library, in order.
STAGES = ("device", "parse", "passes", "host code", "kernels", "disk", "link", "driver")
COLUMNS = ("import", "context", *STAGES, "other", "first call", "next call")


#: The type strings of NumPy, which has no bf16 and uses uint16 instead.
_TYPES = {"f16": "<f2", "bf16": "<u2", "f32": "<f4", "i1": "|b1"}


class _DeviceArray:
    """Uninitialized memory of device 0, allocated by the driver alone."""

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
    # A call of a loaded kernel takes microseconds.
    digits = 3 if column == "next call" else 1
    return f"{milliseconds:{max(7, len(column))}.{digits}f}"


def _open_driver() -> Any:
    """Returns the driver, with the primary context of device 0 current."""
    driver = ctypes.CDLL(_environment.variable("FLASHATTN_CUDA_DRIVER") or "libcuda.so.1")
    context = ctypes.c_void_p()
    _check("cuInit", driver.cuInit(0))
    _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))
    return driver


def _make_call(
    shape: Shape, backward: bool, make: Callable[[Tuple[int, ...], str], Any]
) -> Callable[[], Any]:
    """Returns a call of the shape's forward or backward pass, with arrays of `make(shape, element)`."""
    element = shape["dtype"]
    q_shape, k_shape = (
        tuple(shape[size] for size in ("B", heads, length, "D"))
        for heads, length in (("Hq", "Nq"), ("Hkv", "Nk"))
    )
    q, k, v = (make(sizes, element) for sizes in (q_shape, k_shape, k_shape))
    bias = _features.make_bias(shape, lambda *sizes: make(sizes, element))
    attn_mask = make((1, 1, shape["Nq"], shape["Nk"]), "i1") if shape.get("feature") == "attn_mask" else None
    options = _features.options_of(shape, bias, attn_mask)
    options["mask"] = _features.mask_of(shape)
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
    """Runs in a new process, which began to import the package at time `begin`. Prints the milliseconds of the
    columns as JSON."""
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
    """Returns the columns of one new process. Raises DeviceError with the process's error output."""
    code = "import time; begin = time.perf_counter(); from flashattn.bench import _timing; "
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
    """Returns the milliseconds of the first call in a new process, with the kernels that come with the library,
    but with empty disk caches. Raises DeviceError if the process fails."""
    with _signals.temporary_folder("timing") as folder:
        return _run(shape, backward, on_gpu, folder)["first call"]


def report() -> None:
    """Prints the table. Raises DeviceError if a process fails."""
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
