"""The kernels of the process: compiled once, and no more of them than the limits allow.

The one that no call has used for longest goes first. It goes from here: who holds a kernel, a launch
under way among them, keeps it.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from . import _environment
from .errors import ArgumentError

if TYPE_CHECKING:
    from ._kernel import Kernel
    from ._module import Problem

_Key = Tuple["Problem", Union[int, str]]

#: A moment later than all before it.
clock: Callable[[], int] = itertools.count(1).__next__

#: Plans are small, but lengths may vary without end.
MAX_PLANS = 4096


class CacheInfo(NamedTuple):
    """What `flashattn.cache_info` gives."""

    kernels: int  #: kept now
    bytes: int  #: of host memory that these keep: texts, code for the CPU, images for a GPU
    max_kernels: int
    max_bytes: int
    compiled: int  #: kernels since the process began
    dropped: int  #: of these, to keep within the limits


def _check_limit(name: str, given: Any) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or given.__index__() < 1:
        raise ArgumentError(f"expected {name} to be an integer of at least 1 but got {given!r}")
    return given.__index__()


class Cache:
    """Safe for threads. Plans of its kernels go with them."""

    def __init__(self) -> None:
        self.kernels: Dict[_Key, Kernel] = {}
        self.plans: Dict[Any, Any] = {}
        #: The few plans used last, none twice, which tensors of torch are compared with.
        self.recent: List[Any] = []
        self._lock = threading.Lock()
        self._compiling: Dict[_Key, threading.Lock] = {}
        self._limits: Optional[Tuple[int, int]] = None
        self._compiled = self._dropped = 0

    def find(
        self, problem: Problem, device: Union[int, str], make: Callable[[], Kernel]
    ) -> Kernel:
        """The kernel for `problem` on `device`; made once, whoever asks at the same time."""
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
        """Whether the plan is kept: not that of a kernel which went meanwhile."""
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
        """Drops what is over the limits, but not `newest`, which is about to be used. Returns it, for
        who holds the lock to let go of without: a GPU's kernel waits for the GPU before it goes."""
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


cache = Cache()


def cache_info() -> CacheInfo:
    """How many kernels this process keeps for later calls of `flashattn.attention`, their bytes,
    the limits, and how many were compiled and dropped so far."""
    return cache.info()


def set_cache_limits(*, kernels: Optional[int] = None, bytes: Optional[int] = None) -> None:
    """How many kernels `flashattn.attention` keeps compiled, 256 at first or
    FLASHATTN_CACHE_KERNELS, and how many bytes of host memory they take together, 256 MiB at first
    or FLASHATTN_CACHE_BYTES. None leaves a limit as it is.

    Beyond either, the kernel goes that no call has used for longest; but never one that a launch or
    the caller holds, nor the last one. What the driver has loaded to a GPU is unloaded then, for
    which the call waits until the GPU is done with all its work; kernels that a CUDA graph was
    captured with stay loaded, for the graph holds them.

    Raises:
      ArgumentError: a limit that is no integer of at least 1.
    """
    cache.set_limits(kernels, bytes)
