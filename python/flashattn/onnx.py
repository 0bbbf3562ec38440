"""ONNX's `Attention` of opsets 23, 24 and 25: a backend, and a custom op for ONNX Runtime::

    rep = flashattn.onnx.prepare(model)        # an onnx.backend.base.BackendRep
    y, = rep.run([q, k, v])

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(flashattn.onnx.custom_op_library())
    session = onnxruntime.InferenceSession(
        flashattn.onnx.use_custom_op(model).SerializeToString(), options
    )

The backend computes `Attention` with the kernels of flashattn, and every other operator with
`onnx.reference`. The backend and the custom op run on the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import numbers
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    checker,
    defs,
    helper,
    shape_inference,
)
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.onnx_cpp2py_export.checker import CheckerContext
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from . import _library
from .errors import ArgumentError, LibraryError, UnsupportedError

#: The domain of the custom op. Its name is the same as in ONNX.
DOMAIN = "flashattn"
OP_TYPE = "Attention"
_ONNX_DOMAINS = ("", "ai.onnx")

_LIBRARY_NAME = "libFlashAttnONNX.so"
_NUM_INPUTS = 7
_MAX_RANK = 4  #: kMaxRank of lib/ONNX/Attention.h
_MESSAGE_BYTES = 1 << 16


class _Tensor(ctypes.Structure):
    """The struct `Tensor` of lib/ONNX/Attention.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * _MAX_RANK),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
    ]


_Allocate = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
)


class _OutputMemory(ctypes.Structure):
    """The struct `OutputMemory` of lib/ONNX/Attention.h."""

    _fields_ = [("allocate", _Allocate), ("user", ctypes.c_void_p)]


def custom_op_library() -> str:
    """Returns the path of the library for `SessionOptions.register_custom_ops_library` of onnxruntime.
    The library provides the op `Attention` of the domain `flashattn`, and is in the same folder as the
    C library. Raises LibraryError if the library is missing."""
    found = _library.find()
    path = found.with_name(_LIBRARY_NAME)
    if not path.is_file():
        raise LibraryError(f"expected {_LIBRARY_NAME} beside {found} but found none")
    return str(path)


@functools.lru_cache(maxsize=None)
def _attention_function() -> Any:
    _library.get()  # its errors name the cause
    try:
        function = ctypes.CDLL(custom_op_library()).flashattnOnnxAttention
    except (OSError, AttributeError) as error:
        raise LibraryError(f"cannot load {custom_op_library()}: {error}") from None
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    function.argtypes = [
        pointer, pointer, number, pointer, pointer, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    function.restype = number
    return function


def _tensor_of(array: numpy.ndarray) -> _Tensor:
    """Returns the descriptor of a contiguous array, which must outlive the descriptor."""
    tensor = _Tensor(data=array.ctypes.data, rank=array.ndim)
    tensor.type = helper.np_dtype_to_tensor_dtype(array.dtype)
    if array.ndim <= _MAX_RANK:
        tensor.sizes[: array.ndim] = array.shape
    return tensor


def _attend(
    inputs: Sequence[Optional[numpy.ndarray]],
    attributes: Mapping[str, Any],
    wanted: Sequence[bool],
) -> Tuple[numpy.ndarray, ...]:
    """Returns the outputs of a node, with an empty array for each output that is not wanted. Raises
    ArgumentError, UnsupportedError, CompileError."""
    if len(inputs) > _NUM_INPUTS:
        raise ArgumentError(f"expected at most {_NUM_INPUTS} inputs but got {len(inputs)}")
    for name, value in attributes.items():
        if not isinstance(value, numbers.Real):
            raise ArgumentError(f"expected attribute {name} to be a number but got {value!r}")
    arrays = [None if array is None else numpy.asarray(array, order="C") for array in inputs]
    tensors = [None if array is None else _tensor_of(array) for array in arrays]
    pointers = (ctypes.POINTER(_Tensor) * _NUM_INPUTS)(
        *(ctypes.POINTER(_Tensor)() if t is None else ctypes.pointer(t) for t in tensors)
    )
    outputs: List[numpy.ndarray] = [numpy.empty(0, numpy.float32) for _ in wanted]

    def allocate(user, index, sizes, rank, data):
        if index >= len(wanted) or not wanted[index]:
            return 0
        try:
            assert arrays[0] is not None
            outputs[index] = numpy.empty(sizes[:rank], arrays[0].dtype)
        except MemoryError:
            return -1
        data[0] = outputs[index].ctypes.data
        return 1

    names = (ctypes.c_char_p * len(attributes))(*(name.encode() for name in attributes))
    values = (ctypes.c_double * len(attributes))(*attributes.values())
    memory = _OutputMemory(_Allocate(allocate), None)
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    status = _attention_function()(
        names, values, len(attributes), pointers, ctypes.byref(memory), message, _MESSAGE_BYTES
    )
    if status:
        raise _library.exception_of(status)(message.value.decode(errors="replace"))
    return tuple(outputs)


class Attention(OpRun):
    """ONNX's `Attention`, for `onnx.reference.ReferenceEvaluator(model, new_ops=[Attention])`."""

    op_domain = ""

    def _run(self, *inputs: Any, **attributes: Any) -> Tuple[numpy.ndarray, ...]:
        given = {name: value for name, value in attributes.items() if value is not None}
        # The first output, Y, is always computed.
        wanted = [True, *(name != "" for name in self.output[1:])]
        return _attend(inputs, given, wanted)


class _CustomAttention(Attention):
    """The custom op, so that the backend also runs models that `use_custom_op` rewrote."""

    op_domain = DOMAIN


# The evaluator looks up operators by their class names.
_CustomAttention.__name__ = OP_TYPE


class _Evaluator(ReferenceEvaluator):
    """onnx's evaluator with the ops of this module. onnx creates evaluators of the same class for subgraphs
    and functions, but passes `new_ops` only to the evaluators of subgraphs."""

    def __init__(self, proto: Any, **options: Any):
        super().__init__(proto, **{**options, "new_ops": [Attention, _CustomAttention]})


class AttentionRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: Union[ModelProto, NodeProto], **options: Any):
        self._evaluator = _Evaluator(model, **options)
        graph = model.graph if isinstance(model, ModelProto) else GraphProto()
        defaults = {tensor.name for tensor in graph.initializer}
        self._names = [name for name in self._evaluator.input_names if name]
        self._required = [name for name in self._names if name not in defaults]
        self._make_outputs = namedtupledict("Outputs", self._evaluator.output_names)

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """Runs the model and returns its outputs, as a tuple whose fields also have the outputs' names.

        Args:
          inputs: the arrays of the model's inputs that have no default, in order; or a mapping from names
            to arrays, which may also contain inputs that have a default.
          kwargs: must be empty.

        Raises:
          ArgumentError: a wrong number of inputs, wrong names, or inputs that the operator refuses.
          UnsupportedError: a type that no kernel supports.
        """
        if kwargs:
            raise ArgumentError(f"expected no options but got {', '.join(sorted(kwargs))}")
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
            if set(feeds) - set(self._names) or set(self._required) - set(feeds):
                raise ArgumentError(
                    f"expected inputs {', '.join(self._required)} but got {', '.join(feeds)}"
                )
        else:
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) != len(self._required):
                raise ArgumentError(
                    f"expected {len(self._required)} inputs ({', '.join(self._required)}) but got "
                    f"{len(given)}"
                )
            feeds = dict(zip(self._required, given))
        return self._make_outputs(*self._evaluator.run(None, feeds))


class AttentionBackend(Backend):
    """An `onnx.backend.base.Backend` for models with `Attention` and any other operators."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> AttentionRep:
        """Checks a model and returns it ready to run. Raises UnsupportedError for a device other than
        the CPU, and onnx.checker.ValidationError for a model that breaks ONNX's rules."""
        if not cls.supports_device(device):
            raise UnsupportedError(f"expected device CPU but got {device}")
        checker.check_model(model)
        return AttentionRep(model)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> Tuple[Any, ...]:
        """Runs one node of ONNX's newest opset, or of `opset_version`, and returns its outputs. `inputs`
        holds the arrays of the inputs that the node has, without gaps for omitted inputs. An omitted output
        is an empty array. Raises the errors of `prepare` and `run`."""
        if not cls.supports_device(device):
            raise UnsupportedError(f"expected device CPU but got {device}")
        version = kwargs.pop("opset_version", defs.onnx_opset_version())
        if node.domain in _ONNX_DOMAINS:
            super().run_node(node, inputs, device, outputs_info, opset_version=version)
        return AttentionRep(node, opsets={node.domain: version}).run(inputs, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


is_compatible = AttentionBackend.is_compatible
prepare = AttentionBackend.prepare
run_model = AttentionBackend.run_model
run_node = AttentionBackend.run_node
supports_device = AttentionBackend.supports_device


def _all_nodes(nodes: Any) -> Iterator[NodeProto]:
    """Yields the nodes, including the nodes of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            graphs: List[GraphProto] = list(attribute.graphs)
            if attribute.type == AttributeProto.GRAPH:
                graphs.append(attribute.g)
            for graph in graphs:
                yield from _all_nodes(graph.node)


def _rewrite(owner: Any, nodes: Any, check: Callable[[NodeProto], None]) -> int:
    """Replaces the `Attention` nodes of a model or a function by the custom op. Returns their number."""
    found = 0
    for node in _all_nodes(nodes):
        if node.op_type == OP_TYPE and node.domain in _ONNX_DOMAINS:
            check(node)
            node.domain = DOMAIN
            found += 1
    if found and not any(entry.domain == DOMAIN for entry in owner.opset_import):
        owner.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return found


def use_custom_op(model: ModelProto) -> ModelProto:
    """Returns a copy of the model in which every `Attention` node is the custom op, including nodes in
    subgraphs and functions. Weights in external files need not be loaded.

    The copy states the types that ONNX infers for its values, because ONNX Runtime before 1.20 infers no
    types after a custom op that leaves out inputs.

    Raises:
      ArgumentError: the model does not contain ONNX's `Attention`.
      onnx.checker.ValidationError: an `Attention` node, or a function with one, breaks ONNX's rules.
    """
    rewritten = shape_inference.infer_shapes(model)
    context = CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}
    found = _rewrite(
        rewritten, rewritten.graph.node, lambda node: checker.check_node(node, context)
    )
    for function in rewritten.functions:
        # The nodes may refer to attributes of the function, so they cannot be checked one by one.
        checker.check_function(function, context)
        found += _rewrite(function, function.node, lambda node: None)
    if found == 0:
        raise ArgumentError(
            f"expected a model with {OP_TYPE} of ONNX but got none; attention of other domains, and "
            "attention that an exporter has decomposed, are left as they are"
        )
    return rewritten
