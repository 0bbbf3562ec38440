"""Plans: kernels with the C structures that describe tensors as they were in an earlier call.

A call with tensors of the same kind, sizes and strides as an earlier one finds its *plan*. What is
left of such a call is to find the plan, to allocate the outputs and one call into the library, which
checks what addresses decide: alignment, and that outputs share no memory with anything. A call in
full is checked here, forward and backward alike.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _cache, _features, _kernel, _library, _module, _tensors, _torch
from ._checks import ALIGNMENT, Sizes, check_inputs, check_output, device_name, normalize
from ._library import DEVICE_CPU, Role
from ._tensors import View
from .errors import ArgumentError

WORD = (1 << 64) - 1  #: bits of what stands for an argument in a launch


class Plan:
    """A kernel with arguments that need only addresses. Never changes once it is in use."""

    __slots__ = (
        "kernel", "library", "device", "launch", "launch_head", "pack", "pack_matched", "tensors",
        "options", "shapes", "like", "is_empty", "scale_bits",
    )  # fmt: skip

    def __init__(
        self,
        kernel: _kernel.Kernel,
        values: Sequence[Union[View, int]],
        shapes: Sequence[Tuple[int, ...]],
    ):
        """`values` are the function's arguments in their order but for the last one, the scale; an
        integer for a scalar. `shapes` are those of the outputs."""
        #: None in a plan that the kernel itself keeps.
        self.kernel: Optional[_kernel.Kernel] = kernel
        self.library = kernel._library
        device = next(view.device for view in values if isinstance(view, View))
        #: Where the memory of tensors is: for a model on the host.
        self.device = DEVICE_CPU if isinstance(device, str) else device
        self.scale_bits = kernel._scale_bits  #: for who brings no scale
        self.launch = kernel._library.launch
        self.shapes = tuple(shapes)
        self.is_empty = all(0 in shape for shape in shapes)
        #: What the outputs are made of: what `torch.empty_like` takes, or types of NumPy.
        self.like: Tuple[Any, ...] = ()
        #: The caller's.
        self.options: Any = None
        count = len(values) + 1
        # A match looks at five, of which the last may be missing.
        self.tensors = (_library.Tensor * max(5, count))()
        self.launch_head = _library.launch_head(kernel._handle, self.tensors, count)
        self.pack, self.pack_matched = _library.packers(count)
        for tensor, view in zip(self.tensors, values):
            if isinstance(view, int):  # a scalar, which each launch brings
                continue
            rank = len(view.shape)
            tensor.rank, tensor.elementType = rank, _library.ELEMENT_TYPES[view.element]
            tensor.sizes[:rank] = view.shape
            tensor.strides[:rank] = view.strides

    def start(self, stream: int, words: List[int]) -> None:
        """Launches with what stands for the arguments: addresses, and the 64 bits of scalars."""
        if self.is_empty:
            return
        status = self.launch(self.launch_head + self.pack(0, stream, *words))
        if status:
            self.library.fail(status)


def words_of(values: Sequence[Union[View, int]]) -> List[int]:
    """What stands for arguments in a packed launch: addresses, and the 64 bits of a scalar."""
    return [value.pointer if isinstance(value, View) else value & WORD for value in values]


class _Fields(tuple):
    """A mapping's items, which a plan can be found by."""


def hashable(fields: Any) -> Any:
    """The fields of a schedule so that a plan can be found by them."""
    if not isinstance(fields, Mapping):
        return fields
    return _Fields((name, hashable(value)) for name, value in fields.items())


def mapping(fields: Any) -> Any:
    """What `hashable` made it of."""
    if not isinstance(fields, _Fields):
        return fields
    return {name: mapping(value) for name, value in fields}


#: Of type Any, for a caller knows what plans are kept by its options.
Found = Tuple[Any, Any, List[int]]


def find_numpy(tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, Plan]) -> Found:
    """The plan of arrays and scalars; its key, by which it can be kept; and the words of a launch but
    for the scale."""
    key: List[Any] = [options]
    words: List[int] = []
    bits = 0
    for t in tensors:
        kind = t.__class__
        if kind is int:
            key.append(kind)
            words.append(t & WORD)
            continue
        if kind is not numpy.ndarray:
            return None, None, words
        at, is_read_only = t.__array_interface__["data"]
        words.append(at)
        bits |= at
        key += t.dtype, t.shape, t.strides, is_read_only
    # Addresses enter by their alignment only.
    key.append(bits & (ALIGNMENT - 1))
    found = tuple(key)
    try:
        return plans.get(found), found, words
    except TypeError:  # what cannot be hashed is refused by name
        return None, None, words


def find_torch(
    tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, Plan], records: bool = False
) -> Found:
    """The same of tensors of torch. Each attribute read costs the host about 0.1 us. `records`: the
    caller sees to what torch has to record."""
    key: List[Any] = [options]
    words: List[int] = []
    if _torch.forward_ad._current_level >= 0:
        return None, None, words  # a tangent is refused by name
    try:
        for t in tensors:
            kind = t.__class__
            if kind is int:
                key.append(kind)
                words.append(t & WORD)
                continue
            if kind is not _torch.Tensor or (
                t.requires_grad and not records and _torch.grad_enabled()
            ):
                return None, None, words
            at = t.data_ptr()
            if not at and t.is_meta:
                return None, None, words
            words.append(at)
            key += t.dtype, t.shape, t.stride(), t.get_device(), t.is_cuda, at & (ALIGNMENT - 1)
        found = tuple(key)
        return plans.get(found), found, words
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None, None, words  # what cannot be hashed or has no address is refused by name


class Call(NamedTuple):
    """The inputs of a call in full, checked."""

    op: str
    q: Any
    views: Dict[str, View]
    roles: Dict[str, Role]
    sizes: Sizes
    extras: _features.Extras
    bf16_bits: bool


class Output(NamedTuple):
    """An output of a call."""

    tensor: Any  #: the caller's, None where one has to be made
    shape: Tuple[int, ...]
    element: str
    like: Any  #: of whose library one is made, and of its type where `element` is not f32


def is_bf16(dtype: Any) -> bool:
    """Whether arrays of uint16 hold the bits of bf16, as an argument says."""
    if dtype is None:
        return False
    if _tensors.parse_element(getattr(dtype, "__name__", dtype)) != "bf16":
        raise ArgumentError(f"expected dtype bf16 or None but got {dtype!r}")
    return True


def check_call(
    op: str,
    tensors: Dict[str, Any],
    operands: Mapping[str, Any],
    layout: str,
    bf16_bits: bool,
    compiled: Optional[_module.Problem] = None,
    has_gradient: bool = False,
    device: Union[None, int, str] = None,
) -> Call:
    """Rule R1 for what is known at run time of `tensors`, the inputs that no call leaves out, q the
    first of them, and of `operands`. `device` is as of `_tensors.view`; the rest as of
    `_features.check`."""
    views = {n: _tensors.view(n, tensor, bf16_bits, device) for n, tensor in tensors.items()}
    if isinstance(device, str) and views["q"].device != device:
        raise ArgumentError(
            f"expected 'q' in host memory for {device} but got {device_name(views['q'].device)}"
        )
    _torch.refuse_gradients(**tensors, **operands)
    roles = {role.name: role for role in _library.get().roles(op)}
    sizes = check_inputs(views, roles, layout)
    q = views["q"]
    extras = _features.check(operands, q, sizes, bf16_bits, compiled, op, has_gradient)
    return Call(op, tensors["q"], views, roles, sizes, extras, bf16_bits)


def output_of(call: Call, name: str, tensor: Any) -> Output:
    """An output whose shape the sizes of q, k and v say."""
    role = call.roles[name]
    element = call.views["q"].element if role.like_first else role.elements[0]
    return Output(tensor, call.sizes.shape(role), element, call.q)


class _Checked(NamedTuple):
    """The outputs of a call."""

    tensors: Tuple[Any, ...]
    views: Dict[str, View]
    values: Tuple[
        Union[View, int], ...
    ]  #: all arguments in the function's order, but for the scale
    gradients: Tuple[_module.Operand, ...]
    rows: str


def check_outputs(call: Call, outputs: Mapping[str, Output]) -> _Checked:
    """Makes the outputs that are not there and checks the others. Raises ArgumentError."""
    q, tensors, views = call.views["q"], [], dict(call.views)
    for name, output in outputs.items():
        tensor, element = output.tensor, output.element
        if tensor is None:
            tensor = _tensors.empty_like(name, q, output.like, output.shape, element)
        view = _tensors.view(name, tensor, call.bf16_bits and element != "f32", q.device)
        check_output(call.roles[name], view, output.shape, element, q)
        tensors.append(tensor)
        views[name] = view
    views, rows = normalize(views, call.roles)
    gradients = []
    for name in filter(outputs.__contains__, _module.GRADIENTS):
        views[name], operand = _features.settle_gradient(call.roles[name], views[name])
        gradients.append(operand)
    inputs, made = ([views[name] for name in names] for names in (call.views, outputs))
    if call.op == "attention":
        values = (*inputs, *made, *call.extras.values)
    else:
        values = (*inputs, *call.extras.values, *made)
    return _Checked(tuple(tensors), views, values, tuple(gradients), rows)


def problem_of(
    call: Call, checked: _Checked, *, schedule: Any, queries: Optional[int] = None, **fields: Any
) -> _module.Problem:
    """What is compiled for a call. `fields` are those of the problem that the tensors do not say."""
    view, sizes = call.views["q"], call.sizes
    is_cpu = view.device == DEVICE_CPU
    problem = _module.Problem(
        view.element,
        sizes["D"],
        sizes["V"],
        schedule=_kernel.format_schedule(mapping(schedule), view.element, is_cpu),
        rows=checked.rows,
        heads=_module.grouped_heads(sizes["H"], sizes["G"], queries, is_cpu),
        queries=queries,
        operands=call.extras.operands + checked.gradients,
        op=call.op,
        **fields,
    )
    return _module.canonicalize(problem, is_cpu)


def run(
    call: Call,
    outputs: Mapping[str, Output],
    plan_type: Any,
    key: Any,
    options: Any,
    stream: Any,
    scale_bits: Optional[int],
    *,
    schedule: Any,
    **fields: Any,
) -> Tuple[Any, ...]:
    """Compiles, where it has to, and launches; gives the outputs. With a `key`, the next call like
    it finds the plan with `options`, of `plan_type`. `fields` are as of `problem_of`."""
    view = call.views["q"]
    checked = check_outputs(call, outputs)
    problem = problem_of(call, checked, schedule=schedule, **fields)
    kernel = _kernel.cached(problem, view.device)
    plan = plan_type(kernel, checked.values, [output.shape for output in outputs.values()])
    if stream is None:
        stream = _torch.stream_of(call.q, view)
    else:
        stream = _tensors.stream_pointer(stream)
    plan.start(
        stream, [*words_of(checked.values), plan.scale_bits if scale_bits is None else scale_bits]
    )
    if key is None:
        return checked.tensors
    if all(output.tensor is None for output in outputs.values()):
        # What libraries allocate is aligned; a plan without out= counts on it.
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
