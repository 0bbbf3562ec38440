"""Plans: kernels with the C structures that describe the tensors of an earlier call.

A call whose tensors have the same type, sizes and strides as those of an earlier call uses that call's
*plan*. Such a call only finds the plan, allocates the outputs and calls the library once. The library
checks the properties that depend on addresses: alignment, and that outputs share no memory with other
tensors. A full call, which has no plan, is checked here, for both forward and backward passes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from numpy import ndarray

from . import _features, _library, _module, _options, _pages, _tensors, _torch
from ._checks import (
    ALIGNMENT, Sizes, check_inputs, check_output, device_name, normalize, with_batch,
)  # fmt: skip
from ._library import DEVICE_CPU, PAGE, Role
from ._options import AttentionOptions
from ._tensors import View
from .errors import ArgumentError

WORD = (1 << 64) - 1  #: mask of the 64-bit word of an argument in a launch


class Plan:
    """A kernel with arguments that lack only their addresses. A plan in use does not change."""

    __slots__ = (
        "kernel", "library", "device", "launch", "launch_head", "pack", "pack_matched", "tensors",
        "options", "shapes", "like", "is_empty", "scale_bits", "starts",
        "pages",
    )  # fmt: skip

    def __init__(
        self,
        kernel: Any,
        values: Sequence[Union[View, int]],
        shapes: Sequence[Tuple[int, ...]],
    ):
        """`values` are the function's arguments in order, except for the last one, the scale. Scalars are
        integers. `shapes` are the shapes of the outputs."""
        #: The `_kernel.Kernel`; None in a plan that the kernel itself keeps.
        self.kernel = kernel
        self.library = kernel._library
        device = next(view.device for view in values if isinstance(view, View))
        #: The device of the tensors' memory; the CPU for a model.
        self.device = DEVICE_CPU if isinstance(device, str) else device
        self.scale_bits = kernel._scale_bits  #: the scale of a call without a scale
        #: The starts whose values each call checks (rule S2): the index of the argument, its name, the number of
        #: starts, the number of rows, and the most rows of a sequence. On a GPU, the host reads none.
        self.starts: Tuple[Tuple[int, str, int, int, Optional[int]], ...] = ()
        if self.device == DEVICE_CPU:
            self.starts = _starts_among(kernel.problem, values)
        #: The check of the page table at each call (rule P2). On a GPU, the host reads no entry.
        self.pages: Optional[_pages.PageCheck] = None
        if self.device == DEVICE_CPU and kernel.problem.operand("page_table"):
            self.pages = _pages.PageCheck(kernel.problem, values)
        self.launch = kernel._library.launch
        self.shapes = tuple(shapes)
        self.is_empty = all(0 in shape for shape in shapes)
        #: Templates of the outputs: arguments of `torch.empty_like`, or types of NumPy.
        self.like: Tuple[Any, ...] = ()
        #: The options of the calls that may use the plan.
        self.options: Any = None
        count = len(values) + 1
        # A match reads five tensors, of which the last may be unused.
        self.tensors = (_library.Tensor * max(5, count))()
        self.launch_head = _library.launch_head(kernel._handle, self.tensors, count)
        self.pack, self.pack_matched = _library.packers(count)
        for tensor, view in zip(self.tensors, values):
            if isinstance(view, int):  # a scalar, which each launch passes
                continue
            rank = len(view.shape)
            tensor.rank, tensor.elementType = rank, _library.ELEMENT_TYPES[view.element]
            tensor.sizes[:rank] = view.shape
            tensor.strides[:rank] = view.strides

    def start(self, stream: int, words: List[int]) -> None:
        """Launches the kernel. `words` are the addresses of the arguments, and the 64 bits of scalars."""
        for index, *starts in self.starts:
            _features.check_starts(words[index], *starts)
        if self.is_empty:
            return
        if self.pages is not None:
            self.pages.check(words)
        status = self.launch(self.launch_head + self.pack(0, stream, *words))
        if status:
            self.library.fail(status)


def _starts_among(
    problem: _module.Problem, values: Sequence[Union[View, int]]
) -> Tuple[Tuple[int, str, int, int, Optional[int]], ...]:
    # Forward passes end with the operands. Backward passes begin with six tensors.
    first = 6 if problem.op != "attention" else len(values) - len(problem.operands)
    found = []
    for index, operand in enumerate(problem.operands, first):
        if operand.name in _module.STARTS:
            is_queries = operand.name == "cu_seqlens_q"
            starts, rows = values[index], values[0 if is_queries else 1]
            assert isinstance(starts, View) and isinstance(rows, View)
            length = rows.shape[2 if problem.layout == "bhsd" else 1]
            most = problem.queries if is_queries else None
            found.append((index, operand.name, starts.shape[0], length, most))
    return tuple(found)


def words_of(values: Sequence[Union[View, int]]) -> List[int]:
    """Returns the words of the arguments in a packed launch: addresses, and the 64 bits of scalars."""
    return [value.pointer if isinstance(value, View) else value & WORD for value in values]


#: The plan, its key and words. The plan is Any, because its type depends on the caller's options.
Found = Tuple[Any, Any, List[int]]


def find_numpy(tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, Plan]) -> Found:
    """Returns the plan for NumPy arrays and scalars, its key, and the words of a launch except for the scale. The
    plan is None if there is none, and the key is None if the call cannot have a plan."""
    key: List[Any] = [options]
    words: List[int] = []
    bits = 0
    for t in tensors:
        if t.__class__ is ndarray:
            at, is_read_only = t.__array_interface__["data"]
            words.append(at)
            bits |= at
            key += t.dtype, t.shape, t.strides, is_read_only
        elif t.__class__ is int:
            key.append(int)
            words.append(t & WORD)
        else:
            return None, None, words
    # Only the alignment of addresses is in the key.
    key.append(bits & (ALIGNMENT - 1))
    found = tuple(key)
    try:
        return plans.get(found), found, words
    except TypeError:  # not hashable: the full call reports which argument
        return None, None, words


def find_torch(
    tensors: Tuple[Any, ...], options: Any, plans: Mapping[Any, Plan], records: bool = False
) -> Found:
    """Returns the same for PyTorch tensors. Each attribute that is read takes the host about 0.1 us. `records`:
    the caller records the call for autograd, so tensors may require gradients."""
    key: List[Any] = [options]
    words: List[int] = []
    if _torch.forward_ad._current_level >= 0:
        return None, None, words  # the full call reports which tensor has a tangent
    kind = _torch.Tensor
    try:
        for t in tensors:
            if t.__class__ is kind:
                at = t.data_ptr()
                if t.requires_grad and not records and _torch.grad_enabled() or not at and t.is_meta:
                    return None, None, words
                words.append(at)
                key += t.dtype, t.shape, t.stride(), t.get_device(), t.is_cuda, at & (ALIGNMENT - 1)
            elif t.__class__ is int:
                key.append(int)
                words.append(t & WORD)
            else:
                return None, None, words
        found = tuple(key)
        return plans.get(found), found, words
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None, None, words  # not hashable, or no address: the full call reports which argument


class Call(NamedTuple):
    """The checked inputs of a full call."""

    op: str
    q: Any
    views: Dict[str, View]
    roles: Dict[str, Role]
    sizes: Sizes
    extras: _features.Extras
    bf16_bits: bool
    layout: str  #: that of the caller's tensors


class Output(NamedTuple):
    """An output of a call."""

    tensor: Any  #: the caller's tensor; None if it has to be allocated
    shape: Tuple[int, ...]
    element: str
    like: Any  #: a tensor of the same library, and of the same type unless `element` is f32, or it has 8 bits
    others: Tuple[str, ...] = ()  #: other types that the caller's tensor may have


def is_bf16(dtype: Any) -> bool:
    """Returns whether `dtype` states that uint16 arrays hold the bits of bf16. Raises ArgumentError."""
    if dtype is None:
        return False
    if _tensors.parse_element(getattr(dtype, "__name__", dtype)) != "bf16":
        raise ArgumentError(f"expected dtype bf16 or None but got {dtype!r}")
    return True


def check_call(
    op: str,
    tensors: Dict[str, Any],
    operands: Mapping[str, Any],
    options: AttentionOptions,
    compiled: Optional[_module.Problem] = None,
) -> Call:
    """Checks rule R1 at run time for `tensors`, the required inputs with q first, and for `operands`. `compiled` is
    the problem of the kernel, if it is known."""
    device, bf16_bits = options.model, is_bf16(options.dtype)
    views = {n: _tensors.view(n, tensor, bf16_bits, device) for n, tensor in tensors.items()}
    if isinstance(device, str) and views["q"].device != device:
        raise ArgumentError(
            f"expected 'q' in host memory for {device} but got {device_name(views['q'].device)}"
        )
    _torch.refuse_gradients(**tensors, **operands)
    layout, names = options.layout, [name for name in operands if operands[name] is not None]
    _features.check_sequences(names, layout)
    score_mod = compiled.score_mod if compiled else options.score_mod
    roles = _features.roles_with(names, op, score_mod)
    sizes = check_inputs(views, roles, layout)
    q = views["q"]
    has_gradient = "d_bias" in options.gradients
    elements = {name: views[name].element for name in "kv"}
    extras = _features.check(
        operands, q, sizes, bf16_bits, compiled, op, has_gradient, layout, score_mod, elements
    )
    return Call(op, tensors["q"], views, roles, sizes, extras, bf16_bits, layout)


def output_of(call: Call, name: str, tensor: Any) -> Output:
    """Returns an output, whose shape follows from the sizes of q, k and v."""
    role = call.roles[name]
    element = call.views["q"].element if role.like_first else role.elements[0]
    others = ("f32",) if role.or_f32 and element != "f32" else ()
    if element in _tensors.NARROW:  # rule F3
        element, others = "bf16", ("f16", "f32")
    return Output(tensor, call.sizes.shape(role), element, call.q, others)


class _Checked(NamedTuple):
    """The outputs of a call, and the values of all arguments. Views are those that the kernel reads."""

    tensors: Tuple[Any, ...]
    views: Dict[str, View]
    values: Tuple[
        Union[View, int], ...
    ]  #: all arguments in the function's order, except for the scale
    gradients: Tuple[_module.Operand, ...]
    rows: str


def check_outputs(call: Call, outputs: Mapping[str, Output]) -> _Checked:
    """Allocates the outputs that the caller did not pass, and checks all. Raises ArgumentError."""
    q, tensors, views = call.views["q"], [], dict(call.views)
    for name, output in outputs.items():
        tensor, element = output.tensor, output.element
        if tensor is None:
            tensor = _tensors.empty_like(name, q, output.like, output.shape, element)
        view = _tensors.view(name, tensor, call.bf16_bits and element != "f32", q.device)
        elements = (element, *output.others)
        check_output(call.roles[name], view, output.shape, elements, q)
        tensors.append(tensor)
        views[name] = view
    views = {name: with_batch(call.roles[name], view, call.layout) for name, view in views.items()}
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


def _page_size(call: Call, is_invariant: bool) -> Optional[int]:
    """Returns `Problem.page_size`."""
    # The size of a table must not decide which kernel is used (rule S8).
    is_paged = call.roles["k"].is_pool and (call.sizes["T"] != 1 or is_invariant)
    return call.sizes[PAGE] if is_paged else None


#: The options that are compiled in as they are.
_COMPILED = ("mask", "align", "softcap", "score_mod")


def problem_of(call: Call, checked: _Checked, options: AttentionOptions) -> _module.Problem:
    """Returns the problem of a call."""
    view, sizes = call.views["q"], call.sizes
    is_cpu, is_forward = view.device == DEVICE_CPU, call.op == "attention"
    queries = None
    if is_forward and options.schedule is None:
        # The number of packed queries is not that of a sequence.
        most = options.max_seqlen_q if call.roles["q"].is_packed else sizes["N"]
        # The longest sequence must not decide which kernel computes another one (rule S8). A GPU has a kernel for
        # the sequences with one query anyway.
        if options.invariant and call.roles["q"].is_packed and (is_cpu or most != 1):
            most = None
        queries = _module.few_queries(most or 0, is_cpu)
    o_element, k_element, v_element = (
        None if checked.views[name].element == view.element else checked.views[name].element for name in "okv"
    )
    problem = _module.Problem(
        view.element,
        sizes["D"],
        sizes["V"],
        layout="bhsd" if call.layout == "bhsd" else "bshd",
        lse=is_forward and "lse" in checked.views,
        schedule=_module.format_schedule(_options.mapping(options.schedule), view.element, is_cpu),
        rows=checked.rows,
        heads=_module.grouped_heads(sizes["H"], sizes["G"], queries, is_cpu),
        queries=queries,
        operands=call.extras.operands + checked.gradients,
        op=call.op,
        deterministic=options.deterministic and not is_forward,
        invariant=options.invariant and is_forward,
        page_size=_page_size(call, options.invariant),
        o_element=o_element,
        k_element=k_element,
        v_element=v_element,
        **{name: getattr(options, name) for name in _COMPILED},
    )
    return _module.canonicalize(problem, is_cpu)
