"""Where the time of a first call goes: `python -m flashattn doctor --timing`.

Each problem runs in two new processes, the first of which finds nothing that an earlier one has kept
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
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy

from . import _attention, _library, masks
from .errors import DeviceError, FlashAttnError


class Problem(NamedTuple):
    """Sizes of a call of one batch: `heads` of queries, H, and of keys and values, G; and others."""

    heads: Tuple[int, int]
    queries: int
    keys: int
    d: int
    causal: bool = False

    def __str__(self) -> str:
        heads = "/".join(map(str, self.heads))
        return f"(1,{heads},{self.queries}:{self.keys},{self.d})" + " causal" * self.causal


#: One and two kernels to choose from, and two of which both are launched.
PROBLEMS = (
    Problem((4, 2), 512, 4096, 64),
    Problem((4, 2), 512, 4096, 128),
    Problem((16, 16), 4096, 4096, 128, causal=True),
    Problem((4, 2), 1, 4096, 128),
)
#: The CPU computes these in no time.
PROBLEMS_CPU = (Problem((4, 2), 64, 256, 64), Problem((4, 2), 1, 256, 128))

#: As the library names them, in their order.
STAGES = ("device", "parse", "passes", "host code", "kernels", "disk", "link", "driver")
COLUMNS = ("import", "context", *STAGES, "other", "first call", "next call")


class _DeviceArray:
    """Memory of device 0 that nobody has written to, of the driver alone."""

    def __init__(self, driver: Any, shape: Tuple[int, ...]):
        pointer = ctypes.c_uint64()
        size = ctypes.c_size_t(2 * int(numpy.prod(shape)))
        _check("cuMemAlloc", driver.cuMemAlloc_v2(ctypes.byref(pointer), size))
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "<f2", "data": (pointer.value, False), "version": 3,
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
    driver = ctypes.CDLL(os.environ.get("FLASHATTN_CUDA_DRIVER", "libcuda.so.1"))
    context = ctypes.c_void_p()
    _check("cuInit", driver.cuInit(0))
    _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))
    return driver


def measure(begin: float, fields: List[Any], on_gpu: bool) -> None:
    """What a new process does, which began to import the package at `begin`: prints milliseconds by
    the names of columns."""
    imported = time.perf_counter()
    (q_heads, kv_heads), *_ = fields
    problem = Problem((q_heads, kv_heads), *fields[1:])
    library = _library.get()
    shapes = [(1, q_heads, problem.queries, problem.d), (1, kv_heads, problem.keys, problem.d)]
    arrays: List[Any]
    if on_gpu:
        driver = _open_driver()
        library.device_count()
        arrays = [_DeviceArray(driver, shapes[i]) for i in (0, 1, 1, 0)]
    else:
        arrays = [numpy.ones(shapes[i], numpy.float16) for i in (0, 1, 1, 0)]
    q, k, v, out = arrays

    def call() -> float:
        start = time.perf_counter()
        mask = masks.causal if problem.causal else None
        _attention.attention(q, k, v, out=out, mask=mask)
        if on_gpu:
            _check("cuStreamSynchronize", driver.cuStreamSynchronize(None))
        return 1e3 * (time.perf_counter() - start)

    ready = time.perf_counter()
    took = {"import": 1e3 * (imported - begin), "context": 1e3 * (ready - imported)}
    took["first call"], took["next call"] = call(), call()
    print(json.dumps(took))


def _run(problem: Problem, on_gpu: bool, folder: str) -> Dict[str, float]:
    """The columns of one new process. Raises DeviceError with what it said."""
    code = "import time; begin = time.perf_counter(); from flashattn import _timing; "
    code += f"_timing.measure(begin, {list(problem)!r}, {on_gpu})"
    folders = {"FLASHATTN_CACHE": f"{folder}/code", "CUDA_CACHE_PATH": f"{folder}/driver"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **folders, "FLASHATTN_TIMING": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise DeviceError(f"the process for {problem} failed: {done.stderr.strip()}")
    took: Dict[str, float] = {**json.loads(done.stdout)}
    lines = r"^flashattn: (?:compile|load kernels): (.*), all .* ms$"
    for line in re.findall(lines, done.stderr, re.MULTILINE):
        for stage in line.split(", "):
            name, _, value = stage.rpartition(" ")
            took[name] = took.get(name, 0.0) + float(value)
    took["other"] = took["first call"] - sum(took.get(name, 0.0) for name in STAGES)
    return took


def report() -> None:
    """Prints the table. Raises DeviceError where a process fails."""
    try:
        on_gpu = _library.get().device_count() > 0
    except FlashAttnError:
        on_gpu = False
    problems = PROBLEMS if on_gpu else PROBLEMS_CPU
    print(f"milliseconds of a new process on {'cuda:0' if on_gpu else 'the CPU'}, f16")
    width = max(len(str(problem)) for problem in problems)
    print(" ".join([f"{'(B,H/G,N:K,D)':{width}}", "process", *(f"{name:>{max(7, len(name))}}" for name in COLUMNS)]))
    for problem in problems:
        with tempfile.TemporaryDirectory() as folder:
            for which in ("first", "second"):
                took = _run(problem, on_gpu, folder)
                cells = (_format(name, took.get(name, 0.0)) for name in COLUMNS)
                print(" ".join([f"{str(problem):{width}} {which:>7}", *cells]), flush=True)
