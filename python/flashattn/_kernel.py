"""Compiled kernels: the process's cache of them, and the object that `compile` gives."""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _library, _module
from ._library import DEVICE_AUTO, DEVICE_CPU
from .errors import ArgumentError, DeviceError, UnsupportedError
from .masks import Mask

Schedule = Union[str, Mapping[str, Any]]

_FIELDS = ("tile_m", "tile_n", "warps", "stages", "lanes", "dot_type")


def format_schedule(schedule: Optional[Schedule], element: str, is_cpu: bool) -> Optional[str]:
    """The text of the fields. What is left out of `warps`, `stages`, `lanes` and `dot_type` follows
    from the rest and from the kind of device."""
    if schedule is None:
        return None
    if isinstance(schedule, str):
        pairs = [part.partition("=") for part in schedule.split(",")]
        schedule = {name.strip(): value.strip() for name, _, value in pairs}
    if not isinstance(schedule, Mapping):
        raise ArgumentError(
            f"expected schedule to be a mapping, a text or None but got {type(schedule).__name__}"
        )
    fields = dict(schedule)
    unknown = sorted(str(name) for name in fields if name not in _FIELDS)
    if unknown:
        raise ArgumentError(
            f"expected schedule fields {', '.join(_FIELDS)} but got {', '.join(unknown)}"
        )
    for name in ("tile_m", "tile_n"):
        if name not in fields:
            raise ArgumentError(
                f"expected schedule field {name} but got {', '.join(fields) or 'none'}"
            )
    for name in _FIELDS[:-1]:
        if name in fields and not re.fullmatch(r"\d+", str(fields[name])):
            raise ArgumentError(
                f"expected an integer as schedule field {name} but got {fields[name]!r}"
            )
    fields.setdefault("warps", 1 if is_cpu else max(1, int(fields["tile_m"]) // 16))
    fields.setdefault("stages", 1 if is_cpu else 2)
    fields.setdefault("lanes", 1 if is_cpu else 4)
    fields.setdefault("dot_type", "f32" if is_cpu else element)
    return ", ".join(f"{name} = {fields[name]}" for name in _FIELDS)


class Kernel:
    """A compiled attention: one that serves every batch, head count and length.

    Made by `flashattn.compile`. It may be launched from several threads at once.
    """

    def __init__(
        self, problem: _module.Problem, chip: Optional[str], device: int, tuned: bool = True
    ):
        library = _library.get()
        self.problem = problem
        self._library = library
        self._handle = library.compile(
            _module.make_module(problem), chip=chip, device=device, schedule=problem.schedule, tuned=tuned
        )
        # At exit the process gives all of it back at once; the driver may be gone by then.
        weakref.finalize(self, library.free, self._handle).atexit = False
        self._info = library.info(self._handle)

    def __repr__(self) -> str:
        return f"<flashattn.Kernel for {self.chip}: {self.schedule}>"

    @property
    def chip(self) -> str:
        """What it is compiled for: "cpu", or "sm_90" and the like."""
        return self._info.chip

    @property
    def stages(self) -> List[str]:
        """The names that `ir` takes, in the order in which the texts are made."""
        return list(self._info.stages)

    @property
    def mlir(self) -> str:
        """The module that was compiled."""
        return self.ir("mlir")

    @property
    def schedule(self) -> str:
        """The schedule that was chosen, as the attribute's fields."""
        text = self.ir("schedule").strip()
        for affix in ("#flashattn.schedule",):
            text = text[len(affix) :] if text.startswith(affix) else text
        return text[1:-1] if text.startswith("<") and text.endswith(">") else text

    @property
    def ptx(self) -> str:
        """The kernel's PTX. Raises UnsupportedError for the CPU, which has none."""
        if "ptx" not in self._info.stages:
            raise UnsupportedError(
                f"expected a kernel for a GPU but got one for {self.chip}, which has no PTX"
            )
        return self.ir("ptx")

    @property
    def workspace_bytes(self) -> int:
        """Device memory that a launch needs besides its arguments."""
        return self._info.workspace_bytes

    @property
    def is_launchable(self) -> bool:
        """Whether `launch` can work: a kernel for a chip that is not here gives texts only."""
        return self._info.is_launchable

    def ir(self, stage: str) -> str:
        """The text of a stage, one of `stages`. Raises ArgumentError for another name."""
        if stage not in self._info.stages:
            raise ArgumentError(f"expected stage {', '.join(self._info.stages)} but got {stage!r}")
        return self._library.text(self._handle, stage)

    def launch(self, q, k, v, out, lse=None, *, stream=None) -> None:
        """Writes `out` (and `lse`, for a kernel with return_lse) on `stream`, by default the
        caller's current one. Shapes and errors as of `flashattn.attention`; returns before a GPU is
        done."""
        from . import _attention

        _attention.launch_kernel(self, q, k, v, out, lse, stream)


_lock = threading.Lock()
_kernels: Dict[Tuple[_module.Problem, int], Kernel] = {}
_locks: Dict[Tuple[_module.Problem, int], threading.Lock] = {}


def cached(problem: _module.Problem, device: int) -> Kernel:
    """The process's kernel for `problem` on `device`; compiled once, whoever asks at the same time."""
    key = (problem, device)
    kernel = _kernels.get(key)
    if kernel is not None:
        return kernel
    with _lock:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = Kernel(
                problem, "cpu" if device == DEVICE_CPU else None, device
            )
    return kernel


def compile(
    *,
    head_dim: int,
    value_dim: Optional[int] = None,
    dtype: Any = "f16",
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: str = "bottom_right",
    layout: str = "bhsd",
    return_lse: bool = False,
    schedule: Optional[Schedule] = None,
    chip: Optional[str] = None,
    device: Optional[int] = None,
    rows: str = "dense",
    tuned: bool = True,
) -> Kernel:
    """Compiles attention ahead of time.

    Args:
      head_dim: D, elements of a query or key row.
      value_dim: Dv, elements of a value or output row; D by default.
      dtype: f16, bf16 or f32, as text or as a dtype of numpy or torch.
      mask, scale, align, layout, return_lse, schedule: as of `flashattn.attention`.
      chip: "cpu", "sm_80", "sm_90" and so on; by default that of `device`. A chip that is not in
        this machine gives a kernel whose texts can be read.
      device: number of the CUDA device; by default the first one, or the CPU where there is none.
      rows: "dense" for contiguous tensors, "aligned" for any strides with rows that begin at
        multiples of 16 bytes, "strided" for any strides with a unit last one.
      tuned: whether to take a schedule that the tuner found.

    Raises:
      CompileError, UnsupportedError: with the compiler's diagnostic.
      DeviceError: no library, or no such device.
    """
    from ._tensors import parse_element

    element = parse_element(getattr(dtype, "__name__", dtype))
    if element not in _module.ELEMENT_BYTES:
        raise UnsupportedError(f"expected dtype f16, bf16 or f32 but got {element}")
    for name, value in (("head_dim", head_dim), ("value_dim", value_dim)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise ArgumentError(f"expected {name} to be an integer of at least 1 but got {value!r}")
    if rows not in _module.ROWS:
        raise ArgumentError(f"expected rows {', '.join(_module.ROWS)} but got {rows!r}")
    if chip is not None and device is None and chip == "cpu":
        device = DEVICE_CPU
    if device is None:
        device = DEVICE_AUTO
    if chip is None and device == DEVICE_AUTO:
        device = 0 if _has_cuda() else DEVICE_CPU
    is_cpu = chip == "cpu" or (chip is None and device == DEVICE_CPU)
    problem = _module.Problem(
        element,
        head_dim,
        head_dim if value_dim is None else value_dim,
        mask,
        _module.check_options(mask, scale, align, layout),
        align,
        layout,
        bool(return_lse),
        format_schedule(schedule, element, is_cpu),
        "strided" if is_cpu and rows == "aligned" else rows,
    )
    return Kernel(problem, chip, device, tuned)


def _has_cuda() -> bool:
    try:
        return _library.get().device_count() > 0
    except DeviceError:
        return False
