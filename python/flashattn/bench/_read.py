"""A kernel that only reads memory, by which the benchmark measures the read rate. Reductions of libraries come
close to this rate, but a reduction that is slower than the memory would not be a limit."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _environment
from ..errors import DeviceError

THREADS = 256
#: Loads of 16 bytes per thread, all in flight before the first result is used.
LOADS = 4
#: Bytes that a thread block reads.
BLOCK_BYTES = THREADS * LOADS * 16
#: A thread whose words have this exclusive or stores it. Without the store, the loads would be dead code.
MARK = 0x9E3779B9


def ptx() -> str:
    """Returns the PTX of the kernel `read`. Its argument is the address of BLOCK_BYTES for each thread block."""
    words = [[f"%w{4 * load + word}" for word in range(4)] for load in range(LOADS)]
    loads = [
        f"  ld.global.L1::no_allocate.v4.u32 {{{', '.join(four)}}}, [%at+{load * THREADS * 16}];"
        for load, four in enumerate(words)
    ]
    first, *others = (word for four in words for word in four)
    folds = [f"  xor.b32 {first}, {first}, {word};" for word in others]
    return "\n".join(
        [
            ".version 7.4",
            ".target sm_80",
            ".address_size 64",
            f".visible .entry read(.param .u64 data) .maxntid {THREADS}, 1, 1 {{",
            "  .reg .pred %other;",
            "  .reg .b32 %block, %thread;",
            f"  .reg .b32 %w<{4 * LOADS}>;",
            "  .reg .b64 %data, %at, %step;",
            "  ld.param.u64 %data, [data];",
            "  cvta.to.global.u64 %data, %data;",
            "  mov.u32 %block, %ctaid.x;",
            "  mov.u32 %thread, %tid.x;",
            f"  mul.wide.u32 %step, %block, {BLOCK_BYTES};",
            "  add.s64 %at, %data, %step;",
            "  mul.wide.u32 %step, %thread, 16;",
            "  add.s64 %at, %at, %step;",
            *loads,
            *folds,
            f"  setp.ne.u32 %other, {first}, {MARK};",
            "  @%other ret;",
            f"  st.global.u32 [%data], {first};",
            "  ret;",
            "}\n",
        ]
    )


class ReadKernel:
    """The kernel, loaded into the current context. Raises DeviceError if the driver rejects the kernel."""

    def __init__(self) -> None:
        try:
            self.driver = ctypes.CDLL(_environment.variable("FLASHATTN_CUDA_DRIVER") or "libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"expected the CUDA driver but got: {error}") from None
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadDataEx", ctypes.byref(self.module), ptx().encode(), 0, None, None)
        self._call("cuModuleGetFunction", ctypes.byref(self.function), self.module, b"read")

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise DeviceError(f"expected {name} of the read kernel to succeed but got error {code}")

    def launch(self, address: int, size: int, stream: int) -> None:
        """Enqueues a read of `size` bytes, a multiple of BLOCK_BYTES, at a device address."""
        data = ctypes.c_uint64(address)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(data))
        grid, threads = (size // BLOCK_BYTES, 1, 1), (THREADS, 1, 1)
        self._call(
            "cuLaunchKernel", self.function, *grid, *threads, 0, ctypes.c_void_p(stream), parameters, None
        )  # fmt: skip
