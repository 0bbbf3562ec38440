"""Launches of kernels that `flashattn.compile` returned. Each kernel stores its own plans."""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple, Union

import numpy

from . import _cache, _features, _kernel, _module, _options, _plans, _tensors, _torch
from ._checks import device_name
from ._tensors import View
from .errors import ArgumentError, UnsupportedError


def launch_kernel(
    kernel: _kernel.Kernel,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    scale: Any,
    stream: Any,
    operands: Mapping[str, Any],
) -> None:
    """Implements `Kernel.launch`."""
    bits = kernel._scale_bits if scale is None else _module.scale_bits(scale)
    names, values = _features.normalize(operands) if operands else ((), ())
    tensors = (q, k, v, out, *values) if lse is None else (q, k, v, out, lse, *values)
    kind = type(q)
    plan, key = None, None
    words: List[int] = []
    if kind is numpy.ndarray:
        plan, key, words = _plans.find_numpy(tensors, (names, lse is None), kernel._plans)
    elif kind is _torch.Tensor:
        plan, key, words = _plans.find_torch(tensors, (names, lse is None), kernel._plans)
    if plan is not None:
        plan.start(_torch.stream_or(stream, plan.device), [*words, bits])
        return
    plan, checked = _plan_of(kernel, q, k, v, out, lse, dict(zip(names, values)))
    if stream is None:
        stream = _torch.stream_of(q, checked[0])
    else:
        stream = _tensors.stream_pointer(stream)
    plan.start(stream, [*_plans.words_of(checked), bits])
    if key is not None:
        plan.kernel = None  # avoids a reference cycle, because the kernel keeps the plan
        if len(kernel._plans) >= _cache.MAX_PLANS:
            kernel._plans.clear()
        kernel._plans[key] = plan


def measure_workspace(
    kernel: _kernel.Kernel, q: Any, k: Any, v: Any, out: Any, lse: Any, operands: Mapping[str, Any]
) -> int:
    """Implements `Kernel.get_workspace_bytes`."""
    names, values = _features.normalize(operands)
    plan, checked = _plan_of(kernel, q, k, v, out, lse, dict(zip(names, values)))
    if plan.is_empty:
        return 0
    words = [*_plans.words_of(checked), kernel._scale_bits]
    for tensor, word in zip(plan.tensors, words):
        tensor.scalar = word  # ignored unless the argument is a scalar
    return kernel._library.workspace(kernel._handle, plan.tensors, len(words))


def _plan_of(
    kernel: _kernel.Kernel, q: Any, k: Any, v: Any, out: Any, lse: Any, operands: Mapping[str, Any]
) -> Tuple[_plans.Plan, Tuple[Union[View, int], ...]]:
    """Checks the tensors. Returns a new plan of the kernel, and the values of its arguments."""
    _torch.detect_torch()
    if not kernel.is_launchable:
        raise UnsupportedError(
            f"the kernel cannot be launched: {kernel._info.not_launchable_reason}"
        )
    problem = kernel.problem
    if problem.lse and lse is None:
        raise ArgumentError("expected lse for a kernel with return_lse but got None")
    if not problem.lse and lse is not None:
        raise ArgumentError("expected no lse for a kernel without return_lse but got one")
    options = _options.AttentionOptions(
        layout=problem.layout,
        model=kernel.device if isinstance(kernel.device, str) else None,
        dtype="bf16" if problem.element == "bf16" else None,
    )
    call = _plans.check_call("attention", {"q": q, "k": k, "v": v}, operands, options, problem)
    sizes, found = call.sizes, call.views["q"]
    for name, width, size in (
        ("D", problem.d, sizes["D"]),
        ("Dv", problem.dv, sizes["V"]),
        ("Nq", problem.queries, sizes["N"]),
    ):
        if width is not None and width != size:
            raise ArgumentError(f"expected {name} to be {width}, as compiled, but got {size}")
    if found.element != problem.element:
        raise ArgumentError(
            f"expected element type {problem.element}, as compiled, but got {found.element}"
        )
    if found.device != kernel.device:
        raise ArgumentError(
            f"expected tensors on {device_name(kernel.device)}, as compiled, but got "
            f"{device_name(found.device)}"
        )
    given = {"o": out} if lse is None else {"o": out, "lse": lse}
    outputs = {name: _plans.output_of(call, name, tensor) for name, tensor in given.items()}
    checked = _plans.check_outputs(call, outputs)
    if _module.ROWS.index(checked.rows) > _module.ROWS.index(problem.rows):
        raise ArgumentError(
            f"expected {problem.rows} rows, as compiled, but got {checked.rows} rows"
        )
    shapes = [output.shape for output in outputs.values()]
    return _plans.Plan(kernel, checked.values, shapes), checked.values
