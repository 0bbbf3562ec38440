"""The cache of the kernels of a process, which compiles each kernel once and enforces limits.

The least recently used kernel is dropped first. A dropped kernel lives as long as a caller or a running
launch holds it.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from . import _environment
from ._module import Problem
from .errors import ArgumentError

_Key = Tuple[Problem, Union[int, str]]
Kernel = Any  # `_kernel.Kernel`, which is built on the cache

#: Returns a larger number at each call.
clock: Callable[[], int] = itertools.count(1).__next__

#: Limit of plans, which are small, but there is a plan for each length.
MAX_PLANS = 4096


class CacheInfo(NamedTuple):
    """The result of `flashattn.cache_info`."""

    kernels: int  #: kernels in the cache
    bytes: int  #: host memory of these kernels: texts, code for the CPU, images for a GPU
    max_kernels: int
    max_bytes: int
    compiled: int  #: kernels compiled since the process began
    dropped: int  #: kernels dropped because of the limits


def _check_limit(name: str, given: Any) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or given.__index__() < 1:
        raise ArgumentError(f"expected {name} to be an integer of at least 1 but got {given!r}")
    return given.__index__()


class Cache:
    """A thread-safe cache of kernels, and of their plans, which are dropped with the kernel."""

    def __init__(self) -> None:
        self.kernels: Dict[_Key, Kernel] = {}
        self.plans: Dict[Any, Any] = {}
        #: The most recently used plans, each once, with which PyTorch tensors are compared.
        self.recent: List[Any] = []
        self._lock = threading.Lock()
        self._compiling: Dict[_Key, threading.Lock] = {}
        self._limits: Optional[Tuple[int, int]] = None
        self._compiled = self._dropped = 0

    def find(
        self, problem: Problem, device: Union[int, str], make: Callable[[], Kernel]
    ) -> Kernel:
        """Returns the kernel for `problem` on `device`. Concurrent callers share one compilation."""
        key = (problem, device)
        kernel = self.kernels.get(key)
        if kernel is None:
            with self._lock:
                lock = self._compiling.setdefault(key, threading.Lock())
            with lock:
                kernel = self.kernels.get(key)
                if kernel is None:
                    kernel = make()
                    kernel._used = clock()
                    with self._lock:
                        self.kernels[key] = kernel
                        self._compiling.pop(key, None)
                        self._compiled += 1
                        gone = self._shrink(kernel)
                    del gone
        kernel._used = clock()
        return kernel

    def keep_plan(self, kernel: Kernel, key: Any, plan: Any) -> bool:
        """Stores a plan. Returns False if the plan's kernel was dropped in the meantime."""
        with self._lock:
            if not any(kept is kernel for kept in self.kernels.values()):
                return False
            if len(self.plans) >= MAX_PLANS:
                self.plans.clear()
            self.plans[key] = plan
            return True

    def set_limits(self, kernels: Any, bytes: Any) -> None:
        with self._lock:
            limits = self._get_limits()
            self._limits = (
                limits[0] if kernels is None else _check_limit("kernels", kernels),
                limits[1] if bytes is None else _check_limit("bytes", bytes),
            )
            gone = self._shrink(None)
        del gone

    def info(self) -> CacheInfo:
        with self._lock:
            held = sum(kernel._info.host_bytes for kernel in self.kernels.values())
            return CacheInfo(
                len(self.kernels), held, *self._get_limits(), self._compiled, self._dropped
            )

    def clear(self) -> None:
        with self._lock:
            gone = dict(self.kernels), dict(self.plans), self.recent
            self.kernels.clear()
            self.plans.clear()
            self.recent = []
        del gone

    def _get_limits(self) -> Tuple[int, int]:
        if self._limits is None:
            self._limits = (
                _environment.number("FLASHATTN_CACHE_KERNELS", 256),
                _environment.number("FLASHATTN_CACHE_BYTES", 1 << 28),
            )
        return self._limits

    def _shrink(self, newest: Optional[Kernel]) -> List[Any]:
        """Drops the least recently used kernels beyond the limits, except `newest`, which is about to be used.
        The caller is to release them without the lock, because releasing a GPU's kernel waits for the GPU."""
        max_kernels, max_bytes = self._get_limits()
        held = sum(kernel._info.host_bytes for kernel in self.kernels.values())
        by_age = sorted(self.kernels.items(), key=lambda item: item[1]._used)
        gone: List[Any] = []
        for key, kernel in by_age:
            if len(self.kernels) <= max_kernels and held <= max_bytes:
                break
            if kernel is newest:
                continue
            del self.kernels[key]
            held -= kernel._info.host_bytes
            gone.append(kernel)
        self._dropped += len(gone)
        if gone:
            dropped = set(map(id, gone))
            gone.append(self.recent)
            for plan_key in [key for key, p in self.plans.items() if id(p.kernel) in dropped]:
                del self.plans[plan_key]
            self.recent = [plan for plan in self.recent if id(plan.kernel) not in dropped]
        return gone


cache = Cache()


def cache_info() -> CacheInfo:
    """Returns the number and the bytes of the kernels that this process keeps for later calls of
    `flashattn.attention`, the limits, and the numbers of kernels compiled and dropped so far."""
    return cache.info()


def set_cache_limits(*, kernels: Optional[int] = None, bytes: Optional[int] = None) -> None:
    """Sets the limits of the kernels that `flashattn.attention` keeps compiled.

    Beyond a limit, the least recently used kernels are dropped, but not the kernel that the current call
    uses. A kernel that the caller or a launch holds stays usable. The driver unloads the code of a
    dropped kernel from a GPU, for which the call waits until the GPU has finished all its work. Code that
    was captured into a CUDA graph stays loaded, because the graph holds it.

    Args:
      kernels: maximum number of kernels; initially FLASHATTN_CACHE_KERNELS, or else 256. None leaves the
        limit unchanged.
      bytes: maximum host memory of all kernels in bytes; initially FLASHATTN_CACHE_BYTES, or else
        256 MiB. None leaves the limit unchanged.

    Raises:
      ArgumentError: a limit is not an integer of at least 1.
    """
    cache.set_limits(kernels, bytes)
