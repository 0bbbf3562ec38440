"""Compiled kernels, which `compile` returns."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy

from . import (
    _aux, _cache, _features, _library, _module, _plans, _scales, _symbols, _tensors, _texts, _torch, _trace,
)  # fmt: skip
from ._checks import ALIGNMENT, device_name, model_chip
from ._library import DEVICE_AUTO, DEVICE_CPU, DEVICE_MODEL, PAGE, SCALES
from ._options import AttentionOptions
from ._tensors import View
from .errors import ArgumentError, CompileError, DeviceError, UnsupportedError
from .masks import Mask

def _caller_level() -> int:
    """Returns the `stacklevel` of the first caller outside of this package, for warnings."""
    here = os.path.dirname(__file__) + os.sep
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    return level


class Kernel:
    """A compiled attention kernel, which serves every batch size, head count and length. A kernel that is
    compiled with `queries` serves only this number of queries.

    `flashattn.compile` returns it. Several threads may launch it at the same time. Pickle stores the
    arguments of the compilation, not the code: a kernel is compiled again when it is loaded.
    """

    def __init__(
        self,
        problem: _module.Problem,
        chip: Optional[str],
        device: int,
        tuned: bool = True,
        function: Optional[str] = None,
        scale: Optional[float] = None,
    ):
        library = _library.get()
        self.problem = problem
        self._recipe = (problem, chip, device, tuned, function, scale)
        text = _module.make_module(problem._replace(schedule=None), function)
        self._scale_bits = _module.scale_bits(problem.d**-0.5 if scale is None else scale)
        #: Plans of `launch`, by the properties of the tensors.
        self._plans: Dict[Any, Any] = {}
        self._used = 0  #: the time of the last use, by `_cache.clock`
        self._library = library
        self._handle, warned = library.compile(
            text, chip=chip, device=device, schedule=problem.schedule, tuned=tuned
        )
        # At exit, the process frees all memory at once, and the driver may be unloaded already.
        weakref.finalize(self, library.free, self._handle).atexit = False
        self._info = library.info(self._handle)
        for message in dict.fromkeys(warned):
            warnings.warn(message, UserWarning, stacklevel=_caller_level())

    def __reduce__(self) -> Tuple[Any, ...]:
        return (Kernel, self._recipe)

    def __repr__(self) -> str:
        return f"<flashattn.Kernel for {self.chip}: {self.schedule}>"

    @property
    def chip(self) -> str:
        """The target: "cpu", or a GPU such as "sm_80", or "sm_90a" on Hopper."""
        return self._info.chip

    @property
    def device(self) -> Union[int, str]:
        """The device of a launch's tensors: the number of a CUDA device, a constant of `_library` such as
        DEVICE_CPU, or the name of a model."""
        number = self._info.device
        return f"model:{self.chip}" if number == DEVICE_MODEL else number

    @property
    def stages(self) -> List[str]:
        """The names of the stages that `ir` accepts, in the order of compilation."""
        return list(self._info.stages)

    @property
    def mlir(self) -> str:
        """The text of the module that was compiled."""
        return self.ir("mlir")

    @property
    def schedule(self) -> str:
        """The schedule of the kernel, as the fields of the attribute:
        `tile_m = 64, tile_n = 80, …, mapping = hopper<consumers = 3, along = query_tile, …>`. The keyword
        `schedule=` accepts this text."""
        return self.ir("schedule")

    @property
    def tuning_key(self) -> str:
        """The key of tuned schedules: chip, D, Dv, element type, class of the mask and kind of op, such as
        "sm_90a/128/128/f16/triangular" or "sm_90a/128/128/f16/full/decode"."""
        return self._info.tuning_key

    @property
    def ptx(self) -> str:
        """The PTX of the kernel. Raises UnsupportedError for the CPU and for a model of a GPU, which
        have no PTX."""
        if "ptx" not in self._info.stages:
            raise UnsupportedError(
                f"expected a kernel for a GPU but got one for "
                f"{self.chip if self.chip == 'cpu' else self.device}, which has no PTX"
            )
        return self.ir("ptx")

    @property
    def workspace_bytes(self) -> Optional[int]:
        """Bytes of GPU memory that a launch needs besides its arguments; None if this depends on
        the arguments (see `get_workspace_bytes`), and 0 on the CPU."""
        return None if self._info.workspace_bytes < 0 else self._info.workspace_bytes

    @property
    def is_launchable(self) -> bool:
        """Whether `launch` can run. A kernel for a chip that this machine lacks only has texts."""
        return self._info.is_launchable

    def explain_schedule(self, schedule: _module.Schedule) -> str:
        """Returns the reason why this schedule is not possible for the kernel, or an empty string. The check
        stops before code generation, so it takes a hundredth of the time of a compilation and may miss errors
        that only code generation finds."""
        problem, chip, device, _, function, _ = self._recipe
        fields = _module.format_schedule(schedule, problem.element, self.chip == "cpu")
        text = _module.make_module(problem._replace(schedule=None), function)
        try:
            self._library.check(text, chip=chip, device=device, schedule=fields, tuned=False)
        except (CompileError, UnsupportedError) as error:
            return str(error)
        return ""

    def ir(self, stage: str) -> str:
        """Returns the text of a stage, one of `stages`. Raises ArgumentError for another name."""
        if stage not in self._info.stages:
            raise ArgumentError(f"expected one of the stages {', '.join(self._info.stages)} but got {stage!r}")
        return self._library.text(self._handle, stage)

    def launch(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any = None,
        *,
        mask: Optional[Mask] = None,
        scale: Optional[float] = None,
        stream: Any = None,
        aux_tensors: Optional[Sequence[Any]] = None,
        **operands: Any,
    ) -> None:
        """Runs the kernel and writes `out`, and `lse` if the kernel was compiled with return_lse.

        `stream` defaults to the caller's current stream, and `scale` to the scale of `compile`. If the kernel was
        compiled with a mask of tensors, `mask` is that mask or one of the same text, and its tensors are read. The mask
        of another kernel may be left out.
        `operands` are the operands of `flashattn.attention`, such as bias, by name; a launch needs
        exactly the operands with which the kernel was compiled, and as many `aux_tensors`. Shapes and
        errors are as in `flashattn.attention`. `out` and `lse` must share no memory with each other or with other
        tensors, and `out` has the type of q. On a GPU, the call returns before the work is done.
        """
        bits = self._scale_bits if scale is None else _module.scale_bits(scale)
        given = self._given("launch", operands, q) if operands else {}
        symbols = self._symbols_of(mask, q, k, given)
        if aux_tensors or symbols:
            given = _with_aux(given, symbols, self.problem.score_mod, aux_tensors or ())
        names, values = _features.normalize(given, like=q) if given else ((), ())
        tensors = (q, k, v, out, *values) if lse is None else (q, k, v, out, lse, *values)
        kind = type(q)
        plan, key = None, None
        words: List[int] = []
        if kind is numpy.ndarray:
            plan, key, words = _plans.find_numpy(tensors, (names, lse is None), self._plans)
        elif kind is _torch.Tensor:
            plan, key, words = _plans.find_torch(tensors, (names, lse is None), self._plans)
        if plan is not None:
            plan.start(_torch.stream_or(stream, plan.device), [*words, bits])
            return
        plan, checked = self._plan_of(q, k, v, out, lse, dict(zip(names, values)))
        plan.start(_torch.stream_of(stream, q, checked[0]), [*_plans.words_of(checked), bits])
        if key is not None:
            plan.kernel = None  # avoids a reference cycle, because the kernel keeps the plan
            if len(self._plans) >= _cache.MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan

    def get_workspace_bytes(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any = None,
        *,
        mask: Optional[Mask] = None,
        aux_tensors: Any = None,
        **operands: Any,
    ) -> int:
        """Returns the peak GPU memory in bytes that `launch` with the same arguments allocates besides them,
        before the driver rounds it up. This call allocates and launches nothing. It raises the errors of
        `launch`."""
        given = self._given("get_workspace_bytes", operands, q)
        symbols = self._symbols_of(mask, q, k, given)
        if aux_tensors or symbols:
            given = _with_aux(given, symbols, self.problem.score_mod, aux_tensors or ())
        names, values = _features.normalize(given, like=q)
        plan, checked = self._plan_of(q, k, v, out, lse, dict(zip(names, values)))
        if plan.is_empty:
            return 0
        words = [*_plans.words_of(checked), self._scale_bits]
        for tensor, word in zip(plan.tensors, words):
            tensor.scalar = word  # ignored unless the argument is a scalar
        return self._library.workspace(self._handle, plan.tensors, len(words))

    def _given(self, function: str, operands: Mapping[str, Any], q: Any) -> Dict[str, Any]:
        """Returns the operands of a launch that are not None. Raises KeywordError for an unknown keyword."""
        given = _features.given(function, operands)
        for name in SCALES:
            if name in given:
                given[name] = _scales.settle(name, given[name], self.problem.layout, q)
        return given

    def _symbols_of(self, mask: Optional[Mask], q: Any, k: Any, operands: Mapping[str, Any]) -> _symbols.Symbols:
        """Returns the tensors of the mask of a launch. Raises ArgumentError for another mask than that of `compile`."""
        compiled = self.problem.mask
        if mask is None:
            if compiled is not None and _symbols.names_in(str(compiled)):
                raise ArgumentError(f"expected the mask {compiled}, whose tensors a launch reads, but got None")
            return ()
        if not isinstance(mask, Mask) or str(mask) != str(compiled):
            raise ArgumentError(f"expected the mask {compiled}, as compiled, but got {mask}")
        _features.check_rows(mask._of_rows, q, k, self.problem.align, self.problem.layout, operands)
        found: _symbols.Symbols = _symbols.split(mask, q)[1]
        return found

    def _plan_of(
        self, q: Any, k: Any, v: Any, out: Any, lse: Any, operands: Mapping[str, Any]
    ) -> Tuple[_plans.Plan, Tuple[Union[View, int], ...]]:
        """Checks the tensors. Returns a new plan, and the values of its arguments."""
        _torch.detect_torch()
        if not self.is_launchable:
            raise UnsupportedError(
                f"the kernel cannot be launched: {self._info.not_launchable_reason}"
            )
        problem = self.problem
        if problem.lse and lse is None:
            raise ArgumentError("expected lse for a kernel with return_lse but got None")
        if not problem.lse and lse is not None:
            raise ArgumentError("expected no lse for a kernel without return_lse but got one")
        options = AttentionOptions(
            layout=problem.layout,
            model=self.device if isinstance(self.device, str) else None,
            dtype="bf16" if problem.element == "bf16" else None,
        )
        call = _plans.check_call("attention", {"q": q, "k": k, "v": v}, operands, options, problem)
        sizes, found = call.sizes, call.views["q"]
        has_slots = problem.operand("page_table") is not None and problem.page_size is None
        for name, width, size in (
            ("D", problem.d, sizes["D"]),
            ("Dv", problem.dv, sizes["V"]),
            ("Nq", None if call.roles["q"].is_packed else problem.queries, sizes["N"]),
            ("the page size", problem.page_size, problem.page_size and sizes[PAGE]),
            ("P", 1 if has_slots else None, has_slots and sizes["T"]),
        ):
            if width is not None and width != size:
                raise ArgumentError(f"expected {name} to be {width}, as compiled, but got {size}")
        if found.element != problem.element:
            raise ArgumentError(
                f"expected element type {problem.element}, as compiled, but got {found.element}"
            )
        for name, element in (("k", problem.k_element), ("v", problem.v_element)):
            if call.views[name].element != (element or problem.element):
                raise ArgumentError(
                    f"expected {name!r} with element type {element or problem.element}, as compiled, but got "
                    f"{call.views[name].element}"
                )
        if found.device != self.device:
            raise ArgumentError(
                f"expected tensors on {device_name(self.device)}, as compiled, but got "
                f"{device_name(found.device)}"
            )
        given = {"o": out} if lse is None else {"o": out, "lse": lse}
        outputs = {name: _plans.output_of(call, name, tensor) for name, tensor in given.items()}
        # The type of o is compiled in.
        element = problem.o_element or problem.element
        outputs["o"] = outputs["o"]._replace(element=element, others=())
        checked = _plans.check_outputs(call, outputs)
        if _module.ROWS.index(checked.rows) > _module.ROWS.index(problem.rows):
            raise ArgumentError(
                f"expected {problem.rows} rows, as compiled, but got {checked.rows} rows"
            )
        shapes = [output.shape for output in outputs.values()]
        return _plans.Plan(self, checked.values, shapes), checked.values


def cached(problem: _module.Problem, device: Union[int, str]) -> Kernel:
    """Returns the kernel for `problem` on `device` from the process's cache."""
    chip, number = "cpu" if device == DEVICE_CPU else None, device
    if isinstance(number, str):
        chip, number = model_chip(number), DEVICE_MODEL
    return _cache.cache.find(problem, device, lambda: Kernel(problem, chip, number))


def run(
    call: _plans.Call,
    outputs: Mapping[str, _plans.Output],
    plan_type: Any,
    key: Any,
    options: AttentionOptions,
    stream: Any,
    scale_bits: Optional[int],
) -> Tuple[Any, ...]:
    """Compiles the kernel if necessary, launches it and returns the outputs. With a `key`, stores a plan of type
    `plan_type` for the next call with this key."""
    view = call.views["q"]
    checked = _plans.check_outputs(call, outputs)
    kernel = cached(_plans.problem_of(call, checked, options), view.device)
    plan = plan_type(kernel, checked.values, [output.shape for output in outputs.values()])
    stream = _torch.stream_of(stream, call.q, view)
    plan.start(
        stream, [*_plans.words_of(checked.values), plan.scale_bits if scale_bits is None else scale_bits]
    )
    if key is None:
        return checked.tensors
    if all(output.tensor is None for output in outputs.values()):
        # A plan without out= assumes that allocated outputs are aligned.
        if any(checked.views[name].pointer % ALIGNMENT for name in outputs):
            return checked.tensors
        plan.like = tuple(
            (
                _tensors.shape_like(output.like, output.shape, output.element)
                if _tensors.is_torch(output.like)
                else tensor.dtype
            )
            for output, tensor in zip(outputs.values(), checked.tensors)
        )
    plan.options = options
    _cache.cache.keep_plan(kernel, key, plan)
    return checked.tensors


def compile(
    *,
    head_dim: int,
    value_dim: Optional[int] = None,
    dtype: Any = "f16",
    k_dtype: Any = None,
    v_dtype: Any = None,
    out_dtype: Any = None,
    mask: Optional[Mask] = None,
    scale: Optional[float] = None,
    align: _module.Align = "bottom_right",
    layout: _module.KernelLayout = "bhsd",
    return_lse: bool = False,
    schedule: Optional[_module.Schedule] = None,
    chip: Optional[str] = None,
    device: Union[None, int, str] = None,
    rows: _module.Rows = "dense",
    tuned: bool = True,
    softcap: Optional[float] = None,
    score_mod: Optional[_trace.ScoreMod] = None,
    aux_tensors: Optional[Sequence[Any]] = None,
    queries: Optional[int] = None,
    page_size: Optional[int] = None,
    **operands: Any,
) -> Kernel:
    """Compiles an attention kernel ahead of time and returns it.

    Args:
      head_dim: D, the number of elements of a query or key row.
      value_dim: Dv, the number of elements of a value or output row; D by default.
      dtype: the type of q, k and v: f16, bf16, f32, float8_e4m3fn or float8_e5m2, as text or as a dtype of NumPy or
        PyTorch.
      k_dtype, v_dtype: the types of k and v if they have 8 bits and another type than q: "float8_e4m3fn",
        "float8_e5m2" or "int8".
      out_dtype: the type of o: that of q, or f32. With q of 8 bits, bf16 (the default), f16 or f32.
      mask, align, layout, return_lse, schedule: as in `flashattn.attention`. Of the tensors of a mask, only the shapes
        count here: in a dimension of size 1, each launch passes tensors of size 1. Each launch passes a mask with the
        tensors to read.
      scale: the default scale of launches; it is not compiled in.
      chip: "cpu", "sm_80", "sm_90a" and so on; by default the chip of `device`. If this machine lacks
        the chip, the texts of the kernel can be read, but it cannot be launched.
      device: the number of the CUDA device; by default the first one, or the CPU if there is none.
        "model:sm_90a" and so on select a model of that GPU, as in `flashattn.attention`.
      rows: "dense" for contiguous tensors, "aligned" for any strides with rows that begin at
        multiples of 16 bytes, "strided" for any strides whose last one is 1. `wgmma` and TMA on
        Hopper require "dense" or "aligned"; "strided" kernels use `mma.sync`.
      tuned: whether to use a schedule that the tuner found.
      softcap, score_mod: as in `flashattn.attention`.
      aux_tensors: the pairs (dtype, rank) of the tensors that score_mod reads and each launch passes.
      queries: Nq, if the kernel is to serve this number of queries only; by default it serves every
        number. With cu_seqlens_q, the most queries of a sequence, as in `max_seqlen_q`. On a GPU, a
        kernel for up to 16 queries is split-KV: several thread blocks share the keys, and the workspace
        for their partial outputs is allocated and freed in stream order. On the CPU, a kernel for few
        queries has a tile of as few rows.
      page_size: with `page_table=True`, the number of rows of a page, for tables of any number of columns. None
        is for tables of one column, whose entries are indices in k and v.
      operands: the operands of `flashattn.attention` that each launch passes, by name. For bias, a
        pair of its element type and its shape of 4 sizes, each of them 1 for a broadcast dimension
        and None otherwise: `bias=("bf16", (1, None, None, None))`. If `rows` is "aligned",
        the rows of the bias also begin at multiples of 16 bytes. For attn_mask, such a shape. For k_scale and
        v_scale, such a shape in the order of the layout, but with the number of scales of a row at its end:
        `k_scale=(None, None, 1, 1)` for a scale of each sequence and head. For the other operands, True;
        `offsets=True` for an offset of each batch element.

    Raises:
      CompileError, UnsupportedError: with the compiler's diagnostic.
      LibraryError, DeviceError: the library or the device is missing.
    """
    element = _tensors.parse_element(getattr(dtype, "__name__", dtype))
    if element not in (*_module.FLOATS, "f8E4M3FN", "f8E5M2"):
        raise UnsupportedError(f"expected dtype f16, bf16, f32, f8E4M3FN or f8E5M2 but got {element}")
    k_element, v_element = (
        _parse_narrow(name, given, element) for name, given in (("k_dtype", k_dtype), ("v_dtype", v_dtype))
    )
    for name, value in (
        ("head_dim", head_dim), ("value_dim", value_dim), ("queries", queries), ("page_size", page_size),
    ):  # fmt: skip
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise ArgumentError(
                f"expected {name} to be an integer of at least 1 but got {_texts.show(value)}"
            )
        if value is not None and value >= 1 << 31:
            raise ArgumentError(f"expected {name} below 2147483648 but got {_texts.show(value)}")
    if rows not in _module.ROWS:
        raise ArgumentError(f"expected rows {', '.join(_module.ROWS)} but got {rows!r}")
    if isinstance(device, str):
        modelled = model_chip(device)
        if chip not in (None, modelled):
            raise ArgumentError(f"expected chip {modelled!r} or None for {device} but got {chip!r}")
        chip, device = modelled, DEVICE_MODEL
    if chip is not None and device is None and chip == "cpu":
        device = DEVICE_CPU
    if device is None:
        device = DEVICE_AUTO
    if chip is None and device == DEVICE_AUTO:
        device = 0 if _has_cuda() else DEVICE_CPU
    is_cpu = chip == "cpu" or (chip is None and device == DEVICE_CPU)
    _module.check_options(mask, align, layout, _module.KERNEL_LAYOUTS)
    operands = _features.given("compile", operands)
    _features.check_sequences(operands, layout)
    text = _aux.parse(score_mod, aux_tensors)
    if queries is not None and "cu_seqlens_k" in operands:
        raise ArgumentError(f"expected no queries with cu_seqlens_k but got {queries}")
    if page_size is not None and "page_table" not in operands:
        raise ArgumentError(f"expected page_table with page_size but got page_size {page_size} alone")
    symbols: _symbols.Symbols = ()
    if mask is not None and mask._symbols:
        symbols, mask = mask._symbols, mask._pattern
    problem = _module.Problem(
        element,
        head_dim,
        head_dim if value_dim is None else value_dim,
        mask,
        align,
        layout,
        bool(return_lse),
        _module.format_schedule(schedule, element, is_cpu),
        "strided" if is_cpu and rows == "aligned" else rows,
        softcap=_features.check_options(softcap),
        score_mod=text,
        queries=queries,
        page_size=page_size,
        o_element=_parse_output(out_dtype, element),
        k_element=k_element,
        v_element=v_element,
    )
    problem = problem._replace(operands=_features.parse_operands(operands, problem, symbols))
    if scale is not None:
        scale = _module.check_factor("scale", scale)
    return Kernel(problem, chip, device, tuned, scale=scale)


def _parse_narrow(name: str, dtype: Any, element: str) -> Optional[str]:
    """Returns `Problem.k_element` or `v_element`."""
    if dtype is None:
        return None
    found = _tensors.parse_element(getattr(dtype, "__name__", dtype))
    if found not in (*_tensors.NARROW, element):
        names = ", ".join(_tensors.NARROW.values())
        raise UnsupportedError(f"expected {name} {names} or None but got {found}")
    return None if found == element else found


def _parse_output(dtype: Any, element: str) -> Optional[str]:
    """Returns `Problem.o_element`."""
    is_narrow = element in _tensors.NARROW
    if dtype is None:
        return "bf16" if is_narrow else None
    found = _tensors.parse_element(getattr(dtype, "__name__", dtype))
    allowed = _module.FLOATS if is_narrow else tuple(dict.fromkeys((element, "f32")))
    if found not in allowed:
        raise UnsupportedError(f"expected out_dtype {', '.join(allowed)} or None but got {found}")
    return None if found == element else found


def _with_aux(
    given: Mapping[str, Any], symbols: _symbols.Symbols, score_mod: Optional[str], aux_tensors: Sequence[Any]
) -> Dict[str, Any]:
    """Returns the operands of a launch with the symbols of its mask and the auxiliary tensors, in the order of the
    kernel's arguments."""
    offset = {name: value for name, value in given.items() if name == "offset"}
    others = {name: value for name, value in given.items() if name != "offset"}
    return {**others, **dict(symbols), **_aux.select(score_mod, aux_tensors), **offset}


def _has_cuda() -> bool:
    try:
        return _library.get().device_count() > 0
    except DeviceError:
        return False
